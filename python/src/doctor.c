/* SPDX-License-Identifier: MIT */
/* The extension's part of hoist.doctor().  The contract is in python/src/module.h. */
#include "module.h"

#include <hoist/doctor.h>

/* [(name, ok, detail, remedy)] */
static PyObject *checks(const hoist_doctor *doctor)
{
	size_t n = hoist_doctor_n_checks(doctor);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (size_t i = 0; i < n && list != NULL; i++) {
		hoist_check_info check = {.size = sizeof check};
		int err = hoist_doctor_check(doctor, i, &check);
		PyObject *item =
			err < 0 ? hoist_py_fail(err)
				: Py_BuildValue("(sOss)", check.name, check.ok ? Py_True : Py_False,
						check.detail, check.remedy);
		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* (text, skipped, io, chunk_bytes, depth) */
static PyObject *advice(const hoist_doctor *doctor)
{
	hoist_advice a = {.size = sizeof a};
	int err = hoist_doctor_advice(doctor, &a);
	return err < 0 ? hoist_py_fail(err)
		       : Py_BuildValue("(ssinI)", a.text, a.skipped, (int)a.io,
				       (Py_ssize_t)a.chunk_bytes, a.depth);
}

static PyObject *examine(PyObject *self, PyObject *name)
{
	PyObject *path = NULL;
	hoist_doctor *doctor = NULL;
	int err;
	(void)self;
	if (name != Py_None && !PyUnicode_FSConverter(name, &path))
		return NULL;
	const char *text = path == NULL ? NULL : PyBytes_AsString(path);
	HOIST_PY_WAITING(err = hoist_doctor_create(text, &doctor));
	Py_XDECREF(path);
	if (err < 0)
		return hoist_py_fail(err);
	PyObject *found = checks(doctor);
	PyObject *advised = found == NULL ? NULL : advice(doctor);
	PyObject *ret = advised == NULL ? NULL : PyTuple_Pack(2, found, advised);
	Py_XDECREF(found);
	Py_XDECREF(advised);
	hoist_doctor_destroy(doctor);
	return ret;
}

static PyMethodDef functions[] = {
	{"doctor", examine, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_doctor(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
