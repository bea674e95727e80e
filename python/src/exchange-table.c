/* SPDX-License-Identifier: MIT */
/* __dlpack_c_exchange_api__ of Buffer and of hoist.core's StridedMemoryView: DLPack's table of
 * functions, by which other extensions exchange these in C, without a call of a Python method.  The
 * contract is in python/src/module.h.
 *
 * The attribute, and __c_dlpack_exchange_api__, its name before DLPack 1.3, is a capsule named
 * "dlpack_exchange_api".  The table is static.  No function waits for a stream or makes one wait:
 * the consumer works on current_stream().  The caller holds the GIL or, without one, is attached to
 * the interpreter, except for allocate(), which is libhoist's own and raises nothing.
 *
 * No consumer tells the table whether it heeds READ_ONLY, and torch does not: a read-only buffer is
 * refused.
 */
#include "module.h"

#define NAME "dlpack_exchange_api"

/* Raises @class with the library's text; for a lack of memory that exception.  Returns: -1. */
static int fail_with(int err, PyObject *class)
{
	if (err == -ENOMEM || err == -ENOSPC || err == -EDQUOT)
		hoist_py_fail(err);
	else
		PyErr_SetString(class, hoist_error());
	return -1;
}

static const hoist_dl_exchange *libhoist(void)
{
	return (const hoist_dl_exchange *)(const void *)hoist_dlpack_exchange_api();
}

/* The Buffer of an object: a Buffer itself; of a StridedMemoryView the one that the view makes, and
 * keeps.  Returns: a new reference; NULL with an exception. */
static hoist_py_buffer_object *object_of(PyObject *object)
{
	PyObject *buffer = NULL;
	if (!PyObject_TypeCheck(object, hoist_py_buffer_type)) {
		buffer = PyObject_CallMethod(object, "_exchanged", NULL);
		if (buffer == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
			return NULL;
		PyErr_Clear();
	}
	buffer = buffer == NULL ? Py_NewRef(object) : buffer;
	if (hoist_py_buffer_arg(buffer) == NULL || hoist_py_open_buffer(buffer) == NULL)
		Py_CLEAR(buffer);
	return (hoist_py_buffer_object *)buffer;
}

static int allocate(hoist_dl_tensor *prototype, struct DLManagedTensorVersioned **ret,
		    void *context,
		    void (*set_error)(void *context, const char *kind, const char *text))
{
	return libhoist()->allocate(prototype, ret, context, set_error);
}

static int buffer_to_managed(hoist_py_buffer_object *o, struct DLManagedTensorVersioned **ret)
{
	HOIST_PY_LOCK(o);
	const hoist_dlpack_options options = {
		.size = sizeof options, .has_stream = 1, .stream = -1};
	struct DLManagedTensorVersioned *tensor = NULL;
	int err;
	if (hoist_py_open_buffer((PyObject *)o) == NULL)
		return -1;
	HOIST_PY_USING(o, err = hoist_buffer_to_dlpack(o->buffer, &options, &tensor));
	if (err < 0)
		return fail_with(err, PyExc_BufferError);
	if (hoist_py_is_read_only_tensor(tensor)) {
		HOIST_PY_WAITING(hoist_dlpack_release(tensor));
		hoist_py_refuse_read_only();
		return -1;
	}
	*ret = tensor;
	return 0;
}

static int to_managed(void *object, struct DLManagedTensorVersioned **ret)
{
	hoist_py_buffer_object *o = object_of(object);
	int err = o == NULL ? -1 : buffer_to_managed(o, ret);
	Py_XDECREF((PyObject *)o);
	return err;
}

/* Takes the tensor, even if it fails. */
static int from_managed(struct DLManagedTensorVersioned *tensor, void **ret)
{
	hoist_buffer *buffer = NULL;
	int err;
	HOIST_PY_WAITING(err = hoist_buffer_from_dlpack(tensor, NULL, 0, &buffer);
			 if (err < 0) hoist_dlpack_release(tensor));
	if (err < 0)
		return fail_with(err, PyExc_BufferError);
	*ret = hoist_py_buffer(buffer);
	return *ret == NULL ? -1 : 0;
}

static int view_from_managed(struct DLManagedTensorVersioned *tensor, void **ret)
{
	void *buffer = NULL;
	if (from_managed(tensor, &buffer) < 0)
		return -1;
	PyObject *utils = PyImport_ImportModule("hoist.core.utils");
	PyObject *view =
		utils == NULL ? NULL : PyObject_CallMethod(utils, "_view_over", "O", buffer);
	Py_XDECREF(utils);
	Py_DECREF((PyObject *)buffer);
	*ret = view == NULL ? *ret : view;
	return view == NULL ? -1 : 0;
}

static int buffer_to_tensor(hoist_py_buffer_object *o, hoist_dl_tensor *ret)
{
	HOIST_PY_LOCK(o);
	hoist_dl_tensor tensor;
	int err;
	if (hoist_py_open_buffer((PyObject *)o) == NULL)
		return -1;
	HOIST_PY_USING(o, err = hoist_buffer_allocate(o->buffer);
		       if (err == 0 && libhoist()->to_tensor(o->buffer, &tensor) < 0) err =
			       -ENOTSUP);
	if (err < 0)
		return fail_with(err, PyExc_BufferError);
	*ret = tensor;
	return 0;
}

/* The tensor's pointers are the buffer's: they hold while the object is there and open. */
static int to_tensor(void *object, hoist_dl_tensor *ret)
{
	hoist_py_buffer_object *o = object_of(object);
	int err = o == NULL ? -1 : buffer_to_tensor(o, ret);
	Py_XDECREF((PyObject *)o);
	return err;
}

static int current_stream(int32_t type, int32_t id, void **ret)
{
	void *stream = NULL;
	int err;
	HOIST_PY_WAITING(err = libhoist()->current_stream(type, id, &stream));
	if (err < 0)
		return fail_with(err, PyExc_RuntimeError);
	*ret = stream;
	return 0;
}

#define TABLE(from)                                                                                \
	{                                                                                          \
		.major = HOIST_DLPACK_MAJOR, .minor = HOIST_DLPACK_MINOR, .allocate = allocate,    \
		.to_managed = to_managed, .from_managed = (from), .to_tensor = to_tensor,          \
		.current_stream = current_stream,                                                  \
	}

static const hoist_dl_exchange table = TABLE(from_managed);
static const hoist_dl_exchange view_table = TABLE(view_from_managed);

/* Takes the capsule.  Extensions from before the standard's name look for the other one. */
static int set_on(PyTypeObject *type, PyObject *capsule)
{
	int err = capsule == NULL ? -1
				  : PyObject_SetAttrString((PyObject *)type,
							   "__dlpack_c_exchange_api__", capsule);
	if (err == 0)
		err = PyObject_SetAttrString((PyObject *)type, "__c_dlpack_exchange_api__",
					     capsule);
	Py_XDECREF(capsule);
	return err;
}

/* add_exchange_table(class): the table by which views of memory are exchanged. */
static PyObject *add_view_table(PyObject *none, PyObject *type)
{
	(void)none;
	PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&view_table, NAME, NULL);
	return set_on((PyTypeObject *)type, capsule) < 0 ? NULL : Py_NewRef(type);
}

static PyMethodDef functions[] = {
	{"add_exchange_table", add_view_table, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_exchange_tables(PyObject *module)
{
	return set_on(hoist_py_buffer_type, PyCapsule_New((void *)(uintptr_t)&table, NAME, NULL)) <
			       0
		       ? -1
		       : PyModule_AddFunctions(module, functions);
}
