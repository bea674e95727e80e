/* SPDX-License-Identifier: MIT */
/* Buffer.__dlpack_c_exchange_api__: DLPack's table of functions, by which other extensions exchange
 * Buffers in C, without a call of a Python method.  The contract is in python/src/module.h.
 *
 * The attribute is a capsule named "dlpack_exchange_api".  The table is static.  No function waits
 * for a stream or makes one wait: the consumer works on current_stream().  The caller holds the
 * GIL or, without one, is attached to the interpreter, except for allocate(), which is libhoist's
 * own and raises nothing.
 *
 * No consumer tells the table whether it heeds READ_ONLY, and torch does not: a read-only buffer is
 * refused.
 */
#include "module.h"

#define NAME "dlpack_exchange_api"

/* Raises @class with the library's text.  Returns: -1. */
static int fail_with(PyObject *class)
{
	PyErr_SetString(class, hoist_error());
	return -1;
}

static const hoist_dl_exchange *libhoist(void)
{
	return (const hoist_dl_exchange *)(const void *)hoist_dlpack_exchange_api();
}

static hoist_py_buffer_object *object_of(void *object)
{
	if (hoist_py_buffer_arg(object) == NULL || hoist_py_open_buffer(object) == NULL)
		return NULL;
	return object;
}

static int allocate(hoist_dl_tensor *prototype, struct DLManagedTensorVersioned **ret,
		    void *context,
		    void (*set_error)(void *context, const char *kind, const char *text))
{
	return libhoist()->allocate(prototype, ret, context, set_error);
}

static int to_managed(void *object, struct DLManagedTensorVersioned **ret)
{
	HOIST_PY_LOCK(object);
	hoist_py_buffer_object *o = object_of(object);
	struct DLManagedTensorVersioned *tensor = NULL;
	int err;
	if (o == NULL)
		return -1;
	HOIST_PY_USING(o, err = libhoist()->to_managed(o->buffer, &tensor));
	if (err < 0)
		return fail_with(PyExc_BufferError);
	if (hoist_py_is_read_only_tensor(tensor)) {
		HOIST_PY_WAITING(hoist_dlpack_release(tensor));
		hoist_py_refuse_read_only();
		return -1;
	}
	*ret = tensor;
	return 0;
}

/* Takes the tensor, even if it fails. */
static int from_managed(struct DLManagedTensorVersioned *tensor, void **ret)
{
	void *buffer = NULL;
	int err;
	HOIST_PY_WAITING(err = libhoist()->from_managed(tensor, &buffer));
	if (err < 0)
		return fail_with(PyExc_BufferError);
	*ret = hoist_py_buffer(buffer);
	return *ret == NULL ? -1 : 0;
}

/* The tensor's pointers are the buffer's: they hold while the object is there and open. */
static int to_tensor(void *object, hoist_dl_tensor *ret)
{
	HOIST_PY_LOCK(object);
	hoist_py_buffer_object *o = object_of(object);
	hoist_dl_tensor tensor;
	int err;
	if (o == NULL)
		return -1;
	HOIST_PY_USING(o, err = libhoist()->to_tensor(o->buffer, &tensor));
	if (err < 0)
		return fail_with(PyExc_BufferError);
	*ret = tensor;
	return 0;
}

static int current_stream(int32_t type, int32_t id, void **ret)
{
	void *stream = NULL;
	int err;
	HOIST_PY_WAITING(err = libhoist()->current_stream(type, id, &stream));
	if (err < 0)
		return fail_with(PyExc_RuntimeError);
	*ret = stream;
	return 0;
}

static const hoist_dl_exchange table = {
	.major = HOIST_DLPACK_MAJOR,
	.minor = HOIST_DLPACK_MINOR,
	.allocate = allocate,
	.to_managed = to_managed,
	.from_managed = from_managed,
	.to_tensor = to_tensor,
	.current_stream = current_stream,
};

int hoist_py_add_exchange_table(PyTypeObject *type)
{
	PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&table, NAME, NULL);
	int err = capsule == NULL ? -1
				  : PyObject_SetAttrString((PyObject *)type,
							   "__dlpack_c_exchange_api__", capsule);
	Py_XDECREF(capsule);
	return err;
}
