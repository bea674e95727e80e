/* SPDX-License-Identifier: MIT */
/* Buffer: properties, views, copies.  The contract is in python/src/module.h. */
#include <stdlib.h>

#include "buffer-doc.h"
#include "exchange-doc.h"
#include "module.h"

typedef hoist_py_buffer_object object;

pthread_mutex_t hoist_py_slots = PTHREAD_MUTEX_INITIALIZER;

static object *self_of(PyObject *self)
{
	return (object *)self;
}

/* Objects of this class have no attributes, so only those whose memory has an owner can be part of
 * a cycle. */
static PyObject *make(PyTypeObject *type, hoist_buffer *buffer, struct hoist_py_owner *owner)
{
	object *self = (object *)PyType_GenericAlloc(type, 0);
	if (self == NULL) {
		HOIST_PY_WAITING(hoist_buffer_unref(buffer));
		return NULL;
	}
	if (type == hoist_py_buffer_type && owner == NULL)
		PyObject_GC_UnTrack(self);
	self->buffer = buffer;
	self->owner = owner;
	return (PyObject *)self;
}

PyObject *hoist_py_buffer_of(PyTypeObject *type, hoist_buffer *buffer)
{
	PyObject *known = hoist_buffer_get_user(buffer);
	if (known == NULL)
		return make(type, buffer, NULL);
	pthread_mutex_lock(&hoist_py_slots);
	known = hoist_buffer_get_user(buffer);
	if (known != NULL && (!Py_IS_TYPE(known, type) || !hoist_py_try_ref(known)))
		known = NULL;
	pthread_mutex_unlock(&hoist_py_slots);
	if (known == NULL)
		return make(type, buffer, NULL);
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	return known;
}

PyObject *hoist_py_owned_buffer(PyTypeObject *type, hoist_buffer *buffer,
				struct hoist_py_owner *owner)
{
	PyObject *self = make(type, buffer, owner);
	if (self != NULL) {
		hoist_py_enable_try_ref(self);
		(void)hoist_buffer_set_user(buffer, NULL, self, NULL);
	}
	return self;
}

PyObject *hoist_py_buffer(hoist_buffer *buffer)
{
	return hoist_py_buffer_of(hoist_py_buffer_type, buffer);
}

PyObject *hoist_py_view(PyObject *self, int err, hoist_buffer *const *view)
{
	if (err < 0)
		return hoist_py_fail(err);
	PyObject *ret = make(Py_TYPE(self), *view, self_of(self)->owner);
	if (ret != NULL)
		self_of(ret)->is_unordered = self_of(self)->is_unordered;
	return ret;
}

PyObject *hoist_py_call(const char *name, PyObject *arguments)
{
	PyObject *module = PyImport_ImportModule("hoist.buffer");
	PyObject *function = module == NULL ? NULL : PyObject_GetAttrString(module, name);
	PyObject *ret = function == NULL ? NULL : PyObject_CallObject(function, arguments);
	Py_XDECREF(module);
	Py_XDECREF(function);
	return ret;
}

PyObject *hoist_py_delegate(PyObject *self, const char *name, PyObject *arguments)
{
	Py_ssize_t n = arguments == NULL ? 0 : PyTuple_Size(arguments);
	PyObject *all = PyTuple_New(n + 1);
	PyObject *ret = NULL;
	if (all != NULL) {
		(void)PyTuple_SetItem(all, 0, Py_NewRef(self));
		for (Py_ssize_t i = 0; i < n; i++)
			(void)PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(arguments, i)));
		ret = hoist_py_call(name, all);
	}
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
	PyObject *ret = make((PyTypeObject *)type, hoist_buffer_ref(self_of(other)->buffer),
			     self_of(other)->owner);
	if (ret != NULL)
		self_of(ret)->is_unordered = is_unordered;
	return ret;
}

/* The owner of the memory, if nobody but this object, and loads that keep this object, holds the
 * storage; NULL.  The collector may ask several times, and gets one answer: whoever holds the
 * storage in a call without the GIL is counted in n_uses. */
static struct hoist_py_owner *sole_owner(const object *o)
{
	hoist_buffer_info info = {.size = sizeof info};
	if (o->owner == NULL || o->buffer == NULL || atomic_load(&o->n_uses) > 0 ||
	    hoist_buffer_get_info(o->buffer, &info) < 0 || info.is_closed)
		return NULL;
	bool is_sole = info.n_refs == 1 + o->n_loads && info.n_storage_refs == 1 + o->n_loads;
	return is_sole ? o->owner : NULL;
}

static int buffer_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct hoist_py_owner *owner = sole_owner(self_of(self));
	Py_VISIT(Py_TYPE(self));
	return owner == NULL ? 0 : hoist_py_visit_owner(owner, visit, arg);
}

/* Lets go of the memory of a Buffer that is garbage.  A load in place ends first. */
static int buffer_clear(PyObject *self)
{
	object *o = self_of(self);
	if (o->n_loads == 0 && sole_owner(o) != NULL)
		HOIST_PY_WAITING((void)hoist_buffer_close(o->buffer, NULL));
	return 0;
}

/* An owner's function is called while the objects that it uses are whole.  Without one the Buffer
 * stays open: a finalizer of another object may bring it back to life. */
static void buffer_finalize(PyObject *self)
{
	const struct hoist_py_owner *owner = sole_owner(self_of(self));
	if (owner != NULL && hoist_py_owner_calls(owner))
		hoist_py_finalize(self, buffer_clear);
}

static void buffer_dealloc(PyObject *self)
{
	hoist_buffer *buffer = self_of(self)->buffer;
	PyObject_GC_UnTrack(self);
	if (buffer != NULL && hoist_buffer_get_user(buffer) == self) {
		pthread_mutex_lock(&hoist_py_slots);
		(void)hoist_buffer_set_user(buffer, self, NULL, NULL);
		pthread_mutex_unlock(&hoist_py_slots);
	}
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	hoist_py_free_object(self);
}

int hoist_py_check_unused(PyObject *self)
{
	if (atomic_load(&self_of(self)->n_uses) == 0)
		return 0;
	PyErr_SetString(PyExc_BufferError, "the buffer is in use: a memoryview or an array is "
					   "over it, or another thread works on it");
	return -1;
}

/* Closes under the lock, so that a call that begins in another thread finds the buffer open or
 * closed. A view holds the storage meanwhile: the storage goes back, which may wait, without the
 * GIL. Returns: 0; a code of hoist's. */
static int close_for_all_threads(hoist_buffer *buffer, hoist_stream *stream)
{
	hoist_buffer *view = NULL;
	int err = stream != NULL ? hoist_buffer_free_on(buffer, stream) : 0;
	if (err < 0)
		return err;
	/* Without memory for a view, the GIL is held while the storage goes back. */
	(void)hoist_buffer_read_only(buffer, &view);
	(void)hoist_buffer_close(buffer, NULL);
	HOIST_PY_WAITING(hoist_buffer_unref(view));
	return 0;
}

static PyObject *buffer_close(PyObject *self, PyObject *args, PyObject *keywords)
{
	HOIST_PY_LOCK(self);
	static char *names[] = {"stream", NULL};
	PyObject *on = Py_None;
	hoist_stream *stream;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:close", names, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	if (hoist_py_check_unused(self) < 0)
		return NULL;
	if (hoist_buffer_is_closed(self_of(self)->buffer))
		Py_RETURN_NONE;
	int err = close_for_all_threads(self_of(self)->buffer, stream);
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* _free_on(stream): the memory goes back behind the work on the stream. */
static PyObject *buffer_free_on(PyObject *self, PyObject *on)
{
	HOIST_PY_LOCK(self);
	hoist_stream *stream;
	if (hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	int err = hoist_buffer_free_on(self_of(self)->buffer, stream);
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* --- text --- */

static PyObject *describe(PyObject *self, unsigned flags)
{
	object *o = self_of(self);
	char *text = NULL;
	int64_t n;
	if ((flags & HOIST_DESCRIBE_VALUES) != 0 && hoist_py_await_buffer(self) < 0)
		return NULL;
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
	HOIST_PY_LOCK(self);
	int values = 0;
	if (!PyArg_ParseTuple(args, "|p:describe", &values))
		return NULL;
	return describe(self, values ? HOIST_DESCRIBE_VALUES : 0);
}

/* With the values, if the buffer has any: block types, closed buffers and captures have none.  A
 * lack of memory is raised, and so is a child's use of its parent's device. */
static PyObject *buffer_repr(PyObject *self)
{
	HOIST_PY_LOCK(self);
	int64_t n = -EINVAL;
	object *o = self_of(self);
	if (hoist_py_await_buffer(self) < 0)
		return NULL;
	if (!hoist_buffer_is_closed(o->buffer))
		HOIST_PY_USING(
			o, n = hoist_buffer_describe(o->buffer, HOIST_DESCRIBE_VALUES, NULL, 0));
	bool has_values = n >= 0 || n == -ENOMEM || n == -ESTALE;
	return describe(self, has_values ? HOIST_DESCRIBE_VALUES : 0);
}

/* --- views --- */

static Py_ssize_t buffer_length(PyObject *self)
{
	HOIST_PY_LOCK(self);
	const hoist_buffer *b = hoist_py_open_buffer(self);
	if (b != NULL && hoist_buffer_rank(b) == 0)
		PyErr_SetString(PyExc_TypeError, "a buffer of rank 0 has no length");
	return b == NULL || hoist_buffer_rank(b) == 0 ? -1 : (Py_ssize_t)hoist_buffer_shape(b)[0];
}

static PyObject *buffer_reshape(PyObject *self, PyObject *extents)
{
	HOIST_PY_LOCK(self);
	int64_t shape[HOIST_MAX_RANK];
	hoist_buffer *ret = NULL;
	int rank = hoist_py_extents(extents, shape);
	hoist_buffer *b = rank < 0 ? NULL : hoist_py_open_buffer(self);
	return b == NULL ? NULL
			 : hoist_py_view(self, hoist_buffer_reshape(b, rank, shape, &ret), &ret);
}

static PyObject *buffer_permute(PyObject *self, PyObject *order)
{
	HOIST_PY_LOCK(self);
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
	HOIST_PY_LOCK(self);
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
	HOIST_PY_LOCK(self);
	hoist_buffer *ret = NULL;
	hoist_buffer *b = hoist_py_open_buffer(self);
	(void)none;
	return b == NULL ? NULL : hoist_py_view(self, hoist_buffer_read_only(b, &ret), &ret);
}

static PyObject *buffer_on_stream(PyObject *self, PyObject *on)
{
	HOIST_PY_LOCK(self);
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
	HOIST_PY_LOCK(self);
	int err;
	(void)none;
	HOIST_PY_USING(self_of(self), err = hoist_buffer_allocate(self_of(self)->buffer));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *buffer_freeze(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	int err = hoist_buffer_freeze(self_of(self)->buffer);
	(void)none;
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *buffer_is_aligned(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
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
	HOIST_PY_LOCK(self);
	hoist_buffer_info info = {.size = sizeof info};
	(void)none;
	(void)hoist_buffer_get_info(self_of(self)->buffer, &info);
	bool has_bytes = info.is_allocated && info.is_host_accessible;
	return PyLong_FromSize_t(sizeof(object) + (has_bytes ? info.storage_bytes : 0));
}

/* --- the type --- */

static PyMethodDef methods[] = {
	{"close", HOIST_PY_KEYWORDS(buffer_close), METH_VARARGS | METH_KEYWORDS, close_doc},
	{"reshape", buffer_reshape, METH_O, reshape_doc},
	{"permute", buffer_permute, METH_O, permute_doc},
	{"view", HOIST_PY_KEYWORDS(buffer_view), METH_VARARGS | METH_KEYWORDS, view_doc},
	{"read_only", buffer_read_only, METH_NOARGS, read_only_doc},
	{"on_stream", buffer_on_stream, METH_O, on_stream_doc},
	{"allocate", buffer_allocate, METH_NOARGS, allocate_doc},
	{"freeze", buffer_freeze, METH_NOARGS, freeze_doc},
	{"is_aligned", buffer_is_aligned, METH_VARARGS, is_aligned_doc},
	{"describe", buffer_describe, METH_VARARGS, describe_doc},
	{"to", hoist_py_to, METH_O, to_doc},
	{"copy", HOIST_PY_KEYWORDS(hoist_py_copy), METH_VARARGS | METH_KEYWORDS, copy_doc},
	{"copy_from", HOIST_PY_KEYWORDS(hoist_py_copy_from), METH_VARARGS | METH_KEYWORDS,
	 copy_from_doc},
	{"fill", HOIST_PY_KEYWORDS(hoist_py_fill), METH_VARARGS | METH_KEYWORDS, fill_doc},
	{"fork", HOIST_PY_KEYWORDS(hoist_py_fork), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
	 fork_doc},
	{"tobytes", hoist_py_tobytes, METH_NOARGS, tobytes_doc},
	{"item", hoist_py_item, METH_NOARGS, item_doc},
	{"_set", hoist_py_set_element, METH_VARARGS, NULL},
	{"_with_layout", hoist_py_with_layout, METH_VARARGS, NULL},
	{"_free_on", buffer_free_on, METH_O, NULL},
	{"_of", buffer_adopt, METH_VARARGS | METH_CLASS, NULL},
	{"from_buffer", HOIST_PY_KEYWORDS(hoist_py_from_buffer),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS, from_buffer_doc},
	{"from_address", HOIST_PY_KEYWORDS(hoist_py_from_address),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS, from_address_doc},
	{"from_cuda_array_interface", HOIST_PY_KEYWORDS(hoist_py_from_cai),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS, from_cai_doc},
	{"mmap", HOIST_PY_KEYWORDS(hoist_py_mmap), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
	 mmap_doc},
	{"load_max", hoist_py_load_max, METH_VARARGS | METH_CLASS, load_max_doc},
	{"flush", hoist_py_flush, METH_NOARGS, flush_doc},
	{"__reduce_ex__", buffer_reduce, METH_VARARGS, NULL},
	{"__deepcopy__", buffer_deepcopy, METH_O, NULL},
	{"__array__", HOIST_PY_KEYWORDS(buffer_array), METH_VARARGS | METH_KEYWORDS, NULL},
	{"__sizeof__", buffer_sizeof, METH_NOARGS, NULL},
	{"__dlpack__", HOIST_PY_KEYWORDS(hoist_py_to_dlpack), METH_VARARGS | METH_KEYWORDS,
	 to_dlpack_doc},
	{"__dlpack_device__", hoist_py_dlpack_device, METH_NOARGS, dlpack_device_doc},
	{"from_dlpack", HOIST_PY_KEYWORDS(hoist_py_from_dlpack),
	 METH_VARARGS | METH_KEYWORDS | METH_CLASS, from_dlpack_doc},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)buffer_new},
	{Py_tp_dealloc, (void *)buffer_dealloc},
	{Py_tp_traverse, (void *)buffer_traverse},
	{Py_tp_clear, (void *)buffer_clear},
	{Py_tp_finalize, (void *)buffer_finalize},
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
	{Py_tp_doc, (void *)(uintptr_t)type_doc},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.Buffer",
	.basicsize = sizeof(object),
	/* Not immutable: the exchange table is an attribute of the type, set when the type is
	   there. */
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

int hoist_py_add_buffer_type(PyObject *module)
{
	hoist_py_buffer_type = hoist_py_add_type(module, &type);
	return hoist_py_buffer_type == NULL ? -1 : hoist_py_add_exchange_tables(module);
}
