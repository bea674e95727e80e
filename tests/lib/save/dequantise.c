/* SPDX-License-Identifier: MIT */
/* Quantised tensors of a GGUF file are saved as floats: whole and in parts, whatever divides them.
 * tests/base compares the blocks' numbers with the reference; here they come to their places. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/blocks.h"
#include "base/convert.h"
#include "tests/support/save-support.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))

static hoist_device *cpu;
static hoist_checkpoint *source;

static const struct {
	const char *name;
	hoist_dtype dtype;
	int rank;
	int64_t shape[2]; /* rank 1: one axis, which is not divided between batches */
	size_t block_bytes;
} tensors[] = {
	{"matrix", HOIST_Q8_0, 2, {700, 320}, 34},
	{"vector", HOIST_Q4_0, 1, {160000}, 18},
	{"narrow", HOIST_Q4_0, 2, {9001, 32}, 18},
	{"one", HOIST_Q8_0, 1, {32}, 34},
};
#define N_TENSORS ARRAY_SIZE(tensors)
#define ELEMENTS_OF_BLOCK 32

static size_t n_elements(size_t t)
{
	return (size_t)(tensors[t].shape[0] * (tensors[t].rank == 2 ? tensors[t].shape[1] : 1));
}

/* The blocks' scales are plain numbers, their other bits any. */
static unsigned char *make_blocks(size_t t)
{
	size_t n = n_elements(t) / ELEMENTS_OF_BLOCK;
	unsigned char *blocks = malloc(n * tensors[t].block_bytes);
	uint32_t x = 99 + (uint32_t)t;
	CHECK(blocks != NULL);
	for (size_t b = 0; b < n; b++) {
		unsigned char *block = blocks + b * tensors[t].block_bytes;
		const float scale = (float)(b % 13) / 4 - 1;
		for (size_t i = 2; i < tensors[t].block_bytes; i++) {
			x = x * 1664525 + 1013904223;
			block[i] = (unsigned char)(x >> 24);
		}
		hoist__convert(block, HOIST_F16, &scale, HOIST_F32, 1);
	}
	return blocks;
}

static void add(hoist_save *save, const char *name, hoist_dtype dtype, int rank,
		const int64_t *shape, const void *bytes)
{
	hoist_buffer *buffer;
	OK(hoist_buffer_create(cpu, dtype, rank, shape, HOIST_BUFFER_ZERO, &buffer));
	if (bytes != NULL)
		OK(hoist_buffer_write(buffer, 0, bytes, hoist_buffer_bytes(buffer)));
	OK(hoist_save_add(save, name, buffer));
	hoist_buffer_unref(buffer);
}

static void make_source(void)
{
	static const int64_t shape[] = {4, 256};
	const float numbers[] = {1, 2, 3};
	hoist_save *save;
	OK(hoist_save_create(support_path("src.gguf"), NULL, &save));
	for (size_t t = 0; t < N_TENSORS; t++) {
		unsigned char *blocks = make_blocks(t);
		add(save, tensors[t].name, tensors[t].dtype, tensors[t].rank, tensors[t].shape,
		    blocks);
		free(blocks);
	}
	add(save, "plain", HOIST_F32, 1, (const int64_t[]){3}, numbers);
	add(save, "other", HOIST_IQ2_XXS, 2, shape, NULL);
	OK(saved_run(save));
	source = support_open("src.gguf");
}

/* --- comparing --- */

static const struct {
	hoist_dtype dtype;
	const char *name;
	size_t width;
} dtypes[] = {{HOIST_F32, "F32", 4}, {HOIST_F16, "F16", 2}, {HOIST_BF16, "BF16", 2}};
#define N_DTYPES ARRAY_SIZE(dtypes)

/* The numbers of rows [@first, @first + @n) of the tensor, @from.. of each row's @columns. */
static unsigned char *expect(size_t t, size_t d, int64_t first, int64_t n, int64_t from,
			     int64_t columns)
{
	size_t all = n_elements(t);
	size_t row = tensors[t].rank == 2 ? (size_t)tensors[t].shape[1] : 1;
	size_t width = dtypes[d].width;
	unsigned char *blocks = make_blocks(t);
	float *numbers = malloc(all * sizeof *numbers);
	unsigned char *part = malloc((size_t)(n * columns) * width + 1);
	CHECK(numbers != NULL && part != NULL);
	OK(hoist__blocks_to_f32(tensors[t].dtype, blocks, all, numbers));
	if (dtypes[d].dtype != HOIST_F32)
		hoist__convert(numbers, dtypes[d].dtype, numbers, HOIST_F32, all);
	for (int64_t r = 0; r < n; r++)
		memcpy(part + (size_t)(r * columns) * width,
		       (unsigned char *)numbers +
			       ((size_t)(first + r) * row + (size_t)from) * width,
		       (size_t)columns * width);
	free(blocks);
	free(numbers);
	return part;
}

static void compare(const struct saved *saved, const char *name, size_t t, size_t d, bool sliced)
{
	int64_t rows = tensors[t].shape[0];
	int64_t columns = tensors[t].rank == 2 ? tensors[t].shape[1] : 1;
	int64_t first = sliced && tensors[t].rank == 2 ? 3 : 0;
	int64_t from = sliced && columns > 32 ? 32 : 0;
	char shape[64];
	if (tensors[t].rank == 2)
		sprintf(shape, "%d,%d", (int)(rows - first), (int)(columns - from));
	else
		sprintf(shape, "%d", (int)rows);
	size_t n = (size_t)((rows - first) * (columns - from));
	unsigned char *part = expect(t, d, first, rows - first, from, columns - from);
	check_at("%s", name);
	CHECK(memcmp(saved_tensor(saved, name, dtypes[d].name, shape, n * dtypes[d].width), part,
		     n * dtypes[d].width) == 0);
	check_at("%s", "");
	free(part);
}

/* --- cases --- */

static void add_all(hoist_save *save, size_t d, bool sliced)
{
	static const hoist_load_slice slices[] = {
		{.axis = 0, .begin = 3, .end = HOIST_SLICE_END},
		{.axis = 1, .begin = 32, .end = HOIST_SLICE_END},
	};
	for (size_t t = 0; t < N_TENSORS; t++) {
		bool wide = tensors[t].rank == 2 && tensors[t].shape[1] > 32;
		const hoist_save_tensor as = {
			.size = sizeof as,
			.dtype = dtypes[d].dtype,
			.slices = slices,
			.n_slices = !sliced || tensors[t].rank == 1 ? 0
				    : wide			    ? 2
								    : 1,
		};
		size_t index;
		OK(hoist_checkpoint_find(source, tensors[t].name, &index));
		OK(hoist_save_add_tensor_as(save, source, index, &as));
	}
}

static void saves(void)
{
	static const size_t budgets[] = {256 << 10, 16 << 20};
	for (size_t i = 0; i < N_DTYPES * 2 * ARRAY_SIZE(budgets); i++) {
		size_t d = i % N_DTYPES;
		bool sliced = i / N_DTYPES % 2 == 1;
		hoist_budget *budget;
		hoist_save *save;
		struct saved saved;
		OK(hoist_budget_create(budgets[i / N_DTYPES / 2], &budget));
		const hoist_save_options options = {.size = sizeof options, .budget = budget};
		OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
		add_all(save, d, sliced);
		OK(saved_run(save));
		OK(saved_read(support_path("m.safetensors"), &saved));
		for (size_t t = 0; t < N_TENSORS; t++)
			compare(&saved, tensors[t].name, t, d, sliced);
		saved_free(&saved);
		hoist_budget_unref(budget);
	}
}

/* A block whose numbers are known: a scale of a half, and -16 to 15. */
static void known(void)
{
	unsigned char block[34];
	float numbers[32];
	const float half = 0.5f;
	hoist_save *save;
	struct saved saved;
	const hoist_save_tensor as = {.size = sizeof as, .dtype = HOIST_F32};
	hoist__convert(block, HOIST_F16, &half, HOIST_F32, 1);
	for (int i = 0; i < 32; i++)
		block[2 + i] = (unsigned char)(i - 16);
	OK(hoist_save_create(support_path("k.gguf"), NULL, &save));
	add(save, "k", HOIST_Q8_0, 1, (const int64_t[]){32}, block);
	OK(saved_run(save));
	hoist_checkpoint *checkpoint = support_open("k.gguf");
	OK(hoist_save_create(support_path("m.safetensors"), NULL, &save));
	OK(hoist_save_add_tensor_as(save, checkpoint, 0, &as));
	OK(saved_run(save));
	OK(saved_read(support_path("m.safetensors"), &saved));
	memcpy(numbers, saved_tensor(&saved, "k", "F32", "32", sizeof numbers), sizeof numbers);
	for (int i = 0; i < 32; i++)
		CHECK(numbers[i] == (float)(i - 16) / 2);
	saved_free(&saved);
	hoist_checkpoint_close(checkpoint);
}

static void refuse(const char *of, hoist_dtype dtype, bool starts, int err, const char *text)
{
	hoist_save *save;
	size_t index;
	const hoist_save_tensor as = {.size = sizeof as, .dtype = dtype};
	OK(hoist_checkpoint_find(source, of, &index));
	OK(hoist_save_create(support_path("none.safetensors"), NULL, &save));
	int got = hoist_save_add_tensor_as(save, source, index, &as);
	if (starts) {
		OK(got);
		got = hoist_save_start(save);
	}
	check_at("%s: %s", of, text);
	CHECK(got == err);
	support_said(text);
	check_at("%s", "");
	hoist_save_destroy(save);
	CHECK(access(support_path("none.safetensors"), F_OK) < 0);
}

static void refused(void)
{
	refuse("other", HOIST_F32, false, -ENOTSUP, "hoist does not dequantise iq2_xxs");
	refuse("other", 0, true, -EINVAL, "save it as gguf");
	refuse("matrix", 0, true, -EINVAL, "dequantise it (--dtype, hoist_save_tensor.dtype)");
}

int main(void)
{
	OK(hoist_device_open("cpu", &cpu));
	make_source();
	CASE(saves);
	CASE(known);
	CASE(refused);
	hoist_checkpoint_close(source);
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
