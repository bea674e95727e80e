/* SPDX-License-Identifier: MIT */
/* Buffer: copies, fills, the only element.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

typedef hoist_py_buffer_object object;

static object *self_of(PyObject *self)
{
	return (object *)self;
}

static PyObject *none_or_fail(int err)
{
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* --- new buffers --- */

/* The object of a buffer that may be @self's own. */
static PyObject *same_or_new(PyObject *self, int err, hoist_buffer *ret)
{
	if (err < 0)
		return hoist_py_fail(err);
	if (ret != self_of(self)->buffer)
		return hoist_py_buffer(ret);
	hoist_buffer_unref(ret);
	return Py_NewRef(self);
}

PyObject *hoist_py_to(PyObject *self, PyObject *where)
{
	HOIST_PY_LOCK(self);
	object *o = self_of(self);
	hoist_device *device = NULL;
	hoist_stream *stream = NULL;
	hoist_buffer *ret = NULL;
	int err;
	if (Py_IS_TYPE(where, hoist_py_stream_type)) {
		if (hoist_py_stream_arg(where, &stream) < 0 ||
		    hoist_py_await_copy_to(self, stream) < 0)
			return NULL;
		HOIST_PY_USING(o, err = hoist_buffer_to_stream(o->buffer, stream, &ret));
		return same_or_new(self, err, ret);
	}
	if (hoist_py_device_arg(where, &device) < 0)
		return NULL;
	if (device != hoist_buffer_device(o->buffer) && hoist_py_await_buffer(self) < 0) {
		hoist_device_unref(device);
		return NULL;
	}
	HOIST_PY_USING(o, err = hoist_buffer_to(o->buffer, device, &ret);
		       hoist_device_unref(device));
	return same_or_new(self, err, ret);
}

PyObject *hoist_py_copy(PyObject *self, PyObject *args, PyObject *keywords)
{
	HOIST_PY_LOCK(self);
	static char *names[] = {"device", "stream", NULL};
	PyObject *spec = Py_None;
	PyObject *on = Py_None;
	object *o = self_of(self);
	hoist_device *device = NULL;
	hoist_stream *stream;
	hoist_buffer *ret = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O$O:copy", names, &spec, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0 ||
	    (spec != Py_None && hoist_py_device_arg(spec, &device) < 0))
		return NULL;
	if ((stream == NULL ? hoist_py_await_buffer(self) : hoist_py_await_copy_to(self, stream)) <
	    0) {
		hoist_device_unref(device);
		return NULL;
	}
	HOIST_PY_USING(o, err = stream != NULL
					? hoist_buffer_copy_to_stream(o->buffer, stream, &ret)
					: hoist_buffer_copy(o->buffer, device, &ret);
		       hoist_device_unref(device));
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(ret);
}

/* @list has Buffers alone, and is a list that nobody else has. */
static PyObject *fork_list(PyObject *list, int copies)
{
	Py_ssize_t n = PyList_Size(list);
	PyObject *ret = NULL;
	int err = 0;
	hoist_buffer **from = calloc((size_t)n + 1, sizeof *from);
	hoist_buffer **to = calloc((size_t)n + 1, sizeof *to);
	if (from == NULL || to == NULL)
		PyErr_NoMemory();
	else
		ret = PyList_New(n);
	for (Py_ssize_t i = 0; i < n && ret != NULL; i++)
		if (hoist_py_buffer_arg(PyList_GetItem(list, i)) == NULL)
			Py_CLEAR(ret);
	if (ret != NULL) {
		for (Py_ssize_t i = 0; i < n; i++)
			from[i] = hoist_py_use_buffer(PyList_GetItem(list, i));
		if (copies && hoist_py_await_buffers(list) < 0)
			Py_CLEAR(ret);
		else
			HOIST_PY_WAITING(err = hoist_buffer_fork((size_t)n, from, copies, to));
		hoist_py_leave_all(list);
	}
	if (err < 0) {
		Py_CLEAR(ret);
		hoist_py_fail(err);
	}
	for (Py_ssize_t i = 0; i < n && ret != NULL; i++) {
		PyObject *one = hoist_py_buffer(to[i]);
		if (one == NULL || PyList_SetItem(ret, i, one) < 0)
			Py_CLEAR(ret);
	}
	free(from);
	free(to);
	return ret;
}

PyObject *hoist_py_fork(PyObject *none, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"", "copy", NULL};
	PyObject *buffers;
	int copies = 1;
	(void)none;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$p:fork", names, &buffers, &copies))
		return NULL;
	PyObject *list = PySequence_List(buffers);
	PyObject *ret = list == NULL ? NULL : fork_list(list, copies);
	Py_XDECREF(list);
	return ret;
}

/* --- into this buffer --- */

PyObject *hoist_py_copy_from(PyObject *self, PyObject *args, PyObject *keywords)
{
	HOIST_PY_LOCK(self);
	static char *names[] = {"", "stream", "contiguous", "nbytes", NULL};
	PyObject *source;
	PyObject *on = Py_None;
	int contiguous = 0;
	int nbytes = 0;
	object *o = self_of(self);
	hoist_stream *stream;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$Opp:copy_from", names, &source, &on,
					 &contiguous, &nbytes))
		return NULL;
	if (hoist_py_buffer_arg(source) == NULL || hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	unsigned flags = (contiguous ? HOIST_COPY_CONTIGUOUS : 0) | (nbytes ? HOIST_COPY_BYTES : 0);
	if (hoist_py_await_copy(self, source, stream) < 0)
		return NULL;
	/* After the waits, in which other threads may have closed or grown it. */
	hoist_buffer *from = hoist_py_use_buffer(source);
	HOIST_PY_USING(o, err = hoist_buffer_copy_with(o->buffer, from, stream, flags));
	hoist_py_leave_buffer(source);
	return none_or_fail(err);
}

/* The bytes to repeat for @value: a number, or bytes as they are.  Returns: their number; -1. */
static Py_ssize_t pattern_of(PyObject *value, hoist_dtype dtype, unsigned char pattern[16])
{
	hoist_number number;
	if (PyObject_CheckBuffer(value)) {
		Py_buffer view;
		if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0)
			return -1;
		Py_ssize_t n = view.len;
		if (n > 0 && n <= 16)
			memcpy(pattern, view.buf, (size_t)n);
		else
			PyErr_Format(PyExc_ValueError, "%zd bytes to repeat; give 1, 2, 4, 8 or 16",
				     n);
		PyBuffer_Release(&view);
		return n > 0 && n <= 16 ? n : -1;
	}
	if (hoist_py_number(value, &number) < 0)
		return -1;
	int err = hoist_number_encode(number, 0, pattern, dtype, 0);
	if (err < 0)
		hoist_py_fail(err);
	return err < 0 ? -1 : (Py_ssize_t)(hoist_dtype_bits(dtype) / 8);
}

PyObject *hoist_py_fill(PyObject *self, PyObject *args, PyObject *keywords)
{
	HOIST_PY_LOCK(self);
	static char *names[] = {"", "stream", NULL};
	PyObject *value;
	PyObject *on = Py_None;
	object *o = self_of(self);
	hoist_stream *stream;
	unsigned char pattern[16] = {0};
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O:fill", names, &value, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	const hoist_buffer *b = hoist_py_open_buffer(self);
	Py_ssize_t width = b == NULL ? -1 : pattern_of(value, hoist_buffer_dtype(b), pattern);
	if (width < 0)
		return NULL;
	/* With a stream, a fill blocks where elements have gaps, and on an accelerator's host
	 * memory. */
	bool blocks = !hoist_buffer_is_contiguous(b) ||
		      (hoist_buffer_is_pinned(b) && !hoist_buffer_is_host(b));
	if (stream == NULL ? hoist_py_await_buffer(self) < 0
			   : blocks && hoist_py_await_stream(stream) < 0)
		return NULL;
	HOIST_PY_USING(
		o, err = stream == NULL
				 ? hoist_buffer_fill(o->buffer, pattern, (size_t)width)
				 : hoist_buffer_fill_on(o->buffer, pattern, (size_t)width, stream));
	return none_or_fail(err);
}

/* --- out --- */

PyObject *hoist_py_tobytes(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	object *o = self_of(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	int err;
	(void)none;
	if (b == NULL)
		return NULL;
	size_t n = hoist_buffer_bytes(b);
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
	if (bytes == NULL)
		return NULL;
	char *to = PyBytes_AsString(bytes);
	if (hoist_py_await_buffer(self) < 0) {
		Py_DECREF(bytes);
		return NULL;
	}
	HOIST_PY_USING(o, err = hoist_buffer_copy_out(o->buffer, to, n));
	if (err == 0)
		return bytes;
	Py_DECREF(bytes);
	return hoist_py_fail(err);
}

PyObject *hoist_py_number_object(hoist_number number)
{
	switch (number.kind) {
	case HOIST_NUMBER_BOOL:
		return PyBool_FromLong(number.as.i64 != 0);
	case HOIST_NUMBER_I64:
		return PyLong_FromLongLong(number.as.i64);
	case HOIST_NUMBER_U64:
		return PyLong_FromUnsignedLongLong(number.as.u64);
	case HOIST_NUMBER_C128:
		return PyComplex_FromDoubles(number.as.c128.re, number.as.c128.im);
	default:
		return PyFloat_FromDouble(number.as.f64);
	}
}

PyObject *hoist_py_item(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	object *o = self_of(self);
	hoist_number number;
	int err;
	(void)none;
	if (hoist_py_await_buffer(self) < 0)
		return NULL;
	HOIST_PY_USING(o, err = hoist_buffer_item(o->buffer, &number));
	return err < 0 ? hoist_py_fail(err) : hoist_py_number_object(number);
}

/* --- one element as a number of Python's --- */

/* As NumPy's: a buffer of rank 0 with integers is an index. */
PyObject *hoist_py_index(PyObject *self)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	hoist_dtype_info info = {.size = sizeof info};
	if (b == NULL || hoist_dtype_get_info(hoist_buffer_dtype(b), &info) < 0)
		return NULL;
	if (hoist_buffer_rank(b) == 0 &&
	    (info.kind == HOIST_KIND_SIGNED || info.kind == HOIST_KIND_UNSIGNED))
		return hoist_py_item(self, NULL);
	PyErr_SetString(PyExc_TypeError, "only a buffer of rank 0 with integers is an index");
	return NULL;
}

static PyObject *convert(PyObject *self, PyObject *(*how)(PyObject *))
{
	PyObject *item = hoist_py_item(self, NULL);
	PyObject *ret = item == NULL ? NULL : how(item);
	Py_XDECREF(item);
	return ret;
}

PyObject *hoist_py_int(PyObject *self)
{
	return convert(self, PyNumber_Long);
}

PyObject *hoist_py_float(PyObject *self)
{
	return convert(self, PyNumber_Float);
}

/* The truth of the only element; of several or none, as NumPy's, an error. */
int hoist_py_bool(PyObject *self)
{
	PyObject *item = hoist_py_item(self, NULL);
	int ret = item == NULL ? -1 : PyObject_IsTrue(item);
	Py_XDECREF(item);
	return ret;
}
