/* SPDX-License-Identifier: MIT */
/* base/layout-make.c - makes layouts from shapes, strides and orders, and compares them.
 * The contract is in hoist/layout.h. */
#include "config.h"

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

static int check_itemsize(int64_t itemsize)
{
	if (itemsize <= 0)
		return hoist__fail(-EINVAL, "an itemsize of %lld; items have at least 1 byte",
				   (long long)itemsize);
	return 0;
}

int hoist__layout_check(const hoist_layout *layout)
{
	if (layout == NULL)
		return hoist__fail(-EINVAL, "the layout is NULL");
	int err = hoist__layout_check_shape(layout->rank, layout->shape);
	return err < 0 ? err : check_itemsize(layout->itemsize);
}

int hoist__layout_axis(const char *what, int rank, int axis, int *ret)
{
	if (axis < -rank || axis >= rank)
		return hoist__fail(-EINVAL, "%s: axis %d is outside the %d axes there are", what,
				   axis, rank);
	*ret = axis < 0 ? axis + rank : axis;
	return 0;
}

int hoist__layout_axes(const char *what, int rank, int n, const int *axes, int *ret)
{
	uint64_t seen = 0;
	if (n > 0 && axes == NULL)
		return hoist__fail(-EINVAL, "%s: the axes are NULL", what);
	for (int i = 0; i < n; i++) {
		int axis = 0;
		int err = hoist__layout_axis(what, rank, axes[i], &axis);
		if (err < 0)
			return err;
		if ((seen >> axis & 1) != 0)
			return hoist__fail(-EINVAL, "%s: axis %d is there twice", what, axis);
		seen |= UINT64_C(1) << axis;
		ret[i] = axis;
	}
	return 0;
}

/* Checks that the layout is sound, as the header defines it.  The bytes of all items together must
 * fit, and so must the bytes from the lowest item to the end of the highest: a slice may begin at
 * either. */
static int check_sound(const hoist_layout *layout)
{
	uint64_t n;
	int64_t low;
	int64_t high;
	int64_t span;
	int64_t bytes;
	int err = hoist__layout_elements(layout->rank, layout->shape, &n);
	if (err < 0 || n == 0)
		return err;
	err = hoist__layout_furthest(layout->rank, layout->shape, layout->strides, &low, &high);
	if (err < 0)
		return err;
	if (__builtin_sub_overflow(high, low, &span) || __builtin_add_overflow(span, 1, &span) ||
	    __builtin_mul_overflow(span, layout->itemsize, &bytes) ||
	    __builtin_mul_overflow((int64_t)n, layout->itemsize, &bytes))
		return hoist__fail(-EOVERFLOW,
				   "the items, of %lld bytes each, do not fit in 63 bits of bytes",
				   (long long)layout->itemsize);
	return 0;
}

/* Fills in strides without gaps; the last of @axes varies fastest.  No product overflows if the
 * product of all extents does not. */
static void fill_dense(hoist_layout *layout, const int *axes)
{
	bool empty = hoist__layout_is_empty(layout->rank, layout->shape);
	int64_t stride = empty ? 0 : 1;
	for (int i = layout->rank - 1; i >= 0; i--) {
		layout->strides[axes[i]] = stride;
		stride *= empty ? 0 : layout->shape[axes[i]];
	}
}

/* Lists the axes for an order that needs no layout. */
static int list_axes(hoist_order order, int rank, const int *axes, int *ret)
{
	switch (order) {
	case HOIST_ORDER_C:
	case HOIST_ORDER_F:
		for (int i = 0; i < rank; i++)
			ret[i] = order == HOIST_ORDER_C ? i : rank - 1 - i;
		return 0;
	case HOIST_ORDER_AXES:
		return hoist__layout_axes("order", rank, rank, axes, ret);
	case HOIST_ORDER_K:
		return hoist__fail(-EINVAL, "order K is that of a layout, and a shape has none; "
					    "see hoist_layout_to_dense()");
	}
	return hoist__fail(-EINVAL, "%d is no order: C, F, K (of a layout) or a list of axes",
			   (int)order);
}

/* Checks and sets everything but the strides, for all functions that make a layout. */
static int begin(int rank, const int64_t *shape, int64_t itemsize, hoist_layout *made)
{
	int err = hoist__layout_check_shape(rank, shape);
	if (err == 0)
		err = check_itemsize(itemsize);
	if (err < 0)
		return err;
	made->rank = rank;
	made->implicit = 0;
	made->itemsize = itemsize;
	made->offset = 0;
	for (int i = 0; i < rank; i++)
		made->shape[i] = shape[i];
	return 0;
}

int hoist_layout_dense(int rank, const int64_t *shape, int64_t itemsize, hoist_order order,
		       const int *axes, hoist_layout *ret)
{
	hoist_layout made;
	int listed[HOIST_MAX_RANK];
	uint64_t n;
	int err = begin(rank, shape, itemsize, &made);
	if (err == 0)
		err = list_axes(order, rank, axes, listed);
	if (err == 0)
		err = hoist__layout_elements(rank, shape, &n);
	if (err < 0)
		return err;
	fill_dense(&made, listed);
	err = check_sound(&made);
	if (err < 0)
		return err;
	hoist__layout_put(&made, ret);
	return 0;
}

static int take_strides(const int64_t *strides, int strides_are, hoist_layout *made)
{
	int64_t unit = strides_are == HOIST_STRIDES_IN_BYTES ? made->itemsize : 1;
	for (int i = 0; i < made->rank; i++) {
		if (strides[i] % unit != 0)
			return hoist__fail(-EINVAL,
					   "axis %d has a stride of %lld bytes, not a multiple of "
					   "the itemsize %lld",
					   i, (long long)strides[i], (long long)unit);
		made->strides[i] = strides[i] / unit;
	}
	return 0;
}

int hoist_layout_make(int rank, const int64_t *shape, const int64_t *strides, int64_t itemsize,
		      int strides_are, hoist_layout *ret)
{
	hoist_layout made;
	if (strides_are != HOIST_STRIDES_IN_ITEMS && strides_are != HOIST_STRIDES_IN_BYTES)
		return hoist__fail(-EINVAL, "strides are in items (0) or in bytes (1), not in %d",
				   strides_are);
	if (strides == NULL) {
		int err = hoist_layout_dense(rank, shape, itemsize, HOIST_ORDER_C, NULL, ret);
		if (err == 0)
			ret->implicit = 1;
		return err;
	}
	int err = begin(rank, shape, itemsize, &made);
	if (err == 0)
		err = take_strides(strides, strides_are, &made);
	if (err == 0)
		err = check_sound(&made);
	if (err < 0)
		return err;
	hoist__layout_put(&made, ret);
	return 0;
}

int hoist_layout_to_dense(const hoist_layout *layout, hoist_order order, const int *axes,
			  hoist_layout *ret)
{
	int own[HOIST_MAX_RANK];
	bool same = false;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (order == HOIST_ORDER_C)
		same = hoist_layout_is_contiguous_c(layout);
	else if (order == HOIST_ORDER_F)
		same = hoist_layout_is_contiguous_f(layout);
	else if (order == HOIST_ORDER_K) {
		same = hoist_layout_is_contiguous_any(layout);
		hoist_layout_stride_order(layout, own);
		axes = own;
		order = HOIST_ORDER_AXES;
	}
	if (same && layout->offset == 0) {
		hoist__layout_put(layout, ret);
		return 1;
	}
	return hoist_layout_dense(layout->rank, layout->shape, layout->itemsize, order, axes, ret);
}

int hoist_layout_equal(const hoist_layout *a, const hoist_layout *b)
{
	if (a->rank != b->rank || a->itemsize != b->itemsize || a->offset != b->offset ||
	    (a->implicit != 0) != (b->implicit != 0))
		return 0;
	for (int i = 0; i < a->rank; i++)
		if (a->shape[i] != b->shape[i] || a->strides[i] != b->strides[i])
			return 0;
	return 1;
}
