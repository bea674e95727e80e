/* SPDX-License-Identifier: MIT */
/* base/layout-slice.c - takes integers and ranges of axes, as Python's indexing does.
 * The contract is in hoist/layout.h. */
#include "config.h"

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

/* Clips a bound.  Going up, it lies in 0..extent.  Going down, it lies in -1..extent-1, where -1 is
 * one before the first item.  @none is the meaning of HOIST_NONE. */
static int64_t clip(int64_t bound, int64_t extent, bool down, int64_t none)
{
	int64_t low = down ? -1 : 0;
	int64_t high = down ? extent - 1 : extent;
	if (bound == HOIST_NONE)
		return none;
	if (bound < 0)
		bound += extent;
	return bound < low ? low : bound > high ? high : bound;
}

/* Returns how many items the range has, and gives the index of the first. */
static int64_t range(const hoist_slice *slice, int64_t step, int64_t extent, int64_t *first)
{
	bool down = step < 0;
	int64_t start = clip(slice->start, extent, down, down ? extent - 1 : 0);
	int64_t stop = clip(slice->stop, extent, down, down ? -1 : extent);
	uint64_t stride = down ? -(uint64_t)step : (uint64_t)step;
	int64_t width = down ? start - stop : stop - start;
	*first = start;
	return width <= 0 ? 0 : (int64_t)(((uint64_t)width - 1) / stride) + 1;
}

static int fail_overflow(int axis)
{
	return hoist__fail(-EOVERFLOW, "slice: the offset in axis %d does not fit in 63 bits",
			   axis);
}

/* Adds the distance of item @index of @axis. */
static int move(const hoist_layout *layout, int axis, int64_t index, int64_t *offset)
{
	int64_t distance;
	if (__builtin_mul_overflow(index, layout->strides[axis], &distance) ||
	    __builtin_add_overflow(*offset, distance, offset))
		return fail_overflow(axis);
	return 0;
}

static int take_index(const hoist_layout *layout, int axis, int64_t index, int range_error,
		      int64_t *offset)
{
	int64_t extent = layout->shape[axis];
	if (index < -extent || index >= extent)
		return hoist__fail(range_error,
				   "slice: index %lld is outside axis %d, of extent %lld",
				   (long long)index, axis, (long long)extent);
	return move(layout, axis, index < 0 ? index + extent : index, offset);
}

static int take_range(const hoist_layout *layout, int axis, const hoist_slice *slice,
		      hoist_layout *made)
{
	int64_t step = slice->step == HOIST_NONE ? 1 : slice->step;
	int64_t first;
	int64_t stride;
	if (step == 0)
		return hoist__fail(-EINVAL, "slice: the step in axis %d is 0", axis);
	int64_t extent = range(slice, step, layout->shape[axis], &first);
	if (__builtin_mul_overflow(layout->strides[axis], step, &stride)) {
		/* A step that long leaves one item, whose stride does not matter. */
		if (extent > 1)
			return fail_overflow(axis);
		stride = layout->strides[axis];
	}
	made->shape[made->rank] = extent;
	made->strides[made->rank] = stride;
	made->rank++;
	return extent > 0 ? move(layout, axis, first, &made->offset) : 0;
}

/* An integer drops its axis; axes without an index stay.  If a range is empty, no item is left, and
 * all strides become 0. */
int hoist__layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
			int range_error, hoist_layout *ret)
{
	hoist_layout made;
	bool emptied = false;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (n < 0 || n > layout->rank)
		return hoist__fail(-EINVAL, "slice: %d indices for %d axes", n, layout->rank);
	if (n > 0 && slices == NULL)
		return hoist__fail(-EINVAL, "slice: the %d indices are NULL", n);
	made.rank = 0;
	made.implicit = 0;
	made.itemsize = layout->itemsize;
	made.offset = layout->offset;
	for (int i = 0; i < n && err == 0; i++) {
		if (slices[i].is_index) {
			err = take_index(layout, i, slices[i].start, range_error, &made.offset);
		} else {
			err = take_range(layout, i, &slices[i], &made);
			emptied = emptied || (err == 0 && made.shape[made.rank - 1] == 0);
		}
	}
	if (err < 0)
		return err;
	for (int i = n; i < layout->rank; i++, made.rank++) {
		made.shape[made.rank] = layout->shape[i];
		made.strides[made.rank] = layout->strides[i];
	}
	for (int i = 0; i < made.rank && emptied; i++)
		made.strides[i] = 0;
	hoist__layout_put(&made, ret);
	return 0;
}

int hoist_layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
		       hoist_layout *ret)
{
	return hoist__layout_slice(layout, n, slices, -EINVAL, ret);
}
