/* SPDX-License-Identifier: MIT */
/* tests/support/lib-buffers.h - what the Criterion tests of buffers share. */
#ifndef HOIST_TESTS_LIB_BUFFERS_H
#define HOIST_TESTS_LIB_BUFFERS_H

#include <criterion/criterion.h>
#include <string.h>

#include "hoist/hoist.h"
#include "tests/support/lib-support.h"

static inline void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

static inline hoist_buffer_info info_of(const hoist_buffer *buffer)
{
	hoist_buffer_info info = {.size = sizeof info};
	cr_assert_eq(hoist_buffer_get_info(buffer, &info), 0);
	return info;
}

/* All devices of lib-support.h, behind the emulators; skips the test without these. */
static inline void open_devices(hoist_device *devices[LIB_N_DEVICES])
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	lib_open_all(devices);
}

static inline hoist_buffer *zeroed(hoist_device *device, hoist_dtype dtype, int rank,
				   const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	cr_assert_eq(hoist_buffer_create(device, dtype, rank, shape, HOIST_BUFFER_ZERO, &buffer), 0,
		     "%s", hoist_error());
	return buffer;
}

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
