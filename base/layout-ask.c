/* SPDX-License-Identifier: MIT */
/* base/layout-ask.c - answers questions about where a layout's items lie.
 * The contract is in hoist/layout.h. */
#include "config.h"

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

/* Returns |x|, which for the lowest number does not fit in an int64_t. */
static uint64_t magnitude(int64_t x)
{
	return x < 0 ? -(uint64_t)x : (uint64_t)x;
}

int64_t hoist_layout_volume(const hoist_layout *layout)
{
	uint64_t n;
	int err = hoist__layout_elements(layout->rank, layout->shape, &n);
	return err < 0 ? err : (int64_t)n;
}

static int fail_bytes(const hoist_layout *layout, const char *what, int64_t items)
{
	return hoist__fail(-EOVERFLOW, "%s, %lld items of %lld bytes, does not fit in 63 bits",
			   what, (long long)items, (long long)layout->itemsize);
}

int hoist_layout_byte_offset(const hoist_layout *layout, int64_t *ret)
{
	int64_t bytes;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (__builtin_mul_overflow(layout->offset, layout->itemsize, &bytes))
		return fail_bytes(layout, "the offset", layout->offset);
	*ret = bytes;
	return 0;
}

int hoist_layout_byte_strides(const hoist_layout *layout, int64_t *ret)
{
	int64_t bytes;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	for (int i = 0; i < layout->rank; i++)
		if (__builtin_mul_overflow(layout->strides[i], layout->itemsize, &bytes))
			return fail_bytes(layout, "a stride", layout->strides[i]);
	for (int i = 0; i < layout->rank; i++)
		ret[i] = layout->strides[i] * layout->itemsize;
	return 0;
}

/* True if axis @high, the higher of the two, comes before axis @low. */
static bool is_before(const hoist_layout *layout, int high, int low)
{
	uint64_t stride = magnitude(layout->strides[high]);
	uint64_t other = magnitude(layout->strides[low]);
	return stride != other ? stride > other : layout->shape[high] > layout->shape[low];
}

void hoist_layout_stride_order(const hoist_layout *layout, int *axes)
{
	/* Insertion sort: axes are few, and mostly in order. */
	for (int i = 0; i < layout->rank; i++) {
		int at = i;
		for (; at > 0 && !layout->implicit && is_before(layout, i, axes[at - 1]); at--)
			axes[at] = axes[at - 1];
		axes[at] = i;
	}
}

/* True if the layout is contiguous along @axes, the last of which varies fastest. */
static int follows(const hoist_layout *layout, const int *axes)
{
	int64_t expected = 1;
	if (hoist__layout_is_empty(layout->rank, layout->shape))
		return 1;
	for (int i = layout->rank - 1; i >= 0; i--) {
		int64_t extent = layout->shape[axes[i]];
		if (extent == 1)
			continue;
		if (layout->strides[axes[i]] != expected ||
		    __builtin_mul_overflow(expected, extent, &expected))
			return 0;
	}
	return 1;
}

int hoist_layout_is_contiguous_c(const hoist_layout *layout)
{
	return hoist__layout_contiguous(layout->rank, layout->shape, layout->strides);
}

int hoist_layout_is_contiguous_f(const hoist_layout *layout)
{
	int axes[HOIST_MAX_RANK];
	for (int i = 0; i < layout->rank; i++)
		axes[i] = layout->rank - 1 - i;
	return follows(layout, axes);
}

int hoist_layout_is_contiguous_any(const hoist_layout *layout)
{
	int axes[HOIST_MAX_RANK];
	hoist_layout_stride_order(layout, axes);
	return follows(layout, axes);
}

int hoist_layout_is_dense(const hoist_layout *layout)
{
	return layout->offset == 0 && hoist_layout_is_contiguous_any(layout);
}

int hoist_layout_is_unique(const hoist_layout *layout)
{
	int axes[HOIST_MAX_RANK];
	uint64_t reach = 0; /* how far the axes with smaller strides reach together */
	if (hoist__layout_is_empty(layout->rank, layout->shape))
		return 1;
	hoist_layout_stride_order(layout, axes);
	for (int i = layout->rank - 1; i >= 0; i--) {
		uint64_t extent = (uint64_t)layout->shape[axes[i]];
		uint64_t stride = magnitude(layout->strides[axes[i]]);
		if (extent == 1)
			continue;
		if (reach >= stride)
			return 0;
		/* This cannot overflow in a sound layout. */
		reach += stride * (extent - 1);
	}
	return 1;
}

int hoist_layout_bounds(const hoist_layout *layout, int64_t *min, int64_t *max)
{
	int64_t low = 0;
	int64_t high = -1;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (!hoist__layout_is_empty(layout->rank, layout->shape)) {
		err = hoist__layout_furthest(layout->rank, layout->shape, layout->strides, &low,
					     &high);
		if (err < 0)
			return err;
		if (__builtin_add_overflow(low, layout->offset, &low) ||
		    __builtin_add_overflow(high, layout->offset, &high))
			return hoist__fail(
				-EOVERFLOW,
				"with the offset %lld, items lie further than 63 bits go",
				(long long)layout->offset);
	}
	*min = low;
	*max = high;
	return 0;
}

int hoist_layout_required_bytes(const hoist_layout *layout, int64_t *ret)
{
	int64_t min;
	int64_t max;
	int64_t bytes;
	int err = hoist_layout_bounds(layout, &min, &max);
	if (err < 0)
		return err;
	if (min < 0)
		return hoist__fail(-EINVAL,
				   "the lowest item lies %llu items before the base, and no size "
				   "reaches there; see hoist_layout_to_dense()",
				   (unsigned long long)magnitude(min));
	if (__builtin_add_overflow(max, 1, &bytes) ||
	    __builtin_mul_overflow(bytes, layout->itemsize, &bytes))
		return fail_bytes(layout, "the highest item's place", max);
	*ret = bytes;
	return 0;
}
