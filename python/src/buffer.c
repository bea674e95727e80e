/* SPDX-License-Identifier: MIT */
/* Buffer: properties, views, copies.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "module.h"

typedef hoist_py_buffer_object object;

static object *self_of(PyObject *self)
{
	return (object *)self;
}

PyObject *hoist_py_buffer_of(PyTypeObject *type, hoist_buffer *buffer)
{
	object *self = (object *)PyType_GenericAlloc(type, 0);
	if (self == NULL)
		HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	else
		self->buffer = buffer;
	return (PyObject *)self;
}

PyObject *hoist_py_buffer(hoist_buffer *buffer)
{
	return hoist_py_buffer_of(hoist_py_buffer_type, buffer);
}

PyObject *hoist_py_view(PyObject *self, int err, hoist_buffer *const *view)
{
	if (err < 0)
		return hoist_py_fail(err);
	PyObject *ret = hoist_py_buffer_of(Py_TYPE(self), *view);
	if (ret != NULL)
		self_of(ret)->is_unordered = self_of(self)->is_unordered;
	return ret;
}

PyObject *hoist_py_delegate(PyObject *self, const char *name, PyObject *arguments)
{
	PyObject *module = PyImport_ImportModule("hoist.buffer");
	PyObject *function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
	Py_ssize_t n = arguments == NULL ? 0 : PyTuple_Size(arguments);
	PyObject *all = function == NULL ? NULL : PyTuple_New(n + 1);
	PyObject *ret = NULL;
	if (all != NULL) {
		(void)PyTuple_SetItem(all, 0, Py_NewRef(self));
		for (Py_ssize_t i = 0; i < n; i++)
			(void)PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(arguments, i)));
		ret = PyObject_CallObject(function, all);
	}
	Py_XDECREF(module);
	Py_XDECREF(function);
	Py_XDECREF(all);
	return ret;
}

hoist_buffer *hoist_py_buffer_arg(PyObject *value)
{
	if (PyObject_TypeCheck(value, hoist_py_buffer_type))
		return self_of(value)->buffer;
	PyErr_SetString(PyExc_TypeError,
			"a hoist.Buffer is needed; hoist.from_dlpack() makes one of "
			"another library's array");
	return NULL;
}

hoist_buffer *hoist_py_open_buffer(PyObject *self)
{
	hoist_buffer *buffer = self_of(self)->buffer;
	if (!hoist_buffer_is_closed(buffer))
		return buffer;
	return (hoist_buffer *)hoist_py_fail_text(-EBADF, "the buffer was closed");
}

/* --- making and ending --- */

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"dtype", "shape", "device",    "stream", "pinned",
				"zero",	 "lazy",  "shareable", NULL};
	PyObject *name;
	PyObject *extents;
	PyObject *spec = Py_None;
	PyObject *on = Py_None;
	int pinned = 0;
	int zero = 0;
	int lazy = 0;
	int shareable = 0;
	hoist_dtype dtype;
	int64_t shape[HOIST_MAX_RANK];
	hoist_device *device = NULL;
	hoist_stream *stream;
	hoist_buffer *buffer = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$Opppp:Buffer", names, &name,
					 &extents, &spec, &on, &pinned, &zero, &lazy, &shareable))
		return NULL;
	int rank = hoist_py_extents(extents, shape);
	if (rank < 0 || hoist_py_dtype(name, &dtype) < 0 || hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	if (stream != NULL && spec != Py_None) {
		PyErr_SetString(PyExc_ValueError,
				"give a device or a stream: a stream has a device");
		return NULL;
	}
	if (stream == NULL && hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	unsigned flags = (pinned ? HOIST_BUFFER_PINNED : 0) | (zero ? HOIST_BUFFER_ZERO : 0) |
			 (lazy ? HOIST_BUFFER_LAZY : 0) | (shareable ? HOIST_BUFFER_SHAREABLE : 0);
	Py_BEGIN_ALLOW_THREADS err =
		stream != NULL ? hoist_buffer_create_on(stream, dtype, rank, shape, flags, &buffer)
			       : hoist_buffer_create(device, dtype, rank, shape, flags, &buffer);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS return err < 0 ? hoist_py_fail(err) : hoist_py_buffer_of(type, buffer);
}

/* An object of this class over the memory of another Buffer object. */
static PyObject *buffer_adopt(PyObject *type, PyObject *args)
{
	PyObject *other;
	int is_unordered = 0;
	if (!PyArg_ParseTuple(args, "O!|p:_of", hoist_py_buffer_type, &other, &is_unordered))
		return NULL;
	PyObject *ret =
		hoist_py_buffer_of((PyTypeObject *)type, hoist_buffer_ref(self_of(other)->buffer));
	if (ret != NULL)
		self_of(ret)->is_unordered = is_unordered;
	return ret;
}

static void buffer_dealloc(PyObject *self)
{
	hoist_buffer *buffer = self_of(self)->buffer;
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	hoist_py_free_object(self);
}

static PyObject *buffer_close(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"stream", NULL};
	PyObject *on = Py_None;
	hoist_stream *stream;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:close", names, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	if (atomic_load(&self_of(self)->n_uses) > 0) {
		PyErr_SetString(PyExc_BufferError,
				"the buffer is in use: a memoryview or an array is "
				"over it, or another thread works on it");
		return NULL;
	}
	HOIST_PY_WAITING(err = hoist_buffer_close(self_of(self)->buffer, stream));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* --- text --- */

static PyObject *describe(PyObject *self, unsigned flags)
{
	object *o = self_of(self);
	char *text = NULL;
	int64_t n;
	HOIST_PY_USING(o, n = hoist_buffer_describe(o->buffer, flags, NULL, 0));
	if (n < 0)
		return hoist_py_fail((int)n);
	text = malloc((size_t)n + 1);
	if (text == NULL)
		return PyErr_NoMemory();
	int64_t again;
	HOIST_PY_USING(o, again = hoist_buffer_describe(o->buffer, flags, text, (size_t)n + 1));
	PyObject *ret = again < 0 ? hoist_py_fail((int)again) : PyUnicode_FromString(text);
	free(text);
	return ret;
}

static PyObject *buffer_describe(PyObject *self, PyObject *args)
{
	int values = 0;
	if (!PyArg_ParseTuple(args, "|p:describe", &values))
		return NULL;
	return describe(self, values ? HOIST_DESCRIBE_VALUES : 0);
}

/* With the values, if the buffer has any: block types, closed buffers and captures have none.  A
 * lack of memory is raised, and so is a child's use of its parent's device. */
static PyObject *buffer_repr(PyObject *self)
{
	int64_t n = -EINVAL;
	object *o = self_of(self);
	if (!hoist_buffer_is_closed(o->buffer))
		HOIST_PY_USING(
			o, n = hoist_buffer_describe(o->buffer, HOIST_DESCRIBE_VALUES, NULL, 0));
	bool has_values = n >= 0 || n == -ENOMEM || n == -ESTALE;
	return describe(self, has_values ? HOIST_DESCRIBE_VALUES : 0);
}

/* --- views --- */

static Py_ssize_t buffer_length(PyObject *self)
{
	const hoist_buffer *b = hoist_py_open_buffer(self);
	if (b != NULL && hoist_buffer_rank(b) == 0)
		PyErr_SetString(PyExc_TypeError, "a buffer of rank 0 has no length");
	return b == NULL || hoist_buffer_rank(b) == 0 ? -1 : (Py_ssize_t)hoist_buffer_shape(b)[0];
}

static PyObject *buffer_reshape(PyObject *self, PyObject *extents)
{
	int64_t shape[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	int rank = hoist_py_extents(extents, shape);
	hoist_buffer *b = rank < 0 ? NULL : hoist_py_open_buffer(self);
	return b == NULL ? NULL
			 : hoist_py_view(self, hoist_buffer_reshape(b, rank, shape, &ret), &ret);
}

static PyObject *buffer_permute(PyObject *self, PyObject *order)
{
	int64_t axes[HOIST_MAX_RANK];
	int narrow[HOIST_MAX_RANK] = {0};
	hoist_buffer *ret = NULL;
	int n = hoist_py_extents(order, axes);
	hoist_buffer *b = n < 0 ? NULL : hoist_py_open_buffer(self);
	if (b != NULL && n != hoist_buffer_rank(b)) {
		PyErr_Format(PyExc_ValueError, "%d axes for a buffer of %d", n,
			     hoist_buffer_rank(b));
		return NULL;
	}
	for (int a = 0; a < n; a++)
		narrow[a] = axes[a] < -64 || axes[a] > 64 ? 65 : (int)axes[a];
	return b == NULL ? NULL : hoist_py_view(self, hoist_buffer_permute(b, narrow, &ret), &ret);
}

static PyObject *buffer_view(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"dtype", "shape", "offset", NULL};
	PyObject *name;
	PyObject *extents = Py_None;
	Py_ssize_t offset = 0;
	hoist_dtype dtype;
	int64_t shape[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	int rank = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O$n:view", names, &name, &extents,
					 &offset))
		return NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	if (b == NULL || hoist_py_dtype(name, &dtype) < 0)
		return NULL;
	if (offset < 0 || (offset > 0 && extents == Py_None)) {
		PyErr_SetString(PyExc_ValueError, "an offset is 0 or more, and needs a shape");
		return NULL;
	}
	if (extents == Py_None)
		return hoist_py_view(self, hoist_buffer_view_as(b, dtype, &ret), &ret);
	rank = hoist_py_extents(extents, shape);
	return rank < 0 ? NULL
			: hoist_py_view(
				  self,
				  hoist_buffer_view(b, (size_t)offset, dtype, rank, shape, &ret),
				  &ret);
}

static PyObject *buffer_read_only(PyObject *self, PyObject *none)
{
	hoist_buffer *ret = NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	(void)none;
	return b == NULL ? NULL : hoist_py_view(self, hoist_buffer_read_only(b, &ret), &ret);
}

static PyObject *buffer_on_stream(PyObject *self, PyObject *on)
{
	hoist_stream *stream;
	hoist_buffer *ret = NULL;
	if (hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	return b == NULL ? NULL
			 : hoist_py_view(self, hoist_buffer_on_stream(b, stream, &ret), &ret);
}

static PyObject *buffer_allocate(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_USING(self_of(self), err = hoist_buffer_allocate(self_of(self)->buffer));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *buffer_freeze(PyObject *self, PyObject *none)
{
	int err = hoist_buffer_freeze(self_of(self)->buffer);
	(void)none;
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *buffer_is_aligned(PyObject *self, PyObject *args)
{
	Py_ssize_t alignment = 0;
	if (!PyArg_ParseTuple(args, "|n:is_aligned", &alignment))
		return NULL;
	if (alignment < 0 || (alignment & (alignment - 1)) != 0) {
		PyErr_SetString(PyExc_ValueError, "an alignment is a power of two");
		return NULL;
	}
	const hoist_buffer *b = hoist_py_open_buffer(self);
	return b == NULL ? NULL : PyBool_FromLong(hoist_buffer_is_aligned(b, (size_t)alignment));
}

/* --- what Python's own functions ask for --- */

static PyObject *buffer_reduce(PyObject *self, PyObject *args)
{
	return hoist_py_delegate(self, "reduce", args);
}

static PyObject *buffer_array(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"dtype", "copy", NULL};
	PyObject *dtype = Py_None;
	PyObject *copy = Py_None;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", names, &dtype, &copy))
		return NULL;
	PyObject *both = PyTuple_Pack(2, dtype, copy);
	PyObject *ret = both == NULL ? NULL : hoist_py_delegate(self, "array", both);
	Py_XDECREF(both);
	return ret;
}

static PyObject *buffer_deepcopy(PyObject *self, PyObject *memo)
{
	PyObject *one = PyTuple_Pack(1, memo);
	PyObject *ret = one == NULL ? NULL : hoist_py_delegate(self, "deepcopy", one);
	Py_XDECREF(one);
	return ret;
}

/* The object, and the host memory that only this object's storage has. */
static PyObject *buffer_sizeof(PyObject *self, PyObject *none)
{
	hoist_buffer_info info = {.size = sizeof info};
	(void)none;
	(void)hoist_buffer_get_info(self_of(self)->buffer, &info);
	bool has_bytes = info.is_allocated && info.is_host_accessible;
	return PyLong_FromSize_t(sizeof(object) + (has_bytes ? info.storage_bytes : 0));
}

/* --- the type --- */

#define KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
	{"close", KEYWORDS(buffer_close), METH_VARARGS | METH_KEYWORDS,
	 "close($self, /, stream=None)\n--\n\nLets go of the memory, behind the work on `stream`."},
	{"reshape", buffer_reshape, METH_O,
	 "reshape($self, shape, /)\n--\n\nThe same elements in another shape; one extent may be "
	 "-1."},
	{"permute", buffer_permute, METH_O,
	 "permute($self, axes, /)\n--\n\nThe axes in another order."},
	{"view", KEYWORDS(buffer_view), METH_VARARGS | METH_KEYWORDS,
	 "view($self, /, dtype, shape=None, *, offset=0)\n--\n\nThe same bytes as another dtype; "
	 "with "
	 "a shape, from `offset` bytes on."},
	{"read_only", buffer_read_only, METH_NOARGS,
	 "read_only($self, /)\n--\n\nThe same elements, which the result cannot write."},
	{"on_stream", buffer_on_stream, METH_O,
	 "on_stream($self, stream, /)\n--\n\nThe same memory with another stream of the device."},
	{"allocate", buffer_allocate, METH_NOARGS,
	 "allocate($self, /)\n--\n\nTakes the memory of a lazy buffer now."},
	{"freeze", buffer_freeze, METH_NOARGS,
	 "freeze($self, /)\n--\n\nForbids writing to the storage for good."},
	{"is_aligned", buffer_is_aligned, METH_VARARGS,
	 "is_aligned($self, alignment=0, /)\n--\n\nWhether the first element's address is a "
	 "multiple of `alignment`; 0: of the dtype's own."},
	{"describe", buffer_describe, METH_VARARGS,
	 "describe($self, values=False, /)\n--\n\nThe buffer in words, with its values or "
	 "without."},
	{"to", hoist_py_to, METH_O,
	 "to($self, where, /)\n--\n\nThis buffer if its memory is on the device, else a copy "
	 "there.  A stream: a buffer with that stream."},
	{"copy", KEYWORDS(hoist_py_copy), METH_VARARGS | METH_KEYWORDS,
	 "copy($self, /, device=None, *, stream=None)\n--\n\nA contiguous copy, on the same or "
	 "another device; with a stream the copy is queued there."},
	{"copy_from", KEYWORDS(hoist_py_copy_from), METH_VARARGS | METH_KEYWORDS,
	 "copy_from($self, source, /, *, stream=None, contiguous=False, nbytes=False)\n--\n\n"
	 "Copies the elements of a Buffer.  `contiguous`: refuses any other layout.  `nbytes`: "
	 "copies bytes, whatever the dtypes and shapes."},
	{"fill", KEYWORDS(hoist_py_fill), METH_VARARGS | METH_KEYWORDS,
	 "fill($self, value, /, *, stream=None)\n--\n\nA number for every element, or bytes (1, 2, "
	 "4, 8 or 16 of them) that are repeated."},
	{"fork", KEYWORDS(hoist_py_fork), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
	 "fork(buffers, /, *, copy=True)\n--\n\nBuffers over one new storage that lie to each "
	 "other as `buffers` lie in theirs."},
	{"tobytes", hoist_py_tobytes, METH_NOARGS,
	 "tobytes($self, /)\n--\n\nThe elements in C order, as bytes."},
	{"item", hoist_py_item, METH_NOARGS,
	 "item($self, /)\n--\n\nThe only element, as a number."},
	{"_set", hoist_py_set_element, METH_VARARGS, NULL},
	{"_with_layout", hoist_py_with_layout, METH_VARARGS, NULL},
	{"_of", buffer_adopt, METH_VARARGS | METH_CLASS, NULL},
	{"from_buffer", KEYWORDS(hoist_py_from_buffer), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "from_buffer($type, object, /, dtype=None)\n--\n\nA buffer over the memory of an object "
	 "with Python's buffer protocol, without a copy."},
	{"from_address", KEYWORDS(hoist_py_from_address), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "from_address($type, address, nbytes, dtype, shape, *, strides=None, nbytes_before=0, "
	 "device=None, owner=None, release=None, read_only=False)\n--\n\n"
	 "A buffer over memory that the caller has.  The buffer keeps `owner`, and calls "
	 "`release()` when its memory is not used any more."},
	{"from_cuda_array_interface", KEYWORDS(hoist_py_from_cai),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "from_cuda_array_interface($type, object, /, *, stream=None, sync=True)\n--\n\n"
	 "A buffer over the memory of an object with the CUDA Array Interface."},
	{"mmap", KEYWORDS(hoist_py_mmap), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "mmap($type, path, dtype, shape, mode='copyonwrite', offset=0, populate=False, "
	 "alias=False)\n--\n\nA buffer over a file, with the modes of numpy.memmap.  `alias`: mode "
	 "\"r\" gives read-only pages of the file in place of a copy."},
	{"load_max", hoist_py_load_max, METH_VARARGS | METH_CLASS,
	 "load_max($type, path, /)\n--\n\nThe only buffer of a .max file."},
	{"flush", hoist_py_flush, METH_NOARGS,
	 "flush($self, /)\n--\n\nWaits until what was written to a file's pages is on disk."},
	{"__reduce_ex__", buffer_reduce, METH_VARARGS, NULL},
	{"__deepcopy__", buffer_deepcopy, METH_O, NULL},
	{"__array__", KEYWORDS(buffer_array), METH_VARARGS | METH_KEYWORDS, NULL},
	{"__sizeof__", buffer_sizeof, METH_NOARGS, NULL},
	{"__dlpack__", KEYWORDS(hoist_py_to_dlpack), METH_VARARGS | METH_KEYWORDS,
	 "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, "
	 "copy=None)\n--\n\n"},
	{"__dlpack_device__", hoist_py_dlpack_device, METH_NOARGS,
	 "__dlpack_device__($self, /)\n--\n\n"},
	{"from_dlpack", KEYWORDS(hoist_py_from_dlpack), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 "from_dlpack($type, array, /, *, copy=None)\n--\n\n"
	 "A buffer over the memory of an array of another library."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)buffer_new},
	{Py_tp_dealloc, (void *)buffer_dealloc},
	{Py_tp_repr, (void *)buffer_repr},
	{Py_tp_methods, methods},
	{Py_tp_getset, hoist_py_buffer_fields},
	{Py_mp_subscript, (void *)hoist_py_subscript},
	{Py_mp_ass_subscript, (void *)hoist_py_store},
	{Py_mp_length, (void *)buffer_length},
	{Py_nb_index, (void *)hoist_py_index},
	{Py_nb_int, (void *)hoist_py_int},
	{Py_nb_float, (void *)hoist_py_float},
	{Py_nb_bool, (void *)hoist_py_bool},
	{Py_bf_getbuffer, (void *)hoist_py_getbuffer},
	{Py_bf_releasebuffer, (void *)hoist_py_releasebuffer},
	{Py_tp_doc, "Buffer(dtype, shape, device=None, *, stream=None, pinned=False, zero=False, "
		    "lazy=False, shareable=False)\n--\n\n"
		    "Typed, shaped memory on a device."},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.Buffer",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int hoist_py_add_buffer_type(PyObject *module)
{
	hoist_py_buffer_type = hoist_py_add_type(module, &type);
	return hoist_py_buffer_type == NULL ? -1 : 0;
}
