/* SPDX-License-Identifier: MIT */
/* Layout: shape and strides as a value.  The contract is in python/src/layout.h. */
#include "layout-doc.h"
#include "layout.h"

hoist_layout *hoist_py_layout_of(PyObject *self)
{
	return &((layout_object *)self)->layout;
}

/* A new object, to be filled. */
PyObject *hoist_py_new_layout(hoist_layout **ret)
{
	PyObject *self = PyType_GenericAlloc(hoist_py_layout_type, 0);
	if (self != NULL)
		*ret = hoist_py_layout_of(self);
	return self;
}

/* @made, if the call that filled it gave no error. */
PyObject *hoist_py_made_layout(PyObject *made, int err)
{
	if (err >= 0)
		return made;
	Py_DECREF(made);
	return hoist_py_fail(err);
}

/* Extents, or axes, from a hoist_py_sequence alone.  Returns: their number; -1. */
int hoist_py_sequence(PyObject *value, int64_t ret[HOIST_MAX_RANK], const char *what)
{
	if (!PySequence_Check(value) || PyUnicode_Check(value)) {
		PyErr_Format(PyExc_TypeError, "%s is a hoist_py_sequence of integers", what);
		return -1;
	}
	return hoist_py_extents(value, ret);
}

int hoist_py_axes(PyObject *value, int ret[HOIST_MAX_RANK])
{
	int64_t wide[HOIST_MAX_RANK];
	int n = PyIndex_Check(value) ? hoist_py_extents(value, wide)
				     : hoist_py_sequence(value, wide, "axes");
	for (int a = 0; a < n; a++) /* what does not fit is no axis of any layout */
		ret[a] = wide[a] < -1000 || wide[a] > 1000 ? 1000 : (int)wide[a];
	return n;
}

static PyObject *ints(int n, const int *values)
{
	int64_t wide[HOIST_MAX_RANK];
	for (int a = 0; a < n; a++)
		wide[a] = values[a];
	return hoist_py_tuple(n, wide);
}

/* --- making --- */

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"shape", "strides", "itemsize", "divide_strides", NULL};
	PyObject *extents;
	PyObject *steps;
	long long itemsize;
	int divide = 0;
	int64_t shape[HOIST_MAX_RANK];
	int64_t strides[HOIST_MAX_RANK];
	hoist_layout *layout;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOL|p:StridedLayout", names, &extents,
					 &steps, &itemsize, &divide))
		return NULL;
	int rank = hoist_py_sequence(extents, shape, "a shape");
	int n = steps == Py_None || rank < 0 ? rank : hoist_py_sequence(steps, strides, "strides");
	if (rank < 0 || n < 0)
		return NULL;
	if (n != rank) {
		PyErr_Format(PyExc_ValueError, "%d extents and %d strides", rank, n);
		return NULL;
	}
	PyObject *made = hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(
				 made,
				 hoist_layout_make(
					 rank, shape, steps == Py_None ? NULL : strides, itemsize,
					 divide ? HOIST_STRIDES_IN_BYTES : HOIST_STRIDES_IN_ITEMS,
					 layout));
}

/* "C", "F", "K" if @with_k, or axes.  *@order is 0 for a wrong text. */
static int order_of(PyObject *value, bool with_k, int *order, int axes[HOIST_MAX_RANK], int rank)
{
	const char *text = NULL;
	*order = HOIST_ORDER_AXES;
	if (!PyUnicode_Check(value)) {
		int n = hoist_py_axes(value, axes);
		if (n >= 0 && n != rank)
			PyErr_Format(PyExc_ValueError, "%d axes in the order of %d", n, rank);
		return n == rank ? 0 : -1;
	}
	text = PyUnicode_AsUTF8AndSize(value, NULL);
	if (text == NULL)
		return -1;
	*order = strcmp(text, "C") == 0		    ? HOIST_ORDER_C
		 : strcmp(text, "F") == 0	    ? HOIST_ORDER_F
		 : strcmp(text, "K") == 0 && with_k ? HOIST_ORDER_K
						    : 0;
	if (*order == 0)
		PyErr_Format(PyExc_ValueError,
			     "\"%s\" is no order: give \"C\", \"F\"%s or the axes", text,
			     with_k ? ", \"K\"" : "");
	return *order == 0 ? -1 : 0;
}

static PyObject *layout_dense(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"shape", "itemsize", "stride_order", NULL};
	PyObject *extents;
	PyObject *named = NULL;
	long long itemsize;
	int64_t shape[HOIST_MAX_RANK];
	int axes[HOIST_MAX_RANK];
	int order = HOIST_ORDER_C;
	hoist_layout *layout;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "OL|O:dense", names, &extents, &itemsize,
					 &named))
		return NULL;
	int rank = hoist_py_sequence(extents, shape, "a shape");
	if (rank < 0 || (named != NULL && order_of(named, false, &order, axes, rank) < 0))
		return NULL;
	PyObject *made = hoist_py_new_layout(&layout);
	return made == NULL ? NULL
			    : hoist_py_made_layout(made, hoist_layout_dense(rank, shape, itemsize,
									    (hoist_order)order,
									    axes, layout));
}

static PyObject *to_dense(PyObject *self, PyObject *named)
{
	int axes[HOIST_MAX_RANK];
	int order = HOIST_ORDER_K;
	hoist_layout *layout;
	if (named != NULL &&
	    order_of(named, true, &order, axes, hoist_py_layout_of(self)->rank) < 0)
		return NULL;
	PyObject *made = hoist_py_new_layout(&layout);
	if (made == NULL)
		return NULL;
	int same =
		hoist_layout_to_dense(hoist_py_layout_of(self), (hoist_order)order, axes, layout);
	if (same != 1)
		return hoist_py_made_layout(made, same);
	Py_DECREF(made);
	return Py_NewRef(self);
}

static PyObject *layout_to_dense(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"stride_order", NULL};
	PyObject *named = NULL;
	return PyArg_ParseTupleAndKeywords(args, keywords, "|O:to_dense", names, &named)
		       ? to_dense(self, named)
		       : NULL;
}

static PyObject *layout_dense_like(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"other", "stride_order", NULL};
	PyObject *other;
	PyObject *named = NULL;
	(void)type;
	return PyArg_ParseTupleAndKeywords(args, keywords, "O!|O:dense_like", names,
					   hoist_py_layout_type, &other, &named)
		       ? to_dense(other, named)
		       : NULL;
}

/* --- what a layout says --- */

enum {
	ASK_NDIM,
	ASK_ITEMSIZE,
	ASK_OFFSET,
	ASK_C,
	ASK_F,
	ASK_ANY,
	ASK_DENSE,
	ASK_UNIQUE,
	ASK_MIN,
	ASK_MAX,
	ASK_VOLUME,
	ASK_BYTE_OFFSET,
	ASK_SHAPE,
	ASK_STRIDES,
	ASK_BYTE_STRIDES,
	ASK_ORDER,
	ASK_BOUNDS
};

/* The answers that may not fit, or need room. */
static PyObject *ask_more(const hoist_layout *l, uintptr_t what, int64_t min, int64_t max)
{
	int64_t values[HOIST_MAX_RANK];
	int axes[HOIST_MAX_RANK];
	int err;
	switch (what) {
	case ASK_VOLUME:
		values[0] = hoist_layout_volume(l);
		return values[0] < 0 ? hoist_py_fail((int)values[0])
				     : PyLong_FromLongLong(values[0]);
	case ASK_BYTE_OFFSET:
		err = hoist_layout_byte_offset(l, values);
		return err < 0 ? hoist_py_fail(err) : PyLong_FromLongLong(values[0]);
	case ASK_SHAPE:
		return hoist_py_tuple(l->rank, l->shape);
	case ASK_STRIDES:
		return l->implicit ? Py_NewRef(Py_None) : hoist_py_tuple(l->rank, l->strides);
	case ASK_BYTE_STRIDES:
		if (l->implicit)
			return Py_NewRef(Py_None);
		err = hoist_layout_byte_strides(l, values);
		return err < 0 ? hoist_py_fail(err) : hoist_py_tuple(l->rank, values);
	case ASK_ORDER:
		hoist_layout_stride_order(l, axes);
		return ints(l->rank, axes);
	default:
		return Py_BuildValue("(LL)", (long long)min, (long long)max);
	}
}

static PyObject *layout_ask(PyObject *self, void *closure)
{
	const hoist_layout *l = hoist_py_layout_of(self);
	int64_t min = 0;
	int64_t max = 0;
	switch ((uintptr_t)closure) {
	case ASK_NDIM:
		return PyLong_FromLong(l->rank);
	case ASK_ITEMSIZE:
		return PyLong_FromLongLong(l->itemsize);
	case ASK_OFFSET:
		return PyLong_FromLongLong(l->offset);
	case ASK_C:
		return PyBool_FromLong(hoist_layout_is_contiguous_c(l));
	case ASK_F:
		return PyBool_FromLong(hoist_layout_is_contiguous_f(l));
	case ASK_ANY:
		return PyBool_FromLong(hoist_layout_is_contiguous_any(l));
	case ASK_DENSE:
		return PyBool_FromLong(hoist_layout_is_dense(l));
	case ASK_UNIQUE:
		return PyBool_FromLong(hoist_layout_is_unique(l));
	default:
		break;
	}
	int err = hoist_layout_bounds(l, &min, &max);
	if (err < 0)
		return hoist_py_fail(err);
	if ((uintptr_t)closure == ASK_MIN || (uintptr_t)closure == ASK_MAX)
		return PyLong_FromLongLong((uintptr_t)closure == ASK_MIN ? min : max);
	return ask_more(l, (uintptr_t)closure, min, max);
}

static PyObject *layout_required_bytes(PyObject *self, PyObject *none)
{
	int64_t bytes = 0;
	(void)none;
	int err = hoist_layout_required_bytes(hoist_py_layout_of(self), &bytes);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLongLong(bytes);
}

static PyObject *layout_mask(PyObject *self, PyObject *none)
{
	(void)none;
	return PyLong_FromUnsignedLongLong(hoist_layout_flatten_mask(hoist_py_layout_of(self)));
}

static PyObject *layout_compare(PyObject *self, PyObject *other, int how)
{
	if ((how != Py_EQ && how != Py_NE) || !Py_IS_TYPE(other, hoist_py_layout_type))
		return Py_NewRef(Py_NotImplemented);
	bool equal = hoist_layout_equal(hoist_py_layout_of(self), hoist_py_layout_of(other));
	return PyBool_FromLong(equal == (how == Py_EQ));
}

static Py_hash_t layout_hash(PyObject *self)
{
	const hoist_layout *l = hoist_py_layout_of(self);
	uint64_t hash = (uint64_t)l->itemsize * 31 + (uint64_t)l->offset;
	for (int a = 0; a < l->rank; a++)
		hash = hash * 1000003 + (uint64_t)l->shape[a] * 31 + (uint64_t)l->strides[a];
	hash += (uint64_t)l->implicit;
	return hash == (uint64_t)-1 ? -2 : (Py_hash_t)hash;
}

static PyObject *layout_repr(PyObject *self)
{
	const hoist_layout *l = hoist_py_layout_of(self);
	PyObject *shape = ask_more(l, ASK_SHAPE, 0, 0);
	PyObject *strides = ask_more(l, ASK_STRIDES, 0, 0);
	PyObject *ret = NULL;
	if (shape != NULL && strides != NULL && l->offset == 0)
		ret = PyUnicode_FromFormat("StridedLayout(shape=%R, strides=%R, itemsize=%lld)",
					   shape, strides, (long long)l->itemsize);
	else if (shape != NULL && strides != NULL)
		ret = PyUnicode_FromFormat(
			"StridedLayout(shape=%R, strides=%R, itemsize=%lld, slice_offset=%lld)",
			shape, strides, (long long)l->itemsize, (long long)l->offset);
	Py_XDECREF(shape);
	Py_XDECREF(strides);
	return ret;
}

/* --- the type --- */

static PyMethodDef methods[] = {
	{"dense", HOIST_PY_KEYWORDS(layout_dense), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 dense_doc},
	{"dense_like", HOIST_PY_KEYWORDS(layout_dense_like),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS, dense_like_doc},
	{"to_dense", HOIST_PY_KEYWORDS(layout_to_dense), METH_VARARGS | METH_KEYWORDS,
	 to_dense_doc},
	{"required_size_in_bytes", layout_required_bytes, METH_NOARGS, required_doc},
	{"flattened_axis_mask", layout_mask, METH_NOARGS, mask_doc},
	{"sliced", hoist_py_layout_subscript, METH_O, sliced_doc},
	{"permuted", hoist_py_layout_permuted, METH_O, permuted_doc},
	{"reshaped", hoist_py_layout_reshaped, METH_O, reshaped_doc},
	{"broadcast_to", hoist_py_layout_broadcast_to, METH_O, broadcast_to_doc},
	{"squeezed", hoist_py_layout_squeezed, METH_NOARGS, squeezed_doc},
	{"unsqueezed", hoist_py_layout_unsqueezed, METH_O, unsqueezed_doc},
	{"flattened", HOIST_PY_KEYWORDS(hoist_py_layout_flattened), METH_VARARGS | METH_KEYWORDS,
	 flattened_doc},
	{"repacked", HOIST_PY_KEYWORDS(hoist_py_layout_repacked), METH_VARARGS | METH_KEYWORDS,
	 repacked_doc},
	{"max_compatible_itemsize", HOIST_PY_KEYWORDS(hoist_py_layout_max_itemsize),
	 METH_VARARGS | METH_KEYWORDS, max_itemsize_doc},
	{NULL, NULL, 0, NULL},
};

#define ASK(name, what, doc)                                                                       \
	{                                                                                          \
		name, layout_ask, NULL, doc, (void *)(uintptr_t)(what)                             \
	}

static PyGetSetDef fields[] = {
	ASK("ndim", ASK_NDIM, "The number of axes."),
	ASK("shape", ASK_SHAPE, "The extents."),
	ASK("strides", ASK_STRIDES, "The strides in items; None: nobody gave strides, C order."),
	ASK("strides_in_bytes", ASK_BYTE_STRIDES, "The strides in bytes; None: C order."),
	ASK("itemsize", ASK_ITEMSIZE, "Bytes of one item."),
	ASK("volume", ASK_VOLUME, "The number of items."),
	ASK("slice_offset", ASK_OFFSET, "The place of the first item, in items from the base."),
	ASK("slice_offset_in_bytes", ASK_BYTE_OFFSET,
	    "The place of the first item, in bytes from the base."),
	ASK("stride_order", ASK_ORDER,
	    "The axes from the largest stride, whatever its sign, to the smallest."),
	ASK("is_contiguous_c", ASK_C, "True: C order without gaps."),
	ASK("is_contiguous_f", ASK_F, "True: F order without gaps."),
	ASK("is_contiguous_any", ASK_ANY, "True: some order without gaps."),
	ASK("is_dense", ASK_DENSE, "True: some order without gaps, and no offset."),
	ASK("is_unique", ASK_UNIQUE, "True: each item has a place of its own."),
	ASK("offset_bounds", ASK_BOUNDS, "The lowest and the highest place, in items."),
	ASK("min_offset", ASK_MIN, "The lowest place of an item."),
	ASK("max_offset", ASK_MAX, "The highest place of an item; -1 without items."),
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)layout_new},
	{Py_tp_dealloc, (void *)hoist_py_free_object},
	{Py_tp_repr, (void *)layout_repr},
	{Py_tp_hash, (void *)layout_hash},
	{Py_tp_richcompare, (void *)layout_compare},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{Py_mp_subscript, (void *)hoist_py_layout_subscript},
	{Py_tp_doc, (void *)(uintptr_t)type_doc},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.StridedLayout",
	.basicsize = sizeof(layout_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int hoist_py_add_layout_type(PyObject *module)
{
	hoist_py_layout_type = hoist_py_add_type(module, &type);
	return hoist_py_layout_type == NULL ? -1 : 0;
}
