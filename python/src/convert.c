/* SPDX-License-Identifier: MIT */
/* Shapes, dtypes and texts, from Python and back.  The contract is in python/src/module.h. */
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* --- dtypes --- */

int hoist_py_dtype(PyObject *name, hoist_dtype *ret)
{
	const char *text = NULL;
	PyObject *own = NULL;
	/* Objects whose str() ends in a name: hoist.driver.DType, torch.dtype; classes:
	 * numpy.float32. */
	if (PyType_Check(name))
		name = own = PyObject_GetAttrString(name, "__name__");
	else if (!PyUnicode_Check(name))
		name = own = PyObject_Str(name);
	if (name != NULL)
		text = PyUnicode_AsUTF8AndSize(name, NULL);
	/* "DType.float32", "torch.bfloat16" */
	const char *dot = text == NULL ? NULL : strrchr(text, '.');
	text = dot == NULL ? text : dot + 1;
	int err = text == NULL ? -EINVAL : hoist_dtype_from_name(text, ret);
	if (err < 0 && text != NULL)
		err = hoist_dtype_from_numpy(text, ret);
	Py_XDECREF(own);
	if (err < 0 && !PyErr_Occurred())
		hoist_py_fail(err);
	return err < 0 ? -1 : 0;
}

/* Names are made once, and stay: properties ask for them for each tensor of a load. */
PyObject *hoist_py_dtype_name(hoist_dtype dtype)
{
	static _Atomic(PyObject *) names[256]; /* by the enum's values, which are below that */
	PyObject *name = atomic_load(&names[(unsigned char)dtype]);
	PyObject *before = NULL;
	if (name != NULL)
		return Py_NewRef(name);
	/* Not interned: that may block, and let go of the caller's lock. */
	name = PyUnicode_FromString(hoist_dtype_name(dtype));
	if (name != NULL &&
	    atomic_compare_exchange_strong(&names[(unsigned char)dtype], &before, name))
		return Py_NewRef(name);
	Py_XDECREF(name); /* another thread was first */
	return Py_XNewRef(before);
}

/* --- integers --- */

static int one_extent(PyObject *number, int64_t *ret)
{
	PyObject *index = PyNumber_Index(number);
	if (index == NULL)
		return -1;
	*ret = PyLong_AsLongLong(index);
	Py_DECREF(index);
	return *ret == -1 && PyErr_Occurred() ? -1 : 0;
}

int hoist_py_extents(PyObject *extents, int64_t ret[HOIST_MAX_RANK])
{
	if (PyIndex_Check(extents))
		return one_extent(extents, &ret[0]) < 0 ? -1 : 1;
	Py_ssize_t n = PySequence_Size(extents);
	if (n > HOIST_MAX_RANK)
		PyErr_Format(PyExc_ValueError, "%zd axes; hoist has %d at most", n, HOIST_MAX_RANK);
	if (n < 0 || n > HOIST_MAX_RANK)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *extent = PySequence_GetItem(extents, i);
		int err = extent == NULL ? -1 : one_extent(extent, &ret[i]);
		Py_XDECREF(extent);
		if (err < 0)
			return -1;
	}
	return (int)n;
}

PyObject *hoist_py_tuple(int n, const int64_t *values)
{
	PyObject *tuple = PyTuple_New(n);
	for (int i = 0; tuple != NULL && i < n; i++) {
		PyObject *value = PyLong_FromLongLong(values[i]);
		if (value == NULL || PyTuple_SetItem(tuple, i, value) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* --- texts --- */

int hoist_py_text(PyObject *text, char **ret)
{
	*ret = NULL;
	if (text == Py_None)
		return 0;
	const char *inside = PyUnicode_AsUTF8AndSize(text, NULL);
	if (inside == NULL)
		return -1;
	*ret = strdup(inside);
	if (*ret == NULL)
		PyErr_NoMemory();
	return *ret == NULL ? -1 : 0;
}

void hoist_py_free_texts(char **texts, size_t n)
{
	for (size_t i = 0; texts != NULL && i < n; i++)
		free(texts[i]);
	free(texts);
}

int hoist_py_texts(PyObject *seq, char ***ret, size_t *ret_n)
{
	*ret = NULL;
	*ret_n = 0;
	if (seq == Py_None)
		return 0;
	Py_ssize_t n = PySequence_Size(seq);
	if (n < 0)
		return -1;
	char **texts = calloc((size_t)n + 1, sizeof *texts);
	if (texts == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *text = PySequence_GetItem(seq, i);
		int err = text == NULL ? -1 : hoist_py_text(text, &texts[i]);
		Py_XDECREF(text);
		if (err < 0) {
			hoist_py_free_texts(texts, (size_t)n);
			return -1;
		}
	}
	*ret = texts;
	*ret_n = (size_t)n;
	return 0;
}
