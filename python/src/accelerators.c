/* SPDX-License-Identifier: MIT */
/* Functions about devices that a machine has, or pretends to have; and copies of many buffers.
 * The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

static PyObject *accelerator_count(PyObject *self, PyObject *none)
{
	int n = 0;
	int err;
	(void)self;
	(void)none;
	HOIST_PY_WAITING(err = hoist_accelerator_count(&n));
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLong(n);
}

static PyObject *accelerator_api(PyObject *self, PyObject *none)
{
	const char *api = NULL;
	int err;
	(void)self;
	(void)none;
	HOIST_PY_WAITING(err = hoist_accelerator_api(&api));
	return err < 0 ? hoist_py_fail(err) : PyUnicode_FromString(api);
}

static PyObject *virtual_set(PyObject *self, PyObject *args)
{
	const char *api;
	const char *architecture;
	int n;
	int err;
	(void)self;
	if (!PyArg_ParseTuple(args, "szi:virtual_set", &api, &architecture, &n))
		return NULL;
	HOIST_PY_WAITING(err = hoist_virtual_set(api, architecture, n));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *virtual_get(PyObject *self, PyObject *args)
{
	hoist_virtual_info info = {.size = sizeof info};
	const char *api;
	(void)self;
	if (!PyArg_ParseTuple(args, "s:virtual_get", &api))
		return NULL;
	int err = hoist_virtual_get(api, &info);
	return err < 0 ? hoist_py_fail(err) : Py_BuildValue("(is)", info.count, info.architecture);
}

static PyObject *virtual_count_of(PyObject *self, PyObject *words)
{
	char **texts;
	size_t n;
	int ret = 0;
	int err;
	(void)self;
	if (hoist_py_texts(words, &texts, &n) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_virtual_count_of((const char *const *)texts, n, &ret));
	hoist_py_free_texts(texts, n);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLong(ret);
}

hoist_buffer *hoist_py_use_buffer(PyObject *object)
{
	HOIST_PY_LOCK(object);
	hoist_py_buffer_object *o = (hoist_py_buffer_object *)object;
	atomic_fetch_add(&o->n_uses, 1);
	return o->buffer;
}

void hoist_py_leave_buffer(PyObject *object)
{
	atomic_fetch_sub(&((hoist_py_buffer_object *)object)->n_uses, 1);
}

void hoist_py_leave_all(PyObject *buffers)
{
	for (Py_ssize_t i = 0; i < PyList_Size(buffers); i++)
		hoist_py_leave_buffer(PyList_GetItem(buffers, i));
}

/* Uses the Buffers of a list.  Returns: NULL with an exception, and uses none. */
static hoist_buffer **use_buffers(PyObject *list, Py_ssize_t n)
{
	hoist_buffer **ret = calloc((size_t)n + 1, sizeof *ret);
	if (ret == NULL)
		return (hoist_buffer **)PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n; i++)
		ret[i] = hoist_py_use_buffer(PyList_GetItem(list, i));
	return ret;
}

/* Refuses a list with anything but Buffers. */
static int check_buffers(PyObject *list)
{
	for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
		if (hoist_py_buffer_arg(PyList_GetItem(list, i)) == NULL)
			return -1;
	return 0;
}

static PyObject *copy_lists(PyObject *dsts, PyObject *srcs, hoist_stream *stream)
{
	Py_ssize_t n = PyList_Size(dsts);
	PyObject *ret = NULL;
	int err = 0;
	if (PyList_Size(srcs) != n) {
		PyErr_Format(PyExc_ValueError, "%zd destinations and %zd sources", n,
			     PyList_Size(srcs));
		return NULL;
	}
	if (check_buffers(dsts) < 0 || check_buffers(srcs) < 0)
		return NULL;
	hoist_buffer **to = use_buffers(dsts, n);
	hoist_buffer **from = to == NULL ? NULL : use_buffers(srcs, n);
	if (from != NULL) {
		int signal = 0;
		for (Py_ssize_t i = 0; i < n && signal == 0; i++)
			signal = hoist_py_await_copy(PyList_GetItem(dsts, i),
						     PyList_GetItem(srcs, i), stream);
		if (signal == 0) {
			HOIST_PY_WAITING(
				err = hoist_buffer_copy_batch((size_t)n, to, from, stream));
			ret = err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
		}
	}
	if (to != NULL)
		hoist_py_leave_all(dsts);
	if (from != NULL)
		hoist_py_leave_all(srcs);
	free(to);
	free(from);
	return ret;
}

/* The lists are copies: nobody else changes them during the copy. */
static PyObject *copy_batch(PyObject *self, PyObject *args)
{
	PyObject *dsts;
	PyObject *srcs;
	PyObject *on = Py_None;
	hoist_stream *stream;
	PyObject *ret = NULL;
	(void)self;
	if (!PyArg_ParseTuple(args, "OO|O:copy_batch", &dsts, &srcs, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	dsts = PySequence_List(dsts);
	srcs = dsts == NULL ? NULL : PySequence_List(srcs);
	if (srcs != NULL)
		ret = copy_lists(dsts, srcs, stream);
	Py_XDECREF(dsts);
	Py_XDECREF(srcs);
	return ret;
}

static PyMethodDef functions[] = {
	{"accelerator_count", accelerator_count, METH_NOARGS,
	 "accelerator_count()\n--\n\nThe number of accelerators, \"gpu:0\" and on."},
	{"accelerator_api", accelerator_api, METH_NOARGS,
	 "accelerator_api()\n--\n\n\"cuda\" or \"hip\"; \"cpu\" if there is no accelerator."},
	{"virtual_set", virtual_set, METH_VARARGS,
	 "virtual_set(api, architecture, count, /)\n--\n\nMakes virtual devices appear; 0: ends "
	 "that."},
	{"virtual_get", virtual_get, METH_VARARGS,
	 "virtual_get(api, /)\n--\n\n(count, architecture) of an API's virtual devices."},
	{"virtual_count_of", virtual_count_of, METH_O,
	 "virtual_count_of(words, /)\n--\n\nThe number of devices that words of a command line "
	 "need."},
	{"copy_batch", copy_batch, METH_VARARGS,
	 "copy_batch(dsts, srcs, stream=None, /)\n--\n\nCopies each source into its destination.  "
	 "All pairs are checked before a byte is written."},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_accelerators(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
