/* SPDX-License-Identifier: MIT */
/* Buffer: parts by index, as NumPy's basic indexing, and storing.  The contract is in
 * python/src/module.h. */
#include "module.h"

typedef hoist_py_buffer_object object;

static int bound(PyObject *slice, const char *name, int64_t *ret)
{
	PyObject *value = PyObject_GetAttrString(slice, name);
	int err = value == NULL ? -1 : 0;
	*ret = HOIST_NONE;
	if (err == 0 && value != Py_None) {
		Py_ssize_t n = PyNumber_AsSsize_t(value, NULL); /* clipped */
		err = n == -1 && PyErr_Occurred() ? -1 : 0;
		*ret = n == PY_SSIZE_T_MIN ? n + 1 : n; /* the least one is HOIST_NONE */
	}
	Py_XDECREF(value);
	return err;
}

int hoist_py_one_index(PyObject *item, hoist_slice *ret)
{
	*ret = HOIST_ALL;
	if (PySlice_Check(item)) {
		if (bound(item, "start", &ret->start) < 0 || bound(item, "stop", &ret->stop) < 0 ||
		    bound(item, "step", &ret->step) < 0)
			return -1;
		ret->step = ret->step == HOIST_NONE ? 1 : ret->step;
		return 0;
	}
	if (!PyIndex_Check(item)) {
		PyErr_SetString(PyExc_TypeError,
				"an index is an integer, a slice, an ellipsis or None");
		return -1;
	}
	Py_ssize_t at = PyNumber_AsSsize_t(item, PyExc_IndexError);
	*ret = HOIST_AT(at);
	return at == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The index of a[...]: a slice for each axis of the buffer, and the axes of the result. */
struct indices {
	hoist_slice slices[HOIST_MAX_RANK];
	int n;
	bool is_new[HOIST_MAX_RANK]; /* None asked for the axis */
	int rank;
	bool has_new;
};

static int add_axis(struct indices *ret, bool is_new)
{
	if (ret->rank == HOIST_MAX_RANK) {
		PyErr_Format(PyExc_IndexError, "more than %d axes", HOIST_MAX_RANK);
		return -1;
	}
	ret->is_new[ret->rank++] = is_new;
	ret->has_new = ret->has_new || is_new;
	return 0;
}

static int add_slice(struct indices *ret, int rank, hoist_slice slice)
{
	if (ret->n == rank) {
		PyErr_Format(PyExc_IndexError, "too many indices: the buffer has %d axes", rank);
		return -1;
	}
	ret->slices[ret->n++] = slice;
	return slice.is_index ? 0 : add_axis(ret, false);
}

/* Reads @key, whose items number @n, for a buffer of @rank axes. */
static int read_indices(PyObject *key, Py_ssize_t n, int rank, struct indices *ret)
{
	int n_ellipses = 0;
	Py_ssize_t n_used = 0;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GetItem(key, i);
		n_ellipses += item == Py_Ellipsis;
		n_used += item != Py_Ellipsis && item != Py_None;
	}
	if (n_ellipses > 1) {
		PyErr_SetString(PyExc_IndexError, "an index can have one ellipsis");
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GetItem(key, i);
		hoist_slice slice;
		int err = 0;
		for (Py_ssize_t k = n_used; item == Py_Ellipsis && k < rank && err == 0; k++)
			err = add_slice(ret, rank, HOIST_ALL);
		if (item == Py_None)
			err = add_axis(ret, true);
		else if (item != Py_Ellipsis)
			err = hoist_py_one_index(item, &slice) < 0 ? -1
								   : add_slice(ret, rank, slice);
		if (err < 0)
			return -1;
	}
	while (ret->n < rank)
		if (add_slice(ret, rank, HOIST_ALL) < 0)
			return -1;
	return 0;
}

/* Adds the axes of extent 1 that None asked for.  Takes the reference to @buffer. */
static int add_new_axes(hoist_buffer *buffer, const struct indices *indices, hoist_buffer **ret)
{
	const int64_t *old = hoist_buffer_shape(buffer);
	int64_t shape[HOIST_MAX_RANK];
	for (int a = 0; a < indices->rank; a++)
		shape[a] = indices->is_new[a] ? 1 : *old++;
	int err = hoist_buffer_reshape(buffer, indices->rank, shape, ret);
	hoist_buffer_unref(buffer);
	return err;
}

static hoist_buffer *part(PyObject *self, PyObject *key)
{
	hoist_buffer *buffer = hoist_py_open_buffer(self);
	struct indices indices = {0};
	hoist_buffer *ret = NULL;
	if (buffer == NULL)
		return NULL;
	/* A list is an index of classes that say so; NumPy's would pick rows. */
	bool is_list = PyList_Check(key) && !Py_IS_TYPE(self, hoist_py_buffer_type);
	PyObject *items = PyTuple_Check(key) ? Py_NewRef(key)
			  : is_list	     ? PySequence_Tuple(key)
					     : PyTuple_Pack(1, key);
	int err = items == NULL ? -1
				: read_indices(items, PyTuple_Size(items),
					       hoist_buffer_rank(buffer), &indices);
	Py_XDECREF(items);
	if (err < 0)
		return NULL;
	err = hoist_buffer_slice(buffer, indices.n, indices.slices, &ret);
	if (err == 0 && indices.has_new)
		err = add_new_axes(ret, &indices, &ret);
	return err < 0 ? (hoist_buffer *)hoist_py_fail(err) : ret;
}

PyObject *hoist_py_subscript(PyObject *self, PyObject *key)
{
	HOIST_PY_LOCK(self);
	hoist_buffer *ret = part(self, key);
	return ret == NULL ? NULL : hoist_py_view(self, 0, &ret);
}

/* NumPy's truth values, which are neither Python's nor indices. */
static bool is_numpy_bool(PyObject *value)
{
	if (PyLong_Check(value) || PyFloat_Check(value))
		return false;
	PyObject *name = PyType_GetName(Py_TYPE(value));
	bool ret = name != NULL && (PyUnicode_CompareWithASCIIString(name, "bool_") == 0 ||
				    PyUnicode_CompareWithASCIIString(name, "bool") == 0);
	Py_XDECREF(name);
	PyErr_Clear();
	return ret;
}

int hoist_py_number(PyObject *value, hoist_number *ret)
{
	if (PyBool_Check(value) || is_numpy_bool(value)) {
		*ret = hoist_number_bool(PyObject_IsTrue(value) == 1);
	} else if (PyComplex_Check(value)) {
		*ret = hoist_number_c128(PyComplex_RealAsDouble(value),
					 PyComplex_ImagAsDouble(value));
	} else if (PyIndex_Check(value)) {
		PyObject *index = PyNumber_Index(value);
		int overflow = 0;
		long long small =
			index == NULL ? -1 : PyLong_AsLongLongAndOverflow(index, &overflow);
		if (overflow > 0)
			*ret = hoist_number_u64(PyLong_AsUnsignedLongLong(index));
		else
			*ret = hoist_number_i64(small);
		if (overflow < 0)
			PyErr_SetString(PyExc_OverflowError,
					"the number is below those of 64 bits");
		Py_XDECREF(index);
	} else {
		*ret = hoist_number_f64(PyFloat_AsDouble(value));
	}
	return PyErr_Occurred() ? -1 : 0;
}

/* a[key] = value: a number, or a Buffer of the same shape. */
int hoist_py_store(PyObject *self, PyObject *key, PyObject *value)
{
	HOIST_PY_LOCK(self);
	hoist_number number;
	int err;
	if (value == NULL) {
		PyErr_SetString(PyExc_TypeError, "elements of a buffer cannot be deleted");
		return -1;
	}
	bool is_buffer = PyObject_TypeCheck(value, hoist_py_buffer_type);
	if (hoist_py_await_buffer(self) < 0 || (is_buffer && hoist_py_await_buffer(value) < 0))
		return -1;
	hoist_buffer *to = part(self, key);
	if (to == NULL)
		return -1;
	if (is_buffer) {
		hoist_buffer *from = hoist_py_use_buffer(value);
		HOIST_PY_WAITING(err = hoist_buffer_copy_into(to, from));
		hoist_py_leave_buffer(value);
	} else if (hoist_py_number(value, &number) < 0) {
		err = 1;
	} else if (hoist_buffer_elements(to) == 1 && hoist_buffer_rank(to) <= HOIST_MAX_RANK) {
		static const int64_t zeros[HOIST_MAX_RANK];
		HOIST_PY_WAITING(
			err = hoist_buffer_set(to, hoist_buffer_rank(to), zeros, number, 0));
	} else {
		unsigned char pattern[16] = {0};
		hoist_dtype dtype = hoist_buffer_dtype(to);
		err = hoist_number_encode(number, 0, pattern, dtype, 0);
		if (err == 0)
			HOIST_PY_WAITING(
				err = hoist_buffer_fill(to, pattern, hoist_dtype_bits(dtype) / 8));
	}
	if (err < 0)
		hoist_py_fail(err);
	HOIST_PY_WAITING(hoist_buffer_unref(to));
	return err == 0 ? 0 : -1;
}

/* The integers of @key, one for each axis.  Returns: their number; -1. */
static int integers_of(PyObject *key, int64_t ret[HOIST_MAX_RANK])
{
	if (PyTuple_Check(key) || PyList_Check(key) || PyIndex_Check(key))
		return hoist_py_extents(key, ret);
	PyErr_SetString(PyExc_TypeError, "one element is stored at a time: give an integer for "
					 "each axis; a[...].inplace_copy_from() copies several");
	return -1;
}

PyObject *hoist_py_set_element(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	object *o = (object *)self;
	PyObject *key;
	PyObject *value;
	int toward_zero = 0;
	int64_t indices[HOIST_MAX_RANK];
	hoist_number number;
	int err;
	if (!PyArg_ParseTuple(args, "OO|p:_set", &key, &value, &toward_zero))
		return NULL;
	int n = integers_of(key, indices);
	if (n < 0 || hoist_py_number(value, &number) < 0 || hoist_py_await_buffer(self) < 0)
		return NULL;
	HOIST_PY_USING(o, err = hoist_buffer_set(o->buffer, n, indices, number,
						 toward_zero ? HOIST_TOWARD_ZERO : 0));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}
