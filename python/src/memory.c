/* SPDX-License-Identifier: MIT */
/* Memory: resources that buffers come from, and buffers of other processes.  The contract is in
 * python/src/module.h. */
#include <hoist/ipc.h>
#include <hoist/memory-driver.h>

#include <unistd.h>

#include "module.h"

/* The most devices that the peers of virtual memory may be. */
#define HOIST_PY_PEERS 64

typedef struct memory_object {
	PyObject_HEAD hoist_memory *memory;
} memory_object;

static PyTypeObject *hoist_py_memory_type;

static hoist_memory *memory_of(PyObject *self)
{
	return ((memory_object *)self)->memory;
}

/* Takes the reference to @memory, even if it fails. */
static PyObject *memory_object_of(hoist_memory *memory)
{
	memory_object *self = (memory_object *)PyType_GenericAlloc(hoist_py_memory_type, 0);
	if (self == NULL)
		HOIST_PY_WAITING(hoist_memory_unref(memory));
	else
		self->memory = memory;
	return (PyObject *)self;
}

static const struct {
	const char *name;
	int kind;
} kinds[] = {
	{"host", HOIST_MEMORY_HOST},	    {"pinned", HOIST_MEMORY_PINNED},
	{"device", HOIST_MEMORY_DEVICE},    {"managed", HOIST_MEMORY_MANAGED},
	{"pool", HOIST_MEMORY_DRIVER_POOL}, {"heap", HOIST_MEMORY_HEAP},
	{"virtual", HOIST_MEMORY_VIRTUAL},  {"graph", HOIST_MEMORY_GRAPH},
};

static int kind_of(const char *name)
{
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		if (strcmp(kinds[k].name, name) == 0)
			return kinds[k].kind;
	PyErr_Format(PyExc_ValueError, "no kind of memory is called \"%s\"", name);
	return -1;
}

/* Opens the devices of a sequence, for *@ret to name.  A NULL sequence is empty. */
static int open_peers(PyObject *sequence, hoist_device *ret[HOIST_PY_PEERS], size_t *n)
{
	*n = 0;
	Py_ssize_t wanted = sequence == NULL ? 0 : PySequence_Size(sequence);
	if (wanted > HOIST_PY_PEERS)
		PyErr_Format(PyExc_ValueError, "%zd peers; %d at most", wanted, HOIST_PY_PEERS);
	for (Py_ssize_t i = 0; i < wanted && !PyErr_Occurred(); i++) {
		PyObject *item = PySequence_GetItem(sequence, i);
		if (item != NULL && hoist_py_device_arg(item, &ret[*n]) == 0)
			++*n;
		Py_XDECREF(item);
	}
	return PyErr_Occurred() ? -1 : 0;
}

static void close_peers(hoist_device *const *peers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hoist_device_unref(peers[i]);
}

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {
		"kind",		 "device", "current_pool", "shareable",		  "limit",
		"prefer",	 "node",   "rdma",	   "minimum_granularity", "address_hint",
		"address_align", "peers",  "self_access",  "peer_access",	  NULL};
	hoist_device *peers[HOIST_PY_PEERS];
	PyObject *given_peers = NULL;
	unsigned long long hint = 0;
	Py_ssize_t align = 0;
	hoist_virtual_options virtual_options = {.size = sizeof virtual_options};
	hoist_memory_options options = {.size = sizeof options,
					.virtual_options = &virtual_options};
	const char *kind;
	PyObject *spec = Py_None;
	int current = 0;
	int shareable = 0;
	int node = -1;
	Py_ssize_t limit = 0;
	hoist_memory *memory = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTupleAndKeywords(
		    args, keywords, "s|O$ppniippKnOii:Memory", names, &kind, &spec, &current,
		    &shareable, &limit, &options.preferred_location, &node, &virtual_options.rdma,
		    &virtual_options.minimum_granularity, &hint, &align, &given_peers,
		    &virtual_options.self_access, &virtual_options.peer_access))
		return NULL;
	options.kind = kind_of(kind);
	if (options.kind < 0)
		return NULL;
	virtual_options.address_hint = (uintptr_t)hint;
	virtual_options.address_align = (size_t)align;
	virtual_options.peers = peers;
	if (open_peers(given_peers, peers, &virtual_options.n_peers) < 0 ||
	    hoist_py_device_arg(spec, &options.device) < 0) {
		close_peers(peers, virtual_options.n_peers);
		return NULL;
	}
	if (options.kind != HOIST_MEMORY_VIRTUAL)
		options.virtual_options = NULL;
	if (options.kind == HOIST_MEMORY_PINNED && node >= 0) {
		options.placement = HOIST_PLACE_BIND;
		options.nodes = &node;
		options.n_nodes = 1;
	} else if (options.preferred_location == HOIST_PREFER_HOST_NODE) {
		options.preferred_node = node;
	}
	options.limit_bytes = (size_t)(limit < 0 ? 0 : limit);
	options.flags = (current ? HOIST_MEMORY_CURRENT_POOL : 0) |
			(shareable ? HOIST_MEMORY_SHAREABLE : 0);
	HOIST_PY_WAITING(err = hoist_memory_create(&options, &memory);
			 hoist_device_unref(options.device);
			 close_peers(peers, virtual_options.n_peers));
	return err < 0 ? hoist_py_fail(err) : memory_object_of(memory);
}

/* The resource of a kind that the device has already, shared by all. */
static PyObject *memory_of_device(PyObject *type, PyObject *args)
{
	const char *name;
	PyObject *spec;
	hoist_device *device;
	hoist_memory *memory = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTuple(args, "sO:of_device", &name, &spec))
		return NULL;
	int kind = kind_of(name);
	if (kind < 0 || hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_memory_of_device(device, kind, &memory);
			 hoist_device_unref(device));
	return err < 0 ? hoist_py_fail(err) : memory_object_of(memory);
}

static void memory_dealloc(PyObject *self)
{
	HOIST_PY_WAITING(hoist_memory_unref(memory_of(self)));
	hoist_py_free_object(self);
}

static PyObject *memory_alloc(PyObject *self, PyObject *args)
{
	Py_ssize_t bytes;
	PyObject *on = Py_None;
	hoist_stream *stream;
	hoist_buffer *buffer = NULL;
	int err;
	if (!PyArg_ParseTuple(args, "n|O:alloc", &bytes, &on) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	int64_t shape = bytes;
	HOIST_PY_WAITING(err = hoist_buffer_create_from(memory_of(self), stream, HOIST_U8, 1,
							&shape, 0, &buffer));
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(buffer);
}

static PyObject *memory_info(PyObject *self, PyObject *none)
{
	hoist_memory_info i = {.size = sizeof i};
	const char *kind = "custom";
	(void)none;
	int err = hoist_memory_get_info(memory_of(self), &i);
	if (err < 0)
		return hoist_py_fail(err);
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		if (kinds[k].kind == i.kind)
			kind = kinds[k].name;
	PyObject *device =
		i.device == NULL ? Py_NewRef(Py_None) : hoist_py_device(hoist_device_ref(i.device));
	return Py_BuildValue("{s:s,s:N,s:i,s:N,s:N,s:N,s:N,s:N,s:N}", "kind", kind, "device",
			     device, "device_id", i.device_id, "is_host_accessible",
			     PyBool_FromLong(i.is_host_accessible), "is_device_accessible",
			     PyBool_FromLong(i.is_device_accessible), "is_managed",
			     PyBool_FromLong(i.is_managed), "is_shareable",
			     PyBool_FromLong(i.is_shareable), "is_mapped",
			     PyBool_FromLong(i.is_mapped), "is_own", PyBool_FromLong(i.is_own));
}

static PyObject *memory_get_attribute(PyObject *self, PyObject *args)
{
	int attribute;
	uint64_t value = 0;
	int err;
	if (!PyArg_ParseTuple(args, "i:get_attribute", &attribute))
		return NULL;
	HOIST_PY_WAITING(err = hoist_memory_get_attribute(memory_of(self), attribute, &value));
	return err < 0 ? hoist_py_fail(err) : PyLong_FromUnsignedLongLong(value);
}

static PyObject *memory_set_attribute(PyObject *self, PyObject *args)
{
	int attribute;
	unsigned long long value;
	int err;
	if (!PyArg_ParseTuple(args, "iK:set_attribute", &attribute, &value))
		return NULL;
	HOIST_PY_WAITING(err = hoist_memory_set_attribute(memory_of(self), attribute, value));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

/* set_peer_access(peer, allowed) */
static PyObject *memory_set_peer(PyObject *self, PyObject *args)
{
	PyObject *spec;
	int allowed;
	hoist_device *peer;
	int err;
	if (!PyArg_ParseTuple(args, "Op:set_peer_access", &spec, &allowed) ||
	    hoist_py_device_arg(spec, &peer) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_memory_set_peer_access(memory_of(self), peer, allowed);
			 hoist_device_unref(peer));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *memory_get_peer(PyObject *self, PyObject *spec)
{
	hoist_device *peer;
	int allowed = 0;
	int err;
	if (hoist_py_device_arg(spec, &peer) < 0)
		return NULL;
	HOIST_PY_WAITING(err = hoist_memory_get_peer_access(memory_of(self), peer, &allowed);
			 hoist_device_unref(peer));
	return err < 0 ? hoist_py_fail(err) : PyBool_FromLong(allowed);
}

static PyObject *memory_granularity(PyObject *self, PyObject *none)
{
	size_t bytes = 0;
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_memory_granularity(memory_of(self), &bytes));
	return err < 0 ? hoist_py_fail(err) : PyLong_FromSize_t(bytes);
}

static PyObject *memory_trim(PyObject *self, PyObject *none)
{
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_memory_trim(memory_of(self), 0));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *memory_trim_in_thread(PyObject *self, PyObject *none)
{
	(void)none;
	return hoist_py_in_thread(self, "_trim");
}

static PyObject *memory_native_pool(PyObject *self, PyObject *none)
{
	void *pool = NULL;
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_memory_native_pool(memory_of(self), &pool));
	return err < 0 ? hoist_py_fail(err) : PyLong_FromVoidPtr(pool);
}

/* The closed buffer that other threads find while one grows.  It lives as long as the process.
 * Returns: NULL with an exception. */
static hoist_buffer *closed_for_ever(hoist_device *device)
{
	static _Atomic(hoist_buffer *) closed;
	const int64_t none = 0;
	hoist_buffer *before = NULL;
	hoist_buffer *made = NULL;
	if (closed != NULL)
		return closed;
	int err = hoist_buffer_create(device, HOIST_U8, 1, &none, 0, &made);
	if (err < 0)
		return (hoist_buffer *)hoist_py_fail(err);
	(void)hoist_buffer_close(made, NULL);
	if (!atomic_compare_exchange_strong(&closed, &before, made))
		hoist_buffer_unref(made); /* another thread was first */
	return closed;
}

/* Memory.grow(buffer, nbytes): the larger buffer; the given one is closed. */
static PyObject *memory_grow(PyObject *self, PyObject *args)
{
	PyObject *object;
	Py_ssize_t bytes;
	hoist_buffer *ret = NULL;
	int err;
	(void)self;
	if (!PyArg_ParseTuple(args, "O!n:grow", hoist_py_buffer_type, &object, &bytes))
		return NULL;
	HOIST_PY_LOCK(object);
	int64_t shape = bytes;
	hoist_buffer *buffer = hoist_py_open_buffer(object);
	if (buffer == NULL || hoist_py_check_unused(object) < 0)
		return NULL;
	/* To other threads the object is closed meanwhile. */
	hoist_buffer *closed = closed_for_ever(hoist_buffer_device(buffer));
	if (closed == NULL)
		return NULL;
	hoist_py_buffer_object *o = (hoist_py_buffer_object *)object;
	o->buffer = closed;
	HOIST_PY_USING(o, err = hoist_buffer_grow(buffer, 1, &shape, &ret));
	o->buffer = buffer;
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(ret);
}

/* --- other processes --- */

static PyObject *memory_uuid(PyObject *self, PyObject *none)
{
	unsigned char uuid[16];
	(void)none;
	int err = hoist_ipc_memory_uuid(memory_of(self), uuid);
	return err < 0 ? hoist_py_fail(err) : PyBytes_FromStringAndSize((char *)uuid, sizeof uuid);
}

static PyObject *memory_export(PyObject *self, PyObject *none)
{
	int fd = -1;
	int err;
	(void)none;
	HOIST_PY_WAITING(err = hoist_ipc_export_memory(memory_of(self), &fd));
	PyObject *ret = err < 0 ? hoist_py_fail(err) : PyLong_FromLong(fd);
	if (ret == NULL && err == 0)
		(void)close(fd);
	return ret;
}

static PyObject *memory_import(PyObject *type, PyObject *args)
{
	PyObject *spec;
	int fd;
	const char *uuid;
	Py_ssize_t n;
	hoist_device *device;
	hoist_memory *memory = NULL;
	int err;
	(void)type;
	if (!PyArg_ParseTuple(args, "Oiy#:import_memory", &spec, &fd, &uuid, &n))
		return NULL;
	if (n != 16) {
		PyErr_SetString(PyExc_ValueError, "a UUID has 16 bytes");
		return NULL;
	}
	if (hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS err =
		hoist_ipc_import_memory(device, fd, (const unsigned char *)uuid, &memory);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS return err < 0 ? hoist_py_fail(err) : memory_object_of(memory);
}

/* (description, file descriptor or -1) of a Buffer, for another process. */
static PyObject *ipc_export(PyObject *none, PyObject *object)
{
	hoist_ipc_descriptor descriptor;
	int fd = -1;
	int err;
	(void)none;
	if (hoist_py_buffer_arg(object) == NULL)
		return NULL;
	hoist_buffer *buffer = hoist_py_use_buffer(object);
	HOIST_PY_WAITING(err = hoist_ipc_export(buffer, &descriptor, &fd));
	hoist_py_leave_buffer(object);
	PyObject *ret = err < 0 ? hoist_py_fail(err)
				: Py_BuildValue("(y#i)", (const char *)&descriptor,
						(Py_ssize_t)sizeof descriptor, fd);
	if (ret == NULL && err == 0 && fd >= 0)
		(void)close(fd);
	return ret;
}

/* ipc_import(description, fd, memory or None): the file descriptor stays the caller's. */
static PyObject *ipc_import(PyObject *none, PyObject *args)
{
	const char *descriptor;
	Py_ssize_t n;
	int fd = -1;
	PyObject *object = Py_None;
	hoist_buffer *buffer = NULL;
	int err;
	(void)none;
	if (!PyArg_ParseTuple(args, "y#|iO:ipc_import", &descriptor, &n, &fd, &object))
		return NULL;
	if (object != Py_None && !Py_IS_TYPE(object, hoist_py_memory_type)) {
		PyErr_SetString(PyExc_TypeError, "ipc_import() takes a Memory");
		return NULL;
	}
	hoist_memory *memory = object == Py_None ? NULL : memory_of(object);
	HOIST_PY_WAITING(err = hoist_ipc_import(descriptor, (size_t)n, fd, memory, &buffer));
	return err < 0 ? hoist_py_fail(err) : hoist_py_buffer(buffer);
}

static PyMethodDef methods[] = {
	{"of_device", memory_of_device, METH_VARARGS | METH_CLASS,
	 "of_device($type, kind, device, /)\n--\n\nThe device's own resource of a kind."},
	{"alloc", memory_alloc, METH_VARARGS,
	 "alloc($self, nbytes, stream=None, /)\n--\n\nA buffer of u8 from this resource."},
	{"grow", memory_grow, METH_VARARGS | METH_STATIC,
	 "grow(buffer, nbytes, /)\n--\n\nA larger buffer over virtual memory; closes `buffer`."},
	{"info", memory_info, METH_NOARGS, "info($self, /)\n--\n\nThe properties, as a dict."},
	{"get_attribute", memory_get_attribute, METH_VARARGS, NULL},
	{"set_attribute", memory_set_attribute, METH_VARARGS, NULL},
	{"native_pool", memory_native_pool, METH_NOARGS,
	 "native_pool($self, /)\n--\n\nThe driver's handle of a pool."},
	{"set_peer_access", memory_set_peer, METH_VARARGS,
	 "set_peer_access($self, peer, allowed, /)\n--\n\nAllows or forbids a device to access a "
	 "pool."},
	{"get_peer_access", memory_get_peer, METH_O,
	 "get_peer_access($self, peer, /)\n--\n\nWhether a device may access a pool."},
	{"granularity", memory_granularity, METH_NOARGS,
	 "granularity($self, /)\n--\n\nBlocks of virtual memory are multiples of so many bytes."},
	{"_trim", memory_trim, METH_NOARGS, NULL},
	{"trim", memory_trim_in_thread, METH_NOARGS,
	 "trim($self, /)\n--\n\nGives back memory that no buffer uses."},
	{"uuid", memory_uuid, METH_NOARGS, "uuid($self, /)\n--\n\nThe name of a shareable pool."},
	{"export_memory", memory_export, METH_NOARGS,
	 "export_memory($self, /)\n--\n\nA file descriptor for another process, the caller's to "
	 "close."},
	{"import_memory", memory_import, METH_VARARGS | METH_CLASS,
	 "import_memory($type, device, fd, uuid, /)\n--\n\nThe pool of another process."},
	{"ipc_export", ipc_export, METH_O | METH_STATIC,
	 "ipc_export(buffer, /)\n--\n\n(description, file descriptor or -1), for another process."},
	{"ipc_import", ipc_import, METH_VARARGS | METH_STATIC,
	 "ipc_import(description, fd=-1, memory=None, /)\n--\n\nThe buffer of another process."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)memory_new},
	{Py_tp_dealloc, (void *)memory_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc,
	 "Memory(kind, device=None, *, current_pool=False, shareable=False, limit=0, prefer=0, "
	 "node=-1, rdma=False, minimum_granularity=False, address_hint=0, address_align=0, "
	 "peers=(), self_access=0, peer_access=0)\n--\n\n"
	 "A resource that buffers come from: \"host\", \"pinned\", \"device\", \"managed\", "
	 "\"pool\", \"heap\", \"virtual\" or \"graph\" memory."},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.Memory",
	.basicsize = sizeof(memory_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int hoist_py_add_memory_type(PyObject *module)
{
	hoist_py_memory_type = hoist_py_add_type(module, &type);
	return hoist_py_memory_type == NULL ? -1 : 0;
}
