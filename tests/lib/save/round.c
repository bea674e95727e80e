/* SPDX-License-Identifier: MIT */
/* A saved file has the bytes that the save was given: every dtype, rank, stride and device, sizes
 * around every border, either engine, directly and cached, with budgets so small that blocks end
 * anywhere. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <hoist/layout.h>

#include "tests/support/save-support.h"
#include "tests/support/under-tsan.h"

static const char *const specs[] = {"cpu", "cuda:0", "cuda:1", "hip:0"};
#define N_DEVICES 4
static hoist_device *devices[N_DEVICES];

static unsigned char byte_at(size_t i, unsigned seed)
{
	return (unsigned char)(i * 7 + i / 251 * 3 + i / 65521 + seed * 31);
}

/* --- what is to be in the file --- */

#define MAX_TENSORS 2000
struct expected {
	char name[24];
	char dtype[16];
	char shape[64];
	unsigned char *bytes;
	size_t n;
};
static struct expected expected[MAX_TENSORS];
static size_t n_expected;

static void forget_expected(void)
{
	for (size_t i = 0; i < n_expected; i++)
		free(expected[i].bytes);
	n_expected = 0;
}

static void describe(const hoist_buffer *buffer, struct expected *e)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(hoist_buffer_dtype(buffer), &info));
	snprintf(e->dtype, sizeof e->dtype, "%s", info.safetensors);
	char *at = e->shape;
	e->shape[0] = '\0';
	for (int i = 0; i < hoist_buffer_rank(buffer); i++)
		at += sprintf(at, "%s%lld", i > 0 ? "," : "",
			      (long long)hoist_buffer_shape(buffer)[i]);
	snprintf(e->name, sizeof e->name, "t%zu", n_expected);
}

/* Element by element, bit by bit, from @base's bytes as byte_at() made them: @first is the bit
 * where the view's first element is. */
static void expect_view(const hoist_buffer *view, size_t bits, size_t first, unsigned seed)
{
	struct expected *e = &expected[n_expected];
	size_t n = hoist_buffer_elements(view);
	int rank = hoist_buffer_rank(view);
	int64_t index[8] = {0};
	describe(view, e);
	e->n = hoist_buffer_bytes(view);
	e->bytes = calloc(e->n + 1, 1);
	CHECK(e->bytes != NULL && e->n == (n * bits + 7) / 8);
	for (size_t i = 0; i < n; i++) {
		int64_t at = (int64_t)first;
		for (int k = 0; k < rank; k++)
			at += index[k] * hoist_buffer_strides(view)[k] * (int64_t)bits;
		for (size_t b = 0; b < bits; b += bits % 8 == 0 ? 8 : 1) {
			size_t from = (size_t)at + b;
			size_t to = i * bits + b;
			unsigned char byte = byte_at(from / 8, seed);
			if (bits % 8 == 0)
				e->bytes[to / 8] = byte;
			else if ((byte >> from % 8 & 1) != 0)
				e->bytes[to / 8] |= (unsigned char)(1u << to % 8);
		}
		for (int k = rank - 1; k >= 0 && ++index[k] == hoist_buffer_shape(view)[k]; k--)
			index[k] = 0;
	}
	n_expected++;
}

static void save_and_compare(hoist_save *save)
{
	const char *names[MAX_TENSORS];
	struct saved saved;
	OK(hoist_save_start(save));
	OK(hoist_save_wait(save));
	hoist_save_report report = {.size = sizeof report};
	OK(hoist_save_get_report(save, &report));
	CHECK(report.staging_peak_bytes <= report.budget_bytes);
	CHECK(report.n_tensors == n_expected && report.n_files == 1);
	CHECK(report.direct_bytes + report.cached_bytes == report.bytes);
	uint64_t done;
	uint64_t total;
	hoist_save_progress(save, &done, &total);
	CHECK(done == total && total == report.bytes);
	hoist_save_destroy(save);
	OK(saved_read(support_path("m.safetensors"), &saved));
	CHECK(saved.n == report.bytes);
	for (size_t i = 0; i < n_expected; i++) {
		const struct expected *e = &expected[i];
		names[i] = e->name;
		const unsigned char *got = saved_tensor(&saved, e->name, e->dtype, e->shape, e->n);
		if (memcmp(got, e->bytes, e->n) != 0) {
			size_t at = 0;
			while (got[at] == e->bytes[at])
				at++;
			fprintf(stderr, "%s (%s [%s]) differs at byte %zu of %zu\n", e->name,
				e->dtype, e->shape, at, e->n);
			exit(1);
		}
	}
	if (strstr(saved.header, "hoist.xxh3_128") != NULL)
		saved_check_digests(&saved, names, n_expected);
	saved_free(&saved);
	CHECK(saved_n_names() == 1);
	OK(unlink(support_path("m.safetensors")));
}

struct mode {
	enum hoist_engine engine;
	enum hoist_io io;
	size_t budget;
	unsigned flags;
};
static const struct mode modes[] = {
	{HOIST_ENGINE_AUTO, HOIST_IO_AUTO, 0, HOIST_SAVE_DIGEST},
	{HOIST_ENGINE_THREADS, HOIST_IO_DIRECT, 160 << 10, 0},
	{HOIST_ENGINE_AUTO, HOIST_IO_DIRECT, 1 << 20, HOIST_SAVE_DIGEST},
	{HOIST_ENGINE_THREADS, HOIST_IO_CACHED, 300 << 10, HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC},
};
#define N_MODES 4

static hoist_save *create(const struct mode *mode)
{
	hoist_save *save;
	hoist_budget *budget = NULL;
	if (mode->budget != 0)
		OK(hoist_budget_create(mode->budget, &budget));
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = mode->engine,
		.io = mode->io,
		.budget = budget,
		.flags = mode->flags,
	};
	OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
	hoist_budget_unref(budget);
	return save;
}

/* --- buffers --- */

static hoist_buffer *filled(hoist_device *device, unsigned flags, hoist_dtype dtype, int rank,
			    const int64_t *shape, unsigned seed)
{
	hoist_buffer *buffer;
	OK(hoist_buffer_create(device, dtype, rank, shape, flags, &buffer));
	size_t n = hoist_buffer_bytes(buffer);
	unsigned char *bytes = malloc(n + 1);
	CHECK(bytes != NULL);
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(i, seed);
	OK(hoist_buffer_write(buffer, 0, bytes, n));
	free(bytes);
	return buffer;
}

static void add(hoist_save *save, hoist_buffer *view, size_t bits, size_t first, unsigned seed)
{
	CHECK(n_expected < MAX_TENSORS);
	expect_view(view, bits, first, seed);
	OK(hoist_save_add(save, expected[n_expected - 1].name, view));
}

/* Whole, turned around, every second one, backwards, one row for many. */
static void add_views(hoist_save *save, hoist_device *device, unsigned flags, hoist_dtype dtype,
		      size_t bits, unsigned seed)
{
	static const int64_t shape[] = {6, 5, 8};
	static const int turned[] = {2, 0, 1};
	hoist_buffer *base = filled(device, flags, dtype, 3, shape, seed);
	hoist_buffer *view;
	add(save, base, bits, 0, seed);
	OK(hoist_buffer_permute(base, turned, &view));
	add(save, view, bits, 0, seed);
	hoist_buffer_unref(view);
	static const struct {
		int64_t shape[3];
		int64_t strides[3];
		int64_t first;
	} layouts[] = {
		{{3, 5, 4}, {80, 8, 2}, 1},	       /* every second one */
		{{6, 5, 8}, {-40, 8, -1}, 5 * 40 + 7}, /* backwards */
		{{4, 5, 8}, {0, 8, 1}, 40},	       /* one for all */
		{{2, 3, 4}, {120, 16, 2}, 40},
	};
	for (size_t i = 0; bits % 8 == 0 && i < sizeof layouts / sizeof layouts[0]; i++) {
		hoist_layout layout;
		OK(hoist_buffer_get_layout(base, &layout));
		layout.rank = 3;
		memcpy(layout.shape, layouts[i].shape, sizeof layouts[i].shape);
		memcpy(layout.strides, layouts[i].strides, sizeof layouts[i].strides);
		layout.offset = layouts[i].first;
		OK(hoist_buffer_with_layout(base, &layout, dtype, &view));
		add(save, view, bits, (size_t)layouts[i].first * bits, seed);
		hoist_buffer_unref(view);
	}
	hoist_buffer_unref(base);
}

static void dtypes_and_strides(const struct mode *mode)
{
	hoist_save *save = create(mode);
	for (int d = 0; d < 256; d++) {
		hoist_dtype_info info = {.size = sizeof info};
		if (hoist_dtype_get_info((hoist_dtype)d, &info) < 0 || info.safetensors == NULL)
			continue;
		for (int k = 0; k < N_DEVICES; k++)
			add_views(save, devices[k], 0, (hoist_dtype)d, info.bits,
				  (unsigned)(d + k));
		add_views(save, devices[1], HOIST_BUFFER_PINNED, (hoist_dtype)d, info.bits,
			  (unsigned)d + 9);
	}
	save_and_compare(save);
	forget_expected();
}

/* --- sizes --- */

static void sizes_and_ranks(const struct mode *mode)
{
	static const int64_t sizes[] = {0,	1,	 4095,	  4096, 4097,	 65535,
					131073, 1000003, 4194304, 3,	4194305, 5000001};
	hoist_save *save = create(mode);
	for (int k = 0; k < N_DEVICES; k++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			/* Large ones on another device in each mode. */
			if (sizes[i] > 1000000 && &modes[(k + (int)i) % N_DEVICES] != mode)
				continue;
			hoist_buffer *buffer = filled(devices[(k + (int)i) % N_DEVICES], 0,
						      HOIST_U8, 1, &sizes[i], (unsigned)i);
			add(save, buffer, 8, 0, (unsigned)i);
			hoist_buffer_unref(buffer);
		}
	int64_t shape[8] = {1, 2, 1, 3, 1, 1, 2, 1};
	for (int rank = 0; rank <= 8; rank++) {
		hoist_buffer *buffer =
			filled(devices[rank % N_DEVICES], 0, HOIST_BF16, rank, shape, 5);
		add(save, buffer, 16, 0, 5);
		hoist_buffer_unref(buffer);
	}
	/* A large one with strides, so that ranges of it begin and end within rows. */
	const int64_t wide[] = {300, 500};
	for (int k = 0; k < N_DEVICES; k++) {
		static const int turned[] = {1, 0};
		hoist_buffer *base = filled(devices[k], 0, HOIST_F32, 2, wide, 3);
		hoist_buffer *view;
		OK(hoist_buffer_permute(base, turned, &view));
		hoist_buffer_unref(base);
		add(save, view, 32, 0, 3);
		hoist_buffer_unref(view);
	}
	save_and_compare(save);
	forget_expected();
}

/* --- checkpoints --- */

static uint64_t random_state = 88172645463325252u;

static size_t random_below(size_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (size_t)(random_state % n);
}

/* The bytes of tensor @index, as pread gives them. */
static void expect_tensor(hoist_checkpoint *checkpoint, size_t index)
{
	hoist_tensor_info info = {.size = sizeof info};
	hoist_file_info file = {.size = sizeof file};
	struct expected *e = &expected[n_expected];
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	OK(hoist_checkpoint_file(checkpoint, info.file, &file));
	snprintf(e->name, sizeof e->name, "s%zu", n_expected++);
	snprintf(e->dtype, sizeof e->dtype, "U8");
	snprintf(e->shape, sizeof e->shape, "%llu", (unsigned long long)info.bytes);
	e->n = info.bytes;
	e->bytes = malloc(e->n + 1);
	FILE *f = fopen(file.path, "rb");
	CHECK(e->bytes != NULL && f != NULL && fseek(f, (long)info.offset, SEEK_SET) == 0);
	CHECK(fread(e->bytes, 1, e->n, f) == e->n);
	fclose(f);
}

/* In order, and out of it, between buffers, of two files, through holes that are left out. */
static void from_checkpoints(const struct mode *mode, bool shuffled)
{
	hoist_checkpoint *checkpoints[2];
	size_t sizes[300];
	for (size_t i = 0; i < 300; i++)
		sizes[i] = random_below(i % 13 == 0 ? 700000 : i % 5 == 0 ? 70000 : 300);
	support_write("a.safetensors", 0, 200, sizes, 4);
	support_write("b.safetensors", 200, 100, sizes + 200, 0);
	OK(hoist_checkpoint_open(support_path("a.safetensors"), 0, &checkpoints[0]));
	OK(hoist_checkpoint_open(support_path("b.safetensors"), 0, &checkpoints[1]));
	/* A tensor that was read stays readable. */
	CHECK(unlink(support_path("c.safetensors")) < 0);
	hoist_save *save = create(mode);
	const int64_t some = 777;
	hoist_buffer *buffer = filled(devices[1], 0, HOIST_U8, 1, &some, 1);
	for (size_t i = 0; i < 330; i++) {
		size_t t = shuffled ? random_below(300) : i;
		if (t >= 300 || i % 40 == 39) {
			add(save, buffer, 8, 0, 1);
			continue;
		}
		if (!shuffled && t % 17 == 16)
			continue;
		hoist_checkpoint *from = checkpoints[t >= 200];
		size_t index = t >= 200 ? t - 200 : t;
		expect_tensor(from, index);
		OK(hoist_save_add_tensor(save, expected[n_expected - 1].name, from, index));
	}
	hoist_checkpoint_close(checkpoints[0]);
	hoist_checkpoint_close(checkpoints[1]);
	hoist_buffer_unref(buffer);
	OK(unlink(support_path("a.safetensors")));
	OK(unlink(support_path("b.safetensors")));
	save_and_compare(save);
	forget_expected();
}

/* Over the very file that is read. */
static void onto_itself(void)
{
	const size_t sizes[] = {5000000, 3, 600000};
	hoist_checkpoint *checkpoint;
	support_write("m.safetensors", 0, 3, sizes, 12);
	OK(hoist_checkpoint_open(support_path("m.safetensors"), 0, &checkpoint));
	hoist_save *save = create(&modes[0]);
	for (size_t i = 0; i < 3; i++) {
		expect_tensor(checkpoint, 2 - i);
		OK(hoist_save_add_tensor(save, expected[i].name, checkpoint, 2 - i));
	}
	OK(hoist_save_metadata_of(save, checkpoint));
	save_and_compare(save);
	hoist_checkpoint_close(checkpoint);
	forget_expected();
}

/* --- many --- */

#define MANY 100000
static void many_tiny_ones(hoist_device *device)
{
	char name[16];
	const int64_t shape[] = {MANY * 20};
	const int64_t one[] = {20};
	hoist_buffer *arena = filled(device, 0, HOIST_U8, 1, shape, 2);
	hoist_save *save = create(&modes[0]);
	for (size_t i = 0; i < MANY; i++) {
		hoist_buffer *view;
		OK(hoist_buffer_view(arena, (MANY - 1 - i) * 20, HOIST_U8, 1, one, &view));
		snprintf(name, sizeof name, "n%06zu", i);
		OK(hoist_save_add(save, name, view));
		hoist_buffer_unref(view);
	}
	hoist_buffer_unref(arena);
	OK(saved_run(save));
	struct saved saved;
	OK(saved_read(support_path("m.safetensors"), &saved));
	CHECK(saved.n == saved.data + MANY * 20);
	for (size_t i = 0; i < MANY * 20; i++)
		CHECK(saved.bytes[saved.data + i] == byte_at((MANY - 1 - i / 20) * 20 + i % 20, 2));
	saved_free(&saved);
	OK(unlink(support_path("m.safetensors")));
}

int main(void)
{
	support_emulate("cuda:2,hip:1");
	for (int i = 0; i < N_DEVICES; i++)
		OK(hoist_device_open(specs[i], &devices[i]));
	/* ThreadSanitizer takes its time. */
	for (int m = 0; m < N_MODES; m += UNDER_TSAN ? 3 : 1) {
		if (m < 2)
			dtypes_and_strides(&modes[m]);
		sizes_and_ranks(&modes[m]);
		from_checkpoints(&modes[m], false);
		from_checkpoints(&modes[m], true);
	}
	onto_itself();
	many_tiny_ones(devices[UNDER_TSAN]);
	if (!UNDER_TSAN)
		many_tiny_ones(devices[1]);
	for (int i = 0; i < N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	support_cleanup();
	return 0;
}
