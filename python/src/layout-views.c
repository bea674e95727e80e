/* SPDX-License-Identifier: MIT */
/* Layout: other views of the same items.  The contract is in python/src/layout.h. */
#include "layout.h"

PyObject *hoist_py_layout_subscript(PyObject *self, PyObject *key)
{
	hoist_slice slices[HOIST_MAX_RANK];
	hoist_layout *layout;
	PyObject *items = PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
	Py_ssize_t n = items == NULL ? -1 : PyTuple_Size(items);
	if (n > HOIST_MAX_RANK) {
		PyErr_Format(PyExc_ValueError, "%zd indices for a layout of %d axes", n,
			     hoist_py_layout_of(self)->rank);
		n = -1;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		if (hoist_py_one_index(PyTuple_GetItem(items, i), &slices[i]) < 0)
			n = -1;
	Py_XDECREF(items);
	PyObject *made = n < 0 ? NULL : hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_slice(hoist_py_layout_of(self),
								       (int)n, slices, layout));
}

PyObject *hoist_py_layout_permuted(PyObject *self, PyObject *value)
{
	int axes[HOIST_MAX_RANK];
	hoist_layout *layout;
	int n = hoist_py_axes(value, axes);
	PyObject *made = n < 0 ? NULL : hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_permute(hoist_py_layout_of(self),
									 n, axes, layout));
}

PyObject *hoist_py_layout_reshaped(PyObject *self, PyObject *extents)
{
	int64_t shape[HOIST_MAX_RANK];
	hoist_layout *layout;
	int n = hoist_py_sequence(extents, shape, "a shape");
	PyObject *made = n < 0 ? NULL : hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_reshape(hoist_py_layout_of(self),
									 n, shape, layout));
}

PyObject *hoist_py_layout_broadcast_to(PyObject *self, PyObject *extents)
{
	int64_t shape[HOIST_MAX_RANK];
	hoist_layout *layout;
	int n = hoist_py_sequence(extents, shape, "a shape");
	PyObject *made = n < 0 ? NULL : hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_broadcast(hoist_py_layout_of(self),
									   n, shape, layout));
}

PyObject *hoist_py_layout_squeezed(PyObject *self, PyObject *none)
{
	hoist_layout *layout;
	PyObject *made = hoist_py_new_layout(&layout);
	(void)none;
	return made == NULL ? NULL
			    : hoist_py_made_layout(
				      made, hoist_layout_squeeze(hoist_py_layout_of(self), layout));
}

PyObject *hoist_py_layout_unsqueezed(PyObject *self, PyObject *value)
{
	int axes[HOIST_MAX_RANK];
	hoist_layout *layout;
	int n = hoist_py_axes(value, axes);
	if (n == 0)
		return Py_NewRef(self);
	PyObject *made = n < 0 ? NULL : hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_unsqueeze(hoist_py_layout_of(self),
									   n, axes, layout));
}

PyObject *hoist_py_layout_flattened(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"start_axis", "end_axis", "mask", NULL};
	int first = 0;
	int last = -1;
	PyObject *number = Py_None;
	uint64_t mask = UINT64_MAX;
	hoist_layout *layout;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|iiO:flattened", names, &first, &last,
					 &number))
		return NULL;
	if (number != Py_None)
		mask = PyLong_AsUnsignedLongLong(number);
	PyObject *made = PyErr_Occurred() ? NULL : hoist_py_new_layout(&layout);
	return made == NULL ? NULL
			    : hoist_py_made_layout(made,
						   hoist_layout_flatten(hoist_py_layout_of(self),
									first, last, mask, layout));
}

PyObject *hoist_py_layout_repacked(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"itemsize", "data_ptr", "axis", "keep_dim", NULL};
	long long itemsize;
	unsigned long long data = 0;
	int axis = -1;
	int keep = 1;
	hoist_layout *layout;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "L|Kip:repacked", names, &itemsize, &data,
					 &axis, &keep))
		return NULL;
	if (itemsize == hoist_py_layout_of(self)->itemsize)
		return Py_NewRef(self);
	PyObject *made = hoist_py_new_layout(&layout);
	return made == NULL
		       ? NULL
		       : hoist_py_made_layout(made, hoist_layout_repack(hoist_py_layout_of(self),
									itemsize, (uintptr_t)data,
									axis, keep, layout));
}

PyObject *hoist_py_layout_max_itemsize(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"max_itemsize", "data_ptr", "axis", NULL};
	long long max = 16;
	unsigned long long data = 0;
	int axis = -1;
	int64_t ret = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|LKi:max_compatible_itemsize", names,
					 &max, &data, &axis))
		return NULL;
	int err = hoist_layout_max_itemsize(hoist_py_layout_of(self), max, (uintptr_t)data, axis,
					    &ret);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLongLong(ret);
}

PyObject *hoist_py_with_layout(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	PyObject *layout;
	PyObject *name;
	hoist_dtype dtype;
	hoist_buffer *ret = NULL;
	if (!PyArg_ParseTuple(args, "O!O:_with_layout", hoist_py_layout_type, &layout, &name) ||
	    hoist_py_dtype(name, &dtype) < 0)
		return NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	return b == NULL ? NULL
			 : hoist_py_view(self,
					 hoist_buffer_with_layout(b, hoist_py_layout_of(layout),
								  dtype, &ret),
					 &ret);
}
