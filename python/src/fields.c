/* SPDX-License-Identifier: MIT */
/* Buffer: properties.  The contract is in python/src/module.h. */
#include "module.h"

typedef hoist_py_buffer_object object;

static object *self_of(PyObject *self)
{
	return (object *)self;
}

static PyObject *get_shape(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_tuple(hoist_buffer_rank(b), hoist_buffer_shape(b));
}

static PyObject *get_strides(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_tuple(hoist_buffer_rank(b), hoist_buffer_strides(b));
}

static PyObject *get_dtype(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_dtype_name(hoist_buffer_dtype(b));
}

static PyObject *get_device(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : hoist_py_device(hoist_device_ref(hoist_buffer_device(b)));
}

static PyObject *get_ndim(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromLong(hoist_buffer_rank(b));
}

static PyObject *get_size(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromUnsignedLongLong(hoist_buffer_elements(b));
}

static PyObject *get_nbytes(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyLong_FromSize_t(hoist_buffer_bytes(b));
}

static PyObject *get_address(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	(void)closure;
	return PyLong_FromSize_t(hoist_buffer_address(self_of(self)->buffer));
}

static PyObject *get_is_contiguous(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_contiguous(b));
}

static PyObject *get_is_pinned(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_pinned(b));
}

enum {
	INFO_READ_ONLY,
	INFO_ALLOCATED,
	INFO_ID,
	INFO_STORAGE_ID,
	INFO_STORAGE_BYTES,
	INFO_OFFSET,
	INFO_DEVICE_ACCESSIBLE,
	INFO_HOST_ACCESSIBLE,
	INFO_DEVICE_ID,
	INFO_IMPLICIT,
	INFO_MANAGED,
	INFO_MAPPED
};

static PyObject *get_info(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	hoist_buffer_info i = {.size = sizeof i};
	int err = hoist_buffer_get_info(self_of(self)->buffer, &i);
	if (err < 0)
		return hoist_py_fail(err);
	switch ((uintptr_t)closure) {
	case INFO_READ_ONLY:
		return PyBool_FromLong(i.is_read_only);
	case INFO_ALLOCATED:
		return PyBool_FromLong(i.is_allocated);
	case INFO_ID:
		return PyLong_FromUnsignedLongLong(i.id);
	case INFO_STORAGE_ID:
		return PyLong_FromUnsignedLongLong(i.storage_id);
	case INFO_STORAGE_BYTES:
		return PyLong_FromSize_t(i.storage_bytes);
	case INFO_OFFSET:
		return PyLong_FromSize_t(i.offset);
	case INFO_DEVICE_ACCESSIBLE:
		return PyBool_FromLong(i.is_device_accessible);
	case INFO_HOST_ACCESSIBLE:
		return PyBool_FromLong(i.is_host_accessible);
	case INFO_DEVICE_ID:
		return PyLong_FromLong(i.device_id);
	case INFO_IMPLICIT:
		return PyBool_FromLong(i.has_implicit_strides);
	case INFO_MANAGED:
		return PyBool_FromLong(i.is_managed);
	default:
		return PyBool_FromLong(i.is_mapped);
	}
}

static PyObject *get_is_host(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	(void)closure;
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_host(b));
}

static PyObject *get_stream(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	hoist_stream *stream = NULL;
	int err;
	(void)closure;
	if (b == NULL)
		return NULL;
	HOIST_PY_USING(self_of(self), err = hoist_buffer_stream(b, &stream));
	return err < 0 ? hoist_py_fail(err) : hoist_py_stream(hoist_stream_ref(stream));
}

/* A type that the interface has no words for has no attribute: a consumer then asks for another
 * one. */
static PyObject *get_array_interface(PyObject *self, void *closure)
{
	(void)closure;
	return hoist_py_delegate(self, "array_interface", NULL);
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	(void)closure;
	return PyBool_FromLong(hoist_buffer_is_closed(self_of(self)->buffer));
}

#define INFO(name, field, doc)                                                                     \
	{                                                                                          \
		name, get_info, NULL, doc, (void *)(uintptr_t)(field)                              \
	}

PyGetSetDef hoist_py_buffer_fields[] = {
	{"shape", get_shape, NULL, "The extents, a tuple.", NULL},
	{"strides", get_strides, NULL, "The strides in elements, a tuple.", NULL},
	{"dtype", get_dtype, NULL, "The name of the dtype: \"bf16\".", NULL},
	{"device", get_device, NULL, "The Device that the memory belongs to.", NULL},
	{"ndim", get_ndim, NULL, "The number of axes.", NULL},
	{"size", get_size, NULL, "The number of elements.", NULL},
	{"nbytes", get_nbytes, NULL, "Bytes of the elements, packed without gaps.", NULL},
	{"address", get_address, NULL,
	 "The first element's address, as the device sees it; 0: none.", NULL},
	{"is_contiguous", get_is_contiguous, NULL,
	 "True: the elements lie in C order without gaps.", NULL},
	{"is_pinned", get_is_pinned, NULL, "True: host memory that a driver has registered.", NULL},
	INFO("is_read_only", INFO_READ_ONLY, "True: hoist does not write to the elements."),
	INFO("is_allocated", INFO_ALLOCATED, "False: a lazy buffer without memory, or closed."),
	INFO("id", INFO_ID, "The buffer's number, which no other object of the process ever has."),
	INFO("storage_id", INFO_STORAGE_ID,
	     "The number of the storage, which views share; 0: closed."),
	INFO("storage_nbytes", INFO_STORAGE_BYTES, "Bytes of the whole storage."),
	INFO("offset", INFO_OFFSET, "Bytes from the storage's beginning to the first element."),
	INFO("is_device_accessible", INFO_DEVICE_ACCESSIBLE,
	     "True: an accelerator can access the memory."),
	INFO("is_host_accessible", INFO_HOST_ACCESSIBLE, "True: the CPU can access the memory."),
	INFO("is_managed", INFO_MANAGED, "True: the driver moves the memory."),
	INFO("is_mapped", INFO_MAPPED, "True: another process's memory."),
	INFO("device_id", INFO_DEVICE_ID,
	     "The device's number, as its driver counts; -1: the CPU's memory."),
	INFO("has_implicit_strides", INFO_IMPLICIT,
	     "True: nobody gave strides, and they are those of C order."),
	{"is_host", get_is_host, NULL,
	 "True: the device is the CPU; memory that is pinned for an accelerator is not \"host\".",
	 NULL},
	{"stream", get_stream, NULL, "The stream that orders the buffer's work.", NULL},
	{"__array_interface__", get_array_interface, NULL,
	 "NumPy's array interface, of host memory in types that NumPy has.", NULL},
	{"__cuda_array_interface__", hoist_py_get_cai, NULL,
	 "The CUDA Array Interface, version 3, of memory that an accelerator can access.", NULL},
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};
