/* SPDX-License-Identifier: MIT */
/* Tensors of a checkpoint that are saved in another dtype, and in parts: the bytes are those that a
 * load with the same dtype and slices gives, with either engine, budgets that divide tensors
 * anywhere, in any order, beside other sources.  The memory does not follow the size of the model.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hoist/compat.h>

#include "tests/support/save-support.h"
#include "tests/support/under-tsan.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

static hoist_device *cpu;
static hoist_checkpoint *source;
static hoist_checkpoint *columns; /* a .npy file whose tensor lies in columns */

/* --- the source --- */

static const struct {
	const char *name;
	hoist_dtype dtype;
	int rank;
	int64_t shape[3];
} tensors[] = {
	{"scalar", HOIST_F32, 0, {0}},
	{"empty", HOIST_F16, 2, {0, 6}},
	{"small", HOIST_BF16, 1, {6}},
	{"vector", HOIST_F32, 1, {200002}},
	{"matrix", HOIST_F16, 2, {514, 778}},
	{"cube", HOIST_BF16, 3, {8, 300, 130}},
	{"wide", HOIST_F32, 2, {2, 300000}}, /* its rows are larger than small batches */
	{"ints", HOIST_I32, 2, {1000, 34}},
	{"bytes", HOIST_U8, 1, {70002}},
	{"nibbles", HOIST_F4_E2M1FN, 2, {300, 64}},
};
#define N_TENSORS ARRAY_SIZE(tensors)

/* Any bits: among the elements are infinities, NaNs and subnormals. */
static hoist_buffer *make_buffer(size_t t)
{
	hoist_buffer *buffer;
	OK(hoist_buffer_create(cpu, tensors[t].dtype, tensors[t].rank, tensors[t].shape, 0,
			       &buffer));
	size_t n = hoist_buffer_bytes(buffer);
	unsigned char *bytes = malloc(n + 1);
	CHECK(bytes != NULL);
	uint32_t x = 12345 + (uint32_t)t;
	for (size_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223;
		bytes[i] = (unsigned char)(x >> 24);
	}
	if (n > 0)
		OK(hoist_buffer_write(buffer, 0, bytes, n));
	free(bytes);
	return buffer;
}

static void make_source(void)
{
	hoist_save *save;
	OK(hoist_save_create(support_path("src.safetensors"), NULL, &save));
	for (size_t t = 0; t < N_TENSORS; t++) {
		hoist_buffer *buffer = make_buffer(t);
		OK(hoist_save_add(save, tensors[t].name, buffer));
		hoist_buffer_unref(buffer);
	}
	OK(saved_run(save));
	source = support_open("src.safetensors");

	char header[128];
	float numbers[111 * 500];
	FILE *file = fopen(support_path("columns.npy"), "wb");
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		numbers[i] = (float)i / 7;
	snprintf(header, sizeof header, "%-117s\n",
		 "{'descr': '<f4', 'fortran_order': True, 'shape': (111, 500), }");
	CHECK(file != NULL && fwrite("\223NUMPY\1\0\166\0", 1, 10, file) == 10 &&
	      fwrite(header, 1, 118, file) == 118 &&
	      fwrite(numbers, 1, sizeof numbers, file) == sizeof numbers && fclose(file) == 0);
	columns = support_open("columns.npy");
}

/* --- what is asked for --- */

struct asked {
	hoist_dtype dtype;
	hoist_load_slice slices[3];
	size_t n_slices;
	int least_rank; /* of tensors that have the slices */
};

#define PART(a, r, n)                                                                              \
	{                                                                                          \
		.axis = (a), .rank = (r), .n_ranks = (n)                                           \
	}
#define RANGE(a, b, e)                                                                             \
	{                                                                                          \
		.axis = (a), .begin = (b), .end = (e)                                              \
	}

static const struct asked asked[] = {
	{0, {{0}}, 0, 0},
	{HOIST_F32, {{0}}, 0, 0},
	{HOIST_F16, {{0}}, 0, 0},
	{HOIST_BF16, {{0}}, 0, 0},
	{0, {PART(0, 1, 2)}, 1, 1},
	{HOIST_F16, {RANGE(0, 2, -2)}, 1, 1},
	{0, {PART(-1, 0, 2)}, 1, 2},
	{HOIST_BF16, {RANGE(-1, 2, HOIST_SLICE_END), RANGE(0, 0, 1)}, 2, 2},
	{HOIST_F32, {RANGE(1, 10, 20), PART(0, 3, 4), RANGE(2, -4, -2)}, 3, 3},
	{HOIST_F32, {RANGE(0, 0, HOIST_SLICE_END)}, 1, 1}, /* all of it */
	{HOIST_F32, {RANGE(0, 3, 3)}, 1, 1},		   /* nothing of it */
};
#define N_ASKED ARRAY_SIZE(asked)

static bool has(size_t t, size_t a)
{
	bool empty = tensors[t].rank > 0 && tensors[t].shape[0] == 0;
	bool short_axis = a == 10 && tensors[t].rank > 0 && tensors[t].shape[0] < 3;
	return tensors[t].rank >= asked[a].least_rank &&
	       !((empty || (t == 6 && a == 5)) && asked[a].n_slices > 0) && !short_axis &&
	       !(t == 6 && a == 10);
}

static hoist_load *load(hoist_checkpoint *checkpoint, const char *name, const struct asked *as)
{
	hoist_load *ret;
	hoist_load_slice slices[3];
	for (size_t i = 0; i < as->n_slices; i++) {
		slices[i] = as->slices[i];
		slices[i].tensor = name;
	}
	const hoist_load_options options = {
		.size = sizeof options,
		.tensors = &name,
		.n_tensors = 1,
		.dtype = as->dtype,
		.slices = slices,
		.n_slices = as->n_slices,
	};
	OK(hoist_load_start(checkpoint, &options, &ret));
	OK(hoist_load_wait(ret));
	return ret;
}

/* The saved tensor is the one that a load gives. */
static void compare(const struct saved *saved, const char *name, hoist_checkpoint *checkpoint,
		    const char *of, const struct asked *as)
{
	hoist_load *loaded = load(checkpoint, of, as);
	hoist_buffer *buffer;
	hoist_buffer *rows;
	OK(hoist_load_tensor(loaded, 0, NULL, &buffer));
	OK(hoist_buffer_contiguous(buffer, NULL, &rows));
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(hoist_buffer_dtype(rows), &info));
	char shape[64] = "";
	char *at = shape;
	for (int i = 0; i < hoist_buffer_rank(rows); i++)
		at += sprintf(at, "%s%lld", i > 0 ? "," : "",
			      (long long)hoist_buffer_shape(rows)[i]);
	size_t n = hoist_buffer_bytes(rows);
	unsigned char *expected = malloc(n + 1);
	CHECK(expected != NULL);
	if (n > 0)
		OK(hoist_buffer_read(rows, 0, expected, n));
	check_at("%s, %s", of, name);
	CHECK(memcmp(saved_tensor(saved, name, info.safetensors, shape, n), expected, n) == 0);
	check_at("%s", "");
	free(expected);
	hoist_buffer_unref(rows);
	hoist_buffer_unref(buffer);
	hoist_load_destroy(loaded);
}

/* --- saving --- */

struct variation {
	enum hoist_engine engine;
	enum hoist_io io;
	size_t budget; /* 0: the default */
	bool by_tensor;
	unsigned flags;
};

static void name_entry(char *name, size_t t, size_t a)
{
	sprintf(name, "t%zu.%zu", t, a);
}

static void add(hoist_save *save, size_t t, size_t a)
{
	char name[32];
	name_entry(name, t, a);
	const hoist_save_tensor as = {
		.size = sizeof as,
		.name = name,
		.dtype = asked[a].dtype,
		.slices = asked[a].slices,
		.n_slices = asked[a].n_slices,
	};
	size_t index;
	OK(hoist_checkpoint_find(source, tensors[t].name, &index));
	if (has(t, a))
		OK(hoist_save_add_tensor_as(save, source, index, &as));
}

static void add_all(hoist_save *save, bool by_tensor)
{
	size_t n = N_TENSORS * N_ASKED;
	for (size_t i = 0; i < n; i++) {
		size_t t = by_tensor ? i / N_ASKED : i % N_TENSORS;
		size_t a = by_tensor ? i % N_ASKED : i / N_TENSORS;
		add(save, t, a);
	}
	const hoist_save_tensor as = {.size = sizeof as, .name = "columns", .dtype = HOIST_BF16};
	OK(hoist_save_add_tensor_as(save, columns, 0, &as));
	OK(hoist_save_add_tensor(save, "rows", columns, 0));
	hoist_buffer *buffer = make_buffer(4);
	OK(hoist_save_add(save, "buffer", buffer));
	hoist_buffer_unref(buffer);
}

static void check_saved(const struct variation *v)
{
	static const struct asked plain = {0, {{0}}, 0, 0};
	static const struct asked converted = {HOIST_BF16, {{0}}, 0, 0};
	struct saved saved;
	OK(saved_read(support_path("m.safetensors"), &saved));
	for (size_t t = 0; t < N_TENSORS; t++)
		for (size_t a = 0; a < N_ASKED; a++) {
			char name[32];
			name_entry(name, t, a);
			if (has(t, a))
				compare(&saved, name, source, tensors[t].name, &asked[a]);
		}
	compare(&saved, "columns", columns, "arr_0", &converted);
	compare(&saved, "rows", columns, "arr_0", &plain);
	compare(&saved, "buffer", source, "matrix", &plain);
	saved_free(&saved);
	if ((v->flags & HOIST_SAVE_DIGEST) != 0) {
		const hoist_load_options options = {.size = sizeof options,
						    .flags = HOIST_LOAD_VERIFY};
		hoist_load_destroy(support_load("m.safetensors", &options));
	}
}

static void saves(void)
{
	static const struct variation variations[] = {
		{HOIST_ENGINE_AUTO, HOIST_IO_AUTO, 0, false, 0},
		{HOIST_ENGINE_AUTO, HOIST_IO_AUTO, 0, true, HOIST_SAVE_DIGEST},
		{HOIST_ENGINE_THREADS, HOIST_IO_CACHED, 256 << 10, false, 0},
		{HOIST_ENGINE_THREADS, HOIST_IO_DIRECT, 256 << 10, true, HOIST_SAVE_DIGEST},
		{HOIST_ENGINE_AUTO, HOIST_IO_DIRECT, 5 << 20, true, 0},
		{HOIST_ENGINE_AUTO, HOIST_IO_CACHED, 5 << 20, false, HOIST_SAVE_DIGEST},
	};
	for (size_t i = 0; i < ARRAY_SIZE(variations); i++) {
		const struct variation *v = &variations[i];
		hoist_budget *budget = NULL;
		hoist_save *save;
		if (v->budget != 0)
			OK(hoist_budget_create(v->budget, &budget));
		const hoist_save_options options = {
			.size = sizeof options,
			.engine = v->engine,
			.io = v->io,
			.budget = budget,
			.flags = v->flags | HOIST_SAVE_NO_SYNC,
		};
		OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
		add_all(save, v->by_tensor);
		OK(saved_run(save));
		check_saved(v);
		if (budget != NULL)
			CHECK(hoist_budget_used(budget) == 0);
		hoist_budget_unref(budget);
	}
	OK(unlink(support_path("m.safetensors")));
}

/* --- what is refused --- */

static void refuse(const hoist_save_tensor *as, const char *of, int err, const char *text)
{
	hoist_save *save;
	size_t index = 0;
	hoist_checkpoint *checkpoint = of != NULL ? source : columns;
	if (of != NULL)
		OK(hoist_checkpoint_find(source, of, &index));
	OK(hoist_save_create(support_path("m.safetensors"), NULL, &save));
	check_at("%s", text);
	CHECK(hoist_save_add_tensor_as(save, checkpoint, index, as) == err);
	support_said(text);
	hoist_save_destroy(save);
}

static void refused(void)
{
	static const struct {
		const char *of; /* NULL: the tensor in columns */
		hoist_dtype dtype;
		size_t n;
		hoist_load_slice slices[2];
		const char *text;
	} cases[] = {
		{"vector", HOIST_I32, 0, {{0}}, "it is f32, f16, bf16 or 0"},
		{"vector", 0, 1, {RANGE(1, 0, 1)}, "there is no such axis"},
		{"vector", 0, 1, {RANGE(0, 0, 200003)}, "outside the axis"},
		{"vector", 0, 1, {PART(0, 0, 3)}, "cannot be cut into so many equal parts"},
		{"vector", 0, 1, {PART(0, 2, 2)}, "there is no rank 2 of 2"},
		{"vector", 0, 2, {RANGE(0, 0, 1), RANGE(-1, 0, 1)}, "two slices cut axis 0"},
		{"scalar", 0, 1, {RANGE(0, 0, 1)}, "there is no such axis"},
		{"nibbles", 0, 1, {RANGE(1, 1, 3)}, "at multiples of 2 elements only"},
		{"nibbles", 0, 1, {RANGE(1, 0, 3)}, "at multiples of 2 elements only"},
		{NULL, 0, 1, {RANGE(0, 0, 1)}, "has strides in the file"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const hoist_save_tensor as = {
			.size = sizeof as,
			.dtype = cases[i].dtype,
			.slices = cases[i].slices,
			.n_slices = cases[i].n,
		};
		refuse(&as, cases[i].of, -EINVAL, cases[i].text);
	}
	refuse(&(hoist_save_tensor){.size = sizeof(hoist_save_tensor), .n_slices = 1}, "vector",
	       -EINVAL, "slices is NULL");
	refuse(&(hoist_save_tensor){.size = sizeof(hoist_save_tensor), .name = ""}, "vector",
	       -EINVAL, "is empty");
	refuse(&(hoist_save_tensor){.size = 3}, "vector", -EINVAL, "size");
}

/* --- memory, and a save that ends early --- */

#define LARGE_BYTES ((off_t)192 << 20)

/* A file of zeros that takes no disk: one f16 tensor, 192 MiB. */
static hoist_checkpoint *open_large(void)
{
	char header[128];
	char path[256];
	int n = snprintf(
		header, sizeof header,
		"{\"t\":{\"dtype\":\"F16\",\"shape\":[1024,98304],\"data_offsets\":[0,%lld]}}",
		(long long)LARGE_BYTES);
	uint64_t bytes = (uint64_t)n;
	snprintf(path, sizeof path, "%s", support_path("large.safetensors"));
	FILE *file = fopen(path, "wb");
	CHECK(file != NULL && fwrite(&bytes, 1, 8, file) == 8 &&
	      fwrite(header, 1, bytes, file) == bytes && fclose(file) == 0);
	OK(truncate(path, 8 + n + LARGE_BYTES));
	return support_open("large.safetensors");
}

static long peak_kib(void)
{
	struct rusage usage;
	OK(getrusage(RUSAGE_SELF, &usage));
	return usage.ru_maxrss;
}

static hoist_save *start_large(hoist_checkpoint *large, hoist_budget *budget)
{
	hoist_save *save;
	const hoist_save_options options = {
		.size = sizeof options, .budget = budget, .flags = HOIST_SAVE_NO_SYNC};
	const hoist_save_tensor as = {.size = sizeof as, .dtype = HOIST_BF16};
	OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
	OK(hoist_save_add_tensor_as(save, large, 0, &as));
	OK(hoist_save_start(save));
	return save;
}

/* The bound is the budget with room for the rest of the process; sanitizers keep what was freed. */
static void memory(void)
{
	hoist_checkpoint *large = open_large();
	hoist_budget *budget;
	OK(hoist_budget_create(8 << 20, &budget));
	long before = peak_kib();
	hoist_save *save = start_large(large, budget);
	OK(hoist_save_wait(save));
	hoist_save_destroy(save);
	long grown = peak_kib() - before;
	printf("memory: %ld KiB more for %lld KiB\n", grown, (long long)LARGE_BYTES / 1024);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
	CHECK(grown < 48 << 10);
#endif
	OK(unlink(support_path("m.safetensors")));

	/* Cancelled in the middle, and destroyed without a wait: no file, and the loads have ended.
	 */
	for (int i = 0; i < 20; i++) {
		uint64_t done = 0;
		save = start_large(large, budget);
		while (i > 0 && done < (uint64_t)i << 20)
			hoist_save_progress(save, &done, NULL);
		if (i % 2 == 0) {
			hoist_save_cancel(save);
			int err = hoist_save_wait(save);
			CHECK(err == -ECANCELED || err == 0);
		}
		hoist_save_destroy(save);
		(void)unlink(support_path("m.safetensors"));
		CHECK(saved_n_names() == 1 && hoist_budget_used(budget) == 0);
	}

	/* A source that shrinks while it is read. */
	OK(truncate(support_path("large.safetensors"), LARGE_BYTES / 2));
	save = start_large(large, budget);
	CHECK(hoist_save_wait(save) < 0);
	support_said("large.safetensors");
	support_said("saving tensor \"t\"");
	hoist_save_destroy(save);
	CHECK(saved_n_names() == 1 && hoist_budget_used(budget) == 0);
	hoist_budget_unref(budget);
	hoist_checkpoint_close(large);
	OK(unlink(support_path("large.safetensors")));
}

int main(void)
{
	OK(hoist_device_open("cpu", &cpu));
	CASE(memory); /* before others raise the peak */
	make_source();
	CASE(saves);
	CASE(refused);
	hoist_checkpoint_close(source);
	hoist_checkpoint_close(columns);
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
