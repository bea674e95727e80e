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

/* hoist_py_getbuffer() while n_uses says that the buffer is used. */
static int fill_view(PyObject *self, Py_buffer *view, int flags)
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
	/* Takes the memory of a lazy buffer, and waits for the buffer's stream, each only where
	 * there is something to do: the GIL is not let go for nothing. */
	err = 0;
	if (!info.is_allocated)
		HOIST_PY_USING(o, err = hoist_buffer_allocate(o->buffer));
	if (err == 0 && hoist_buffer_bytes(o->buffer) > 0 && hoist_buffer_data(o->buffer) == NULL)
		return refuse("the elements are in device memory; to(\"cpu\") copies them");
	hoist_stream *stream = NULL;
	if (err == 0 && !o->is_unordered)
		err = hoist_buffer_stream(o->buffer, &stream);
	if (err == 0 && stream != NULL && hoist_py_query(stream) != 0) {
		if (hoist_py_await_stream(stream) < 0)
			return -1;
		HOIST_PY_USING(o, err = hoist_stream_synchronize(stream));
	}
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
	return 0;
}

int hoist_py_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	HOIST_PY_LOCK(self);
	atomic_fetch_add(&((object *)self)->n_uses, 1);
	int err = fill_view(self, view, flags);
	if (err < 0)
		atomic_fetch_sub(&((object *)self)->n_uses, 1);
	return err;
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
	if (!PyCapsule_IsValid(capsule, VERSIONED))
		return;
	struct DLManagedTensorVersioned *tensor = PyCapsule_GetPointer(capsule, VERSIONED);
	HOIST_PY_WAITING(hoist_dlpack_release(tensor));
}

static void drop_legacy(PyObject *capsule)
{
	if (!PyCapsule_IsValid(capsule, LEGACY))
		return;
	struct DLManagedTensor *tensor = PyCapsule_GetPointer(capsule, LEGACY);
	HOIST_PY_WAITING(hoist_dlpack_release_legacy(tensor));
}

/* The wishes of a consumer. */
struct request {
	hoist_dlpack_options options;
	bool is_versioned;    /* the consumer knows the struct with a version */
	bool heeds_read_only; /* and does not write to a tensor that says so */
};

/* (type, id), as the consumer wrote it.  Returns: 0; -1 with an exception. */
static int read_place(PyObject *device, struct request *r)
{
	PyObject *kind = PySequence_GetItem(device, 0);
	PyObject *id = kind == NULL ? NULL : PySequence_GetItem(device, 1);
	if (id != NULL) {
		r->options.device.type = (int)PyNumber_AsSsize_t(kind, PyExc_OverflowError);
		r->options.device.id = (int)PyNumber_AsSsize_t(id, PyExc_OverflowError);
	}
	Py_XDECREF(kind);
	Py_XDECREF(id);
	return PyErr_Occurred() ? -1 : 0;
}

/* Reads the arguments of `__dlpack__`.
 *
 * max_version alone does not say that a consumer heeds READ_ONLY: torch passes it, and writes.
 * NumPy passes `dl_device` and `copy`, too, as None where its caller gave none; torch passes those
 * of the two that its caller gave.  So a None in one of them tells the two apart. */
static int read_request(PyObject *args, PyObject *keywords, struct request *r)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy", "read_only", NULL};
	PyObject *stream = Py_None;
	PyObject *version = Py_None;
	PyObject *device = NULL;
	PyObject *copy = NULL;
	PyObject *read_only = Py_None;
	int major = 0;
	int minor = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOOO:__dlpack__", names, &stream,
					 &version, &device, &copy, &read_only))
		return -1;
	if (version != Py_None && !PyTuple_Check(version)) {
		PyErr_SetString(PyExc_TypeError, "max_version is a tuple of two integers, or None");
		return -1;
	}
	if (version != Py_None && !PyArg_ParseTuple(version, "ii:max_version", &major, &minor))
		return -1;
	r->is_versioned = major >= 1;
	r->heeds_read_only =
		device != NULL && copy != NULL && (device == Py_None || copy == Py_None);
	if (device != NULL && device != Py_None && read_place(device, r) < 0)
		return -1;
	if (read_only != Py_None)
		r->heeds_read_only = PyObject_IsTrue(read_only) == 1;
	if (stream != Py_None) {
		r->options.has_stream = 1;
		r->options.stream = (intptr_t)PyLong_AsSsize_t(stream);
		if (PyErr_Occurred())
			return -1;
	}
	int asked = copy == NULL || copy == Py_None ? -1 : PyObject_IsTrue(copy);
	r->options.copy = asked < 0    ? HOIST_DLPACK_COPY_IF_NEEDED
			  : asked == 0 ? HOIST_DLPACK_COPY_NEVER
				       : HOIST_DLPACK_COPY_ALWAYS;
	return PyErr_Occurred() ? -1 : 0;
}

/* DLPack wants a BufferError where an export is not possible; -ENODEV: the device is not there. */
static PyObject *cannot_export(int err)
{
	if (err != -ENOTSUP && err != -ENODEV)
		return hoist_py_fail(err);
	PyErr_SetString(PyExc_BufferError, hoist_error());
	return NULL;
}

bool hoist_py_is_read_only_tensor(const struct DLManagedTensorVersioned *tensor)
{
	const hoist_dl_managed *seen = (const hoist_dl_managed *)tensor;
	return seen != NULL && (seen->flags & HOIST_DL_READ_ONLY) != 0;
}

void hoist_py_refuse_read_only(void)
{
	PyErr_SetString(PyExc_BufferError,
			"the buffer is read-only, and the consumer does not say that it heeds that "
			"(torch writes to all tensors): take copy(), or map the files with "
			"map=\"copyonwrite\"; a consumer that never writes may call "
			"__dlpack__(max_version=(1, 0), read_only=True)");
}

/* NumPy takes types of ml_dtypes after hoist.buffer.tell_numpy(), called once, where NumPy is there
 * to be told.  Returns: 0; -1 with an exception. */
static int tell_numpy(hoist_dtype dtype)
{
	static atomic_bool is_told;
	if (is_told || format_of(dtype) != NULL) /* NumPy has a type of its own */
		return 0;
	PyObject *name = PyUnicode_FromString("numpy");
	PyObject *numpy = name == NULL ? NULL : PyImport_GetModule(name);
	PyObject *none = numpy == NULL ? NULL : hoist_py_call("tell_numpy", NULL);
	is_told = none != NULL;
	Py_XDECREF(name);
	Py_XDECREF(numpy);
	Py_XDECREF(none);
	return PyErr_Occurred() ? -1 : 0;
}

/* Takes the tensor, of which one is NULL. */
static PyObject *capsule_of(struct DLManagedTensorVersioned *tensor, struct DLManagedTensor *legacy)
{
	PyObject *capsule = tensor != NULL ? PyCapsule_New(tensor, VERSIONED, drop_versioned)
					   : PyCapsule_New(legacy, LEGACY, drop_legacy);
	if (capsule == NULL)
		HOIST_PY_WAITING(hoist_dlpack_release(tensor); hoist_dlpack_release_legacy(legacy));
	return capsule;
}

PyObject *hoist_py_capsule(hoist_buffer *buffer)
{
	const hoist_dlpack_options options = {
		.size = sizeof options, .has_stream = 1, .stream = -1};
	struct DLManagedTensor *legacy = NULL;
	int err = hoist_buffer_to_dlpack_legacy(buffer, &options, &legacy);
	return err < 0 ? cannot_export(err) : capsule_of(NULL, legacy);
}

/* Does the call wait for the buffer's stream?  A consumer without a stream has it waited for, and
 * so has one that gets a copy on the host. */
static bool waits(hoist_buffer *buffer, const hoist_dlpack_options *options)
{
	hoist_buffer_info info = {.size = sizeof info};
	return !options->has_stream ||
	       (options->device.type == HOIST_DL_CPU && hoist_buffer_get_info(buffer, &info) == 0 &&
		!info.is_host_accessible);
}

PyObject *hoist_py_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
	HOIST_PY_LOCK(self);
	object *o = (object *)self;
	struct request r = {.options = {.size = sizeof r.options}};
	struct DLManagedTensorVersioned *tensor = NULL;
	struct DLManagedTensor *legacy = NULL;
	int err;
	if (read_request(args, keywords, &r) < 0 || tell_numpy(hoist_buffer_dtype(o->buffer)) < 0)
		return NULL;
	if (o->is_unordered && !r.options.has_stream) {
		r.options.has_stream = 1;
		r.options.stream = -1;
	}
	if (waits(o->buffer, &r.options) && hoist_py_await_buffer(self) < 0)
		return NULL;
	HOIST_PY_USING(
		o, err = r.is_versioned
				 ? hoist_buffer_to_dlpack(o->buffer, &r.options, &tensor)
				 : hoist_buffer_to_dlpack_legacy(o->buffer, &r.options, &legacy));
	if (err < 0)
		return cannot_export(err);
	if (hoist_py_is_read_only_tensor(tensor) && !r.heeds_read_only) {
		HOIST_PY_WAITING(hoist_dlpack_release(tensor));
		hoist_py_refuse_read_only();
		return NULL;
	}
	return capsule_of(tensor, legacy);
}

PyObject *hoist_py_dlpack_device(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
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

/* The arguments for a producer that knows `level` releases of the protocol: 1 with the version, 2
 * with the place, too, which tells that hoist heeds READ_ONLY. */
static PyObject *arguments(int level, PyObject *stream, PyObject *copy)
{
	PyObject *ret = PyDict_New();
	PyObject *version = Py_BuildValue("(ii)", HOIST_DLPACK_MAJOR, HOIST_DLPACK_MINOR);
	if (ret == NULL || version == NULL ||
	    (stream != Py_None && PyDict_SetItemString(ret, "stream", stream) < 0) ||
	    ((copy != Py_None || level >= 2) && PyDict_SetItemString(ret, "copy", copy) < 0) ||
	    (level >= 2 && PyDict_SetItemString(ret, "dl_device", Py_None) < 0) ||
	    (level >= 1 && PyDict_SetItemString(ret, "max_version", version) < 0))
		Py_CLEAR(ret);
	Py_XDECREF(version);
	return ret;
}

/* Calls the producer, which says TypeError for arguments that it does not know: then with fewer. */
static PyObject *ask(PyObject *array, PyObject *stream, PyObject *copy)
{
	PyObject *method = PyObject_GetAttrString(array, "__dlpack__");
	PyObject *none = PyTuple_New(0);
	PyObject *ret = NULL;
	bool again = method != NULL && none != NULL;
	for (int level = 2; again; level--) {
		PyObject *keywords = arguments(level, stream, copy);
		ret = keywords == NULL ? NULL : PyObject_Call(method, none, keywords);
		Py_XDECREF(keywords);
		again = ret == NULL && level > (copy == Py_None ? 0 : 1) &&
			PyErr_ExceptionMatches(PyExc_TypeError);
		if (again)
			PyErr_Clear();
	}
	Py_XDECREF(method);
	Py_XDECREF(none);
	return ret;
}

/* Takes the capsule's tensor: its name says that it was taken. */
static PyObject *take(PyTypeObject *type, PyObject *capsule, hoist_stream *stream)
{
	HOIST_PY_LOCK(capsule);
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

/* True if the producer has said that it cannot export. */
static bool is_refusal(void)
{
	return PyErr_ExceptionMatches(PyExc_BufferError) ||
	       PyErr_ExceptionMatches(PyExc_TypeError) ||
	       PyErr_ExceptionMatches(PyExc_RuntimeError);
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
	else if (number != NULL && is_refusal())
		ret = hoist_py_of_ml_dtypes(array, type, copy);
	Py_XDECREF(capsule);
	Py_XDECREF(number);
	HOIST_PY_WAITING(hoist_stream_unref(stream));
	return ret;
}
