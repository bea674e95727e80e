/* SPDX-License-Identifier: MIT */
/* Device and Budget.  The contract is in python/src/module.h. */
#include "device-doc.h"
#include "module.h"

/* --- Device --- */

typedef struct device_object {
	PyObject_HEAD hoist_device *device;
} device_object;

static hoist_device *device_of(PyObject *self)
{
	return ((device_object *)self)->device;
}

/* The object stands in the device's slot for good, with a reference of the slot's: devices are few,
 * and live as long as the process. */
PyObject *hoist_py_device(hoist_device *device)
{
	PyObject *known = hoist_device_get_user(device);
	if (known != NULL) {
		hoist_device_unref(device);
		return Py_NewRef(known);
	}
	device_object *self = (device_object *)PyType_GenericAlloc(hoist_py_device_type, 0);
	if (self == NULL) {
		hoist_device_unref(device);
		return NULL;
	}
	self->device = device;
	int err = hoist_device_set_user(device, NULL, self, NULL);
	known = err == -EBUSY ? hoist_device_get_user(device) : (PyObject *)self;
	if (err == 0 || err == -EBUSY)
		Py_INCREF(known);
	if (err == 0)
		return known;
	Py_DECREF((PyObject *)self); /* another thread was first */
	return err == -EBUSY ? known : hoist_py_fail(err);
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

/* "gpu:0" with a limit of the memory that hoist takes there; the first limit holds. */
static PyObject *device_open(PyObject *type, PyObject *args)
{
	hoist_device_options options = {.size = sizeof options};
	const char *spec;
	unsigned long long limit = 0;
	hoist_device *device = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTuple(args, "s|K:_open", &spec, &limit))
		return NULL;
	options.memory_limit = limit;
	HOIST_PY_WAITING(err = hoist_device_open_with(spec, &options, &device));
	return err < 0 ? hoist_py_fail(err) : hoist_py_device(device);
}

/* MAX's Device.cpu(): the id is ignored. */
static PyObject *device_cpu(PyObject *type, PyObject *args)
{
	int id = -1;
	hoist_device *device;
	(void)type;
	if (!PyArg_ParseTuple(args, "|i:cpu", &id) || hoist_py_device_arg(Py_None, &device) < 0)
		return NULL;
	return hoist_py_device(device);
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"spec", NULL};
	PyObject *spec = Py_None;
	hoist_device *device;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:Device", names, &spec))
		return NULL;
	PyObject *text =
		PyLong_Check(spec) ? PyUnicode_FromFormat("gpu:%S", spec) : Py_NewRef(spec);
	int err = text == NULL ? -1 : hoist_py_device_arg(text, &device);
	Py_XDECREF(text);
	return err < 0 ? NULL : hoist_py_device(device);
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

enum {
	FIELD_ID,
	FIELD_API,
	FIELD_LABEL,
	FIELD_IS_HOST,
	FIELD_NAME,
	FIELD_IS_COMPATIBLE,
	FIELD_MAX_ALLOC,
	FIELD_IS_HOST_UNIFIED
};

static PyObject *device_field(PyObject *self, void *closure)
{
	hoist_device_info i = {.size = sizeof i};
	int err = hoist_device_get_info(device_of(self), &i);
	if (err < 0)
		return hoist_py_fail(err);
	switch ((uintptr_t)closure) {
	case FIELD_ID:
		return PyLong_FromLong(i.id);
	case FIELD_API:
		return PyUnicode_FromString(i.api);
	case FIELD_LABEL:
		return PyUnicode_FromString(i.label);
	case FIELD_IS_HOST:
		return PyBool_FromLong(i.is_host);
	case FIELD_NAME:
		return PyUnicode_FromString(i.name);
	case FIELD_IS_HOST_UNIFIED:
		return PyBool_FromLong(i.is_host_unified);
	case FIELD_MAX_ALLOC:
		return PyLong_FromUnsignedLongLong(i.total_memory);
	default:
		return PyBool_FromLong(i.is_compatible);
	}
}

/* The CPU has none that a kernel is built for: MAX raises there, too. */
static PyObject *device_architecture(PyObject *self, void *closure)
{
	hoist_device_info i = {.size = sizeof i};
	(void)closure;
	int err = hoist_device_get_info(device_of(self), &i);
	if (err < 0)
		return hoist_py_fail(err);
	if (i.is_host)
		return hoist_py_fail_text(-EINVAL, "architecture_name is an accelerator's; "
						   "info()[\"architecture\"] has the CPU's");
	return PyUnicode_FromString(i.architecture);
}

static PyObject *device_stats(PyObject *self, void *closure)
{
	hoist_device_statistics s = {.size = sizeof s};
	int err;
	(void)closure;
	HOIST_PY_WAITING(err = hoist_device_get_statistics(device_of(self), &s));
	if (err < 0)
		return hoist_py_fail(err);
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "free_memory",
			     (unsigned long long)s.free_memory, "total_memory",
			     (unsigned long long)s.total_memory, "memory_limit",
			     (unsigned long long)s.memory_limit, "limited",
			     (unsigned long long)s.limited, "limited_peak",
			     (unsigned long long)s.limited_peak, "used", (unsigned long long)s.used,
			     "cached", (unsigned long long)s.cached, "pinned",
			     (unsigned long long)s.pinned);
}

static PyObject *device_default_stream(PyObject *self, void *closure)
{
	hoist_stream *stream = NULL;
	int err;
	(void)closure;
	HOIST_PY_WAITING(err = hoist_device_default_stream(device_of(self), &stream));
	return err < 0 ? hoist_py_fail(err) : hoist_py_stream(stream);
}

static PyObject *device_can_access(PyObject *self, PyObject *other)
{
	int ret = 0;
	int err;
	if (!Py_IS_TYPE(other, hoist_py_device_type)) {
		PyErr_SetString(PyExc_TypeError, "can_access() takes a device");
		return NULL;
	}
	HOIST_PY_WAITING(err = hoist_device_can_access(device_of(self), device_of(other), &ret));
	return err < 0 ? hoist_py_fail(err) : PyBool_FromLong(ret);
}

static PyObject *device_str(PyObject *self)
{
	hoist_device_info i = {.size = sizeof i};
	int err = hoist_device_get_info(device_of(self), &i);
	return err < 0 ? hoist_py_fail(err)
		       : PyUnicode_FromFormat("Device(type=%s,id=%d)", i.label, i.id);
}

static PyObject *device_synchronize(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_device_synchronize(((device_object *)self)->device));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *device_synchronize_in_thread(PyObject *self, PyObject *none)
{
	(void)none;
	return hoist_py_in_thread(self, "_synchronize");
}

/* As cuda.core: hoist switches devices itself. */
static PyObject *device_set_current(PyObject *self, PyObject *none)
{
	(void)self;
	(void)none;
	return Py_NewRef(Py_None);
}

static PyObject *device_create_stream(PyObject *self, PyObject *none)
{
	(void)none;
	return PyObject_CallFunctionObjArgs((PyObject *)hoist_py_stream_type, self, NULL);
}

static PyObject *device_reduce(PyObject *self, PyObject *none)
{
	(void)none;
	return Py_BuildValue("O(s)", (PyObject *)hoist_py_device_type,
			     hoist_device_spec(((device_object *)self)->device));
}

static PyMethodDef device_methods[] = {
	{"info", device_info, METH_NOARGS, info_doc},
	{"_synchronize", device_synchronize, METH_NOARGS, NULL},
	{"synchronize", device_synchronize_in_thread, METH_NOARGS, synchronize_doc},
	{"sync", device_synchronize_in_thread, METH_NOARGS,
	 "sync($self, /)\n--\n\nAs `synchronize()`."},
	{"set_current", device_set_current, METH_NOARGS,
	 "set_current($self, /)\n--\n\nHas no effect: hoist needs no current device."},
	{"create_stream", device_create_stream, METH_NOARGS,
	 "create_stream($self, /)\n--\n\nA new Stream of this device."},
	{"can_access", device_can_access, METH_O, can_access_doc},
	{"cpu", device_cpu, METH_VARARGS | METH_CLASS, cpu_doc},
	{"_open", device_open, METH_VARARGS | METH_CLASS, NULL},
	{"__reduce__", device_reduce, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

#define FIELD(name, field, doc)                                                                    \
	{                                                                                          \
		name, device_field, NULL, doc, (void *)(uintptr_t)(field)                          \
	}

static PyGetSetDef device_fields[] = {
	FIELD("id", FIELD_ID, "The driver's number; 0 for the CPU."),
	FIELD("device_id", FIELD_ID, "As `id`."),
	FIELD("api", FIELD_API, "\"cpu\", \"cuda\" or \"hip\"."),
	FIELD("label", FIELD_LABEL, "\"cpu\" or \"gpu\"."),
	FIELD("is_host", FIELD_IS_HOST, "True: the CPU."),
	FIELD("model_name", FIELD_NAME, "What the driver calls the device."),
	FIELD("is_compatible", FIELD_IS_COMPATIBLE, "True: hoist can use the device."),
	FIELD("is_host_unified", FIELD_IS_HOST_UNIFIED,
	      "True: the device's memory is the host's, as an integrated GPU's is, and the CPU's."),
	FIELD("max_single_alloc_size", FIELD_MAX_ALLOC,
	      "The most bytes that one buffer can have: all memory of the device."),
	{"architecture_name", device_architecture, NULL,
	 "\"sm_90\", \"gfx942\"; a ValueError for the CPU.", NULL},
	{"stats", device_stats, NULL,
	 "Bytes of memory, a dict: free_memory, total_memory, memory_limit, limited, "
	 "limited_peak, used, cached, pinned.",
	 NULL},
	{"default_stream", device_default_stream, NULL, "The stream of buffers without another.",
	 NULL},
	{"default_queue", device_default_stream, NULL, "As `default_stream`.", NULL},
	{"spec", device_spec, NULL, "The text that opens this device again: \"cuda:0\".", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_slots[] = {
	{Py_tp_new, (void *)device_new},
	{Py_tp_dealloc, (void *)device_dealloc},
	{Py_tp_repr, (void *)device_repr},
	{Py_tp_str, (void *)device_str},
	{Py_tp_methods, device_methods},
	{Py_tp_getset, device_fields},
	{Py_tp_doc, (void *)(uintptr_t)device_doc},
	{0, NULL},
};

static PyType_Spec device_type = {
	.name = "hoist.Device",
	.basicsize = sizeof(device_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = device_slots,
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
	hoist_py_device_type = hoist_py_add_type(module, &device_type);
	hoist_py_budget_type = hoist_py_add_type(module, &budget_type);
	return hoist_py_device_type == NULL || hoist_py_budget_type == NULL ? -1 : 0;
}
