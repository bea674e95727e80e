/* SPDX-License-Identifier: MIT */
/* base/layout.h - shape and strides: where the elements of a tensor lie.
 *
 * Pure functions on caller-owned arrays; nothing allocates.  A layout of rank n
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

#include "hoist/dtype.h"

#define HOIST__MAX_RANK 64

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

/* The bytes a layout touches, relative to its base element, as [*low, *high):
 * low is <= 0 where strides are negative.  An empty layout gives 0, 0.
 * Returns: 0; -EINVAL for block types unless contiguous, or as above;
 *   -EOVERFLOW. */
int hoist__layout_bounds(hoist_dtype dtype, int rank, const int64_t *shape, const int64_t *strides,
			 int64_t *low, int64_t *high);

#endif
