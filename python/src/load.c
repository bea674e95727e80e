/* SPDX-License-Identifier: MIT */
/* Load: one asynchronous load.  The contract is in python/src/module.h.
 *
 * No call waits longer than its caller says: python/hoist/load.py waits in steps, so that signals
 * are handled between them. */
#include <stdlib.h>
#include <time.h>

#include "module.h"

typedef struct object {
	PyObject_HEAD hoist_load *load; /* NULL: closed */
	atomic_int n_uses; /* calls that run without the GIL: close() is refused meanwhile */
} object;

static hoist_load *open_load(PyObject *self)
{
	hoist_load *load = ((object *)self)->load;
	if (load == NULL)
		hoist_py_fail_text(-EBADF, "the load was closed");
	return load;
}

/* --- options --- */

/* The memory that the options point to. */
struct owned {
	char **tensors;
	size_t n_tensors;
	char **order;
	size_t n_order;
	hoist_load_slice *slices;
	char **slice_names;
	size_t n_slices;
	hoist_device *device;
};

static void drop(struct owned *owned)
{
	hoist_py_free_texts(owned->tensors, owned->n_tensors);
	hoist_py_free_texts(owned->order, owned->n_order);
	hoist_py_free_texts(owned->slice_names, owned->n_slices);
	free(owned->slices);
	HOIST_PY_WAITING(hoist_device_unref(owned->device));
}

static int no_memory(void)
{
	PyErr_NoMemory();
	return -1;
}

/* @list: None, or a list of (tensor, axis, rank, n_ranks, begin, end). */
static int read_slices(PyObject *list, struct owned *owned)
{
	if (list == Py_None)
		return 0;
	Py_ssize_t n = PySequence_Size(list);
	if (n < 0)
		return -1;
	owned->slices = calloc((size_t)n + 1, sizeof *owned->slices);
	owned->slice_names = calloc((size_t)n + 1, sizeof *owned->slice_names);
	if (owned->slices == NULL || owned->slice_names == NULL)
		return no_memory();
	owned->n_slices = (size_t)n;
	for (Py_ssize_t i = 0; i < n; i++) {
		hoist_load_slice *s = &owned->slices[i];
		PyObject *name;
		long long begin;
		long long end;
		PyObject *item = PySequence_GetItem(list, i);
		int err = item == NULL || !PyArg_ParseTuple(item, "OiiiLL:slice", &name, &s->axis,
							    &s->rank, &s->n_ranks, &begin, &end)
				  ? -1
				  : hoist_py_text(name, &owned->slice_names[i]);
		Py_XDECREF(item);
		if (err < 0)
			return -1;
		s->tensor = owned->slice_names[i];
		s->begin = begin;
		s->end = end;
	}
	return 0;
}

static int read_options(PyObject *args, PyObject *keywords, PyObject **checkpoint,
			hoist_load_options *o, struct owned *owned)
{
	static char *names[] = {
		"checkpoint",  "device", "stream",	 "engine", "io",    "budget",
		"tensors",     "flags",	 "tensor_align", "slices", "dtype", "map",
		"chunk_bytes", "depth",	 "window_bytes", "order",  NULL};
	PyObject *device = Py_None, *stream = Py_None, *budget = Py_None, *tensors = Py_None,
		 *slices = Py_None, *dtype = Py_None, *order = Py_None;
	int engine = 0, io = 0, map = 0;
	Py_ssize_t align = 0, chunk = 0, window = 0;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOiiOOInOOinInO:Load", names,
					 checkpoint, &device, &stream, &engine, &io, &budget,
					 &tensors, &o->flags, &align, &slices, &dtype, &map, &chunk,
					 &o->depth, &window, &order))
		return -1;
	if (align < 0 || chunk < 0 || window < 0) {
		PyErr_SetString(PyExc_ValueError, "tensor_align, chunk_bytes and window_bytes are "
						  "0 or more");
		return -1;
	}
	o->engine = (enum hoist_engine)engine;
	o->io = (enum hoist_io)io;
	o->map = (enum hoist_map)map;
	o->tensor_align = (size_t)align;
	o->chunk_bytes = (size_t)chunk;
	o->window_bytes = (size_t)window;
	if (hoist_py_stream_arg(stream, &o->stream) < 0 ||
	    hoist_py_budget_arg(budget, &o->budget) < 0 ||
	    (dtype != Py_None && hoist_py_dtype(dtype, &o->dtype) < 0) ||
	    hoist_py_texts(tensors, &owned->tensors, &owned->n_tensors) < 0 ||
	    hoist_py_texts(order, &owned->order, &owned->n_order) < 0 ||
	    read_slices(slices, owned) < 0 || hoist_py_device_arg(device, &owned->device) < 0)
		return -1;
	o->device = owned->device;
	o->tensors = (const char *const *)owned->tensors;
	o->n_tensors = owned->n_tensors;
	o->order = (const char *const *)owned->order;
	o->n_order = owned->n_order;
	o->slices = owned->slices;
	o->n_slices = owned->n_slices;
	return 0;
}

static PyObject *load_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	hoist_load_options options = {.size = sizeof options};
	struct owned owned = {0};
	PyObject *from = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	int err;
	if (read_options(args, keywords, &from, &options, &owned) == 0)
		checkpoint = hoist_py_checkpoint_arg(from);
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	object *self = checkpoint == NULL ? NULL : (object *)allocate(type, 0);
	if (self != NULL) {
		hoist_py_checkpoint_use(from, 1);
		HOIST_PY_WAITING(err = hoist_load_start(checkpoint, &options, &load));
		hoist_py_checkpoint_use(from, -1);
		self->load = load;
		if (err < 0) {
			Py_CLEAR(self);
			hoist_py_fail(err);
		}
	}
	drop(&owned);
	return (PyObject *)self;
}

static void load_dealloc(PyObject *self)
{
	hoist_load *load = ((object *)self)->load;
	HOIST_PY_WAITING(hoist_load_destroy(load));
	hoist_py_free_object(self);
}

static PyObject *load_close(PyObject *self, PyObject *none)
{
	object *o = (object *)self;
	hoist_load *load = o->load;
	(void)none;
	if (atomic_load(&o->n_uses) > 0) {
		PyErr_SetString(PyExc_ValueError,
				"another thread waits for the load; cancel() ends that wait");
		return NULL;
	}
	o->load = NULL;
	HOIST_PY_WAITING(hoist_load_destroy(load));
	return Py_NewRef(Py_None);
}

/* --- running --- */

/* (target, index of the checkpoint's tensor, buffer); None: all were given; (): nothing yet. */
static PyObject *load_next(PyObject *self, PyObject *args)
{
	unsigned long long timeout;
	hoist_load_item item = {.size = sizeof item};
	int got;
	if (!PyArg_ParseTuple(args, "K", &timeout))
		return NULL;
	hoist_load *load = open_load(self);
	if (load == NULL)
		return NULL;
	HOIST_PY_USING((object *)self, got = hoist_load_next(load, timeout, &item));
	if (got == 0)
		return Py_NewRef(Py_None);
	if (got == -ETIMEDOUT)
		return PyTuple_New(0);
	if (got < 0)
		return hoist_py_fail(got);
	return Py_BuildValue("(nnN)", (Py_ssize_t)item.target, (Py_ssize_t)item.tensor,
			     hoist_py_buffer(item.buffer));
}

static uint64_t now_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Drives a caller-driven load for about so many nanoseconds.  Returns: whether the load is done. */
static PyObject *load_step(PyObject *self, PyObject *args)
{
	unsigned long long timeout;
	int done;
	if (!PyArg_ParseTuple(args, "K", &timeout))
		return NULL;
	hoist_load *load = open_load(self);
	if (load == NULL)
		return NULL;
	atomic_fetch_add(&((object *)self)->n_uses, 1);
	Py_BEGIN_ALLOW_THREADS;
	const uint64_t begin = now_ns();
	uint64_t passed = 0;
	do {
		done = hoist_load_step(load, timeout - passed);
		passed = now_ns() - begin;
	} while (done == 0 && passed < timeout);
	Py_END_ALLOW_THREADS;
	atomic_fetch_sub(&((object *)self)->n_uses, 1);
	return done < 0 ? hoist_py_fail(done) : PyBool_FromLong(done);
}

static PyObject *load_wait(PyObject *self, PyObject *none)
{
	int err;
	hoist_load *load = open_load(self);
	(void)none;
	if (load == NULL)
		return NULL;
	HOIST_PY_USING((object *)self, err = hoist_load_wait(load));
	return err < 0 ? hoist_py_fail(err) : Py_NewRef(Py_None);
}

static PyObject *load_cancel(PyObject *self, PyObject *none)
{
	hoist_load *load = ((object *)self)->load;
	(void)none;
	if (load != NULL)
		hoist_load_cancel(load);
	return Py_NewRef(Py_None);
}

static PyObject *load_fileno(PyObject *self, PyObject *none)
{
	hoist_load *load = open_load(self);
	(void)none;
	int fd = load == NULL ? -1 : hoist_load_fd(load);
	if (load == NULL)
		return NULL;
	return fd < 0 ? hoist_py_fail(fd) : PyLong_FromLong(fd);
}

static PyObject *load_progress(PyObject *self, PyObject *none)
{
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_load *load = open_load(self);
	(void)none;
	if (load == NULL)
		return NULL;
	hoist_load_progress(load, &done, &total);
	return Py_BuildValue("(KK)", (unsigned long long)done, (unsigned long long)total);
}

/* --- results --- */

/* All tensors of a load that is done and does not stream: [(index in the checkpoint, buffer)]. */
static PyObject *load_tensors(PyObject *self, PyObject *none)
{
	hoist_load *load = open_load(self);
	(void)none;
	if (load == NULL)
		return NULL;
	size_t n = hoist_load_n_tensors(load);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (size_t i = 0; i < n && list != NULL; i++) {
		size_t index = 0;
		hoist_buffer *buffer = NULL;
		int err = hoist_load_tensor(load, i, &index, &buffer);
		PyObject *pair =
			err < 0 ? hoist_py_fail(err)
				: Py_BuildValue("(nN)", (Py_ssize_t)index, hoist_py_buffer(buffer));
		if (pair == NULL || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *load_report(PyObject *self, PyObject *none)
{
	hoist_load_report r = {.size = sizeof r};
	hoist_load *load = open_load(self);
	(void)none;
	if (load == NULL)
		return NULL;
	int err = hoist_load_get_report(load, &r);
	if (err < 0)
		return hoist_py_fail(err);
#define U(field) #field, (unsigned long long)r.field
	return Py_BuildValue(
		"{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:s,s:s,s:s}",
		U(bytes), U(n_tensors), U(ns), U(cpu_ns), U(direct_bytes), U(cached_bytes),
		U(mapped_bytes), U(n_reads), U(n_copies), U(staging_peak_bytes),
		U(pinned_peak_bytes), U(budget_bytes), U(window_peak_bytes), "emulated",
		PyBool_FromLong(r.emulated), "device", r.device, "engine", r.engine,
		"engine_reason", r.engine_reason, "io_reason", r.io_reason);
#undef U
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(((object *)self)->load == NULL);
}

static PyMethodDef methods[] = {
	{"close", load_close, METH_NOARGS,
	 "close($self, /)\n--\n\nCancels the load if it still runs.  Buffers that were given live "
	 "on."},
	{"cancel", load_cancel, METH_NOARGS, "cancel($self, /)\n--\n\nAsks the load to end soon."},
	{"fileno", load_fileno, METH_NOARGS,
	 "fileno($self, /)\n--\n\nA descriptor that is readable while a tensor can be taken."},
	{"progress", load_progress, METH_NOARGS,
	 "progress($self, /)\n--\n\nBytes that have arrived, and bytes in all."},
	{"report", load_report, METH_NOARGS,
	 "report($self, /)\n--\n\nThe facts of a load that is done, as a dict."},
	{"_next", load_next, METH_VARARGS, NULL},
	{"_step", load_step, METH_VARARGS, NULL},
	{"_wait", load_wait, METH_NOARGS, NULL},
	{"_tensors", load_tensors, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)load_new},
	{Py_tp_dealloc, (void *)load_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Load",
	.basicsize = sizeof(object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int hoist_py_add_load_type(PyObject *module)
{
	hoist_py_load_type = hoist_py_add_type(module, &type);
	return hoist_py_load_type == NULL ? -1 : 0;
}
