/* SPDX-License-Identifier: MIT */
/* The options of a load: slices, another dtype, replicas, memory of the caller's, digests, the
 * shape of reads, and the bytes that stay in the page cache. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/support/load-support.h"

#define ROWS 96
#define COLUMNS 640
#define N_DEVICES 3

static char path[512];
static float weights[ROWS * COLUMNS];
static unsigned char bytes[100001];
static hoist_device *devices[N_DEVICES]; /* cpu, cuda:0, cuda:1 */

/* A file of @weights as "w" and @bytes as "b" and "e", which is empty, by hand. */
static void write_file(const char *metadata)
{
	char header[4096];
	uint64_t n = (uint64_t)snprintf(
		header, sizeof header,
		"{%s\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
		"\"e\":{\"dtype\":\"U8\",\"shape\":[0,3],\"data_offsets\":[%zu,%zu]},"
		"\"b\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
		metadata, ROWS, COLUMNS, sizeof weights, sizeof weights, sizeof weights,
		sizeof bytes, sizeof weights, sizeof weights + sizeof bytes);
	FILE *file = fopen(path, "we");
	CHECK(file != NULL && n < sizeof header);
	CHECK(fwrite(&n, 8, 1, file) == 1 && fwrite(header, n, 1, file) == 1);
	CHECK(fwrite(weights, sizeof weights, 1, file) == 1);
	CHECK(fwrite(bytes, sizeof bytes, 1, file) == 1);
	CHECK(fflush(file) == 0 && fsync(fileno(file)) == 0);
	OK(posix_fadvise(fileno(file), 0, 0, POSIX_FADV_DONTNEED));
	OK(fclose(file));
}

static hoist_load *load_with(const hoist_load_options *options)
{
	return support_load(path, options);
}

static void fails_with(const hoist_load_options *options, int err, const char *piece)
{
	hoist_checkpoint *checkpoint = support_open(path);
	support_load_fails(checkpoint, options, err, piece);
	hoist_checkpoint_close(checkpoint);
}

static void *take_out(hoist_buffer *buffer, size_t *n)
{
	*n = hoist_buffer_bytes(buffer);
	void *out = malloc(*n + 1);
	CHECK(out != NULL && hoist_buffer_copy_out(buffer, out, *n) == 0);
	hoist_buffer_unref(buffer);
	return out;
}

static void *named(hoist_load *load, const char *name, size_t *n)
{
	hoist_buffer *buffer;
	OK(hoist_load_buffer(load, name, &buffer));
	return take_out(buffer, n);
}

/* --- slices and dtypes --- */

static float bf16_to_f32(uint16_t code)
{
	uint32_t bits = (uint32_t)code << 16;
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* Rows [r0, r1) and columns [c0, c1) of "w". */
static void check_part(const hoist_load_options *o, int r0, int r1, int c0, int c1)
{
	hoist_load *load = load_with(o);
	size_t n;
	unsigned char *out = named(load, "w", &n);
	size_t item = o->dtype == HOIST_BF16 ? 2 : 4;
	CHECK(n == (size_t)(r1 - r0) * (size_t)(c1 - c0) * item);
	for (int r = r0; r < r1; r++)
		for (int c = c0; c < c1; c++) {
			size_t i = (size_t)(r - r0) * (size_t)(c1 - c0) + (size_t)(c - c0);
			float is;
			if (item == 2) {
				uint16_t code;
				memcpy(&code, out + 2 * i, 2);
				is = bf16_to_f32(code);
			} else {
				memcpy(&is, out + 4 * i, 4);
			}
			if (is != weights[r * COLUMNS + c])
				fprintf(stderr, "[%d, %d] of %s as %d is %g, not %g\n", r, c,
					o->device != NULL ? hoist_device_spec(o->device) : "cpu",
					(int)o->dtype, (double)is,
					(double)weights[r * COLUMNS + c]);
			CHECK(is == weights[r * COLUMNS + c]);
		}
	free(out);
	unsigned char *rest = named(load, "b", &n);
	CHECK(n == sizeof bytes && memcmp(rest, bytes, n) == 0);
	free(rest);
	hoist_load_destroy(load);
}

static void parts_of_tensors(void)
{
	write_file("");
	for (int d = 0; d < N_DEVICES; d++)
		for (int narrow = 0; narrow < 2; narrow++) {
			hoist_load_slice slices[2] = {
				{.tensor = "w", .axis = 0, .rank = 1, .n_ranks = 3},
				{.tensor = "[w]",
				 .axis = -1,
				 .begin = -630,
				 .end = HOIST_SLICE_END},
			};
			hoist_load_options o = {.size = sizeof o,
						.device = devices[d],
						.dtype = narrow ? HOIST_BF16 : 0,
						.slices = slices};
			check_part(&o, 0, ROWS, 0, COLUMNS);
			o.n_slices = 1;
			check_part(&o, 32, 64, 0, COLUMNS);
			o.n_slices = 2;
			check_part(&o, 32, 64, 10, COLUMNS);
			slices[1].end = 11;
			check_part(&o, 32, 64, 10, 11);
			o.slices = slices + 1;
			o.n_slices = 1;
			o.budget = NULL;
			OK(hoist_budget_create(128 << 10, &o.budget));
			check_part(&o, 0, ROWS, 10, 11);
			hoist_budget_unref(o.budget);
		}
	static const struct {
		enum hoist_map map;
		unsigned flags;
	} maps[] = {{HOIST_MAP_COPY_ON_WRITE, 0},
		    {HOIST_MAP_READ_ONLY, HOIST_LOAD_POPULATE},
		    {HOIST_MAP_READ_WRITE, 0}};
	for (size_t m = 0; m < sizeof maps / sizeof maps[0]; m++) {
		const hoist_load_slice slices[2] = {
			{.tensor = "w", .axis = 1, .begin = 10, .end = 13},
			{.tensor = "w", .axis = 0, .rank = 2, .n_ranks = 3}};
		hoist_load_options o = {.size = sizeof o,
					.io = HOIST_IO_MAP,
					.map = maps[m].map,
					.flags = maps[m].flags,
					.slices = slices};
		check_part(&o, 0, ROWS, 0, COLUMNS);
		o.n_slices = 1;
		check_part(&o, 0, ROWS, 10, 13);
		o.n_slices = 2;
		check_part(&o, 64, 96, 10, 13);
		o.dtype = HOIST_F16;
		fails_with(&o, -ENOTSUP, "cannot be converted");
	}
	hoist_load_slice wrong = {.tensor = "w", .rank = 0, .n_ranks = 5};
	const hoist_load_options o = {.size = sizeof o, .slices = &wrong, .n_slices = 1};
	fails_with(&o, -EINVAL, "[96, 640]");
	wrong = (hoist_load_slice){.tensor = "no*", .n_ranks = 1};
	fails_with(&o, -ENOENT, "no*");
	wrong = (hoist_load_slice){.tensor = NULL, .n_ranks = 1};
	fails_with(&o, -EINVAL, "number 0 names no tensor");
}

/* Rows that lie far apart are read alone, many of them into one slot. */
static void rows_far_apart(void)
{
	enum { FAR_ROWS = 200, FAR_COLUMNS = 17 * 4096 };
	char header[256];
	snprintf(header, sizeof header,
		 "{\"f\":{\"dtype\":\"U8\",\"shape\":[%d,%d],"
		 "\"data_offsets\":[0,%d]}}",
		 FAR_ROWS, FAR_COLUMNS, FAR_ROWS * FAR_COLUMNS);
	unsigned char *far = malloc((size_t)FAR_ROWS * FAR_COLUMNS);
	CHECK(far != NULL);
	for (size_t i = 0; i < (size_t)FAR_ROWS * FAR_COLUMNS; i++)
		far[i] = (unsigned char)(i * 13 + i / 65521);
	support_put_safetensors(path, header, far, (size_t)FAR_ROWS * FAR_COLUMNS);
	const hoist_load_slice slice = {.tensor = "f", .axis = 1, .begin = 30000, .end = 33000};
	for (int d = 0; d < N_DEVICES; d++)
		for (int hot = 0; hot < 2; hot++)
			for (unsigned depth = 0; depth < 8; depth += 7) {
				const hoist_load_options o = {
					.size = sizeof o,
					.device = devices[d],
					.depth = depth,
					.engine = depth == 7 ? HOIST_ENGINE_THREADS : 0,
					.flags = hot ? 0 : HOIST_LOAD_DROP_CACHE,
					.slices = &slice,
					.n_slices = 1};
				hoist_load *load = load_with(&o);
				size_t bytes_out;
				hoist_load_report report = support_report(load);
				CHECK(report.direct_bytes + report.cached_bytes <=
				      FAR_ROWS * (3000 + 2 * 4096));
				CHECK(report.n_copies < FAR_ROWS);
				unsigned char *out = named(load, "f", &bytes_out);
				CHECK(bytes_out == FAR_ROWS * 3000);
				for (size_t r = 0; r < FAR_ROWS; r++)
					CHECK(memcmp(out + r * 3000, far + r * FAR_COLUMNS + 30000,
						     3000) == 0);
				free(out);
				hoist_load_destroy(load);
			}
	free(far);
}

/* --- replicas --- */

static void replicas_get_the_same(void)
{
	write_file("");
	support_reset("cuda");
	const hoist_load_options o = {.size = sizeof o,
				      .device = devices[1],
				      .replicas = &devices[2],
				      .n_replicas = 1,
				      .chunk_bytes = 64 << 10};
	hoist_load *load = load_with(&o);
	hoist_load_report report = support_report(load);
	CHECK(report.direct_bytes + report.cached_bytes < report.bytes + 3 * 4096);
	CHECK(report.n_copies >= 2 * (report.bytes / (64 << 10)));
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		hoist_buffer *there;
		hoist_buffer *here;
		size_t n;
		size_t m;
		OK(hoist_load_replica(load, 0, i, &there));
		OK(hoist_load_tensor(load, i, NULL, &here));
		CHECK(hoist_buffer_device(there) == devices[2]);
		CHECK(hoist_buffer_device(here) == devices[1]);
		void *a = take_out(there, &n);
		void *b = take_out(here, &m);
		CHECK(n == m && memcmp(a, b, n) == 0);
		CHECK(n != sizeof bytes || memcmp(a, bytes, n) == 0);
		free(a);
		free(b);
	}
	hoist_buffer *none = NULL;
	CHECK(hoist_load_replica(load, 1, 0, &none) == -EINVAL && none == NULL);
	CHECK(hoist_load_replica(load, SIZE_MAX, 0, &none) == -EINVAL && none == NULL);
	CHECK(hoist_load_replica(load, 0, 9, &none) == -EINVAL && none == NULL);
	hoist_load_destroy(load);
	CHECK(support_counters("cuda").pageable_copies == 0);

	hoist_load_options wrong = o;
	wrong.replicas = &devices[0];
	fails_with(&wrong, -ENOTSUP, "replica 0 on cpu");
	wrong.replicas = &devices[1];
	fails_with(&wrong, -EINVAL, "goes to that device already");
	wrong.replicas = NULL;
	fails_with(&wrong, -EINVAL, "n_replicas is 1");
	wrong.n_replicas = 100;
	wrong.replicas = devices;
	fails_with(&wrong, -EINVAL, "100");
}

/* --- memory of the caller's --- */

static void goes_where_the_caller_says(void)
{
	write_file("");
	hoist_memory *pinned;
	const hoist_memory_options m = {
		.size = sizeof m, .kind = HOIST_MEMORY_PINNED, .device = devices[1]};
	OK(hoist_memory_create(&m, &pinned));
	hoist_load_options o = {.size = sizeof o, .memory = pinned};
	hoist_load *load = load_with(&o);
	hoist_buffer *buffer;
	OK(hoist_load_buffer(load, "b", &buffer));
	CHECK(hoist_buffer_is_pinned(buffer) == 1);
	CHECK(memcmp(hoist_buffer_data(buffer), bytes, sizeof bytes) == 0);
	hoist_buffer_unref(buffer);
	hoist_load_destroy(load);
	hoist_memory *far;
	const hoist_memory_options f = {
		.size = sizeof f, .kind = HOIST_MEMORY_DEVICE, .device = devices[1]};
	OK(hoist_memory_create(&f, &far));
	o.memory = far;
	fails_with(&o, -EINVAL, "cannot address the memory of");
	o.device = devices[2];
	fails_with(&o, -EINVAL, "has memory of cuda:0");
	hoist_memory_unref(far);
	hoist_memory_unref(pinned);
}

/* --- digests --- */

static void to_hex(const void *data, size_t n, char *text)
{
	XXH128_canonical_t digest;
	XXH128_canonicalFromHash(&digest, XXH3_128bits(data, n));
	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", digest.digest[i]);
}

/* Metadata with the digests of "w", "e", "b": the order of their bytes. */
static void with_digests(char *metadata, size_t room)
{
	char hex[3][33];
	to_hex(weights, sizeof weights, hex[0]);
	to_hex("", 0, hex[1]);
	to_hex(bytes, sizeof bytes, hex[2]);
	CHECK(snprintf(metadata, room, "\"__metadata__\":{\"hoist.xxh3_128\":\"%s%s%s\"},", hex[0],
		       hex[1], hex[2]) < (int)room);
}

static void check_digests(hoist_load *load)
{
	static const char *const names[] = {"w", "e", "b"};
	const void *data[] = {weights, "", bytes};
	const size_t sizes[] = {sizeof weights, 0, sizeof bytes};
	for (size_t i = 0; i < 3; i++) {
		unsigned char digest[16];
		char is[33];
		char should[33];
		OK(hoist_load_digest(load, i, digest));
		for (int k = 0; k < 16; k++)
			snprintf(is + 2 * k, 3, "%02x", digest[k]);
		to_hex(data[i], sizes[i], should);
		if (strcmp(is, should) != 0)
			fprintf(stderr, "%s: %s is not %s\n", names[i], is, should);
		CHECK(strcmp(is, should) == 0);
	}
	unsigned char digest[16];
	CHECK(hoist_load_digest(load, 3, digest) == -EINVAL);
}

/* The checkpoint gives the digests of "w", "e", "b"; or @err and a text with @piece. */
static void checkpoint_tells_digests(int err, const char *piece)
{
	hoist_checkpoint *checkpoint = support_open(path);
	unsigned char digest[16];
	for (size_t i = 0; i < 3; i++) {
		CHECK(hoist_checkpoint_digest(checkpoint, i, digest) == err);
		CHECK(err == 0 || strstr(hoist_error(), piece) != NULL);
	}
	CHECK(hoist_checkpoint_digest(checkpoint, 3, digest) == -EINVAL);
	const hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_DIGEST};
	hoist_load *load = support_load(path, &o);
	for (size_t i = 0; err == 0 && i < 3; i++) {
		unsigned char made[16];
		OK(hoist_load_digest(load, i, made));
		OK(hoist_checkpoint_digest(checkpoint, i, digest));
		CHECK(memcmp(made, digest, sizeof made) == 0);
	}
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
}

static void digests_are_made_and_compared(void)
{
	char metadata[256];
	with_digests(metadata, sizeof metadata);
	write_file(metadata);
	checkpoint_tells_digests(0, "");
	hoist_load_options o = {.size = sizeof o, .depth = 5, .chunk_bytes = 16 << 10};
	for (int d = 0; d < N_DEVICES; d++)
		for (int threads = 0; threads < 2; threads++)
			for (int converts = 0; converts < 2; converts++) {
				o.device = devices[d];
				o.engine = threads ? HOIST_ENGINE_THREADS : HOIST_ENGINE_AUTO;
				o.dtype = converts ? HOIST_BF16 : 0;
				o.flags = HOIST_LOAD_DIGEST;
				hoist_load *load = load_with(&o);
				check_digests(load);
				hoist_load_destroy(load);
				o.flags = HOIST_LOAD_VERIFY;
				load = load_with(&o);
				check_digests(load);
				hoist_load_destroy(load);
			}
	bytes[77777] ^= 4;
	write_file(metadata);
	for (int d = 0; d < N_DEVICES; d++) {
		o.device = devices[d];
		fails_with(&o, -EBADMSG, "tensor \"b\"");
	}
	bytes[77777] ^= 4;
	const char *const one[] = {"w"};
	o.tensors = one;
	o.n_tensors = 1;
	hoist_load_destroy(load_with(&o)); /* the damaged one is not asked for */
	o.tensors = NULL;
	o.n_tensors = 0;

	metadata[sizeof "\"__metadata__\":{\"hoist.xxh3_128\":\"" - 1] = 'X';
	write_file(metadata);
	fails_with(&o, -ENODATA, "hexadecimal");
	checkpoint_tells_digests(-ENODATA, "hexadecimal");
	write_file("");
	fails_with(&o, -ENODATA, "holds no digests");
	checkpoint_tells_digests(-ENODATA, "holds no digests");
	o.flags = 0;
	hoist_load *load = load_with(&o);
	unsigned char digest[16];
	CHECK(hoist_load_digest(load, 0, digest) == -EINVAL);
	hoist_load_destroy(load);
	o.flags = HOIST_LOAD_DIGEST;
	o.io = HOIST_IO_MAP;
	o.device = devices[0];
	o.dtype = 0;
	fails_with(&o, -EINVAL, "maps");
}

/* --- the page cache, and the shape of reads --- */

static uint64_t cached_of(const hoist_load_options *o)
{
	hoist_load *load = load_with(o);
	uint64_t cached = support_report(load).cached_bytes;
	hoist_load_destroy(load);
	return cached;
}

/* How many bytes of the file the next load finds in the cache tells what the one before left. */
static void the_page_cache_is_left(void)
{
	write_file("");
	const hoist_load_options look = {.size = sizeof look};
	hoist_load_options o = {.size = sizeof o, .io = HOIST_IO_CACHED};
	uint64_t direct_here = cached_of(&look);
	if (direct_here > 4096) {
		printf("the page cache is not looked at: no direct reads, or pages stay here\n");
		return;
	}
	CHECK(cached_of(&o) >= sizeof weights + sizeof bytes);
	CHECK(cached_of(&look) >= sizeof weights); /* CACHED left them */
	o.flags = HOIST_LOAD_DROP_CACHE;
	CHECK(cached_of(&o) >= sizeof weights + sizeof bytes);
	CHECK(cached_of(&look) <= 4096);
}

static void shapes_of_reads(void)
{
	static const struct {
		size_t chunk_bytes;
		unsigned depth;
	} shapes[] = {{4096, 1},	{4096, 200},	{64 << 10, 3},
		      {64 << 10, 4096}, {128 << 20, 2}, {64 << 10, 8}};
	write_file("");
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
		for (int d = 0; d < 2; d++) {
			const hoist_load_options o = {.size = sizeof o,
						      .device = devices[d],
						      .chunk_bytes = shapes[s].chunk_bytes,
						      .depth = shapes[s].depth};
			check_part(&o, 0, ROWS, 0, COLUMNS);
		}
	hoist_load_options wrong = {.size = sizeof wrong, .chunk_bytes = 5000};
	fails_with(&wrong, -EINVAL, "chunk_bytes is 5000");
	wrong = (hoist_load_options){.size = sizeof wrong, .depth = 5000};
	fails_with(&wrong, -EINVAL, "depth is 5000");
	wrong = (hoist_load_options){.size = sizeof wrong, .flags = 1u << 20};
	fails_with(&wrong, -EINVAL, "0x100000");
}

int main(void)
{
	support_emulate("cuda:2");
	const char *const specs[N_DEVICES] = {"cpu", "cuda:0", "cuda:1"};
	for (int d = 0; d < N_DEVICES; d++)
		OK(hoist_device_open(specs[d], &devices[d]));
	snprintf(path, sizeof path, "%s/o.safetensors", support_folder());
	/* Values that bf16 has. */
	for (size_t i = 0; i < ROWS * COLUMNS; i++)
		weights[i] = (float)(i % 251) - 125;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	parts_of_tensors();
	rows_far_apart();
	replicas_get_the_same();
	goes_where_the_caller_says();
	digests_are_made_and_compared();
	the_page_cache_is_left();
	shapes_of_reads();
	CHECK(support_counters("cuda").use_after_free == 0);
	for (int d = 0; d < N_DEVICES; d++)
		hoist_device_unref(devices[d]);
	support_cleanup();
	return 0;
}
