/* SPDX-License-Identifier: MIT */
/* Several targets of one load: the files are read once, whatever each target takes of them. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tests/support/load-support.h"

enum { RANKS = 8, ROWS = 256, COLUMNS = 8 * 2500, NORM = 4000 };

static hoist_device *devices[RANKS];
static hoist_device *cpu;
static uint16_t *halves; /* the matrix, and the norm behind it: positive f16, not subnormal */

static hoist_checkpoint *write_matrix(void)
{
	const size_t n = (size_t)ROWS * COLUMNS + NORM;
	char header[256];
	halves = malloc(n * 2);
	CHECK(halves != NULL);
	for (size_t i = 0; i < n; i++)
		halves[i] = (uint16_t)(0x400 + i * 2654435761u % 0x7800);
	snprintf(header, sizeof header,
		 "{\"m\":{\"dtype\":\"F16\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
		 "\"norm\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[%d,%zu]}}",
		 ROWS, COLUMNS, ROWS * COLUMNS * 2, NORM, ROWS * COLUMNS * 2, n * 2);
	support_put_safetensors("r.safetensors", header, halves, n * 2);
	return support_open("r.safetensors");
}

/* True if the value at @i is @half. */
static bool is_half(const void *bytes, hoist_dtype dtype, size_t i, uint16_t half)
{
	if (dtype == HOIST_F16)
		return ((const uint16_t *)bytes)[i] == half;
	/* The exponent's bias is 112 more, the fraction has 13 bits more. */
	return ((const uint32_t *)bytes)[i] == ((uint32_t)half << 13) + (112u << 23);
}

/* The columns of one of @n_ranks ranks, and the whole norm. */
static void compare_target(hoist_load *load, size_t target, size_t rank, size_t n_ranks,
			   const hoist_device *on, hoist_dtype dtype)
{
	const size_t wide = COLUMNS / n_ranks;
	const size_t item = dtype == HOIST_F32 ? 4 : 2;
	void *out = malloc(ROWS * wide * item);
	hoist_buffer *buffer = NULL;
	size_t n_bad = 0;
	size_t which = 9;
	CHECK(out != NULL && hoist_load_target_n_tensors(load, target) == 2);
	OK(hoist_load_target_tensor(load, target, 0, &which, &buffer));
	CHECK(which == 0 && hoist_buffer_dtype(buffer) == dtype);
	CHECK(hoist_buffer_device(buffer) == on);
	OK(hoist_buffer_copy_out(buffer, out, ROWS * wide * item));
	for (size_t r = 0; r < ROWS; r++)
		for (size_t c = 0; c < wide; c++)
			n_bad += !is_half(out, dtype, r * wide + c,
					  halves[r * COLUMNS + rank * wide + c]);
	hoist_buffer_unref(buffer);
	OK(hoist_load_target_tensor(load, target, 1, NULL, &buffer));
	OK(hoist_buffer_copy_out(buffer, out, NORM * item));
	for (size_t i = 0; i < NORM; i++)
		n_bad += !is_half(out, dtype, i, halves[(size_t)ROWS * COLUMNS + i]);
	CHECK(n_bad == 0);
	hoist_buffer_unref(buffer);
	free(out);
}

/* Eight devices with an eighth of the columns each, as they are and converted. */
static void ranks_share_every_read(void)
{
	hoist_checkpoint *checkpoint = write_matrix();
	const uint64_t file = ((uint64_t)ROWS * COLUMNS + NORM) * 2;
	for (int way = 0; way < 8; way++) {
		hoist_dtype dtype = way / 2 % 2 == 0 ? HOIST_DTYPE_INVALID : HOIST_F32;
		bool together = way >= 4; /* all ranks on one device */
		hoist_load_slice slices[RANKS];
		hoist_load_target targets[RANKS];
		const hoist_load_target *all[RANKS];
		for (int r = 0; r < RANKS; r++) {
			slices[r] = (hoist_load_slice){
				.tensor = "m", .axis = 1, .rank = r, .n_ranks = RANKS};
			targets[r] = (hoist_load_target){.size = sizeof targets[r],
							 .device = devices[together ? 0 : r],
							 .slices = &slices[r],
							 .n_slices = 1,
							 .dtype = dtype};
			all[r] = &targets[r];
		}
		const hoist_load_options o = {.size = sizeof o,
					      .targets = all,
					      .n_targets = RANKS,
					      .io = HOIST_IO_DIRECT,
					      .flags = HOIST_LOAD_CALLER_DRIVEN |
						       (way % 2 == 0 ? HOIST_LOAD_SPLIT : 0)};
		hoist_load *load = NULL;
		const long long before = (long long)support_counters("cuda").live_streams;
		OK(hoist_load_start(checkpoint, &o, &load));
		/* Those on one device share a stream. */
		CHECK((long long)support_counters("cuda").live_streams - before ==
		      (together ? 1 : RANKS));
		OK(hoist_load_wait(load));
		for (size_t r = 0; r < RANKS; r++)
			compare_target(load, r, r, RANKS, devices[together ? 0 : r],
				       dtype != 0 ? dtype : HOIST_F16);
		hoist_load_report report = support_report(load);
		CHECK(report.bytes == file);
		CHECK((report.direct_bytes + report.cached_bytes) * 100 <= file * 102);
		hoist_load_destroy(load);
	}
	free(halves);
	hoist_checkpoint_close(checkpoint);
}

/* --- the same bytes in several forms --- */

/* Each target has columns that others have, too, and some convert what others do not. */
static void forms_of_the_same_bytes_share_every_read(void)
{
	enum { MOST = 4 };
	static const struct form {
		int device; /* -1: the host */
		int rank, n_ranks;
		hoist_dtype dtype;
	} rows[][MOST] = {
		{{0, 0, 1, HOIST_F16}, {1, 0, 1, HOIST_F32}},
		{{0, 0, 1, HOIST_F32}, {1, 0, 2, HOIST_F32}, {2, 1, 2, HOIST_F16}},
		{{0, 1, 4, HOIST_F32}, {0, 0, 2, HOIST_F32}, {0, 0, 1, HOIST_F16}},
		{{-1, 0, 1, HOIST_F32}, {1, 0, 1, HOIST_F16}, {2, 0, 1, HOIST_F32}},
		{{0, 0, 1, HOIST_F16},
		 {1, 2, 4, HOIST_F32},
		 {-1, 1, 2, HOIST_F16},
		 {3, 3, 4, HOIST_F32}},
	};
	static const size_t chunks[] = {0, 4096, 256 << 10};
	hoist_checkpoint *checkpoint = write_matrix();
	const uint64_t file = ((uint64_t)ROWS * COLUMNS + NORM) * 2;
	for (size_t i = 0; i < 3 * sizeof rows / sizeof rows[0]; i++) {
		const struct form *row = rows[i / 3];
		hoist_load_slice slices[MOST];
		hoist_load_target targets[MOST];
		const hoist_load_target *all[MOST];
		size_t n = 0;
		for (; n < MOST && row[n].n_ranks > 0; n++) {
			slices[n] = (hoist_load_slice){.tensor = "m",
						       .axis = 1,
						       .rank = row[n].rank,
						       .n_ranks = row[n].n_ranks};
			targets[n] = (hoist_load_target){
				.size = sizeof targets[n],
				.device = row[n].device < 0 ? cpu : devices[row[n].device],
				.slices = &slices[n],
				.n_slices = 1,
				.dtype = row[n].dtype};
			all[n] = &targets[n];
		}
		const hoist_load_options o = {.size = sizeof o,
					      .targets = all,
					      .n_targets = n,
					      .io = HOIST_IO_DIRECT,
					      .chunk_bytes = chunks[i % 3]};
		hoist_load *load = NULL;
		OK(hoist_load_start(checkpoint, &o, &load));
		OK(hoist_load_wait(load));
		for (size_t t = 0; t < n; t++)
			compare_target(load, t, (size_t)row[t].rank, (size_t)row[t].n_ranks,
				       targets[t].device, row[t].dtype);
		hoist_load_report report = support_report(load);
		CHECK((report.direct_bytes + report.cached_bytes) * 100 <= file * 102);
		hoist_load_destroy(load);
	}
	free(halves);
	hoist_checkpoint_close(checkpoint);
}

/* --- a device, the host, and digests of all that any of them has --- */

static void a_device_and_the_host_share_the_reads(void)
{
	static const size_t sizes[] = {100, 1 << 20, 70000, 3 << 20, 5};
	static const char *const few[] = {"t00000[13]"};
	support_write("m.safetensors", 0, 5, sizes, -1);
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_stream *stream = NULL;
	OK(hoist_stream_create(devices[1], &stream));
	const hoist_load_target here = {
		.size = sizeof here, .device = cpu, .tensors = few, .n_tensors = 1};
	const hoist_load_target there = {.size = sizeof there, .stream = stream};
	const hoist_load_target *const all[] = {&here, &there};
	const hoist_load_options o = {.size = sizeof o,
				      .targets = all,
				      .n_targets = 2,
				      .io = HOIST_IO_DIRECT,
				      .flags = HOIST_LOAD_DIGEST};
	hoist_load *load = NULL;
	hoist_load *plain = NULL;
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	OK(hoist_load_start(checkpoint, NULL, &plain));
	OK(hoist_load_wait(plain));
	CHECK(hoist_load_n_targets(load) == 2 && hoist_load_n_tensors(load) == 2);
	support_compare(checkpoint, load);
	for (size_t i = 0; i < 5; i++) {
		hoist_buffer *is = NULL;
		hoist_buffer *should = NULL;
		OK(hoist_load_target_tensor(load, 1, i, NULL, &is));
		OK(hoist_load_tensor(plain, i, NULL, &should));
		CHECK(hoist_buffer_device(is) == devices[1]);
		unsigned char *a = malloc(sizes[i]);
		unsigned char *b = malloc(sizes[i]);
		CHECK(a != NULL && b != NULL);
		OK(hoist_buffer_copy_out(is, a, sizes[i]));
		OK(hoist_buffer_copy_out(should, b, sizes[i]));
		CHECK(memcmp(a, b, sizes[i]) == 0);
		free(a);
		free(b);
		hoist_buffer_unref(is);
		hoist_buffer_unref(should);
	}
	unsigned char digest[16];
	OK(hoist_load_digest(load, 1, digest));
	CHECK(hoist_load_digest(load, 2, digest) == -EINVAL);
	hoist_load_report report = support_report(load);
	CHECK(report.direct_bytes + report.cached_bytes < report.bytes + 4 * 4096);
	CHECK(hoist_load_target_tensor(load, 2, 0, NULL, NULL) == -EINVAL);
	support_said("target 2: the load has 2");
	CHECK(hoist_load_replica(load, 0, 0, NULL) == -EINVAL);
	hoist_load_destroy(plain);
	hoist_load_destroy(load);
	hoist_stream_unref(stream);
	hoist_checkpoint_close(checkpoint);
}

/* --- refusals --- */

static void targets_that_are_refused(void)
{
	static const size_t sizes[] = {100};
	static const char *const names[] = {"t000000", NULL};
	static const hoist_load_slice slice = {.tensor = "t000000", .n_ranks = 1};
	hoist_device *hip = support_device("hip:0");
	support_write("m.safetensors", 0, 1, sizes, -1);
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	const hoist_load_target plain = {.size = sizeof plain, .device = devices[0]};
	const struct {
		hoist_load_target target;
		hoist_load_options o;
		int err;
		const char *text;
	} rows[] = {
		{plain, {.device = cpu}, -EINVAL, "leave these fields"},
		{plain, {.dtype = HOIST_F32}, -EINVAL, "leave these fields"},
		{plain, {.n_replicas = 1}, -EINVAL, "leave these fields"},
		{{.size = 0}, {.flags = 0}, -EINVAL, "hoist_load_target: the size field is 0"},
		{{.n_tensors = 1}, {.flags = 0}, -EINVAL, "targets[1]: n_tensors is 1"},
		{{.tensors = names, .n_tensors = 2}, {.flags = 0}, -EINVAL, "tensors[1] is NULL"},
		{{.slices = &slice, .n_slices = 1},
		 {.flags = HOIST_LOAD_DIGEST},
		 -EINVAL,
		 "targets[1]: digests are of whole tensors"},
		{{.device = hip}, {.flags = 0}, -ENOTSUP, "targets[1] is on hip:0, and another"},
		{{.dtype = HOIST_I32}, {.flags = 0}, -EINVAL, "cannot be converted to i32"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_load_target second = rows[i].target;
		const hoist_load_target *const all[] = {&plain, &second};
		hoist_load_options o = rows[i].o;
		o.size = sizeof o;
		o.targets = all;
		o.n_targets = 2;
		second.size = strstr(rows[i].text, "size field") != NULL ? 0 : sizeof second;
		support_load_fails(checkpoint, &o, rows[i].err, rows[i].text);
	}
	const hoist_load_target *const missing[17] = {&plain};
	hoist_load_options o = {.size = sizeof o, .targets = missing, .n_targets = 2};
	support_load_fails(checkpoint, &o, -EINVAL, "targets[1] is NULL");
	o.n_targets = 17;
	support_load_fails(checkpoint, &o, -EINVAL, "n_targets is 17; a load has at most 16");
	o.n_targets = 0;
	support_load_fails(checkpoint, &o, -EINVAL, "n_targets is 0");
	o.targets = NULL;
	o.n_targets = 1;
	support_load_fails(checkpoint, &o, -EINVAL, "targets is NULL");
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(hip);
}

int main(void)
{
	support_emulate("cuda:8,hip:1");
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	cpu = support_device("cpu");
	for (int d = 0; d < RANKS; d++) {
		char spec[16];
		snprintf(spec, sizeof spec, "cuda:%d", d);
		devices[d] = support_device(spec);
	}
	ranks_share_every_read();
	forms_of_the_same_bytes_share_every_read();
	a_device_and_the_host_share_the_reads();
	targets_that_are_refused();
	const struct hoist_emulator_counters seen = support_counters("cuda");
	CHECK(seen.use_after_free == 0 && seen.bad_frees == 0 && seen.pageable_copies == 0);
	for (int d = 0; d < RANKS; d++)
		hoist_device_unref(devices[d]);
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
