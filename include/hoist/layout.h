/* SPDX-License-Identifier: MIT */
/* hoist/layout.h - shape and strides: where the elements of a tensor lie.
 *
 * A Layout is a value: extents, strides, the bytes of one item and the offset of the
 * first one.  Every function below makes one from others and touches no memory but its
 * result; nothing allocates, all arithmetic is checked.  The result may be the
 * argument.  Only the first @rank values of the arrays mean anything: a layout of rank 2
 * costs what two axes cost.
 *
 * The item with the indices i lies at offset + sum(i[k] * strides[k]) items from the
 * base.  Rank 0 is one item; an extent of 0 is none.
 *
 * What was made by hoist_layout_make() or hoist_layout_dense() is sound: the bytes of its
 * items together, and those from its lowest item to the end of its highest, fit in 63 bits,
 * and so they do in all that the other functions make of it.  The struct may be filled in
 * and changed by hand; what is wrong with rank, itemsize or extents then, the functions
 * that return errors say, and the others give no useful answer.
 *
 * Results have strides of their own (their @implicit is 0), unless a comment says that an
 * argument is returned as it is.
 *
 * Axes: negative ones count from the end, -1 is the last.
 * Threads: any.  Errors, unless a comment says more: -EINVAL, with the axis and the
 * values; -EOVERFLOW where a product or an offset leaves 63 bits.
 */
#ifndef HOIST_LAYOUT_H
#define HOIST_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>

HOIST_BEGIN

#define HOIST_MAX_RANK 64

typedef struct hoist_layout {
	int rank;
	int implicit;	  /* 1: no strides were given.  They are those of C order, and stand in
			   * @strides, but such a layout does not equal one whose were given */
	int64_t itemsize; /* bytes of one item, above 0 */
	int64_t offset;	  /* of the first item, in items */
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK]; /* in items; may be negative, or 0 */
} hoist_layout;

/* --- making one --- */

/* What hoist_layout_make() is given as strides: items, or bytes. */
#define HOIST_STRIDES_IN_ITEMS 0
#define HOIST_STRIDES_IN_BYTES 1

/* A layout with offset 0.  @strides NULL means C order, and the result is then implicit.
 * With HOIST_STRIDES_IN_BYTES each stride must be a multiple of @itemsize.  Strides of
 * axes of extent 1, and all of a layout without items, are kept as they are.
 * Returns: -EINVAL for a rank outside 0..HOIST_MAX_RANK, a negative extent, an @itemsize
 *   below 1, a stride of bytes that is no multiple of it. */
HOIST_API int hoist_layout_make(int rank, const int64_t *shape, const int64_t *strides,
				int64_t itemsize, int strides_are, hoist_layout *ret);

/* The order of axes in memory. */
typedef enum hoist_order {
	HOIST_ORDER_C = 1, /* the last axis varies fastest */
	HOIST_ORDER_F,	   /* the first axis varies fastest */
	HOIST_ORDER_K,	   /* as in the layout asked: hoist_layout_stride_order() */
	HOIST_ORDER_AXES   /* as listed, from the largest stride to the smallest */
} hoist_order;

/* A layout without gaps, offset 0 and all strides above 0; without items, all strides are
 * 0.  @axes: for HOIST_ORDER_AXES alone, @rank axes, each once.  ORDER_K has no meaning
 * here, and is -EINVAL. */
HOIST_API int hoist_layout_dense(int rank, const int64_t *shape, int64_t itemsize,
				 hoist_order order, const int *axes, hoist_layout *ret);

/* The dense layout for a copy of @layout's items: its shape and itemsize, offset 0.  What
 * is dense in that order already is returned as it is, implicit strides too; ORDER_AXES
 * always makes a new one.  ORDER_K keeps the order of |strides|: a reversed layout
 * becomes a forward one.
 * Returns: 1 if *ret is @layout as it was; 0 if it is another. */
HOIST_API int hoist_layout_to_dense(const hoist_layout *layout, hoist_order order, const int *axes,
				    hoist_layout *ret);

/* --- asking --- */

/* Rank, shape, strides, itemsize and offset are the same, and both are implicit or none
 * is.  Returns: 1, 0. */
HOIST_API int hoist_layout_equal(const hoist_layout *a, const hoist_layout *b);

/* How many items there are: the product of the extents, 1 for rank 0.
 * Returns: the number; -EOVERFLOW, which a sound layout never gives. */
HOIST_API int64_t hoist_layout_volume(const hoist_layout *layout);

/* The offset, and all strides, in bytes.  @ret of the second: @rank values. */
HOIST_API int hoist_layout_byte_offset(const hoist_layout *layout, int64_t *ret);
HOIST_API int hoist_layout_byte_strides(const hoist_layout *layout, int64_t *ret);

/* The axes from the largest |stride| to the smallest; among equals the larger extent
 * comes first, then the lower axis.  Implicit strides: 0, 1, 2...  @axes: @rank values. */
HOIST_API void hoist_layout_stride_order(const hoist_layout *layout, int *axes);

/* Are items that follow each other in C order (F order; the order of the strides) next to
 * each other in memory, forwards and without gaps?  Axes of extent 1 do not count; a
 * layout without items is all of it.  Returns: 1, 0. */
HOIST_API int hoist_layout_is_contiguous_c(const hoist_layout *layout);
HOIST_API int hoist_layout_is_contiguous_f(const hoist_layout *layout);
HOIST_API int hoist_layout_is_contiguous_any(const hoist_layout *layout);

/* contiguous_any, with offset 0.  Returns: 1, 0. */
HOIST_API int hoist_layout_is_dense(const hoist_layout *layout);

/* Has each item a place of its own?  The answer is exact for what slicing, permuting and
 * broadcasting make of dense layouts.  Strides made by hand may interleave without
 * meeting, as shape (3, 2) with strides (2, 3) does: that is 0, too.  Returns: 1, 0. */
HOIST_API int hoist_layout_is_unique(const hoist_layout *layout);

/* The lowest and the highest place of an item, in items from the base, the offset
 * included.  Without items: 0 and -1. */
HOIST_API int hoist_layout_bounds(const hoist_layout *layout, int64_t *min, int64_t *max);

/* The bytes that memory must have, from the base on, to hold the highest item; the gap
 * before the offset counts.  Without items: 0.
 * Returns: -EINVAL where the lowest item lies before the base. */
HOIST_API int hoist_layout_required_bytes(const hoist_layout *layout, int64_t *ret);

/* --- other views of the same items --- */

/* One index of a tensor, as NumPy has them: an integer, which drops its axis, or a range.
 * In ranges, HOIST_NONE is what Python's None is; negative values count from the end. */
typedef struct hoist_slice {
	int64_t start; /* the integer itself, for an index */
	int64_t stop;
	int64_t step;  /* not 0 */
	int is_index;
} hoist_slice;

#define HOIST_NONE INT64_MIN
#ifdef __cplusplus
#define HOIST_SLICE_(start, stop, step, is_index)                                                  \
	(hoist_slice{static_cast<int64_t>(start), static_cast<int64_t>(stop),                     \
		     static_cast<int64_t>(step), is_index})
#else
#define HOIST_SLICE_(start, stop, step, is_index)                                                  \
	((hoist_slice){(int64_t)(start), (int64_t)(stop), (int64_t)(step), is_index})
#endif
#define HOIST_AT(i) HOIST_SLICE_(i, 0, 1, 1)				     /* [i] */
#define HOIST_ALL HOIST_SLICE_(HOIST_NONE, HOIST_NONE, 1, 0)		     /* [:] */
#define HOIST_RANGE(start, stop) HOIST_SLICE_(start, stop, 1, 0)	     /* [start:stop] */
#define HOIST_STEP(start, stop, step) HOIST_SLICE_(start, stop, step, 0) /* [start:stop:step] */

/* The first @n axes are sliced; the others stay whole.  Bounds are clipped and never an
 * error; any empty range makes all strides 0, and its own start does not count.
 * Returns: -EINVAL for more indices than axes, an integer outside its axis (for Buffers
 *   that is -ERANGE), a step of 0. */
HOIST_API int hoist_layout_slice(const hoist_layout *layout, int n, const hoist_slice *slices,
				 hoist_layout *ret);

/* Axis k of the result is axis axes[k] of @layout.  @n must be its rank, and each axis
 * must be there once. */
HOIST_API int hoist_layout_permute(const hoist_layout *layout, int n, const int *axes,
				   hoist_layout *ret);

/* The same items in the same (C) order under another shape.  One extent may be -1: what
 * the others leave.  Nothing is ever copied: where no strides give that, it is -EINVAL;
 * so are other volumes, and a -1 beside an extent of 0. */
HOIST_API int hoist_layout_reshape(const hoist_layout *layout, int rank, const int64_t *shape,
				   hoist_layout *ret);

/* Merges each axis into the one before it where one stride serves both.  Considered are
 * the axes from @first to @last, both included (0 and -1: all), and of these the ones
 * whose bit is in @mask: HOIST_MERGE_ALL, or the masks of several layouts of one rank
 * ANDed, so that all of them get the same shape.  Rank 0 becomes rank 1. */
#define HOIST_MERGE_ALL UINT64_MAX
HOIST_API int hoist_layout_flatten(const hoist_layout *layout, int first, int last, uint64_t mask,
				   hoist_layout *ret);

/* Bit k: axis k can be merged into axis k - 1. */
HOIST_API uint64_t hoist_layout_flatten_mask(const hoist_layout *layout);

/* Drops the axes of extent 1.  A layout without items becomes shape (0), stride (0). */
HOIST_API int hoist_layout_squeeze(const hoist_layout *layout, hoist_layout *ret);

/* Adds @n axes of extent 1.  @axes are their places in the result.  With @n 0, @layout is
 * returned as it is. */
HOIST_API int hoist_layout_unsqueeze(const hoist_layout *layout, int n, const int *axes,
				     hoist_layout *ret);

/* To a larger shape, by repeating: shapes are compared from the right, axes of extent 1
 * become as long as wanted, axes may be added on the left; both get the stride 0. */
HOIST_API int hoist_layout_broadcast(const hoist_layout *layout, int rank, const int64_t *shape,
				     hoist_layout *ret);

/* The same bytes as items of another size: runs of items along @axis become one, or each
 * becomes several.  Its stride must be 1 and it must not be empty; one size must be a
 * multiple of the other.  To larger items, the offset, the other strides, the extent of
 * @axis and the address @data (0: not known) must be whole numbers of them; @axis is
 * dropped if it becomes 1 and @keep_dim is 0.  The same size: @layout as it is. */
HOIST_API int hoist_layout_repack(const hoist_layout *layout, int64_t itemsize, uintptr_t data,
				  int axis, int keep_dim, hoist_layout *ret);

/* The largest size that divides @max, @data, and in bytes the offset, the length of @axis and
 * the other strides.  Where the present itemsize divides @max and @data, it is the largest
 * divisor of @max that hoist_layout_repack() takes with @data and @axis; else it can be below
 * the present one, or neither a multiple nor a divisor of it, which repack refuses.  It is the
 * present one where @axis is empty or has a stride other than 1.
 * Returns: -EINVAL also for a @max below the present itemsize. */
HOIST_API int hoist_layout_max_itemsize(const hoist_layout *layout, int64_t max, uintptr_t data,
					int axis, int64_t *ret);

HOIST_END

#endif
