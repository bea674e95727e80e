/* SPDX-License-Identifier: MIT */
/* Stream and Event.  The contract is in python/src/module.h.
 *
 * A Stream object stands in the slot that libhoist has for bindings (hoist/user.h), so that one
 * stream has one object while the object lives.  The object takes itself out of the slot before it
 * drops its reference.  hoist_py_slots keeps a reader of the slot from meeting an object that is
 * gone.
 */
#include "stream-doc.h"
#include "module.h"

typedef struct stream_object {
	PyObject_HEAD hoist_stream *stream;
} stream_object;

static hoist_stream *stream_of(PyObject *self)
{
	return ((stream_object *)self)->stream;
}

/* A new reference to the object in the slot.  Without one, or if that one ends, @object takes its
 * place, and is returned. */
static PyObject *known_or(hoist_stream *stream, PyObject *object)
{
	pthread_mutex_lock(&hoist_py_slots);
	PyObject *known = hoist_stream_get_user(stream);
	if (known == NULL || !hoist_py_try_ref(known)) {
		if (object != NULL)
			(void)hoist_stream_set_user(stream, known, object, NULL);
		known = object;
	}
	pthread_mutex_unlock(&hoist_py_slots);
	return known;
}

PyObject *hoist_py_stream(hoist_stream *stream)
{
	PyObject *known = known_or(stream, NULL);
	if (known != NULL) {
		HOIST_PY_WAITING(hoist_stream_unref(stream));
		return known;
	}
	stream_object *self = (stream_object *)PyType_GenericAlloc(hoist_py_stream_type, 0);
	if (self == NULL) {
		HOIST_PY_WAITING(hoist_stream_unref(stream));
		return NULL;
	}
	self->stream = stream;
	hoist_py_enable_try_ref((PyObject *)self);
	known = known_or(stream, (PyObject *)self);
	if (known != (PyObject *)self) /* another thread was first */
		Py_DECREF((PyObject *)self);
	return known;
}

int hoist_py_stream_arg(PyObject *object, hoist_stream **ret)
{
	*ret = NULL;
	if (object == Py_None)
		return 0;
	if (Py_IS_TYPE(object, hoist_py_stream_type)) {
		*ret = stream_of(object);
		return 0;
	}
	PyObject *streams = PyImport_ImportModule("hoist.streams");
	PyObject *own = streams == NULL ? NULL : PyObject_CallMethod(streams, "of", "O", object);
	if (own != NULL)
		*ret = stream_of(own);
	Py_XDECREF(streams);
	Py_XDECREF(own); /* hoist.streams keeps it as long as @object lives */
	return own == NULL ? -1 : 0;
}

static PyObject *none_or_fail(int err)
{
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", "native", NULL};
	PyObject *spec = Py_None;
	PyObject *handle = Py_None;
	hoist_device *device;
	hoist_stream *stream = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:Stream", names, &spec, &handle))
		return NULL;
	void *native = handle == Py_None ? NULL : PyLong_AsVoidPtr(handle);
	if (native == NULL && PyErr_Occurred())
		return NULL;
	if (hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS err = handle == Py_None ? hoist_stream_create(device, &stream)
						       : hoist_stream_wrap(device, native, &stream);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS return err < 0 ? hoist_py_fail(err) : hoist_py_stream(stream);
}

static void stream_dealloc(PyObject *self)
{
	hoist_stream *stream = stream_of(self);
	if (stream != NULL) { /* the slot may have another object by now */
		pthread_mutex_lock(&hoist_py_slots);
		(void)hoist_stream_set_user(stream, self, NULL, NULL);
		pthread_mutex_unlock(&hoist_py_slots);
	}
	HOIST_PY_WAITING(hoist_stream_unref(stream));
	hoist_py_free_object(self);
}

static PyObject *stream_synchronize(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	if (hoist_py_await_stream(stream_of(self)) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_stream_synchronize(stream_of(self)));
	return none_or_fail(err);
}

/* True or False for the answer of a query. */
static PyObject *answer(int err)
{
	if (err == -EAGAIN)
		return Py_NewRef(Py_False);
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_True);
}

static PyObject *stream_is_ready(PyObject *self, PyObject *none)
{
	(void)none;
	return answer(hoist_py_query(stream_of(self)));
}

/* --- Event --- */

typedef struct event_object {
	PyObject_HEAD hoist_event *event;
} event_object;

static hoist_event *event_of(PyObject *self)
{
	return ((event_object *)self)->event;
}

static PyObject *event_object_of(hoist_event *event)
{
	event_object *self = (event_object *)PyType_GenericAlloc(hoist_py_event_type, 0);
	if (self == NULL)
		hoist_event_unref(event);
	else
		self->event = event;
	return (PyObject *)self;
}

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", "enable_timing", NULL};
	PyObject *spec = Py_None;
	int timing = 0;
	hoist_device *device;
	hoist_event *event = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|Op:Event", names, &spec, &timing) ||
	    hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS err =
		hoist_event_create(device, timing ? HOIST_EVENT_TIMING : 0, &event);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS return err < 0 ? hoist_py_fail(err) : event_object_of(event);
}

static void event_dealloc(PyObject *self)
{
	HOIST_PY_WAITING(hoist_event_unref(event_of(self)));
	hoist_py_free_object(self);
}

static PyObject *event_synchronize(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	if (hoist_py_await_event(event_of(self)) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_event_synchronize(event_of(self)));
	return none_or_fail(err);
}

static PyObject *event_is_ready(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_event_query(event_of(self)));
	return answer(err);
}

static bool is_event(PyObject *object)
{
	if (Py_IS_TYPE(object, hoist_py_event_type))
		return true;
	PyErr_SetString(PyExc_TypeError, "an event is a hoist.driver.DeviceEvent");
	return false;
}

/* Without timing, or before it was recorded, an event has no time: a RuntimeError, as MAX's. */
static PyObject *event_elapsed_time(PyObject *self, PyObject *end)
{
	uint64_t ns = 0;
	if (!is_event(end))
		return NULL;
	int err = hoist_event_elapsed_ns(event_of(self), event_of(end), &ns);
	if (err == -EINVAL || err == -EAGAIN) {
		PyErr_SetString(PyExc_RuntimeError,
				err == -EINVAL ? hoist_error() : "an event has not completed");
		return NULL;
	}
	return err < 0 ? hoist_py_fail(err) : PyFloat_FromDouble((double)ns / 1e6);
}

static PyObject *event_device(PyObject *self, void *closure)
{
	(void)closure;
	return hoist_py_device(hoist_device_ref(hoist_event_device(event_of(self))));
}

/* --- streams and events --- */

static PyObject *stream_record_event(PyObject *self, PyObject *args)
{
	PyObject *given = Py_None;
	hoist_event *event = NULL;
	int err;
	if (!PyArg_ParseTuple(args, "|O:record_event", &given))
		return NULL;
	if (given == Py_None) {
		HOIST_PY_WAITING(err = hoist_stream_record(stream_of(self), 0, &event));
		return err < 0 ? hoist_py_fail(err) : event_object_of(event);
	}
	if (!is_event(given))
		return NULL;
	HOIST_PY_WAITING(err = hoist_event_record(event_of(given), stream_of(self)));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(given);
}

static PyObject *stream_wait_for(PyObject *self, PyObject *other)
{
	hoist_stream *stream = stream_of(self);
	hoist_device *device = NULL;
	int err;
	if (Py_IS_TYPE(other, hoist_py_stream_type)) {
		HOIST_PY_WAITING(err = hoist_stream_wait_for(stream, stream_of(other)));
	} else if (Py_IS_TYPE(other, hoist_py_event_type)) {
		HOIST_PY_WAITING(err = hoist_stream_wait_event(stream, event_of(other)));
	} else if (Py_IS_TYPE(other, hoist_py_device_type)) {
		if (hoist_py_device_arg(other, &device) < 0)
			return NULL;
		Py_BEGIN_ALLOW_THREADS err = hoist_stream_wait_for_device(stream, device);
		hoist_device_unref(device);
		Py_END_ALLOW_THREADS
	} else {
		PyErr_SetString(PyExc_TypeError,
				"a stream waits for a stream, an event or a device");
		return NULL;
	}
	return none_or_fail(err);
}

static PyObject *stream_wait_for_host_value(PyObject *self, PyObject *args)
{
	PyObject *flag;
	unsigned long long value;
	if (!PyArg_ParseTuple(args, "O!K:wait_for_host_value", hoist_py_flag_type, &flag, &value))
		return NULL;
	return PyObject_CallMethod(flag, "_queue_wait", "OK", self, value);
}

static PyObject *stream_device(PyObject *self, void *closure)
{
	(void)closure;
	return hoist_py_device(hoist_device_ref(hoist_stream_device(stream_of(self))));
}

static PyObject *stream_native(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(hoist_stream_native(stream_of(self)));
}

static PyObject *stream_close(PyObject *self, PyObject *none)
{
	(void)self;
	(void)none;
	return Py_NewRef(Py_None);
}

/* How other libraries take hoist's streams. */
static PyObject *stream_protocol(PyObject *self, PyObject *none)
{
	(void)none;
	return Py_BuildValue("(iN)", 0, stream_native(self, NULL));
}

static PyObject *stream_is_default(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(hoist_stream_is_default(stream_of(self)));
}

static PyObject *stream_repr(PyObject *self)
{
	return PyUnicode_FromFormat("<hoist.Stream of %s at %p>",
				    hoist_device_spec(hoist_stream_device(stream_of(self))),
				    (void *)stream_of(self));
}

static PyMethodDef stream_methods[] = {
	{"synchronize", stream_synchronize, METH_NOARGS, stream_synchronize_doc},
	{"sync", stream_synchronize, METH_NOARGS, "sync($self, /)\n--\n\nAs `synchronize()`."},
	{"close", stream_close, METH_NOARGS,
	 "close($self, /)\n--\n\nHas no effect: the stream ends with its last reference, which "
	 "buffers have, too."},
	{"__cuda_stream__", stream_protocol, METH_NOARGS, NULL},
	{"is_ready", stream_is_ready, METH_NOARGS, stream_is_ready_doc},
	{"wait_for", stream_wait_for, METH_O, wait_for_doc},
	{"wait_for_host_value", stream_wait_for_host_value, METH_VARARGS, wait_for_host_value_doc},
	{"record_event", stream_record_event, METH_VARARGS, record_event_doc},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_fields[] = {
	{"device", stream_device, NULL, "The stream's device.", NULL},
	{"native", stream_native, NULL, "The CUstream or hipStream_t, as an integer; 0: the CPU.",
	 NULL},
	{"handle", stream_native, NULL, "As `native`.", NULL},
	{"native_stream_handle", stream_native, NULL, "As `native`.", NULL},
	{"is_default", stream_is_default, NULL, "True: its device's default stream.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
	{Py_tp_new, (void *)stream_new},
	{Py_tp_dealloc, (void *)stream_dealloc},
	{Py_tp_repr, (void *)stream_repr},
	{Py_tp_methods, stream_methods},
	{Py_tp_getset, stream_fields},
	{Py_tp_doc, (void *)(uintptr_t)stream_doc},
	{0, NULL},
};

static PyType_Spec stream_type = {
	.name = "hoist.Stream",
	.basicsize = sizeof(stream_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = stream_slots,
};

static PyMethodDef event_methods[] = {
	{"synchronize", event_synchronize, METH_NOARGS, event_synchronize_doc},
	{"is_ready", event_is_ready, METH_NOARGS, event_is_ready_doc},
	{"elapsed_time", event_elapsed_time, METH_O, elapsed_time_doc},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef event_fields[] = {
	{"device", event_device, NULL, "The event's device.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot event_slots[] = {
	{Py_tp_new, (void *)event_new},
	{Py_tp_dealloc, (void *)event_dealloc},
	{Py_tp_methods, event_methods},
	{Py_tp_getset, event_fields},
	{Py_tp_doc, (void *)(uintptr_t)event_doc},
	{0, NULL},
};

static PyType_Spec event_type = {
	.name = "hoist.Event",
	.basicsize = sizeof(event_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = event_slots,
};

int hoist_py_add_stream_types(PyObject *module)
{
	hoist_py_stream_type = hoist_py_add_type(module, &stream_type);
	hoist_py_event_type = hoist_py_add_type(module, &event_type);
	return hoist_py_stream_type == NULL || hoist_py_event_type == NULL ? -1 : 0;
}
