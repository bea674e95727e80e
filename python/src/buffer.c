/* SPDX-License-Identifier: MIT */
/* Buffer: properties, views, copies.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

typedef hoist_py_buffer_object object;

static object *self_of(PyObject *self)
{
	return (object *)self;
}

PyObject *hoist_py_buffer(hoist_buffer *buffer)
{
	object *self = (object *)PyType_GenericAlloc(hoist_py_buffer_type, 0);
	if (self == NULL)
		HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	else
		self->buffer = buffer;
	return (PyObject *)self;
}

hoist_buffer *hoist_py_buffer_arg(PyObject *value)
{
	if (PyObject_TypeCheck(value, hoist_py_buffer_type))
		return self_of(value)->buffer;
	PyErr_SetString(PyExc_TypeError,
			"a hoist.Buffer is needed; hoist.from_dlpack() makes one of "
			"another library's array");
	return NULL;
}

hoist_buffer *hoist_py_open_buffer(PyObject *self)
{
	hoist_buffer *buffer = self_of(self)->buffer;
	if (!hoist_buffer_is_closed(buffer))
		return buffer;
	return (hoist_buffer *)hoist_py_fail_text(-EBADF, "the buffer was closed");
}

/* The object of a call's result; a pointer, as the call may be evaluated after the arguments. */
static PyObject *result(int err, hoist_buffer *const *buffer)
{
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(*buffer);
}

/* --- making and ending --- */

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"dtype", "shape", "device", "stream", "pinned", "zero", NULL};
	PyObject *name;
	PyObject *extents;
	PyObject *spec = Py_None;
	PyObject *on = Py_None;
	int pinned = 0;
	int zero = 0;
	hoist_dtype dtype;
	int64_t shape[HOIST_MAX_RANK];
	hoist_device *device = NULL;
	hoist_stream *stream;
	hoist_buffer *buffer = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$Opp:Buffer", names, &name, &extents,
					 &spec, &on, &pinned, &zero))
		return NULL;
	int rank = hoist_py_extents(extents, shape);
	if (rank < 0 || hoist_py_dtype(name, &dtype) < 0 || hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	if (stream != NULL && spec != Py_None) {
		PyErr_SetString(PyExc_ValueError,
				"give a device or a stream: a stream has a device");
		return NULL;
	}
	if (stream == NULL && hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	unsigned flags = (pinned ? HOIST_BUFFER_PINNED : 0) | (zero ? HOIST_BUFFER_ZERO : 0);
	Py_BEGIN_ALLOW_THREADS err =
		stream != NULL ? hoist_buffer_create_on(stream, dtype, rank, shape, flags, &buffer)
			       : hoist_buffer_create(device, dtype, rank, shape, flags, &buffer);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS return result(err, &buffer);
}

static void buffer_dealloc(PyObject *self)
{
	hoist_buffer *buffer = self_of(self)->buffer;
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	hoist_py_free_object(self);
}

static PyObject *buffer_close(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"stream", NULL};
	PyObject *on = Py_None;
	hoist_stream *stream;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:close", names, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	if (atomic_load(&self_of(self)->n_uses) > 0) {
		PyErr_SetString(PyExc_BufferError,
				"the buffer is in use: a memoryview or an array is "
				"over it, or another thread works on it");
		return NULL;
	}
	HOIST_PY_WAITING(err = hoist_buffer_close(self_of(self)->buffer, stream));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* --- properties --- */

static PyObject *get_shape(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_tuple(hoist_buffer_rank(b), hoist_buffer_shape(b));
}

static PyObject *get_strides(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_tuple(hoist_buffer_rank(b), hoist_buffer_strides(b));
}

static PyObject *get_dtype(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_dtype_name(hoist_buffer_dtype(b));
}

static PyObject *get_device(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_device(hoist_device_ref(hoist_buffer_device(b)));
}

static PyObject *get_ndim(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromLong(hoist_buffer_rank(b));
}

static PyObject *get_size(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromUnsignedLongLong(hoist_buffer_elements(b));
}

static PyObject *get_nbytes(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromSize_t(hoist_buffer_bytes(b));
}

static PyObject *get_address(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSize_t(hoist_buffer_address(self_of(self)->buffer));
}

static PyObject *get_is_contiguous(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_contiguous(b));
}

static PyObject *get_is_pinned(PyObject *self, void *closure)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_pinned(b));
}

static PyObject *get_is_read_only(PyObject *self, void *closure)
{
	hoist_buffer_info info = {.size = sizeof info};
	(void)closure;
	int err = hoist_buffer_get_info(self_of(self)->buffer, &info);
	return err < 0 ? hoist_py_fail(err) : PyBool_FromLong(info.is_read_only);
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(hoist_buffer_is_closed(self_of(self)->buffer));
}

static PyObject *describe(PyObject *self, unsigned flags)
{
	object *o = self_of(self);
	char *text = NULL;
	int64_t n;
	HOIST_PY_USING(o, n = hoist_buffer_describe(o->buffer, flags, NULL, 0));
	if (n < 0)
		return hoist_py_fail((int)n);
	text = malloc((size_t)n + 1);
	if (text == NULL)
		return PyErr_NoMemory();
	int64_t again;
	HOIST_PY_USING(o, again = hoist_buffer_describe(o->buffer, flags, text, (size_t)n + 1));
	PyObject *ret = again < 0 ? hoist_py_fail((int)again) : PyUnicode_FromString(text);
	free(text);
	return ret;
}

static PyObject *buffer_repr(PyObject *self)
{
	return describe(self, 0);
}

static PyObject *buffer_str(PyObject *self)
{
	return describe(self,
			hoist_buffer_is_closed(self_of(self)->buffer) ? 0 : HOIST_DESCRIBE_VALUES);
}

/* --- views --- */

static Py_ssize_t buffer_length(PyObject *self)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	if (b != NULL && hoist_buffer_rank(b) == 0)
		PyErr_SetString(PyExc_TypeError, "a buffer of rank 0 has no length");
	return b == NULL || hoist_buffer_rank(b) == 0 ? -1 : (Py_ssize_t)hoist_buffer_shape(b)[0];
}

static PyObject *buffer_reshape(PyObject *self, PyObject *extents)
{
	int64_t shape[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	int rank = hoist_py_extents(extents, shape);
	hoist_buffer *b = rank < 0 ? NULL : hoist_py_open_buffer(self);
	return b == NULL ? NULL : result(hoist_buffer_reshape(b, rank, shape, &ret), &ret);
}

static PyObject *buffer_permute(PyObject *self, PyObject *order)
{
	int64_t axes[HOIST_MAX_RANK];
	int narrow[HOIST_MAX_RANK] = {0};
	hoist_buffer *ret = NULL;
	int n = hoist_py_extents(order, axes);
	hoist_buffer *b = n < 0 ? NULL : hoist_py_open_buffer(self);
	if (b != NULL && n != hoist_buffer_rank(b)) {
		PyErr_Format(PyExc_ValueError, "%d axes for a buffer of %d", n,
			     hoist_buffer_rank(b));
		return NULL;
	}
	for (int a = 0; a < n; a++)
		narrow[a] = axes[a] < -64 || axes[a] > 64 ? 65 : (int)axes[a];
	return b == NULL ? NULL : result(hoist_buffer_permute(b, narrow, &ret), &ret);
}

static PyObject *buffer_view(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"dtype", "shape", NULL};
	PyObject *name;
	PyObject *extents = Py_None;
	hoist_dtype dtype;
	int64_t shape[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	int rank = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:view", names, &name, &extents))
		return NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	if (b == NULL || hoist_py_dtype(name, &dtype) < 0)
		return NULL;
	if (extents == Py_None)
		return result(hoist_buffer_view_as(b, dtype, &ret), &ret);
	rank = hoist_py_extents(extents, shape);
	return rank < 0 ? NULL : result(hoist_buffer_view(b, 0, dtype, rank, shape, &ret), &ret);
}

static PyObject *buffer_read_only(PyObject *self, PyObject *none)
{
	hoist_buffer *ret = NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	(void)none;
	return b == NULL ? NULL : result(hoist_buffer_read_only(b, &ret), &ret);
}

/* --- copies --- */

static PyObject *move(PyObject *self, PyObject *spec, bool always)
{
	object *o = self_of(self);
	hoist_device *device = NULL;
	hoist_buffer *ret = NULL;
	int err;
	if (!(always && spec == Py_None) && hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	HOIST_PY_USING(o, err = always ? hoist_buffer_copy(o->buffer, device, &ret)
				       : hoist_buffer_to(o->buffer, device, &ret));
	if (device != NULL)
		HOIST_PY_WAITING(hoist_device_unref(device));
	if (err == 0 && ret == o->buffer) {
		hoist_buffer_unref(ret);
		return Py_NewRef(self);
	}
	return result(err, &ret);
}

static PyObject *buffer_to(PyObject *self, PyObject *device)
{
	return move(self, device, false);
}

static PyObject *buffer_copy(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", NULL};
	PyObject *device = Py_None;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:copy", names, &device))
		return NULL;
	return move(self, device, true);
}

static PyObject *buffer_copy_from(PyObject *self, PyObject *source)
{
	object *o = self_of(self);
	hoist_buffer *from = hoist_py_buffer_arg(source);
	int err;
	if (from == NULL)
		return NULL;
	atomic_fetch_add(&self_of(source)->n_uses, 1);
	HOIST_PY_USING(o, err = hoist_buffer_copy_into(o->buffer, from));
	atomic_fetch_sub(&self_of(source)->n_uses, 1);
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *buffer_tobytes(PyObject *self, PyObject *none)
{
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
	HOIST_PY_USING(o, err = hoist_buffer_copy_out(o->buffer, to, n));
	if (err == 0)
		return bytes;
	Py_DECREF(bytes);
	return hoist_py_fail(err);
}

static PyObject *buffer_item(PyObject *self, PyObject *none)
{
	object *o = self_of(self);
	hoist_number number;
	int err;
	(void)none;
	HOIST_PY_USING(o, err = hoist_buffer_item(o->buffer, &number));
	if (err < 0)
		return hoist_py_fail(err);
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

/* --- the type --- */

#define KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
	{"close", KEYWORDS(buffer_close), METH_VARARGS | METH_KEYWORDS,
	 "close($self, /, stream=None)\n--\n\nLets go of the memory, behind the work on `stream`."},
	{"reshape", buffer_reshape, METH_O,
	 "reshape($self, shape, /)\n--\n\nThe same elements in another shape; one extent may be "
	 "-1."},
	{"permute", buffer_permute, METH_O,
	 "permute($self, axes, /)\n--\n\nThe axes in another order."},
	{"view", KEYWORDS(buffer_view), METH_VARARGS | METH_KEYWORDS,
	 "view($self, /, dtype, shape=None)\n--\n\nThe same bytes as another dtype."},
	{"read_only", buffer_read_only, METH_NOARGS,
	 "read_only($self, /)\n--\n\nThe same elements, which the result cannot write."},
	{"to", buffer_to, METH_O,
	 "to($self, device, /)\n--\n\nThis buffer if its memory is on `device`, else a copy "
	 "there."},
	{"copy", KEYWORDS(buffer_copy), METH_VARARGS | METH_KEYWORDS,
	 "copy($self, /, device=None)\n--\n\nA contiguous copy, on the same or another device."},
	{"copy_from", buffer_copy_from, METH_O,
	 "copy_from($self, source, /)\n--\n\nCopies the elements of a Buffer of the same shape."},
	{"tobytes", buffer_tobytes, METH_NOARGS,
	 "tobytes($self, /)\n--\n\nThe elements in C order, as bytes."},
	{"item", buffer_item, METH_NOARGS, "item($self, /)\n--\n\nThe only element, as a number."},
	{"__dlpack__", KEYWORDS(hoist_py_to_dlpack), METH_VARARGS | METH_KEYWORDS,
	 "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, "
	 "copy=None)\n--\n\n"},
	{"__dlpack_device__", hoist_py_dlpack_device, METH_NOARGS,
	 "__dlpack_device__($self, /)\n--\n\n"},
	{"from_dlpack", KEYWORDS(hoist_py_from_dlpack), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "from_dlpack($type, array, /, *, copy=None)\n--\n\n"
	 "A buffer over the memory of an array of another library."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"shape", get_shape, NULL, "The extents, a tuple.", NULL},
	{"strides", get_strides, NULL, "The strides in elements, a tuple.", NULL},
	{"dtype", get_dtype, NULL, "The name of the dtype: \"bf16\".", NULL},
	{"device", get_device, NULL, "The Device.", NULL},
	{"ndim", get_ndim, NULL, "The number of axes.", NULL},
	{"size", get_size, NULL, "The number of elements.", NULL},
	{"nbytes", get_nbytes, NULL, "Bytes of the elements.", NULL},
	{"address", get_address, NULL,
	 "The first element's address, as the device sees it; 0: none.", NULL},
	{"is_contiguous", get_is_contiguous, NULL,
	 "True: the elements lie in C order without gaps.", NULL},
	{"is_pinned", get_is_pinned, NULL, "True: host memory that a driver has registered.", NULL},
	{"is_read_only", get_is_read_only, NULL, "True: hoist does not write to the elements.",
	 NULL},
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)buffer_new},
	{Py_tp_dealloc, (void *)buffer_dealloc},
	{Py_tp_repr, (void *)buffer_repr},
	{Py_tp_str, (void *)buffer_str},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{Py_mp_subscript, (void *)hoist_py_subscript},
	{Py_mp_ass_subscript, (void *)hoist_py_store},
	{Py_mp_length, (void *)buffer_length},
	{Py_bf_getbuffer, (void *)hoist_py_getbuffer},
	{Py_bf_releasebuffer, (void *)hoist_py_releasebuffer},
	{Py_tp_doc,
	 "Buffer(dtype, shape, device=None, *, stream=None, pinned=False, zero=False)\n--\n\n"
	 "Typed, shaped memory on a device."},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.Buffer",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int hoist_py_add_buffer_type(PyObject *module)
{
	hoist_py_buffer_type = hoist_py_add_type(module, &type);
	return hoist_py_buffer_type == NULL ? -1 : 0;
}
