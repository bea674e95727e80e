/* SPDX-License-Identifier: MIT */
/* base/layout.c - shape and strides as bare arrays: counts, C order, bounds.
 * The contract is in base/layout.h. */
#include "config.h"

#include "base/layout.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

int hoist__layout_check_shape(int rank, const int64_t *shape)
{
	if (rank < 0 || rank > HOIST__MAX_RANK)
		return hoist__fail(-EINVAL, "rank %d is outside 0..%d", rank, HOIST__MAX_RANK);
	if (rank > 0 && shape == NULL)
		return hoist__fail(-EINVAL, "rank %d needs a shape", rank);
	for (int i = 0; i < rank; i++)
		if (shape[i] < 0)
			return hoist__fail(-EINVAL,
					   "axis %d has the extent %lld; extents are not negative",
					   i, (long long)shape[i]);
	return 0;
}

bool hoist__layout_is_empty(int rank, const int64_t *shape)
{
	for (int i = 0; i < rank; i++)
		if (shape[i] == 0)
			return true;
	return false;
}

static int fail_overflow(void)
{
	return hoist__fail(-EOVERFLOW, "the shape has more elements than fit in 63 bits");
}

int hoist__layout_elements(int rank, const int64_t *shape, uint64_t *ret)
{
	int err = hoist__layout_check_shape(rank, shape);
	if (err < 0)
		return err;
	uint64_t n = 1;
	if (hoist__layout_is_empty(rank, shape)) {
		*ret = 0;
		return 0;
	}
	for (int i = 0; i < rank; i++)
		if (hoist__mul_overflow(n, (uint64_t)shape[i], &n) || n > INT64_MAX)
			return fail_overflow();
	*ret = n;
	return 0;
}

int hoist__layout_c_strides(int rank, const int64_t *shape, int64_t *strides)
{
	int err = hoist__layout_check_shape(rank, shape);
	if (err < 0)
		return err;
	/* A first pass over all extents, so that a failing call leaves @strides unchanged. */
	int64_t n = 1;
	for (int i = 0; i < rank; i++)
		if (shape[i] > 1 && __builtin_mul_overflow(n, shape[i], &n))
			return fail_overflow();
	n = 1;
	for (int i = rank - 1; i >= 0; i--) {
		strides[i] = n;
		n *= shape[i] > 1 ? shape[i] : 1;
	}
	return 0;
}

bool hoist__layout_contiguous(int rank, const int64_t *shape, const int64_t *strides)
{
	if (strides == NULL || hoist__layout_is_empty(rank, shape))
		return true;
	int64_t expected = 1;
	for (int i = rank - 1; i >= 0; i--) {
		if (shape[i] == 1)
			continue;
		if (strides[i] != expected)
			return false;
		if (__builtin_mul_overflow(expected, shape[i], &expected))
			return false;
	}
	return true;
}

int hoist__layout_furthest(int rank, const int64_t *shape, const int64_t *strides, int64_t *low,
			   int64_t *high)
{
	int64_t down = 0;
	int64_t up = 0;
	for (int i = 0; i < rank; i++) {
		int64_t reach;
		if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach))
			return fail_overflow();
		int64_t *side = reach < 0 ? &down : &up;
		if (__builtin_add_overflow(*side, reach, side))
			return fail_overflow();
	}
	*low = down;
	*high = up;
	return 0;
}

int hoist__layout_bounds(hoist_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
			 int64_t *low, int64_t *high)
{
	uint64_t n;
	int err = hoist__layout_elements(rank, shape, &n);
	if (err < 0)
		return err;
	/* Only elements that lie together may be in blocks: a block has no stride for one
	 * element. */
	if (hoist__layout_contiguous(rank, shape, strides)) {
		size_t bytes;
		err = hoist_dtype_bytes(dtype, n, &bytes);
		if (err < 0)
			return err;
		*low = 0;
		*high = (int64_t)bytes;
		return 0;
	}
	unsigned bits = hoist_dtype_bits(dtype);
	if (bits == 0)
		return hoist__fail(-EINVAL,
				   "a %s tensor cannot be strided: its elements lie in blocks",
				   hoist_dtype_name(dtype) ? hoist_dtype_name(dtype) : "(invalid)");
	int64_t first = 0;
	int64_t last = 0;
	err = hoist__layout_furthest(rank, shape, strides, &first, &last);
	if (err < 0)
		return err;
	if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(first, bits, &first) ||
	    __builtin_mul_overflow(last, bits, &last) || last > INT64_MAX - 7)
		return fail_overflow();
	/* Convert bits to bytes, rounding outwards. */
	*low = first / 8 - (first % 8 != 0);
	*high = (last + 7) / 8;
	return 0;
}
