/* SPDX-License-Identifier: MIT */
/* Buffer: over files.  The contract is in python/src/module.h. */
#include "module.h"

PyObject *hoist_py_mmap(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"path",	  "dtype",    "shape", "mode",
				"offset", "populate", "alias", NULL};
	PyObject *path;
	PyObject *name;
	PyObject *extents;
	PyObject *start = NULL;
	const char *mode = "copyonwrite";
	int populate = 0;
	int alias = 0;
	hoist_dtype dtype;
	int64_t shape[HOIST_MAX_RANK];
	int64_t offset = 0;
	hoist_buffer *ret = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&OO|zOpp:mmap", names,
					 PyUnicode_FSConverter, &path, &name, &extents, &mode,
					 &start, &populate, &alias))
		return NULL;
	int rank = hoist_py_extents(extents, shape);
	bool is_right = rank >= 0 && hoist_py_dtype(name, &dtype) == 0;
	if (is_right && start != NULL) {
		int64_t one[HOIST_MAX_RANK];
		is_right = hoist_py_extents(start, one) == 1;
		offset = one[0];
	}
	if (!is_right) {
		Py_DECREF(path);
		return NULL;
	}
	unsigned flags = (populate ? HOIST_MMAP_POPULATE : 0) | (alias ? HOIST_MMAP_NO_COPY : 0);
	const char *text = PyBytes_AsString(path);
	HOIST_PY_WAITING(
		err = hoist_buffer_mmap(text, dtype, rank, shape, mode, offset, flags, &ret));
	Py_DECREF(path);
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer_of((PyTypeObject *)type, ret);
}

PyObject *hoist_py_load_max(PyObject *type, PyObject *args)
{
	PyObject *path;
	hoist_buffer *ret = NULL;
	int err;
	if (!PyArg_ParseTuple(args, "O&:load_max", PyUnicode_FSConverter, &path))
		return NULL;
	const char *text = PyBytes_AsString(path);
	HOIST_PY_WAITING(err = hoist_buffer_load_max(text, &ret));
	Py_DECREF(path);
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer_of((PyTypeObject *)type, ret);
}

PyObject *hoist_py_flush(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_py_buffer_object *o = (hoist_py_buffer_object *)self;
	int err;
	(void)none;
	HOIST_PY_USING(o, err = hoist_buffer_flush(o->buffer));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}
