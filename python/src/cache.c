/* SPDX-License-Identifier: MIT */
/* Image, and the functions of the cache.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

#include <hoist/cache.h>

static PyTypeObject *image_type;

typedef struct object {
	PyObject_HEAD hoist_image *image; /* NULL: closed */
} object;

static PyObject *image_object(hoist_image *image)
{
	object *self = (object *)PyType_GenericAlloc(image_type, 0);
	if (self == NULL)
		HOIST_PY_WAITING(hoist_image_close(image));
	else
		self->image = image;
	return (PyObject *)self;
}

static hoist_image *open_image(PyObject *self)
{
	hoist_image *image = ((object *)self)->image;
	if (image == NULL)
		hoist_py_fail_text(-EBADF, "the image was closed");
	return image;
}

/* --- facts --- */

/* (path, format, nbytes, tensor_bytes, n_tensors, age_ns, n_attached, node, pages, note) */
static PyObject *info_tuple(const hoist_image_info *i)
{
	return Py_BuildValue("(NsKKKKKiis)", PyUnicode_DecodeFSDefault(i->path), i->format,
			     (unsigned long long)i->bytes, (unsigned long long)i->tensor_bytes,
			     (unsigned long long)i->n_tensors, (unsigned long long)i->age_ns,
			     (unsigned long long)i->n_attached, i->node, i->pages, i->note);
}

static PyObject *image_info(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_image_info info = {.size = sizeof info};
	hoist_image *image = open_image(self);
	(void)none;
	if (image == NULL)
		return NULL;
	int err = hoist_image_get_info(image, &info);
	return err < 0 ? hoist_py_fail(err) : info_tuple(&info);
}

static Py_ssize_t image_length(PyObject *self)
{
	HOIST_PY_LOCK(self);
	hoist_image *image = open_image(self);
	return image == NULL ? -1 : (Py_ssize_t)hoist_image_n_tensors(image);
}

static PyObject *image_tensor(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	hoist_tensor_info i = {.size = sizeof i};
	Py_ssize_t index;
	if (!PyArg_ParseTuple(args, "n", &index))
		return NULL;
	hoist_image *image = open_image(self);
	if (image == NULL)
		return NULL;
	int err = hoist_image_tensor(image, (size_t)index, &i);
	return err < 0 ? hoist_py_fail(err) : hoist_py_tensor_tuple(&PyTuple_Type, &i);
}

static PyObject *image_find(PyObject *self, PyObject *name)
{
	HOIST_PY_LOCK(self);
	size_t index;
	hoist_image *image = open_image(self);
	if (image != NULL && !PyUnicode_Check(name)) {
		PyErr_SetString(PyExc_TypeError, "the name of a tensor is a str");
		return NULL;
	}
	const char *text = image == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
	if (text == NULL)
		return NULL;
	if (hoist_image_find(image, text, &index) < 0) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	return PyLong_FromSize_t(index);
}

static PyObject *image_buffer(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	Py_ssize_t index;
	hoist_buffer *buffer = NULL;
	if (!PyArg_ParseTuple(args, "n", &index))
		return NULL;
	hoist_image *image = open_image(self);
	if (image == NULL)
		return NULL;
	int err = hoist_image_buffer(image, (size_t)index, &buffer);
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(buffer);
}

/* A key's first value comes last, and stays. */
static PyObject *image_metadata(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_image *image = open_image(self);
	(void)none;
	PyObject *dict = image == NULL ? NULL : PyDict_New();
	for (size_t m = dict == NULL ? 0 : hoist_image_n_metadata(image);
	     m-- > 0 && dict != NULL;) {
		const char *key = NULL;
		const char *value = NULL;
		int err = hoist_image_metadata(image, m, &key, &value);
		PyObject *name = err < 0 ? hoist_py_fail(err) : PyUnicode_FromString(key);
		PyObject *text = name == NULL ? NULL : PyUnicode_FromString(value);
		if (text == NULL || PyDict_SetItem(dict, name, text) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(name);
		Py_XDECREF(text);
	}
	return dict;
}

static PyObject *image_close(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_image *image = ((object *)self)->image;
	(void)none;
	((object *)self)->image = NULL;
	HOIST_PY_WAITING(hoist_image_close(image));
	return Py_NewRef(Py_None);
}

static void image_dealloc(PyObject *self)
{
	hoist_image *image = ((object *)self)->image;
	HOIST_PY_WAITING(hoist_image_close(image));
	hoist_py_free_object(self);
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	(void)closure;
	return PyBool_FromLong(((object *)self)->image == NULL);
}

/* --- the cache --- */

static PyObject *attach(PyObject *self, PyObject *args)
{
	PyObject *path;
	unsigned flags;
	hoist_image *image = NULL;
	int err;
	(void)self;
	if (!PyArg_ParseTuple(args, "O&I", PyUnicode_FSConverter, &path, &flags))
		return NULL;
	const char *text = PyBytes_AsString(path);
	HOIST_PY_WAITING(err = hoist_cache_attach(text, flags, &image));
	Py_DECREF(path);
	return err < 0 ? hoist_py_fail(err) : image_object(image);
}

/* The context of the progress function, which the call's own thread calls. */
struct report {
	PyObject *told; /* NULL: nobody */
	PyObject *type; /* the exception that ends the call; NULL: none */
	PyObject *value;
	PyObject *trace;
};

/* Handles signals, too, so that Ctrl-C ends the call. */
static int tell(void *context, uint64_t done, uint64_t total)
{
	struct report *report = context;
	PyGILState_STATE state = PyGILState_Ensure();
	int err = PyErr_CheckSignals();
	if (err == 0 && report->told != NULL) {
		PyObject *answer = PyObject_CallFunction(
			report->told, "KK", (unsigned long long)done, (unsigned long long)total);
		err = answer == NULL ? -1 : 0;
		Py_XDECREF(answer);
	}
	if (err < 0)
		PyErr_Fetch(&report->type, &report->value, &report->trace);
	PyGILState_Release(state);
	return err;
}

/* Gives the node's number, if one was asked for. */
static int read_node(PyObject *node, hoist_cache_options *o, int *ret)
{
	if (node == Py_None)
		return 0;
	Py_ssize_t n = PyNumber_AsSsize_t(node, PyExc_OverflowError);
	if (n == -1 && PyErr_Occurred())
		return -1;
	*ret = n < -1 || n > INT16_MAX ? INT16_MAX : (int)n;
	o->placement = HOIST_PLACE_BIND;
	o->nodes = ret;
	o->n_nodes = 1;
	return 0;
}

static PyObject *add(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"path",	  "flags", "open_flags", "image_flags", "engine", "io",
				"budget", "node",  "pages",	 "progress",	"holder", NULL};
	hoist_cache_options o = {.size = sizeof o};
	struct report report = {0};
	PyObject *path = NULL, *budget = Py_None, *node = Py_None, *told = Py_None,
		 *holder = Py_None;
	int engine = 0, io = 0, number;
	char *program = NULL;
	hoist_image *image = NULL;
	PyObject *ret = NULL;
	int err;
	(void)self;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|$IIIiiOOiOO:add", names,
					 PyUnicode_FSConverter, &path, &o.flags, &o.open_flags,
					 &o.image_flags, &engine, &io, &budget, &node, &o.pages,
					 &told, &holder))
		return NULL;
	if (hoist_py_budget_arg(budget, &o.budget) < 0 || read_node(node, &o, &number) < 0 ||
	    hoist_py_text(holder, &program) < 0)
		goto end;
	report.told = told == Py_None ? NULL : told;
	o.engine = (enum hoist_engine)engine;
	o.io = (enum hoist_io)io;
	o.holder = program;
	o.progress = tell;
	o.progress_context = &report;
	const char *text = PyBytes_AsString(path);
	HOIST_PY_WAITING(err = hoist_cache_add(text, &o, &image));
	if (report.type != NULL)
		PyErr_Restore(report.type, report.value, report.trace);
	if (report.type != NULL || err < 0)
		HOIST_PY_WAITING(if (err == 0) hoist_image_close(image));
	if (report.type == NULL)
		ret = err < 0 ? hoist_py_fail(err) : image_object(image);
end:
	free(program);
	Py_XDECREF(path);
	return ret;
}

static PyObject *list(PyObject *self, PyObject *none)
{
	hoist_cache_list *images = NULL;
	int err;
	(void)self;
	(void)none;
	HOIST_PY_WAITING(err = hoist_cache_list_create(&images));
	if (err < 0)
		return hoist_py_fail(err);
	size_t n = hoist_cache_list_n_images(images);
	PyObject *ret = PyList_New((Py_ssize_t)n);
	for (size_t i = 0; i < n && ret != NULL; i++) {
		hoist_image_info info = {.size = sizeof info};
		err = hoist_cache_list_image(images, i, &info);
		PyObject *item = err < 0 ? hoist_py_fail(err) : info_tuple(&info);
		if (item == NULL || PyList_SetItem(ret, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(ret);
	}
	hoist_cache_list_destroy(images);
	return ret;
}

static PyObject *drop(PyObject *self, PyObject *name)
{
	PyObject *path = NULL;
	size_t n = 0;
	int err;
	(void)self;
	if (name != Py_None && !PyUnicode_FSConverter(name, &path))
		return NULL;
	const char *text = path == NULL ? NULL : PyBytes_AsString(path);
	HOIST_PY_WAITING(err = hoist_cache_drop(text, &n));
	Py_XDECREF(path);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromSize_t(n);
}

/* --- the type --- */

static PyMethodDef methods[] = {
	{"close", image_close, METH_NOARGS,
	 "close($self, /)\n--\n\nLets go of the image.  Buffers that were given live on."},
	{"_info", image_info, METH_NOARGS, NULL},
	{"_tensor", image_tensor, METH_VARARGS, NULL},
	{"_find", image_find, METH_O, NULL},
	{"_buffer", image_buffer, METH_VARARGS, NULL},
	{"_metadata", image_metadata, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_dealloc, (void *)image_dealloc},
	{Py_mp_length, (void *)image_length},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Image",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

static PyMethodDef functions[] = {
	{"cache_add", HOIST_PY_KEYWORDS(add), METH_VARARGS | METH_KEYWORDS, NULL},
	{"cache_attach", attach, METH_VARARGS, NULL},
	{"cache_list", list, METH_NOARGS, NULL},
	{"cache_drop", drop, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_cache(PyObject *module)
{
	if (PyModule_AddIntConstant(module, "IMAGE_READ_ONLY", HOIST_IMAGE_READ_ONLY) < 0 ||
	    PyModule_AddIntConstant(module, "CACHE_REPLACE", HOIST_CACHE_REPLACE) < 0 ||
	    PyModule_AddFunctions(module, functions) < 0)
		return -1;
	image_type = hoist_py_add_type(module, &type);
	return image_type == NULL ? -1 : 0;
}
