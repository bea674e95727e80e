/* SPDX-License-Identifier: MIT */
/* tests/support/lib-unit.h - fixtures and helpers of the Criterion tests of lib/. */
#ifndef HOIST_TESTS_LIB_UNIT_H
#define HOIST_TESTS_LIB_UNIT_H

#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/unit-check.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"

/* All devices of lib-support.h.  open_all() opens them for a test (.init = open_all), and both skip
 * the test if the emulators are not built. */
extern hoist_device *devices[LIB_N_DEVICES];
void emulate(void);
void open_all(void);
void open_cpu(void); /* devices[0] alone */

/* The path of a file of this name, which may not exist, in the test's own folder; valid until the
 * next call. */
const char *temporary(const char *name);
void write_file(const char *path, const void *bytes, size_t n);

/* "hip" for hip:0, else "cuda": the argument for lib_counters() and its like. */
const char *api_of(const hoist_device *device);

/* As lib_capture(), on the stream's own driver. */
int set_capture(hoist_stream *stream, int on);

/* A resource that cannot be made. */
void refuse_memory(const hoist_memory_options *options, int err, const char *text);

/* No memory, stream or event of the devices is left, and the drivers saw no misuse. */
void expect_all_given_back(void);

/* i32, element i (in C order) holds i. */
static inline hoist_buffer *counted(hoist_device *device, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = zeroed(device, HOIST_I32, rank, shape);
	int32_t *data = hoist_buffer_data(buffer);
	for (uint64_t i = 0; i < hoist_buffer_elements(buffer); i++)
		data[i] = (int32_t)i;
	return buffer;
}

/* All elements of host memory in C order, of at most 4 axes; unaligned ones, too.  Returns how
 * many. */
static inline size_t read_i32(const hoist_buffer *buffer, int32_t *values)
{
	int rank = hoist_buffer_rank(buffer);
	const int64_t *shape = hoist_buffer_shape(buffer);
	const int64_t *strides = hoist_buffer_strides(buffer);
	int64_t index[4] = {0};
	size_t n = (size_t)hoist_buffer_elements(buffer);
	for (size_t i = 0; i < n; i++) {
		const char *at = hoist_buffer_data(buffer);
		for (int k = 0; k < rank; k++)
			at += index[k] * strides[k] * (int64_t)sizeof *values;
		memcpy(&values[i], at, sizeof *values);
		for (int k = rank - 1; k >= 0 && ++index[k] == shape[k]; k--)
			index[k] = 0;
	}
	return n;
}

#endif
