/* SPDX-License-Identifier: MIT */
/* Device, Stream and Budget.  The contract is in python/src/module.h. */
#include "module.h"

/* --- Device --- */

typedef struct device_object {
	PyObject_HEAD hoist_device *device;
} device_object;

/* The number of a device's address -> its object, for good: devices are few, and an address that is
 * never given back never becomes that of another device. */
static PyObject *devices;

PyObject *hoist_py_device(hoist_device *device)
{
	PyObject *key = PyLong_FromVoidPtr(device);
	PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(devices, key);
	device_object *self = NULL;
	if (known != NULL) {
		Py_DECREF(key);
		hoist_device_unref(device);
		return Py_NewRef(known);
	}
	if (key != NULL && !PyErr_Occurred())
		self = (device_object *)PyType_GenericAlloc(hoist_py_device_type, 0);
	if (self == NULL) {
		hoist_device_unref(device);
		Py_XDECREF(key);
		return NULL;
	}
	self->device = device;
	if (PyDict_SetItem(devices, key, (PyObject *)self) < 0)
		Py_CLEAR(self);
	Py_DECREF(key);
	return (PyObject *)self;
}

int hoist_py_device_arg(PyObject *object, hoist_device **ret)
{
	const char *spec = "cpu";
	int err;
	if (Py_IS_TYPE(object, hoist_py_device_type)) {
		*ret = hoist_device_ref(((device_object *)object)->device);
		return 0;
	}
	if (object != Py_None && !PyUnicode_Check(object)) {
		PyErr_SetString(PyExc_TypeError,
				"a device is a hoist.Device, a spec as \"cuda:0\", or None");
		return -1;
	}
	if (object != Py_None)
		spec = PyUnicode_AsUTF8AndSize(object, NULL);
	if (spec == NULL)
		return -1;
	HOIST_PY_WAITING(err = hoist_device_open(spec, ret));
	if (err < 0)
		hoist_py_fail(err);
	return err < 0 ? -1 : 0;
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"spec", NULL};
	PyObject *spec = Py_None;
	hoist_device *device;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:Device", names, &spec))
		return NULL;
	return hoist_py_device_arg(spec, &device) < 0 ? NULL : hoist_py_device(device);
}

static void device_dealloc(PyObject *self)
{
	hoist_device *device = ((device_object *)self)->device;
	HOIST_PY_WAITING(hoist_device_unref(device));
	hoist_py_free_object(self);
}

static PyObject *device_spec(PyObject *self, void *closure)
{
	(void)closure;
	return PyUnicode_FromString(hoist_device_spec(((device_object *)self)->device));
}

static PyObject *device_repr(PyObject *self)
{
	return PyUnicode_FromFormat("hoist.Device('%s')",
				    hoist_device_spec(((device_object *)self)->device));
}

static PyObject *device_info(PyObject *self, PyObject *none)
{
	hoist_device_info i = {.size = sizeof i};
	(void)none;
	int err = hoist_device_get_info(((device_object *)self)->device, &i);
	if (err < 0)
		return hoist_py_fail(err);
	return Py_BuildValue("{s:s,s:i,s:N,s:N,s:s,s:s,s:s,s:i,s:K,s:s,s:i,s:s}", "api", i.api,
			     "id", i.id, "is_host", PyBool_FromLong(i.is_host), "emulated",
			     PyBool_FromLong(i.emulated), "name", i.name, "architecture",
			     i.architecture, "pci", i.pci, "numa_node", i.numa_node, "total_memory",
			     (unsigned long long)i.total_memory, "label", i.label, "driver_version",
			     i.driver_version, "library", i.library);
}

static PyObject *device_synchronize(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_device_synchronize(((device_object *)self)->device));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *device_reduce(PyObject *self, PyObject *none)
{
	(void)none;
	return Py_BuildValue("O(s)", (PyObject *)hoist_py_device_type,
			     hoist_device_spec(((device_object *)self)->device));
}

static PyMethodDef device_methods[] = {
	{"info", device_info, METH_NOARGS,
	 "info($self, /)\n--\n\nThe device's properties, as a dict."},
	{"synchronize", device_synchronize, METH_NOARGS,
	 "synchronize($self, /)\n--\n\nWaits for all work on the device."},
	{"__reduce__", device_reduce, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef device_fields[] = {
	{"spec", device_spec, NULL, "The text that opens this device again: \"cuda:0\".", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_slots[] = {
	{Py_tp_new, (void *)device_new},
	{Py_tp_dealloc, (void *)device_dealloc},
	{Py_tp_repr, (void *)device_repr},
	{Py_tp_methods, device_methods},
	{Py_tp_getset, device_fields},
	{Py_tp_doc,
	 "Device(spec=None)\n--\n\n"
	 "The CPU (None or \"cpu\") or an accelerator (\"cuda:0\", \"hip:1\", \"gpu\")."},
	{0, NULL},
};

static PyType_Spec device_type = {
	.name = "hoist.Device",
	.basicsize = sizeof(device_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = device_slots,
};

/* --- Stream --- */

typedef struct stream_object {
	PyObject_HEAD hoist_stream *stream;
} stream_object;

int hoist_py_stream_arg(PyObject *object, hoist_stream **ret)
{
	*ret = NULL;
	if (object == Py_None)
		return 0;
	if (!Py_IS_TYPE(object, hoist_py_stream_type)) {
		PyErr_SetString(PyExc_TypeError, "a stream is a hoist.Stream or None");
		return -1;
	}
	*ret = ((stream_object *)object)->stream;
	return 0;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", "native", NULL};
	PyObject *spec = Py_None;
	PyObject *handle = Py_None;
	hoist_device *device;
	hoist_stream *stream = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:Stream", names, &spec, &handle))
		return NULL;
	void *native = handle == Py_None ? NULL : PyLong_AsVoidPtr(handle);
	if (native == NULL && PyErr_Occurred())
		return NULL;
	stream_object *self = (stream_object *)PyType_GenericAlloc(type, 0);
	if (self == NULL || hoist_py_device_arg(spec, &device) < 0) {
		Py_XDECREF((PyObject *)self);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS err = handle == Py_None ? hoist_stream_create(device, &stream)
						       : hoist_stream_wrap(device, native, &stream);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS self->stream = stream;
	if (err < 0) {
		Py_DECREF((PyObject *)self);
		return hoist_py_fail(err);
	}
	return (PyObject *)self;
}

static void stream_dealloc(PyObject *self)
{
	hoist_stream *stream = ((stream_object *)self)->stream;
	HOIST_PY_WAITING(hoist_stream_unref(stream));
	hoist_py_free_object(self);
}

static PyObject *stream_synchronize(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_stream_synchronize(((stream_object *)self)->stream));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *stream_device(PyObject *self, void *closure)
{
	(void)closure;
	return hoist_py_device(
		hoist_device_ref(hoist_stream_device(((stream_object *)self)->stream)));
}

static PyObject *stream_native(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(hoist_stream_native(((stream_object *)self)->stream));
}

static PyMethodDef stream_methods[] = {
	{"synchronize", stream_synchronize, METH_NOARGS,
	 "synchronize($self, /)\n--\n\nWaits for all work that is queued on the stream."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_fields[] = {
	{"device", stream_device, NULL, "The stream's device.", NULL},
	{"native", stream_native, NULL, "The CUstream or hipStream_t, as an integer; 0: the CPU.",
	 NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
	{Py_tp_new, (void *)stream_new},
	{Py_tp_dealloc, (void *)stream_dealloc},
	{Py_tp_methods, stream_methods},
	{Py_tp_getset, stream_fields},
	{Py_tp_doc,
	 "Stream(device=None, native=None)\n--\n\n"
	 "A queue of work on a device: a new one, or the driver's stream `native`, which the "
	 "caller keeps alive."},
	{0, NULL},
};

static PyType_Spec stream_type = {
	.name = "hoist.Stream",
	.basicsize = sizeof(stream_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = stream_slots,
};

/* --- Budget --- */

typedef struct budget_object {
	PyObject_HEAD hoist_budget *budget;
} budget_object;

int hoist_py_budget_arg(PyObject *object, hoist_budget **ret)
{
	*ret = NULL;
	if (object == Py_None)
		return 0;
	if (!PyObject_TypeCheck(object, hoist_py_budget_type)) {
		PyErr_SetString(PyExc_TypeError, "a budget is a hoist.Budget, a size, or None");
		return -1;
	}
	*ret = ((budget_object *)object)->budget;
	return 0;
}

static PyObject *budget_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"bytes", NULL};
	Py_ssize_t bytes;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "n:Budget", names, &bytes))
		return NULL;
	if (bytes < 0) {
		PyErr_SetString(PyExc_ValueError, "a budget has 1 byte or more");
		return NULL;
	}
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	budget_object *self = (budget_object *)allocate(type, 0);
	int err = self == NULL ? 0 : hoist_budget_create((size_t)bytes, &self->budget);
	if (err < 0) {
		Py_DECREF((PyObject *)self);
		return hoist_py_fail(err);
	}
	return (PyObject *)self;
}

static void budget_dealloc(PyObject *self)
{
	hoist_budget_unref(((budget_object *)self)->budget);
	hoist_py_free_object(self);
}

static PyObject *budget_used(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSize_t(hoist_budget_used(((budget_object *)self)->budget));
}

static PyObject *budget_peak(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSize_t(hoist_budget_peak(((budget_object *)self)->budget));
}

static PyGetSetDef budget_fields[] = {
	{"used", budget_used, NULL, "Bytes that are charged now.", NULL},
	{"peak", budget_peak, NULL, "The most bytes that were charged at one time.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot budget_slots[] = {
	{Py_tp_new, (void *)budget_new},
	{Py_tp_dealloc, (void *)budget_dealloc},
	{Py_tp_getset, budget_fields},
	{Py_tp_doc, "Budget(bytes)\n--\n\nA limit in bytes that loads and memory resources share."},
	{0, NULL},
};

static PyType_Spec budget_type = {
	.name = "hoist._hoist.Budget",
	.basicsize = sizeof(budget_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = budget_slots,
};

int hoist_py_add_device_types(PyObject *module)
{
	devices = PyDict_New();
	hoist_py_device_type = hoist_py_add_type(module, &device_type);
	hoist_py_stream_type = hoist_py_add_type(module, &stream_type);
	hoist_py_budget_type = hoist_py_add_type(module, &budget_type);
	return devices == NULL || hoist_py_device_type == NULL || hoist_py_stream_type == NULL ||
			       hoist_py_budget_type == NULL
		       ? -1
		       : 0;
}
