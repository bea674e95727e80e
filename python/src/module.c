/* SPDX-License-Identifier: MIT */
/* The module hoist._hoist.  The contract is in python/src/module.h. */
#include "module.h"

PyTypeObject *hoist_py_device_type, *hoist_py_stream_type, *hoist_py_budget_type,
	*hoist_py_buffer_type, *hoist_py_checkpoint_type;
PyTypeObject *hoist_py_event_type, *hoist_py_flag_type, *hoist_py_layout_type;

/* --- failures --- */

PyObject *hoist_py_fail_text(int err, const char *text)
{
	const char *api = NULL;
	int number = hoist_error_driver(&api);
	/* Not if Python itself failed meanwhile: a signal's handler may have raised. */
	if (PyErr_Occurred())
		return NULL;
	PyObject *errors = PyImport_ImportModule("hoist.errors");
	if (errors == NULL)
		return NULL;
	PyObject *exception = PyObject_CallMethod(errors, "make", "isiz", -err, text, number, api);
	Py_DECREF(errors);
	if (exception == NULL)
		return NULL;
	PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
	Py_DECREF(exception);
	return NULL;
}

PyObject *hoist_py_fail(int err)
{
	return hoist_py_fail_text(err, hoist_error());
}

/* --- types --- */

PyTypeObject *hoist_py_add_subtype(PyObject *module, PyType_Spec *spec, PyTypeObject *base)
{
	PyObject *type = PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
	if (type == NULL)
		return NULL;
	const char *name = strrchr(spec->name, '.') + 1;
	if (PyModule_AddObjectRef(module, name, type) < 0)
		Py_CLEAR(type);
	return (PyTypeObject *)type;
}

PyTypeObject *hoist_py_add_type(PyObject *module, PyType_Spec *spec)
{
	return hoist_py_add_subtype(module, spec, NULL);
}

void hoist_py_free_object(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	release(self);
	Py_DECREF(type);
}

void hoist_py_finalize(PyObject *self, inquiry clear)
{
	PyObject *type;
	PyObject *value;
	PyObject *trace;
	PyErr_Fetch(&type, &value, &trace);
	(void)clear(self);
	PyErr_Restore(type, value, trace);
}

/* --- functions --- */

static PyObject *version(PyObject *self, PyObject *none)
{
	(void)self;
	(void)none;
	return PyUnicode_FromString(hoist_version());
}

static PyObject *device_count(PyObject *self, PyObject *args)
{
	const char *api;
	int n = 0;
	int err;
	(void)self;
	if (!PyArg_ParseTuple(args, "s", &api))
		return NULL;
	HOIST_PY_WAITING(err = hoist_device_count(api, &n));
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLong(n);
}

/* The names and properties of a dtype that Python needs. */
static PyObject *dtype_info(PyObject *self, PyObject *name)
{
	hoist_dtype dtype;
	hoist_dtype_info info = {.size = sizeof info};
	(void)self;
	if (hoist_py_dtype(name, &dtype) < 0)
		return NULL;
	int err = hoist_dtype_get_info(dtype, &info);
	if (err < 0)
		return hoist_py_fail(err);
	return Py_BuildValue("{s:s,s:I,s:z,s:i,s:z,s:i,s:i,s:I,s:i}", "name", info.name, "bits",
			     info.bits, "numpy", info.numpy, "numpy_native", info.numpy_native,
			     "safetensors", info.safetensors, "dlpack_code", info.dlpack_code,
			     "max_code", info.max_code, "align", info.align, "kind",
			     (int)info.kind);
}

static PyObject *dtype_from_numpy(PyObject *self, PyObject *args)
{
	const char *name;
	hoist_dtype dtype;
	(void)self;
	if (!PyArg_ParseTuple(args, "s", &name))
		return NULL;
	int err = hoist_dtype_from_numpy(name, &dtype);
	return err < 0 ? hoist_py_fail(err) : hoist_py_dtype_name(dtype);
}

static atomic_int n_uncollected; /* calls of uncollected() that turned the collector off */

/* (function, *arguments): the collector does not begin by itself during the call.  In C, so that
 * Ctrl-C cannot come between. */
static PyObject *uncollected(PyObject *none, PyObject *args)
{
	PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
	PyObject *function = PyTuple_GetItem(args, 0);
	(void)none;
	if (rest == NULL || function == NULL) {
		Py_XDECREF(rest);
		return NULL;
	}
	int was_on = PyGC_Disable();
	n_uncollected += was_on;
	PyObject *ret = PyObject_CallObject(function, rest);
	if (was_on)
		PyGC_Enable();
	if (was_on && n_uncollected > 0)
		n_uncollected--;
	Py_DECREF(rest);
	return ret;
}

/* In a child of fork whose parent has another thread within uncollected(). */
static PyObject *collect_again(PyObject *none, PyObject *no_arguments)
{
	(void)none;
	(void)no_arguments;
	if (n_uncollected > 0)
		PyGC_Enable();
	n_uncollected = 0;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"version", version, METH_NOARGS, "version()\n--\n\nThe version of libhoist."},
	{"device_count", device_count, METH_VARARGS,
	 "device_count(api, /)\n--\n\nThe number of devices of an API.\n\n"
	 "Parameters\n----------\napi : {\"cpu\", \"cuda\", \"hip\"}\n\n"
	 "Returns\n-------\nint\n\n"
	 "Raises\n------\nInvalidError\n    There is no such API.\n"
	 "DeviceError\n    There is no driver or no device: the text has the "
	 "reason."},
	{"dtype_info", dtype_info, METH_O,
	 "dtype_info(dtype, /)\n--\n\nThe properties of a dtype, as a dict."},
	{"dtype_from_numpy", dtype_from_numpy, METH_VARARGS,
	 "dtype_from_numpy(name, /)\n--\n\nhoist's name of the dtype that NumPy or ml_dtypes calls "
	 "so."},
	{"end_drops", hoist_py_end_drops, METH_NOARGS, NULL},
	{"uncollected", uncollected, METH_VARARGS,
	 "uncollected(function, /, *arguments)\n--\n\nThe function's result.  Python's cyclic "
	 "collector does not begin by itself meanwhile: it visits all objects each time that a "
	 "quarter more are there, a third of the time in which 100,000 tensors become torch "
	 "tensors, and finds nothing.  A call of gc.disable() by another thread meanwhile is "
	 "lost."},
	{"collect_again", collect_again, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static const struct {
	const char *name;
	long value;
} constants[] = {
	{"IO_AUTO", HOIST_IO_AUTO},
	{"IO_DIRECT", HOIST_IO_DIRECT},
	{"IO_CACHED", HOIST_IO_CACHED},
	{"IO_MAP", HOIST_IO_MAP},
	{"IO_ADAPTIVE", HOIST_IO_ADAPTIVE},
	{"ENGINE_AUTO", HOIST_ENGINE_AUTO},
	{"ENGINE_URING", HOIST_ENGINE_URING},
	{"ENGINE_THREADS", HOIST_ENGINE_THREADS},
	{"OPEN_FOLLOW_LINKS", HOIST_OPEN_FOLLOW_LINKS},
	{"OPEN_RAW", HOIST_OPEN_RAW},
	{"OPEN_SKIP_UNSUPPORTED", HOIST_OPEN_SKIP_UNSUPPORTED},
	{"LOAD_CALLER_DRIVEN", HOIST_LOAD_CALLER_DRIVEN},
	{"LOAD_POPULATE", HOIST_LOAD_POPULATE},
	{"LOAD_DROP_CACHE", HOIST_LOAD_DROP_CACHE},
	{"LOAD_DIGEST", HOIST_LOAD_DIGEST},
	{"LOAD_VERIFY", HOIST_LOAD_VERIFY},
	{"LOAD_SPLIT", HOIST_LOAD_SPLIT},
	{"LOAD_STREAM", HOIST_LOAD_STREAM},
	{"MAP_COPY_ON_WRITE", HOIST_MAP_COPY_ON_WRITE},
	{"MAP_READ_ONLY", HOIST_MAP_READ_ONLY},
	{"MAP_READ_WRITE", HOIST_MAP_READ_WRITE},
};

static int add_all(PyObject *module)
{
	for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
		if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
			return -1;
	if (hoist_py_add_stream_types(module) < 0 || hoist_py_add_flag_type(module) < 0 ||
	    hoist_py_add_layout_type(module) < 0 || hoist_py_add_memory_type(module) < 0 ||
	    hoist_py_add_accelerators(module) < 0)
		return -1;
	if (hoist_py_add_device_types(module) < 0 || hoist_py_add_buffer_type(module) < 0 ||
	    hoist_py_add_checkpoint_type(module) < 0 || hoist_py_add_job_type(module) < 0 ||
	    hoist_py_add_load_type(module) < 0 || hoist_py_add_cache(module) < 0 ||
	    hoist_py_add_doctor(module) < 0 || hoist_py_add_forecast(module) < 0 ||
	    hoist_py_add_group(module) < 0 || hoist_py_add_waits(module) < 0)
		return -1;
	return hoist_py_add_save_type(module);
}

/* A second interpreter would share the types' objects, so it is refused. */
static int execute(PyObject *module)
{
	static atomic_bool is_taken;
	if (atomic_exchange(&is_taken, true)) {
		PyErr_SetString(
			PyExc_ImportError,
			"hoist is loaded in this process already: it can be imported once, by "
			"one interpreter; use processes in place of sub-interpreters");
		return -1;
	}
	if (hoist_py_watch_forks() == 0 && add_all(module) == 0)
		return 0;
	is_taken = false; /* an import that failed may be tried again */
	return -1;
}

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, (void *)execute},
#ifdef Py_GIL_DISABLED
	{Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
	{0, NULL},
};

static PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "hoist._hoist",
	.m_doc = "Objects over libhoist's: the part of hoist that is written in C.",
	.m_size = 0,
	.m_methods = functions,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__hoist(void); /* for -Wmissing-prototypes */

PyMODINIT_FUNC PyInit__hoist(void)
{
	return PyModuleDef_Init(&definition);
}
