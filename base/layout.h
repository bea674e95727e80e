/* SPDX-License-Identifier: MIT */
/* base/layout.h - shape and strides: where the elements of a tensor lie.
 *
 * Two faces of one thing.  hoist/layout.h has layouts as values, and the algebra on them:
 *   layout-make.c    making, comparing      layout-slice.c    indices and ranges
 *   layout-ask.c     what is asked of one   layout-axes.c     axes moved, added, dropped
 *   layout-shape.c   other shapes           layout-repack.c   items of another size
 * The functions below work on bare arrays, for those who keep their own: pure functions on
 * caller-owned arrays; nothing allocates.  A layout of rank n
 * has shape[n] (extents, 0 allowed) and strides[n] in elements (negative
 * allowed); the element with indices i lies at sum(i[k] * strides[k]) elements
 * from the base.  Rank 0 is one element.  All products are overflow-checked:
 * what a function below gives fits in int64_t.
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

/* The number of elements.
 * Returns: 0; -EINVAL rank outside 0..HOIST__MAX_RANK or a negative extent
 *   (the text names the axis); -EOVERFLOW.  An extent of 0 gives 0 whatever
 *   the others are, as long as each is valid. */
int hoist__layout_elements(int rank, const int64_t *shape, uint64_t *ret);

/* Fills @strides for C order: the last axis varies fastest.  Axes of extent 0
 * count as extent 1, so that strides of empty tensors are defined too.
 * Returns: 0; as hoist__layout_elements(). */
int hoist__layout_c_strides(int rank, const int64_t *shape, int64_t *strides);

/* C-contiguous: elements lie in C order without gaps.  Axes of extent 1 do not
 * count; a layout without elements is contiguous.  @strides NULL means C order. */
bool hoist__layout_contiguous(int rank, const int64_t *shape, const int64_t *strides);

/* Elements from the base element to the furthest ones on either side: *low <= 0 <= *high.
 * No extent may be 0.
 * Returns: 0; -EOVERFLOW. */
int hoist__layout_furthest(int rank, const int64_t *shape, const int64_t *strides, int64_t *low,
			   int64_t *high);

/* The bytes a layout touches, relative to its base element, as [*low, *high):
 * low is <= 0 where strides are negative.  An empty layout gives 0, 0.
 * Returns: 0; -EINVAL for block types unless contiguous, or as above;
 *   -EOVERFLOW. */
int hoist__layout_bounds(hoist_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
			 int64_t *low, int64_t *high);

/* hoist_layout_slice(), with the code for an integer outside its axis. */
int hoist__layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
			int range_error, hoist_layout *ret);

/* --- between the files of the algebra --- */

/* A layout as it may come from outside: rank, itemsize, extents.
 * Returns: 0; -EINVAL. */
int hoist__layout_check(const hoist_layout *layout);

/* @rank extents, none negative.  Returns: 0; -EINVAL. */
int hoist__layout_check_shape(int rank, const int64_t *shape);

/* Any extent of 0. */
bool hoist__layout_is_empty(int rank, const int64_t *shape);

/* Counts a negative axis from the end.  @what: the operation, for the text.
 * Returns: 0; -EINVAL. */
int hoist__layout_axis(const char *what, int rank, int axis, int *ret);

/* The same for a list of axes of a tensor of @rank, of which none may be there twice. */
int hoist__layout_axes(const char *what, int rank, int n, const int *axes, int *ret);

/* Copies what means something, not the whole arrays.  @from may be @ret. */
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
