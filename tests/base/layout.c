/* SPDX-License-Identifier: MIT */
/* The layout functions against walking every element. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "tests/support/random.h"

/* The findings of a walk over all elements in C order. */
struct walked {
	uint64_t n;
	int64_t low, high; /* of the positions, in elements; the last one counts as one past */
	bool in_order;	   /* the positions are 0, 1, 2, ... */
};

static struct walked walk(int rank, const int64_t *shape, const int64_t *strides)
{
	struct walked found = {.in_order = true};
	int64_t index[8] = {0};
	for (int i = 0; i < rank; i++)
		if (shape[i] == 0)
			return found;
	for (;;) {
		int64_t at = 0;
		for (int i = 0; i < rank; i++)
			at += index[i] * strides[i];
		found.in_order = found.in_order && at == (int64_t)found.n;
		found.n++;
		found.low = at < found.low ? at : found.low;
		found.high = at + 1 > found.high ? at + 1 : found.high;
		int axis = rank - 1;
		while (axis >= 0 && ++index[axis] == shape[axis])
			index[axis--] = 0;
		if (axis < 0)
			return found;
	}
}

static void compare(hoist_dtype dtype, int rank, const int64_t *shape, const int64_t *strides)
{
	struct walked found = walk(rank, shape, strides);
	uint64_t n = 77;
	int64_t low = 77;
	int64_t high = 77;
	cr_assert_eq(hoist__layout_elements(rank, shape, &n), 0);
	cr_assert_eq(n, found.n);
	cr_assert_eq(hoist__layout_contiguous(rank, shape, strides), found.in_order);
	int64_t bits = hoist_dtype_bits(dtype);
	int err = hoist__layout_bounds(dtype, rank, shape, strides, &low, &high);
	if (found.in_order && (int64_t)n * bits % 8 != 0) {
		cr_assert_eq(err, -EINVAL);
		return;
	}
	cr_assert_eq(err, 0, "%s", hoist_error());
	/* The smallest range of bytes that holds all the bits. */
	cr_assert_leq(low * 8, found.low * bits);
	cr_assert_gt((low + 1) * 8, found.low * bits);
	cr_assert_geq(high * 8, found.high * bits);
	cr_assert_lt((high - 1) * 8, n == 0 ? 1 : found.high * bits);
}

Test(base_layout, agrees_with_walking_every_element)
{
	static const hoist_dtype dtypes[] = {HOIST_U8, HOIST_BF16, HOIST_C128, HOIST_F4_E2M1FN,
					     HOIST_F6_E3M2FN};
	uint64_t state = 1;
	size_t n_contiguous = 0;
	for (int round = 0; round < 20000; round++) {
		int rank = (int)(random_below(&state, 5));
		int64_t shape[5];
		int64_t strides[5];
		for (int i = 0; i < rank; i++) {
			shape[i] = (int64_t)(random_below(&state, 5));
			strides[i] = (int64_t)(random_below(&state, 25)) - 12;
		}
		if (round % 2 == 0)
			cr_assert_eq(hoist__layout_c_strides(rank, shape, strides), 0);
		n_contiguous += hoist__layout_contiguous(rank, shape, strides);
		compare(dtypes[round % 5], rank, shape, strides);
	}
	cr_expect_geq(n_contiguous, 10000);
	cr_expect_lt(n_contiguous, 18000);
}

Test(base_layout, rank_zero_is_one_element)
{
	uint64_t n = 0;
	int64_t low = 77;
	int64_t high = 77;
	cr_expect_eq(hoist__layout_elements(0, NULL, &n), 0);
	cr_expect_eq(n, 1);
	cr_expect(hoist__layout_contiguous(0, NULL, NULL));
	cr_expect_eq(hoist__layout_c_strides(0, NULL, NULL), 0);
	cr_expect_eq(hoist__layout_bounds(HOIST_F32, 0, NULL, NULL, &low, &high), 0);
	cr_expect_eq(low, 0);
	cr_expect_eq(high, 4);
}

Test(base_layout, strides_of_empty_axes_count_them_as_one)
{
	static const int64_t shape[] = {2, 0, 3};
	int64_t strides[3];
	cr_expect_eq(hoist__layout_c_strides(3, shape, strides), 0);
	cr_expect_eq(strides[0], 3);
	cr_expect_eq(strides[1], 3);
	cr_expect_eq(strides[2], 1);
}

Test(base_layout, axes_of_extent_one_may_have_any_stride)
{
	static const int64_t shape[] = {1, 4, 1};
	static const int64_t strides[] = {-99, 1, 1000};
	cr_expect(hoist__layout_contiguous(3, shape, strides));
}

Test(base_layout, bad_shapes_are_refused_and_leave_the_result)
{
	int64_t shape[65];
	int64_t strides[65];
	uint64_t n = 77;
	for (int i = 0; i < 65; i++)
		shape[i] = 1;
	memset(strides, 0x55, sizeof strides);
	cr_expect_eq(hoist__layout_elements(64, shape, &n), 0);
	n = 77;
	cr_expect_eq(hoist__layout_elements(65, shape, &n), -EINVAL);
	cr_expect_eq(hoist__layout_elements(-1, shape, &n), -EINVAL);
	cr_expect_eq(hoist__layout_elements(1, NULL, &n), -EINVAL);
	shape[3] = -2;
	cr_expect_eq(hoist__layout_elements(64, shape, &n), -EINVAL);
	cr_expect_str_eq(hoist_error(), "axis 3 has the extent -2; extents are not negative");
	cr_expect_eq(hoist__layout_c_strides(64, shape, strides), -EINVAL);
	cr_expect_eq(n, 77);
	cr_expect_eq(strides[0], INT64_C(0x5555555555555555));
}

Test(base_layout, products_that_overflow_are_refused)
{
	static const int64_t big[] = {INT64_C(1) << 32, INT64_C(1) << 31};
	static const int64_t fits[] = {INT64_C(1) << 31, INT64_C(1) << 31};
	static const int64_t empty[] = {INT64_MAX, INT64_MAX, 0};
	int64_t strides[3] = {7, 7, 7};
	int64_t low = 77;
	int64_t high = 77;
	uint64_t n = 77;
	cr_expect_eq(hoist__layout_elements(2, big, &n), -EOVERFLOW);
	cr_expect_eq(hoist__layout_c_strides(2, big, strides), -EOVERFLOW);
	cr_expect_eq(hoist__layout_bounds(HOIST_U8, 2, big, NULL, &low, &high), -EOVERFLOW);
	cr_expect_eq(hoist__layout_bounds(HOIST_F64, 2, fits, NULL, &low, &high), -EOVERFLOW);
	cr_expect_eq(n, 77);
	cr_expect_eq(strides[0], 7);
	cr_expect_eq(hoist__layout_elements(2, fits, &n), 0);
	cr_expect_eq(n, UINT64_C(1) << 62);
	cr_expect_eq(hoist__layout_elements(3, empty, &n), 0);
	cr_expect_eq(n, 0);
	cr_expect_eq(low, 77);
	cr_expect_eq(high, 77);
}

Test(base_layout, strides_that_overflow_are_refused)
{
	static const int64_t shape[] = {3, 3};
	static const int64_t cases[][2] = {
		{INT64_MAX, 1},	     {INT64_MIN, 1},	 {INT64_MAX / 2, INT64_MAX / 2},
		{INT64_MIN / 2, -2}, {INT64_MAX / 2, 0}, {INT64_MIN / 2, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int64_t low = 77;
		int64_t high = 77;
		cr_expect_eq(hoist__layout_bounds(HOIST_F32, 2, shape, cases[i], &low, &high),
			     -EOVERFLOW, "%zu", i);
		cr_expect_eq(low, 77);
		cr_expect_eq(high, 77);
	}
}

Test(base_layout, block_types_have_bounds_only_when_contiguous)
{
	static const int64_t shape[] = {2, 64};
	static const int64_t apart[] = {128, 1};
	int64_t low = 77;
	int64_t high = 77;
	cr_expect_eq(hoist__layout_bounds(HOIST_Q4_0, 2, shape, apart, &low, &high), -EINVAL);
	cr_expect_not_null(strstr(hoist_error(), "q4_0"));
	cr_expect_eq(high, 77);
	cr_expect_eq(hoist__layout_bounds(HOIST_Q4_0, 2, shape, NULL, &low, &high), 0);
	cr_expect_eq(low, 0);
	cr_expect_eq(high, 72);
	cr_expect_eq(hoist__layout_bounds(HOIST_DTYPE_INVALID, 2, shape, apart, &low, &high),
		     -EINVAL);
}
