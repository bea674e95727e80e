/* SPDX-License-Identifier: MIT */
/* hoist/layout.h - shape and strides: where the elements of a tensor lie.
 *
 *     const int64_t shape[] = {4, 6};
 *     const hoist_slice every_other = HOIST_STEP(HOIST_NONE, HOIST_NONE, 2);
 *     hoist_layout matrix, rows;
 *     hoist_layout_make(2, shape, NULL, sizeof(float), HOIST_STRIDES_IN_ITEMS, &matrix);
 *     hoist_layout_slice(&matrix, 1, &every_other, &rows);  // shape (2, 6), strides (12, 1)
 *     hoist_layout_is_contiguous_c(&rows);                  // 0
 *
 * A Layout is a value: extents, strides, the bytes of one item and the offset of the first item.
 * Every function below makes one layout from others and touches no memory but its result.  The
 * functions allocate nothing and check all arithmetic.  The result may be the argument.  Only the
 * first @rank values of the arrays have a meaning: a layout of rank 2 costs as much as two axes
 * cost.
 *
 * The item with the indices i lies at offset + sum(i[k] * strides[k]) items from the base.  A
 * layout of rank 0 has one item; a layout with an extent of 0 has none.
 *
 * A layout from hoist_layout_make() or hoist_layout_dense() is sound: the bytes of its items
 * together, and the bytes from its lowest item to the end of its highest, fit in 63 bits.  The
 * other functions make sound layouts from sound ones.  A caller may fill in and change the struct
 * by hand: functions that return errors then report a wrong rank, itemsize or extent; the others
 * give no useful answer.
 *
 * Results have strides of their own (their `implicit` is 0), unless a comment says that the
 * function returns an argument as it is.
 *
 * Axes: negative ones count from the end, -1 is the last.
 * Threads: any.
 * Returns, unless a comment says more: 0; -EINVAL, with the axis and the values; -EOVERFLOW (a
 * product or an offset does not fit in 63 bits).
 */
#ifndef HOIST_LAYOUT_H
#define HOIST_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>
#include <hoist/slice.h>

HOIST_BEGIN

typedef struct hoist_layout {
	int rank;
	int implicit;	  /* 1: no strides were given.  `strides` then has those of C order, but
			   * the layout does not equal one that was given the same strides */
	int64_t itemsize; /* bytes of one item, above 0 */
	int64_t offset;	  /* of the first item, in items */
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK]; /* in items; may be negative, or 0 */
} hoist_layout;

/* --- making layouts --- */

/* The unit of the strides that hoist_layout_make() is given. */
#define HOIST_STRIDES_IN_ITEMS 0
#define HOIST_STRIDES_IN_BYTES 1

/* A layout with offset 0.  @strides NULL means C order; the result is then implicit.  @strides_are:
 * HOIST_STRIDES_IN_ITEMS, or HOIST_STRIDES_IN_BYTES, where each stride must be a multiple of
 * @itemsize.  The strides of axes of extent 1, and all strides of a layout without items, are kept
 * as they are.
 * Returns: 0; -EINVAL (a rank outside 0..HOIST_MAX_RANK; a negative extent; an @itemsize below 1; a
 *   stride of bytes that is no multiple of @itemsize); -EOVERFLOW. */
HOIST_API int hoist_layout_make(int rank, const int64_t *shape, const int64_t *strides,
				int64_t itemsize, int strides_are, hoist_layout *ret);

/* The order of axes in memory. */
typedef enum hoist_order {
	HOIST_ORDER_C = 1, /* the last axis varies fastest */
	HOIST_ORDER_F,	   /* the first axis varies fastest */
	HOIST_ORDER_K,	   /* as in the given layout: hoist_layout_stride_order() */
	HOIST_ORDER_AXES   /* as listed, from the largest stride to the smallest */
} hoist_order;

/* A layout without gaps, with offset 0 and all strides above 0.  In a layout without items all
 * strides are 0.  @axes: for HOIST_ORDER_AXES only, @rank axes, each once.  HOIST_ORDER_K has no
 * meaning here, and is -EINVAL. */
HOIST_API int hoist_layout_dense(int rank, const int64_t *shape, int64_t itemsize,
				 hoist_order order, const int *axes, hoist_layout *ret);

/* The dense layout for a copy of @layout's items: its shape and itemsize, offset 0.  A layout that
 * is dense in that order already is returned as it is, implicit strides too; HOIST_ORDER_AXES
 * always makes a new one.  HOIST_ORDER_K keeps the order of |strides|: a reversed layout becomes a
 * forward one.
 * Returns: 1 if *@ret is @layout as it was; 0 if it is another; the errors above. */
HOIST_API int hoist_layout_to_dense(const hoist_layout *layout, hoist_order order, const int *axes,
				    hoist_layout *ret);

/* --- properties of a layout --- */

/* Returns: 1 if rank, shape, strides, itemsize and offset are the same, and both layouts are
 *   implicit or neither is; else 0. */
HOIST_API int hoist_layout_equal(const hoist_layout *a, const hoist_layout *b);

/* The number of items: the product of the extents, 1 for rank 0.
 * Returns: the number; -EOVERFLOW, which a sound layout never gives. */
HOIST_API int64_t hoist_layout_volume(const hoist_layout *layout);

/* The offset in bytes. */
HOIST_API int hoist_layout_byte_offset(const hoist_layout *layout, int64_t *ret);

/* The strides in bytes: @ret gets as many values as the rank. */
HOIST_API int hoist_layout_byte_strides(const hoist_layout *layout, int64_t *ret);

/* Lists the axes from the largest |stride| to the smallest in @axes, @rank values.  Among equal
 * strides the larger extent comes first, then the lower axis.  Implicit strides give 0, 1, 2... */
HOIST_API void hoist_layout_stride_order(const hoist_layout *layout, int *axes);

/* Whether items that follow each other in C order are next to each other in memory, forwards and
 * without gaps.  Axes of extent 1 do not count.  A layout without items is contiguous in every
 * order.
 * Returns: 1, 0. */
HOIST_API int hoist_layout_is_contiguous_c(const hoist_layout *layout);

/* As hoist_layout_is_contiguous_c(), in F order. */
HOIST_API int hoist_layout_is_contiguous_f(const hoist_layout *layout);

/* As hoist_layout_is_contiguous_c(), in the order of the strides. */
HOIST_API int hoist_layout_is_contiguous_any(const hoist_layout *layout);

/* Whether the layout is contiguous_any and its offset is 0.
 * Returns: 1, 0. */
HOIST_API int hoist_layout_is_dense(const hoist_layout *layout);

/* Whether each item has a place of its own.  The answer is exact for layouts that slicing,
 * permuting and broadcasting make of dense ones.  Strides made by hand may interleave without
 * meeting, as shape (3, 2) with strides (2, 3) does: the answer is 0 for these, too.
 * Returns: 1, 0. */
HOIST_API int hoist_layout_is_unique(const hoist_layout *layout);

/* The lowest and the highest place of an item, in items from the base, the offset included.
 * Without items: 0 and -1. */
HOIST_API int hoist_layout_bounds(const hoist_layout *layout, int64_t *min, int64_t *max);

/* The bytes that memory must have, from the base on, to hold the highest item; the gap before the
 * offset counts.  Without items: 0.
 * Returns: 0; -EINVAL (the lowest item lies before the base); -EOVERFLOW. */
HOIST_API int hoist_layout_required_bytes(const hoist_layout *layout, int64_t *ret);

/* --- other views of the same items --- */

/* Slices the first @n axes; the others stay whole.  Bounds are clipped and never an error.  An
 * empty range makes all strides 0, and its start does not move the offset.
 * Returns: 0; -EINVAL (more indices than axes; an integer outside its axis (Buffers: -ERANGE); a
 *   step of 0); -EOVERFLOW. */
HOIST_API int hoist_layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
				 hoist_layout *ret);

/* The axes in another order: axis k of the result is axis axes[k] of @layout.  @n must be the rank,
 * and @axes must have each axis once. */
HOIST_API int hoist_layout_permute(const hoist_layout *layout, int n, const int *axes,
				   hoist_layout *ret);

/* The same items in the same (C) order under another shape.  One extent may be -1: it follows from
 * the others.  The function never copies.
 * Returns: 0; -EINVAL (no strides give that order; another number of items; a -1 beside an extent
 *   of 0); -EOVERFLOW. */
HOIST_API int hoist_layout_reshape(const hoist_layout *layout, int rank, const int64_t *shape,
				   hoist_layout *ret);

#define HOIST_MERGE_ALL UINT64_MAX /* for hoist_layout_flatten(): every axis may be merged */

/* Merges axes into the axis before them where one stride serves both.  Candidates are the axes from
 * @first to @last, both included (0 and -1: all), whose bit is set in @mask.  @mask is
 * HOIST_MERGE_ALL, or the masks of several layouts of one rank ANDed, so that all of them get the
 * same shape.  Rank 0 becomes rank 1. */
HOIST_API int hoist_layout_flatten(const hoist_layout *layout, int first, int last, uint64_t mask,
				   hoist_layout *ret);

/* The mask for hoist_layout_flatten().  Bit k: axis k can be merged into axis k - 1. */
HOIST_API uint64_t hoist_layout_flatten_mask(const hoist_layout *layout);

/* Drops the axes of extent 1.  A layout without items gets the shape (0) and the stride (0). */
HOIST_API int hoist_layout_squeeze(const hoist_layout *layout, hoist_layout *ret);

/* Adds @n axes of extent 1.  @axes are their places in the result.  With @n 0 the result is @layout
 * as it is. */
HOIST_API int hoist_layout_unsqueeze(const hoist_layout *layout, int n, const int *axes,
				     hoist_layout *ret);

/* Repeats items to fill a larger shape.  Shapes are compared from the right.  An axis of extent 1
 * becomes as long as @shape says, and axes may be added on the left; both get the stride 0. */
HOIST_API int hoist_layout_broadcast(const hoist_layout *layout, int rank, const int64_t *shape,
				     hoist_layout *ret);

/* The same bytes as items of another size.  Runs of items along @axis become one item each, or each
 * item becomes several.  @axis must have the stride 1 and must not be empty; one size must be a
 * multiple of the other.  For larger items, the offset, the other strides, the extent of @axis and
 * the address @data (0: not known) must be whole numbers of them.  @axis is dropped if its extent
 * becomes 1 and @keep_dim is 0.  With the present size the result is @layout as it is. */
HOIST_API int hoist_layout_repack(const hoist_layout *layout, int64_t itemsize, uintptr_t data,
				  int axis, int keep_dim, hoist_layout *ret);

/* The largest size in bytes that divides @max, @data, the offset, the length of @axis and the other
 * strides.  If the present itemsize divides @max and @data, the result is the largest divisor of
 * @max that hoist_layout_repack() accepts with @data and @axis.  If not, the result can be below
 * the present itemsize, or neither a multiple nor a divisor of it, which repack refuses.  The
 * result is the present itemsize if @axis is empty or has a stride other than 1.
 * Returns: 0; -EINVAL (also: @max is below the present itemsize); -EOVERFLOW. */
HOIST_API int hoist_layout_max_itemsize(const hoist_layout *layout, int64_t max, uintptr_t data,
					int axis, int64_t *ret);

HOIST_END

#endif
