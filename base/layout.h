/* SPDX-License-Identifier: MIT */
/* base/layout.h - shape and strides: where the elements of a tensor lie.
 *
 * hoist/layout.h has layouts as values, and the algebra on them:
 *   layout-make.c    making, comparing      layout-slice.c    indices and ranges
 *   layout-ask.c     questions about one    layout-axes.c     axes moved, added, dropped
 *   layout-shape.c   other shapes           layout-repack.c   items of another size
 *
 * The functions below work on bare arrays, for callers that keep their own.  They are pure
 * functions on arrays of the caller, and allocate nothing.  A layout of rank n has shape[n]
 * (extents, 0 allowed) and strides[n] in elements (negative allowed).  The element with indices i
 * lies at sum(i[k] * strides[k]) elements from the base.  Rank 0 is one element.  All products are
 * checked for overflow: every result of a function below fits in int64_t.
 */
#ifndef HOIST_BASE_LAYOUT_H
#define HOIST_BASE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hoist/dtype.h"
#include "hoist/layout.h"

#define HOIST__MAX_RANK HOIST_MAX_RANK

/* Gives the number of elements.  An extent of 0 gives 0 whatever the others are, as long as each is
 * valid.
 * Returns: 0; -EINVAL for a rank outside 0..HOIST__MAX_RANK or a negative extent (the text names
 *   the axis); -EOVERFLOW. */
int hoist__layout_elements(int rank, const int64_t *shape, uint64_t *ret);

/* Fills @strides for C order: the last axis varies fastest.  Axes of extent 0 count as extent 1, so
 * that the strides of empty tensors are defined, too.
 * Returns: 0; as hoist__layout_elements(). */
int hoist__layout_c_strides(int rank, const int64_t *shape, int64_t *strides);

/* True if the elements lie in C order without gaps.  Axes of extent 1 do not matter.  A layout
 * without elements is contiguous.  @strides NULL means C order. */
bool hoist__layout_contiguous(int rank, const int64_t *shape, const int64_t *strides);

/* Gives the distances in elements from the base element to the furthest ones on either side: *low
 * <= 0 <= *high.  Pre: no extent is 0.
 * Returns: 0; -EOVERFLOW. */
int hoist__layout_furthest(int rank, const int64_t *shape, const int64_t *strides, int64_t *low,
			   int64_t *high);

/* Gives the bytes that a layout touches, relative to its base element: [*low, *high).  *low is
 * below 0 if strides are negative.  An empty layout gives 0, 0.
 * Returns: 0; -EINVAL for block types unless contiguous, or as above; -EOVERFLOW. */
int hoist__layout_bounds(hoist_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
			 int64_t *low, int64_t *high);

/* Serves hoist_layout_slice(); @range_error is the code for an integer outside its axis. */
int hoist__layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
			int range_error, hoist_layout *ret);

/* --- between the files of the algebra --- */

/* Checks a layout that may come from outside: rank, itemsize, extents.
 * Returns: 0; -EINVAL. */
int hoist__layout_check(const hoist_layout *layout);

/* Checks that there are @rank extents, none negative.
 * Returns: 0; -EINVAL. */
int hoist__layout_check_shape(int rank, const int64_t *shape);

/* True if any extent is 0. */
bool hoist__layout_is_empty(int rank, const int64_t *shape);

/* Counts a negative axis from the end.  @what is the operation, for the message.
 * Returns: 0; -EINVAL. */
int hoist__layout_axis(const char *what, int rank, int axis, int *ret);

/* The same for a list of axes of a tensor of rank @rank; no axis may be listed twice. */
int hoist__layout_axes(const char *what, int rank, int n, const int *axes, int *ret);

/* Copies the part that is in use, not the whole arrays.  @from may be @ret. */
static inline void hoist__layout_put(const hoist_layout *from, hoist_layout *ret)
{
	if (from == ret)
		return;
	size_t bytes = (size_t)from->rank * sizeof from->shape[0];
	ret->rank = from->rank;
	ret->implicit = from->implicit;
	ret->itemsize = from->itemsize;
	ret->offset = from->offset;
	memcpy(ret->shape, from->shape, bytes);
	memcpy(ret->strides, from->strides, bytes);
}

#endif
