/* SPDX-License-Identifier: MIT */
/* Tensors into transposed buffers of the caller's: the right elements, converted or not, and on a
 * device few copies with long rows. */
#include "config.h"

#include <string.h>

#include <hoist/layout.h>

#include "tests/support/load-support.h"

/* A tensor whose last two axes change places. */
struct shape {
	const char *name;
	size_t outer;
	size_t rows;
	size_t columns;
};

/* Chunks of "flat" begin at the last row of an outer step, which the next step does not follow. */
static const struct shape square = {"square", 3, 500, 700};
static const struct shape flat = {"flat", 16, 9, 20000};

struct way {
	const char *name;
	const struct shape *shape;
	const char *device;
	hoist_dtype dtype;
	size_t chunk_bytes;
	unsigned flags;
	unsigned copies; /* at most, for each read; 0: none are */
	int64_t step;	 /* of a column in the buffer, in elements: -1 is backwards */
};

static size_t elements_of(const struct shape *shape)
{
	return shape->outer * shape->rows * shape->columns;
}

/* The value of element @i of each tensor.  bf16 has all of these values. */
static float value_of(size_t i)
{
	return (float)(i % 251) - (float)(i / 251 % 4);
}

/* A file for each shape. */
static void write_file(const struct shape *shape)
{
	char header[128];
	char name[32];
	size_t n = elements_of(shape);
	float *values = malloc(n * sizeof *values);
	CHECK(values != NULL);
	for (size_t i = 0; i < n; i++)
		values[i] = value_of(i);
	(void)snprintf(
		header, sizeof header,
		"{\"w\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu,%zu],\"data_offsets\":[0,%zu]}}",
		shape->outer, shape->rows, shape->columns, n * sizeof *values);
	(void)snprintf(name, sizeof name, "%s.safetensors", shape->name);
	support_put_safetensors(name, header, values, n * sizeof *values);
	free(values);
}

/* The element of a buffer in which rows are neighbours. */
static size_t place_of(const struct shape *shape, size_t i, int64_t step)
{
	size_t plane = shape->rows * shape->columns;
	size_t row = i / shape->columns % shape->rows;
	size_t at = i / plane * plane + i % shape->columns * shape->rows;
	return at + (step > 0 ? row : shape->rows - 1 - row);
}

static bool is_same(const void *is, hoist_dtype dtype, size_t at, float should)
{
	float got;
	uint32_t bits;
	if (dtype == HOIST_F32)
		memcpy(&bits, (const char *)is + at * 4, sizeof bits);
	else
		bits = (uint32_t)((const uint16_t *)is)[at] << 16;
	memcpy(&got, &bits, sizeof got);
	return got == should;
}

static void load_and_compare(const struct way *way)
{
	const struct shape *shape = way->shape;
	const int64_t n = (int64_t)elements_of(shape);
	const int64_t rows = (int64_t)shape->rows;
	const int64_t columns = (int64_t)shape->columns;
	const hoist_layout layout = {
		.rank = 3,
		.shape = {(int64_t)shape->outer, rows, columns},
		.strides = {rows * columns, way->step, rows},
		.offset = way->step > 0 ? 0 : rows - 1,
		.itemsize = hoist_dtype_bits(way->dtype) / 8,
	};
	char name[32];
	(void)snprintf(name, sizeof name, "%s.safetensors", shape->name);
	hoist_device *device = support_device(way->device);
	hoist_checkpoint *checkpoint = support_open(name);
	hoist_buffer *line = NULL;
	hoist_load_into into = {.tensor = "w"};
	hoist_load *load = NULL;
	OK(hoist_buffer_create(device, way->dtype, 1, &n, 0, &line));
	OK(hoist_buffer_with_layout(line, &layout, way->dtype, &into.buffer));
	const hoist_load_options o = {.size = sizeof o,
				      .into = &into,
				      .n_into = 1,
				      .chunk_bytes = way->chunk_bytes,
				      .flags = way->flags};
	OK(hoist_load_start(checkpoint, &o, &load));
	OK(hoist_load_wait(load));
	const hoist_load_report report = support_report(load);
	printf("%s: %llu copies, %llu reads\n", way->name, (unsigned long long)report.n_copies,
	       (unsigned long long)report.n_reads);
	CHECK(report.n_copies <= way->copies * report.n_reads);
	unsigned char *is = malloc(hoist_buffer_bytes(line));
	CHECK(is != NULL);
	OK(hoist_buffer_copy_out(line, is, hoist_buffer_bytes(line)));
	for (size_t i = 0; i < (size_t)n; i++)
		CHECK(is_same(is, way->dtype, place_of(shape, i, way->step), value_of(i)));
	free(is);
	hoist_load_destroy(load);
	hoist_buffer_unref(into.buffer);
	hoist_buffer_unref(line);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

static const struct way ways[] = {
	{.shape = &square, .name = "host", .device = "cpu", .dtype = HOIST_F32, .step = 1},
	{.shape = &square,
	 .name = "host, backwards",
	 .device = "cpu",
	 .dtype = HOIST_F32,
	 .step = -1},
	{.shape = &square,
	 .name = "host, converted",
	 .device = "cpu",
	 .dtype = HOIST_BF16,
	 .step = 1},
	/* A stack for each of OUTER that the chunk has a part of, and cut planes. */
	{.shape = &square,
	 .name = "device",
	 .device = "cuda:0",
	 .dtype = HOIST_F32,
	 .copies = 4,
	 .step = 1},
	{.shape = &square,
	 .name = "device, small slots",
	 .device = "cuda:0",
	 .dtype = HOIST_F32,
	 .chunk_bytes = 65536,
	 .flags = HOIST_LOAD_DIGEST | HOIST_LOAD_CALLER_DRIVEN,
	 .copies = 4,
	 .step = 1},
	{.shape = &square,
	 .name = "device, converted",
	 .device = "cuda:0",
	 .dtype = HOIST_BF16,
	 .copies = 4,
	 .step = 1},
	{.shape = &flat, .name = "host, flat", .device = "cpu", .dtype = HOIST_F32, .step = 1},
	{.shape = &flat,
	 .name = "device, flat",
	 .device = "cuda:0",
	 .dtype = HOIST_F32,
	 .copies = 4,
	 .step = 1},
	{.shape = &flat,
	 .name = "device, flat, small slots",
	 .device = "cuda:0",
	 .dtype = HOIST_BF16,
	 .chunk_bytes = 262144,
	 .copies = 4,
	 .step = 1},
	/* Each row, backwards, has a row of a 2-D copy for each element. */
	{.shape = &square,
	 .name = "device, backwards",
	 .device = "cuda:0",
	 .dtype = HOIST_F32,
	 .copies = 2000,
	 .step = -1},
};

int main(void)
{
	support_emulate("cuda:1");
	write_file(&square);
	write_file(&flat);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		load_and_compare(&ways[i]);
	support_check_copies("cuda");
	support_cleanup();
	return 0;
}
