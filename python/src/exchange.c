/* SPDX-License-Identifier: MIT */
/* Buffer: the buffer protocol and DLPack.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

typedef hoist_py_buffer_object object;

/* --- the buffer protocol: host memory in types that it has a letter for --- */

static const struct {
	hoist_dtype dtype;
	const char *format;
} formats[] = {
	{HOIST_BOOL, "?"}, {HOIST_I8, "b"},    {HOIST_I16, "h"}, {HOIST_I32, "i"},
	{HOIST_I64, "q"},  {HOIST_U8, "B"},    {HOIST_U16, "H"}, {HOIST_U32, "I"},
	{HOIST_U64, "Q"},  {HOIST_F16, "e"},   {HOIST_F32, "f"}, {HOIST_F64, "d"},
	{HOIST_C64, "Zf"}, {HOIST_C128, "Zd"},
};

static const char *format_of(hoist_dtype dtype)
{
	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		if (formats[i].dtype == dtype)
			return formats[i].format;
	return NULL;
}

static int refuse(const char *why)
{
	PyErr_SetString(PyExc_BufferError, why);
	return -1;
}

/* The fields that depend on what the consumer asked for. */
static int lay_out(hoist_buffer *buffer, Py_buffer *view, int flags)
{
	int rank = hoist_buffer_rank(buffer);
	const int64_t *shape = hoist_buffer_shape(buffer);
	const int64_t *strides = hoist_buffer_strides(buffer);
	bool contiguous = hoist_buffer_is_contiguous(buffer);
	Py_ssize_t *room = malloc(sizeof *room * 2 * ((size_t)rank + 1));
	if (room == NULL) {
		PyErr_NoMemory();
		return -1;
	}
	for (int a = 0; a < rank; a++) {
		room[a] = (Py_ssize_t)shape[a];
		room[rank + a] = (Py_ssize_t)strides[a] * view->itemsize;
	}
	view->internal = room;
	view->ndim = rank;
	view->shape = (flags & PyBUF_ND) == PyBUF_ND ? room : NULL;
	view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? room + rank : NULL;
	bool needs_c = view->strides == NULL ||
		       (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
		       (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
	bool needs_f = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
	if ((needs_c && !contiguous) || (needs_f && !(contiguous && rank <= 1)))
		return refuse("the buffer's elements have gaps or another order; copy() makes a "
			      "contiguous buffer");
	if (view->shape == NULL)
		view->ndim = 1;
	return 0;
}

int hoist_py_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	object *o = (object *)self;
	hoist_buffer_info info = {.size = sizeof info};
	bool writes = (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE;
	int err;
	view->obj = NULL;
	(void)hoist_buffer_get_info(o->buffer, &info);
	if (info.is_closed)
		return refuse("the buffer was closed");
	hoist_dtype dtype = hoist_buffer_dtype(o->buffer);
	const char *format = format_of(dtype);
	if (format == NULL) {
		PyErr_Format(PyExc_BufferError,
			     "Python's buffers have no %s; view(\"u8\") gives its bytes, and "
			     "hoist.numpy.asarray() an array of ml_dtypes' type",
			     hoist_dtype_name(dtype));
		return -1;
	}
	if (writes && info.is_read_only)
		return refuse("the buffer is read-only");
	/* Takes the memory of a lazy buffer, and waits for the buffer's stream. */
	HOIST_PY_USING(o, err = hoist_buffer_allocate(o->buffer));
	if (err == 0 && hoist_buffer_bytes(o->buffer) > 0 && hoist_buffer_data(o->buffer) == NULL)
		return refuse("the elements are in device memory; to(\"cpu\") copies them");
	hoist_stream *stream = NULL;
	if (err == 0 && !o->is_unordered)
		err = hoist_buffer_stream(o->buffer, &stream);
	if (err == 0 && stream != NULL)
		HOIST_PY_USING(o, err = hoist_stream_synchronize(stream));
	if (err < 0) {
		hoist_py_fail(err);
		return -1;
	}
	view->buf = hoist_buffer_data(o->buffer);
	view->len = (Py_ssize_t)hoist_buffer_bytes(o->buffer);
	view->itemsize = (Py_ssize_t)hoist_dtype_bits(dtype) / 8;
	view->readonly = info.is_read_only;
	view->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL;
	view->suboffsets = NULL;
	view->internal = NULL;
	if (lay_out(o->buffer, view, flags) < 0) {
		free(view->internal);
		return -1;
	}
	view->obj = Py_NewRef(self);
	atomic_fetch_add(&o->n_uses, 1);
	return 0;
}

void hoist_py_releasebuffer(PyObject *self, Py_buffer *view)
{
	atomic_fetch_sub(&((object *)self)->n_uses, 1);
	free(view->internal);
}

/* --- DLPack, out --- */

#define VERSIONED "dltensor_versioned"
#define LEGACY "dltensor"

/* A consumer that has taken the tensor has renamed the capsule. */
static void drop_versioned(PyObject *capsule)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	if (PyCapsule_IsValid(capsule, VERSIONED))
		tensor = PyCapsule_GetPointer(capsule, VERSIONED);
	HOIST_PY_WAITING(hoist_dlpack_release(tensor));
}

static void drop_legacy(PyObject *capsule)
{
	struct DLManagedTensor *tensor = NULL;
	if (PyCapsule_IsValid(capsule, LEGACY))
		tensor = PyCapsule_GetPointer(capsule, LEGACY);
	HOIST_PY_WAITING(hoist_dlpack_release_legacy(tensor));
}

/* Reads the arguments of `__dlpack__`.  *@versioned: the consumer knows the struct with a version.
 */
static int read_request(PyObject *args, PyObject *keywords, hoist_dlpack_options *o,
			bool *versioned)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", "read_only", NULL};
	PyObject *stream = Py_None;
	PyObject *version = Py_None;
	PyObject *device = Py_None;
	PyObject *copy = Py_None;
	PyObject *read_only = Py_None; /* torch's: the buffer's own answer holds */
	int major = 0;
	int minor = 0;
	int type = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOOO:__dlpack__", names, &stream,
					 &version, &device, &copy, &read_only))
		return -1;
	if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor))
		return -1;
	if (device != Py_None) {
		/* torch passes an enum as the type. */
		PyObject *kind = PySequence_GetItem(device, 0);
		PyObject *id = PySequence_GetItem(device, 1);
		type = kind == NULL ? -1 : (int)PyNumber_AsSsize_t(kind, PyExc_OverflowError);
		o->device.id = id == NULL ? -1 : (int)PyNumber_AsSsize_t(id, PyExc_OverflowError);
		o->device.type = type;
		Py_XDECREF(kind);
		Py_XDECREF(id);
		if (PyErr_Occurred())
			return -1;
	}
	if (stream != Py_None) {
		o->has_stream = 1;
		o->stream = (intptr_t)PyLong_AsSsize_t(stream);
		if (PyErr_Occurred())
			return -1;
	}
	int asked = copy == Py_None ? -1 : PyObject_IsTrue(copy);
	o->copy = asked < 0    ? HOIST_DLPACK_COPY_IF_NEEDED
		  : asked == 0 ? HOIST_DLPACK_COPY_NEVER
			       : HOIST_DLPACK_COPY_ALWAYS;
	*versioned = major >= 1;
	return PyErr_Occurred() ? -1 : 0;
}

/* DLPack wants a BufferError where an export is not possible. */
static PyObject *cannot_export(int err)
{
	if (err != -ENOTSUP)
		return hoist_py_fail(err);
	PyErr_SetString(PyExc_BufferError, hoist_error());
	return NULL;
}

PyObject *hoist_py_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
	object *o = (object *)self;
	hoist_dlpack_options options = {.size = sizeof options};
	struct DLManagedTensorVersioned *tensor = NULL;
	struct DLManagedTensor *legacy = NULL;
	bool versioned = false;
	int err;
	if (read_request(args, keywords, &options, &versioned) < 0)
		return NULL;
	if (o->is_unordered && !options.has_stream) {
		options.has_stream = 1;
		options.stream = -1;
	}
	HOIST_PY_USING(
		o, err = versioned ? hoist_buffer_to_dlpack(o->buffer, &options, &tensor)
				   : hoist_buffer_to_dlpack_legacy(o->buffer, &options, &legacy));
	if (err < 0)
		return cannot_export(err);
	PyObject *capsule = versioned ? PyCapsule_New(tensor, VERSIONED, drop_versioned)
				      : PyCapsule_New(legacy, LEGACY, drop_legacy);
	if (capsule == NULL) {
		hoist_dlpack_release(tensor);
		hoist_dlpack_release_legacy(legacy);
	}
	return capsule;
}

PyObject *hoist_py_dlpack_device(PyObject *self, PyObject *none)
{
	hoist_dl_device device;
	(void)none;
	int err = hoist_buffer_dlpack_device(((object *)self)->buffer, &device);
	if (err < 0)
		return cannot_export(err);
	return Py_BuildValue("(ii)", (int)device.type, (int)device.id);
}

/* --- DLPack, in --- */

/* The stream that orders hoist's later work, and its number for the producer; None for the CPU. */
static PyObject *stream_for(PyObject *array, hoist_stream **stream)
{
	hoist_dl_device where = {0};
	hoist_device *device = NULL;
	intptr_t number = 0;
	int type = 0;
	int id = 0;
	PyObject *place = PyObject_CallMethod(array, "__dlpack_device__", NULL);
	if (place == NULL)
		return NULL;
	PyObject *kind = PySequence_GetItem(place, 0);
	PyObject *index = PySequence_GetItem(place, 1);
	Py_DECREF(place);
	if (kind != NULL && index != NULL) {
		type = (int)PyNumber_AsSsize_t(kind, PyExc_OverflowError);
		id = (int)PyNumber_AsSsize_t(index, PyExc_OverflowError);
	}
	Py_XDECREF(kind);
	Py_XDECREF(index);
	if (PyErr_Occurred())
		return NULL;
	where.type = type;
	where.id = id;
	if (type == HOIST_DL_CPU)
		return Py_NewRef(Py_None);
	int err;
	Py_BEGIN_ALLOW_THREADS err = hoist_device_from_dlpack(where, &device);
	if (err == 0)
		err = hoist_device_default_stream(device, stream);
	hoist_device_unref(device);
	if (err == 0)
		err = hoist_stream_to_dlpack(*stream, &number);
	Py_END_ALLOW_THREADS if (err == -ENOTSUP) return Py_NewRef(Py_None);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromSsize_t((Py_ssize_t)number);
}

/* Calls the producer: with a version, and, if it does not know that argument, without. */
static PyObject *ask(PyObject *array, PyObject *stream, PyObject *copy)
{
	PyObject *method = PyObject_GetAttrString(array, "__dlpack__");
	PyObject *none = PyTuple_New(0);
	PyObject *keywords = PyDict_New();
	PyObject *version = Py_BuildValue("(ii)", HOIST_DLPACK_MAJOR, HOIST_DLPACK_MINOR);
	PyObject *ret = NULL;
	if (method == NULL || none == NULL || keywords == NULL || version == NULL ||
	    (stream != Py_None && PyDict_SetItemString(keywords, "stream", stream) < 0) ||
	    (copy != Py_None && PyDict_SetItemString(keywords, "copy", copy) < 0) ||
	    PyDict_SetItemString(keywords, "max_version", version) < 0)
		goto end;
	ret = PyObject_Call(method, none, keywords);
	if (ret == NULL && copy == Py_None && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		if (PyDict_DelItemString(keywords, "max_version") == 0)
			ret = PyObject_Call(method, none, keywords);
	}
end:
	Py_XDECREF(method);
	Py_XDECREF(none);
	Py_XDECREF(keywords);
	Py_XDECREF(version);
	return ret;
}

/* Takes the capsule's tensor: its name says that it was taken. */
static PyObject *take(PyTypeObject *type, PyObject *capsule, hoist_stream *stream)
{
	hoist_buffer *buffer = NULL;
	int err;
	if (PyCapsule_IsValid(capsule, VERSIONED)) {
		struct DLManagedTensorVersioned *t = PyCapsule_GetPointer(capsule, VERSIONED);
		err = hoist_buffer_from_dlpack(t, stream, 0, &buffer);
		if (err == 0)
			(void)PyCapsule_SetName(capsule, "used_" VERSIONED);
	} else if (PyCapsule_IsValid(capsule, LEGACY)) {
		struct DLManagedTensor *t = PyCapsule_GetPointer(capsule, LEGACY);
		err = hoist_buffer_from_dlpack_legacy(t, stream, 0, &buffer);
		if (err == 0)
			(void)PyCapsule_SetName(capsule, "used_" LEGACY);
	} else {
		PyErr_SetString(PyExc_ValueError,
				"no DLPack capsule, or one that was used already");
		return NULL;
	}
	return err < 0 ? cannot_export(err) : hoist_py_buffer_of(type, buffer);
}

PyObject *hoist_py_from_dlpack(PyObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"", "copy", NULL};
	PyObject *array;
	PyObject *copy = Py_None;
	hoist_stream *stream = NULL;
	PyObject *ret = NULL;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O:from_dlpack", names, &array, &copy))
		return NULL;
	PyObject *number = stream_for(array, &stream);
	PyObject *capsule = number == NULL ? NULL : ask(array, number, copy);
	if (capsule != NULL)
		ret = take((PyTypeObject *)type, capsule, stream);
	Py_XDECREF(capsule);
	Py_XDECREF(number);
	HOIST_PY_WAITING(hoist_stream_unref(stream));
	return ret;
}
