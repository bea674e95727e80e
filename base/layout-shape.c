/* SPDX-License-Identifier: MIT */
/* base/layout-shape.c - gives the same items, in the same order, other shapes.
 * The contract is in hoist/layout.h.
 *
 * Two neighbouring axes can be one if a step of the first is as long as all of the second:
 * stride[k-1] == shape[k] * stride[k].
 */
#include "config.h"

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

/* True if axis @axis can be merged into an axis before it, whose stride is @stride. */
static bool merges(const hoist_layout *layout, int axis, int64_t stride)
{
	int64_t length;
	return !__builtin_mul_overflow(layout->shape[axis], layout->strides[axis], &length) &&
	       length == stride;
}

uint64_t hoist_layout_flatten_mask(const hoist_layout *layout)
{
	uint64_t mask = 0;
	for (int i = 1; i < layout->rank; i++)
		if (merges(layout, i, layout->strides[i - 1]))
			mask |= UINT64_C(1) << i;
	return mask;
}

/* Merges the axes that can be merged and have their bit in @mask.  @layout may be @made.  Pre: its
 * rank is above 0. */
static int merge(const hoist_layout *layout, uint64_t mask, hoist_layout *made)
{
	int last = 0;
	made->shape[0] = layout->shape[0];
	made->strides[0] = layout->strides[0];
	for (int i = 1; i < layout->rank; i++) {
		int64_t extent = layout->shape[i];
		int64_t stride = layout->strides[i];
		if ((mask >> i & 1) == 0 || !merges(layout, i, made->strides[last])) {
			last++;
			made->shape[last] = extent;
		} else if (__builtin_mul_overflow(made->shape[last], extent, &made->shape[last])) {
			/* Only possible if another extent is 0. */
			return hoist__fail(-EOVERFLOW,
					   "flatten: axis %d with those before it does not fit in "
					   "63 bits",
					   i);
		}
		made->strides[last] = stride;
	}
	made->rank = last + 1;
	made->implicit = 0;
	made->itemsize = layout->itemsize;
	made->offset = layout->offset;
	return 0;
}

static void make_one(const hoist_layout *layout, hoist_layout *made)
{
	made->rank = 1;
	made->implicit = 0;
	made->itemsize = layout->itemsize;
	made->offset = layout->offset;
	made->shape[0] = 1;
	made->strides[0] = 1;
}

/* Sets the bits of the axes first..last, which merge into one: all bits but @first's. */
static int mask_of_range(int rank, int first, int last, uint64_t *mask)
{
	if (first == 0 && last == -1)
		return 0;
	int err = hoist__layout_axis("flatten, first", rank, first, &first);
	if (err == 0)
		err = hoist__layout_axis("flatten, last", rank, last, &last);
	if (err < 0)
		return err;
	if (first > last)
		return hoist__fail(-EINVAL, "flatten: from axis %d to %d, which lies before it",
				   first, last);
	*mask &= UINT64_MAX << first & ~(UINT64_C(1) << first);
	*mask &= UINT64_MAX >> (63 - last);
	return 0;
}

int hoist_layout_flatten(const hoist_layout *layout, int first, int last, uint64_t mask,
			 hoist_layout *ret)
{
	hoist_layout made;
	int err = hoist__layout_check(layout);
	if (err == 0)
		err = mask_of_range(layout->rank, first, last, &mask);
	if (err < 0)
		return err;
	if (layout->rank == 0)
		make_one(layout, &made);
	else
		err = merge(layout, mask, &made);
	if (err < 0)
		return err;
	hoist__layout_put(&made, ret);
	return 0;
}

/* --- reshape --- */

static int fail_volume(int64_t had, int64_t wanted)
{
	return hoist__fail(-EINVAL, "reshape: from %lld items to %lld", (long long)had,
			   (long long)wanted);
}

/* Takes the new shape.  An extent of -1 becomes what the other extents leave. */
static int take_shape(int64_t volume, int rank, const int64_t *shape, int64_t *ret)
{
	int open = -1;
	uint64_t n;
	if (rank < 0 || rank > HOIST_MAX_RANK || (rank > 0 && shape == NULL))
		return hoist__layout_check_shape(rank, shape);
	for (int i = 0; i < rank; i++) {
		if (shape[i] == -1 && open >= 0)
			return hoist__fail(-EINVAL,
					   "reshape: axes %d and %d are both -1; one can be", open,
					   i);
		if (shape[i] == -1)
			open = i;
		ret[i] = shape[i] == -1 ? 1 : shape[i];
	}
	int err = hoist__layout_elements(rank, ret, &n);
	if (err < 0)
		return hoist__fail_in(err, "reshape");
	if (open < 0)
		return (int64_t)n == volume ? 0 : fail_volume(volume, (int64_t)n);
	if (n == 0)
		return hoist__fail(-EINVAL,
				   "reshape: axis %d is -1, but beside an extent of 0 it can be "
				   "anything",
				   open);
	if (volume % (int64_t)n != 0)
		return hoist__fail(-EINVAL,
				   "reshape: axis %d is -1, but %lld items are no multiple of %lld",
				   open, (long long)volume, (long long)n);
	ret[open] = volume / (int64_t)n;
	return 0;
}

/* Finds strides of @made's shape as pieces of the axes of @from.  Going from the last axis to the
 * first, each axis of @from is used up by one or more new axes.  Pre: neither is empty. */
static bool split(const hoist_layout *from, hoist_layout *made)
{
	int at = made->rank - 1;
	for (int i = from->rank - 1; i >= 0; i--) {
		int64_t stride = from->strides[i];
		int64_t left = from->shape[i];
		for (; at >= 0 && (made->shape[at] == 1 || left > 1); at--) {
			made->strides[at] = stride;
			if (left % made->shape[at] != 0)
				return false;
			left /= made->shape[at];
			/* Past the last piece the product may overflow; only extents of 1 use that
			 * stride. */
			if (__builtin_mul_overflow(stride, made->shape[at], &stride))
				stride = from->strides[i];
		}
		if (left != 1)
			return false;
	}
	return true;
}

/* Axes of extent 1 may have strides that keep their neighbours from merging.  So a second try
 * leaves them out. */
static bool find_strides(const hoist_layout *layout, hoist_layout *made)
{
	hoist_layout merged;
	if (layout->rank == 0)
		make_one(layout, &merged);
	else if (merge(layout, HOIST_MERGE_ALL, &merged) < 0)
		return false;
	if (split(&merged, made))
		return true;
	if (hoist_layout_squeeze(layout, &merged) < 0 || merged.rank == 0 ||
	    merge(&merged, HOIST_MERGE_ALL, &merged) < 0)
		return false;
	return split(&merged, made);
}

static int fail_strides(const hoist_layout *layout)
{
	for (int i = 1; i < layout->rank; i++)
		if (layout->shape[i] != 1 && !merges(layout, i, layout->strides[i - 1]))
			return hoist__fail(-EINVAL,
					   "reshape: axis %d (extent %lld, stride %lld) does not "
					   "follow on axis %d (stride %lld) as the new shape "
					   "wants; copy first",
					   i, (long long)layout->shape[i],
					   (long long)layout->strides[i], i - 1,
					   (long long)layout->strides[i - 1]);
	return hoist__fail(-EINVAL, "reshape: no strides give the new shape; copy first");
}

/* An empty layout gets strides of 0, as none of them is ever used. */
int hoist_layout_reshape(const hoist_layout *layout, int rank, const int64_t *shape,
			 hoist_layout *ret)
{
	hoist_layout made;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	int64_t volume = hoist_layout_volume(layout);
	if (volume < 0)
		return (int)volume;
	err = take_shape(volume, rank, shape, made.shape);
	if (err < 0)
		return err;
	made.rank = rank;
	made.implicit = 0;
	made.itemsize = layout->itemsize;
	made.offset = layout->offset;
	if (volume == 0)
		for (int i = 0; i < rank; i++)
			made.strides[i] = 0;
	else if (!find_strides(layout, &made))
		return fail_strides(layout);
	hoist__layout_put(&made, ret);
	return 0;
}
