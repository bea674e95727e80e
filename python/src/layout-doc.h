/* SPDX-License-Identifier: MIT */
/* Docstrings of StridedLayout (layout.c), in numpydoc's form. */
#ifndef HOIST_PY_LAYOUT_DOC_H
#define HOIST_PY_LAYOUT_DOC_H

static const char type_doc[] =
	"StridedLayout(shape, strides, itemsize, divide_strides=False)\n"
	"--\n\n"
	"Shape and strides, in items, as a value: layouts are compared, hashed, and never "
	"change.\n\n"
	"Parameters\n"
	"----------\n"
	"shape : sequence of int\n"
	"    The extents, 64 of them at most.\n"
	"strides : sequence of int or None\n"
	"    In items; None: C order.\n"
	"itemsize : int\n"
	"    Bytes of one item, 1 or more.\n"
	"divide_strides : bool\n"
	"    The strides are given in bytes.\n\n"
	"Raises\n"
	"------\n"
	"ValueError, OverflowError\n"
	"    A negative extent, an item without bytes, strides that are no whole items, or a "
	"layout that\n"
	"    does not fit in 64 bits.";

static const char dense_doc[] =
	"dense($type, shape, itemsize, stride_order='C')\n"
	"--\n\n"
	"A layout without gaps.\n\n"
	"Parameters\n"
	"----------\n"
	"shape : sequence of int\n"
	"itemsize : int\n"
	"    Bytes of one item.\n"
	"stride_order : {\"C\", \"F\"} or sequence of int\n"
	"    Or the axes from the largest stride to the smallest.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout";

static const char dense_like_doc[] =
	"dense_like($type, other, stride_order='K')\n"
	"--\n\n"
	"As other.to_dense(stride_order).\n\n"
	"Parameters\n"
	"----------\n"
	"other : StridedLayout\n"
	"stride_order : {\"C\", \"F\", \"K\"} or sequence of int\n"
	"    As in `to_dense()`.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout";

static const char to_dense_doc[] =
	"to_dense($self, stride_order='K')\n"
	"--\n\n"
	"The dense layout for a copy of the items; this object if it is that already.\n\n"
	"Parameters\n"
	"----------\n"
	"stride_order : {\"C\", \"F\", \"K\"} or sequence of int\n"
	"    \"K\": the order of this layout's strides.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout";

static const char required_doc[] =
	"required_size_in_bytes($self, /)\n"
	"--\n\n"
	"Bytes that hold the highest item, counted from the base.\n\n"
	"Returns\n"
	"-------\n"
	"int\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    An item lies before the base.";

static const char mask_doc[] =
	"flattened_axis_mask($self, /)\n"
	"--\n\n"
	"Bit k is set if axis k can be merged into axis k - 1: the mask for `flattened()`.\n\n"
	"Returns\n"
	"-------\n"
	"int";

static const char sliced_doc[] =
	"sliced($self, slices, /)\n"
	"--\n\n"
	"A part of the items, as by layout[slices].\n\n"
	"Parameters\n"
	"----------\n"
	"slices : int, slice or tuple of these\n"
	"    An integer drops its axis; bounds are clipped.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    An integer is outside its axis, a step is 0, or there are more indices than axes.";

static const char permuted_doc[] =
	"permuted($self, axes, /)\n"
	"--\n\n"
	"The axes in another order.\n\n"
	"Parameters\n"
	"----------\n"
	"axes : sequence of int\n"
	"    Axis k of the result is axis axes[k] of this layout.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    `axes` does not have each axis once.";

static const char reshaped_doc[] =
	"reshaped($self, shape, /)\n"
	"--\n\n"
	"The same items in the same order in another shape.\n\n"
	"Parameters\n"
	"----------\n"
	"shape : sequence of int\n"
	"    One extent may be -1: it follows from the others.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    The shape has another number of items, or no strides give that order.";

static const char broadcast_to_doc[] =
	"broadcast_to($self, shape, /)\n"
	"--\n\n"
	"Repeats items to fill a larger shape.\n\n"
	"Parameters\n"
	"----------\n"
	"shape : sequence of int\n"
	"    Compared from the right: an axis of extent 1 becomes as long as this says.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    An axis of another extent than 1 differs.";

static const char squeezed_doc[] =
	"squeezed($self, /)\n"
	"--\n\n"
	"The layout without the axes of extent 1.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout";

static const char unsqueezed_doc[] =
	"unsqueezed($self, axes, /)\n"
	"--\n\n"
	"The layout with more axes, of extent 1.\n\n"
	"Parameters\n"
	"----------\n"
	"axes : int or sequence of int\n"
	"    Their places in the result.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    A place is outside the result, or is named twice.";

static const char flattened_doc[] =
	"flattened($self, start_axis=0, end_axis=-1, mask=None)\n"
	"--\n\n"
	"Merges axes into the axis before them where one stride serves both.\n\n"
	"Parameters\n"
	"----------\n"
	"start_axis, end_axis : int\n"
	"    The first and the last axis that may be merged.\n"
	"mask : int, optional\n"
	"    Bit k: axis k may be merged.  `flattened_axis_mask()` of several layouts, joined by "
	"\"&\", gives\n"
	"    all of them one shape.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout";

static const char repacked_doc[] =
	"repacked($self, itemsize, data_ptr=0, axis=-1, keep_dim=True)\n"
	"--\n\n"
	"The same bytes as items of another size.\n\n"
	"Parameters\n"
	"----------\n"
	"itemsize : int\n"
	"    Bytes; a multiple of the present size, or a divisor of it.\n"
	"data_ptr : int\n"
	"    The base's address, which is a multiple of the new size; 0: unknown.\n"
	"axis : int\n"
	"    The axis whose items are joined or split; its stride is 1.\n"
	"keep_dim : bool\n"
	"    Keeps the axis if its extent becomes 1.\n\n"
	"Returns\n"
	"-------\n"
	"StridedLayout\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    The offset, another stride, the extent or the address is no whole number of new items.";

static const char max_itemsize_doc[] =
	"max_compatible_itemsize($self, max_itemsize=16, data_ptr=0, axis=-1)\n"
	"--\n\n"
	"The largest size of items that `repacked()` takes.\n\n"
	"Parameters\n"
	"----------\n"
	"max_itemsize : int\n"
	"    Bytes, at least the present size.\n"
	"data_ptr : int\n"
	"    The base's address; 0: unknown.\n"
	"axis : int\n"
	"    As in `repacked()`.\n\n"
	"Returns\n"
	"-------\n"
	"int\n"
	"    Bytes.\n\n"
	"Raises\n"
	"------\n"
	"ValueError\n"
	"    `max_itemsize` is below the present size.";

#endif
