/* SPDX-License-Identifier: MIT */
/* Checkpoint: the files that name tensors.  The contract is in python/src/module.h. */
#include "options.h"

#include <fnmatch.h>
#include <limits.h>

#include <hoist/hub.h>

typedef struct object {
	PyObject_HEAD hoist_checkpoint *checkpoint; /* NULL: closed */
	atomic_int n_uses; /* calls that use it: close() is refused meanwhile */
} object;

/* Borrowed; NULL with an exception. */
static hoist_checkpoint *open_checkpoint(PyObject *self)
{
	hoist_checkpoint *checkpoint = ((object *)self)->checkpoint;
	if (checkpoint == NULL)
		hoist_py_fail_text(-EBADF, "the checkpoint was closed");
	return checkpoint;
}

hoist_checkpoint *hoist_py_use_checkpoint(PyObject *self)
{
	if (!PyObject_TypeCheck(self, hoist_py_checkpoint_type)) {
		PyErr_SetString(PyExc_TypeError, "a checkpoint that hoist.open() made is needed");
		return NULL;
	}
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	if (checkpoint != NULL)
		atomic_fetch_add(&((object *)self)->n_uses, 1);
	return checkpoint;
}

void hoist_py_leave_checkpoint(PyObject *self)
{
	atomic_fetch_sub(&((object *)self)->n_uses, 1);
}

/* Without the GIL. */
static int open_path(const char *path, unsigned flags, const struct group_option *of,
		     hoist_checkpoint **ret)
{
	char found[PATH_MAX];
	int err = hoist_hub_find(path, found, sizeof found);
	if (err < 0)
		return err;
	return of->name != NULL ? hoist_group_open(&of->group, found, flags, ret)
				: hoist_checkpoint_open(found, flags, ret);
}

static PyObject *checkpoint_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"path", "flags", "group", NULL};
	PyObject *path = NULL;
	PyObject *group = Py_None;
	unsigned flags = 0;
	struct group_option of = {0};
	object *self = NULL;
	int err = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|IO:Checkpoint", names,
					 PyUnicode_FSConverter, &path, &flags, &group))
		return NULL;
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	if (hoist_py_read_group(group, &of) == 0)
		self = (object *)allocate(type, 0);
	if (self != NULL) {
		hoist_checkpoint *checkpoint = NULL;
		const char *text = PyBytes_AsString(path);
		HOIST_PY_WAITING(err = open_path(text, flags, &of, &checkpoint));
		self->checkpoint = checkpoint;
	}
	if (err < 0) {
		Py_CLEAR(self);
		hoist_py_fail(err);
	}
	hoist_py_drop_group(&of);
	Py_DECREF(path);
	return (PyObject *)self;
}

static PyObject *checkpoint_close(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = ((object *)self)->checkpoint;
	(void)none;
	if (atomic_load(&((object *)self)->n_uses) > 0) {
		PyErr_SetString(PyExc_ValueError, "another thread uses the checkpoint");
		return NULL;
	}
	((object *)self)->checkpoint = NULL;
	HOIST_PY_WAITING(hoist_checkpoint_close(checkpoint));
	return Py_NewRef(Py_None);
}

static void checkpoint_dealloc(PyObject *self)
{
	hoist_checkpoint *checkpoint = ((object *)self)->checkpoint;
	HOIST_PY_WAITING(hoist_checkpoint_close(checkpoint));
	hoist_py_free_object(self);
}

static Py_ssize_t checkpoint_length(PyObject *self)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	return checkpoint == NULL ? -1 : (Py_ssize_t)hoist_checkpoint_n_tensors(checkpoint);
}

PyObject *hoist_py_tensor_tuple(PyTypeObject *type, const hoist_tensor_info *i)
{
	PyObject *fields[] = {
		PyUnicode_FromString(i->name),
		hoist_py_dtype_name(i->dtype),
		hoist_py_tuple(i->rank, i->shape),
		PyLong_FromUnsignedLongLong(i->bytes),
		PyLong_FromSize_t(i->file),
		PyLong_FromUnsignedLongLong(i->offset),
		i->strides == NULL ? Py_NewRef(Py_None) : hoist_py_tuple(i->rank, i->strides),
	};
	const Py_ssize_t n = sizeof fields / sizeof fields[0];
	PyObject *tuple = PyType_GenericAlloc(type, n);
	for (Py_ssize_t f = 0; f < n; f++) {
		if (tuple == NULL)
			Py_XDECREF(fields[f]);
		else if (fields[f] == NULL || PyTuple_SetItem(tuple, f, fields[f]) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* (class that inherits from tuple, index): the facts of a tensor. */
static PyObject *tensor(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	hoist_tensor_info i = {.size = sizeof i};
	PyTypeObject *type;
	Py_ssize_t index;
	if (!PyArg_ParseTuple(args, "O!n", &PyType_Type, &type, &index))
		return NULL;
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	if (checkpoint == NULL)
		return NULL;
	int err = hoist_checkpoint_tensor(checkpoint, (size_t)index, &i);
	return err < 0 ? hoist_py_fail(err) : hoist_py_tensor_tuple(type, &i);
}

static PyObject *names(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	(void)none;
	if (checkpoint == NULL)
		return NULL;
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (size_t t = 0; t < n && list != NULL; t++) {
		hoist_tensor_info i = {.size = sizeof i};
		int err = hoist_checkpoint_tensor(checkpoint, t, &i);
		PyObject *name = err < 0 ? hoist_py_fail(err) : PyUnicode_FromString(i.name);
		if (name == NULL || PyList_SetItem(list, (Py_ssize_t)t, name) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* The index of the tensor called so; KeyError. */
static PyObject *find(PyObject *self, PyObject *name)
{
	HOIST_PY_LOCK(self);
	size_t index;
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	if (checkpoint != NULL && !PyUnicode_Check(name)) {
		PyErr_SetString(PyExc_TypeError, "the name of a tensor is a str");
		return NULL;
	}
	const char *text = checkpoint == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
	if (text == NULL)
		return NULL;
	if (hoist_checkpoint_find(checkpoint, text, &index) < 0) {
		PyErr_SetObject(PyExc_KeyError, name);
		return NULL;
	}
	return PyLong_FromSize_t(index);
}

/* The names of the tensors that a name or glob of a load's means: a name means that tensor alone.
 */
static PyObject *matching(PyObject *self, PyObject *pattern)
{
	HOIST_PY_LOCK(self);
	size_t exact;
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	const char *text = checkpoint == NULL ? NULL : PyUnicode_AsUTF8AndSize(pattern, NULL);
	PyObject *list = text == NULL ? NULL : PyList_New(0);
	if (list == NULL)
		return NULL;
	bool is_name = hoist_checkpoint_find(checkpoint, text, &exact) == 0;
	size_t end = is_name ? exact + 1 : hoist_checkpoint_n_tensors(checkpoint);
	for (size_t t = is_name ? exact : 0; t < end && list != NULL; t++) {
		hoist_tensor_info i = {.size = sizeof i};
		(void)hoist_checkpoint_tensor(checkpoint, t, &i);
		if (!is_name && fnmatch(text, i.name, 0) != 0)
			continue;
		PyObject *name = PyUnicode_FromString(i.name);
		if (name == NULL || PyList_Append(list, name) < 0)
			Py_CLEAR(list);
		Py_XDECREF(name);
	}
	return list;
}

/* The digest that the checkpoint holds of tensor @index; None. */
static PyObject *digest(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	Py_ssize_t index;
	unsigned char digest[16];
	if (!PyArg_ParseTuple(args, "n", &index))
		return NULL;
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	if (checkpoint == NULL)
		return NULL;
	int err = hoist_checkpoint_digest(checkpoint, (size_t)index, digest);
	if (err == -ENODATA)
		return Py_NewRef(Py_None);
	return err < 0 ? hoist_py_fail(err)
		       : PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

/* (bytes of 16 for each tensor, all in one): keeps digests beside the files. */
static PyObject *keep_digests(PyObject *self, PyObject *digests)
{
	char *bytes = NULL;
	Py_ssize_t n = 0;
	int err;
	if (PyBytes_AsStringAndSize(digests, &bytes, &n) < 0)
		return NULL;
	hoist_checkpoint *checkpoint = hoist_py_use_checkpoint(self);
	if (checkpoint == NULL)
		return NULL;
	HOIST_PY_WAITING(err = hoist_checkpoint_keep_digests(checkpoint, (size_t)n / 16,
							     (const unsigned char(*)[16])bytes));
	hoist_py_leave_checkpoint(self);
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *files(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	(void)none;
	if (checkpoint == NULL)
		return NULL;
	size_t n = hoist_checkpoint_n_files(checkpoint);
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);
	for (size_t f = 0; f < n && tuple != NULL; f++) {
		hoist_file_info i = {.size = sizeof i};
		int err = hoist_checkpoint_file(checkpoint, f, &i);
		PyObject *pair = err < 0 ? hoist_py_fail(err)
					 : Py_BuildValue("(NK)", PyUnicode_DecodeFSDefault(i.path),
							 (unsigned long long)i.bytes);
		if (pair == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)f, pair) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* (class that inherits from tuple): a list of what was left out. */
static PyObject *skipped(PyObject *self, PyObject *class)
{
	/* Other threads may run in the call of the class. */
	hoist_checkpoint *checkpoint = hoist_py_use_checkpoint(self);
	if (checkpoint == NULL)
		return NULL;
	size_t n = hoist_checkpoint_n_skipped(checkpoint);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (size_t s = 0; s < n && list != NULL; s++) {
		hoist_skipped_info i = {.size = sizeof i};
		int err = hoist_checkpoint_skipped(checkpoint, s, &i);
		PyObject *row = err < 0 ? hoist_py_fail(err)
					: PyObject_CallFunction(class, "ssn", i.name, i.reason,
								(Py_ssize_t)i.file);
		if (row == NULL || PyList_SetItem(list, (Py_ssize_t)s, row) < 0)
			Py_CLEAR(list);
	}
	hoist_py_leave_checkpoint(self);
	return list;
}

static PyObject *metadata(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	(void)none;
	PyObject *dict = checkpoint == NULL ? NULL : PyDict_New();
	size_t n = dict == NULL ? 0 : hoist_checkpoint_n_metadata(checkpoint);
	for (size_t m = n;
	     m-- > 0 && dict != NULL;) { /* a key's first value comes last, and stays */
		const char *key = NULL;
		const char *value = NULL;
		int err = hoist_checkpoint_metadata(checkpoint, m, &key, &value);
		PyObject *name = err < 0 ? hoist_py_fail(err) : PyUnicode_FromString(key);
		PyObject *text = name == NULL ? NULL : PyUnicode_FromString(value);
		if (text == NULL || PyDict_SetItem(dict, name, text) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(name);
		Py_XDECREF(text);
	}
	return dict;
}

static PyObject *get_format(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	(void)closure;
	return checkpoint == NULL ? NULL
				  : PyUnicode_FromString(hoist_checkpoint_format(checkpoint));
}

static PyObject *get_nbytes(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	hoist_checkpoint *checkpoint = open_checkpoint(self);
	(void)closure;
	return checkpoint == NULL ? NULL
				  : PyLong_FromUnsignedLongLong(hoist_checkpoint_bytes(checkpoint));
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	(void)closure;
	return PyBool_FromLong(((object *)self)->checkpoint == NULL);
}

static PyMethodDef methods[] = {
	{"close", checkpoint_close, METH_NOARGS,
	 "close($self, /)\n--\n\nLets go of the files.  Loads that were started go on."},
	{"_tensor", tensor, METH_VARARGS, NULL},
	{"_names", names, METH_NOARGS, NULL},
	{"_find", find, METH_O, NULL},
	{"_matching", matching, METH_O, NULL},
	{"_digest", digest, METH_VARARGS, NULL},
	{"_keep_digests", keep_digests, METH_O, NULL},
	{"_files", files, METH_NOARGS, NULL},
	{"_metadata", metadata, METH_NOARGS, NULL},
	{"_skipped", skipped, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"format", get_format, NULL,
	 "\"safetensors\", \"gguf\", \"npy\", \"npz\", \"max\" or \"pytorch\".", NULL},
	{"nbytes", get_nbytes, NULL, "The bytes of all tensors together.", NULL},
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)checkpoint_new},
	{Py_tp_dealloc, (void *)checkpoint_dealloc},
	{Py_mp_length, (void *)checkpoint_length},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Checkpoint",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int hoist_py_add_checkpoint_type(PyObject *module)
{
	hoist_py_checkpoint_type = hoist_py_add_type(module, &type);
	return hoist_py_checkpoint_type == NULL ? -1 : 0;
}
