/* SPDX-License-Identifier: MIT */
/* Load: one asynchronous load.  The contract is in python/src/module.h.
 *
 * No call waits longer than its caller says: python/hoist/load.py waits in steps, so that signals
 * are handled between them. */
#include <pthread.h>
#include <time.h>

#include "options.h"

typedef struct object {
	PyObject_HEAD hoist_load *load; /* NULL: closed */
	atomic_int n_uses; /* calls that run without the GIL: close() is refused meanwhile */
	struct object *before, *after; /* in the list of all objects */
} object;

/* All objects, so that the interpreter's end can stop their loads.  A WeakSet would do, but for its
 * callback in Python, in which a signal's exception is lost. */
static object *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* held for a few instructions */

static void enlist(object *self)
{
	pthread_mutex_lock(&all_lock);
	self->after = all;
	if (all != NULL)
		all->before = self;
	all = self;
	pthread_mutex_unlock(&all_lock);
}

static void delist(object *self)
{
	pthread_mutex_lock(&all_lock);
	if (self->after != NULL)
		self->after->before = self->before;
	if (self->before != NULL)
		self->before->after = self->after;
	else if (all == self)
		all = self->after;
	pthread_mutex_unlock(&all_lock);
}

/* Closes a load that no call uses.  Returns: that load; NULL: there is none. */
static hoist_load *close_one(void)
{
	hoist_load *ret = NULL;
	pthread_mutex_lock(&all_lock);
	for (object *o = all; o != NULL && ret == NULL; o = o->after)
		if (o->load != NULL && atomic_load(&o->n_uses) == 0) {
			ret = o->load;
			o->load = NULL;
		}
	pthread_mutex_unlock(&all_lock);
	return ret;
}

/* Cancels and closes all loads: their threads may not call into an interpreter that is gone.  A
 * load that another thread waits for is cancelled only. */
static PyObject *end_loads(PyObject *self, PyObject *none)
{
	hoist_load *load;
	(void)self;
	(void)none;
	pthread_mutex_lock(&all_lock);
	for (object *o = all; o != NULL; o = o->after)
		if (o->load != NULL)
			hoist_load_cancel(o->load);
	pthread_mutex_unlock(&all_lock);
	while ((load = close_one()) != NULL)
		HOIST_PY_WAITING(hoist_load_destroy(load));
	return Py_NewRef(Py_None);
}

static hoist_load *open_load(PyObject *self)
{
	hoist_load *load = ((object *)self)->load;
	if (load == NULL)
		hoist_py_fail_text(-EBADF, "the load was closed");
	return load;
}

/* --- making and ending --- */

static int start(struct load_options *o, hoist_checkpoint *checkpoint, hoist_load **ret)
{
	return o->group_name != NULL ? hoist_group_load(&o->group, checkpoint, &o->options, ret)
				     : hoist_load_start(checkpoint, &o->options, ret);
}

static PyObject *load_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	struct load_options o = {0};
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	int err;
	if (hoist_py_read_options(args, keywords, &o) == 0)
		checkpoint = hoist_py_checkpoint_arg(o.checkpoint);
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	object *self = checkpoint == NULL ? NULL : (object *)allocate(type, 0);
	if (self != NULL) {
		hoist_py_checkpoint_use(o.checkpoint, 1);
		HOIST_PY_WAITING(err = start(&o, checkpoint, &load));
		hoist_py_checkpoint_use(o.checkpoint, -1);
		self->load = load;
		enlist(self);
		if (err < 0) {
			hoist_py_fail(err);
			Py_CLEAR(self);
		}
	}
	hoist_py_drop_options(&o);
	return (PyObject *)self;
}

static void load_dealloc(PyObject *self)
{
	hoist_load *load = ((object *)self)->load;
	delist((object *)self);
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

/* A tensor as Python sees it; takes the reference to @buffer.  @index: among those of the target.
 */
static PyObject *given(size_t target, size_t tensor, size_t index, hoist_buffer *buffer)
{
	PyObject *object = hoist_py_buffer(buffer);
	return object == NULL ? NULL
			      : Py_BuildValue("(nnnN)", (Py_ssize_t)target, (Py_ssize_t)tensor,
					      (Py_ssize_t)index, object);
}

/* (target, index of the checkpoint's tensor, index of the target's tensor, buffer); None: all were
 * given; (): nothing yet. */
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
	return given(item.target, item.tensor, item.index, item.buffer);
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

/* True if the load is done: _wait() does not wait. */
static PyObject *load_is_done(PyObject *self, PyObject *none)
{
	hoist_load_report r = {.size = sizeof r};
	hoist_load *load = open_load(self);
	(void)none;
	return load == NULL ? NULL : PyBool_FromLong(hoist_load_get_report(load, &r) == 0);
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

/* All tensors of one target of a load that is done and does not stream, as _next() gives them. */
static PyObject *load_tensors(PyObject *self, PyObject *args)
{
	Py_ssize_t target;
	hoist_load *load = open_load(self);
	if (load == NULL || !PyArg_ParseTuple(args, "n", &target))
		return NULL;
	size_t n = hoist_load_target_n_tensors(load, (size_t)target);
	PyObject *list = PyList_New((Py_ssize_t)n);
	for (size_t i = 0; i < n && list != NULL; i++) {
		size_t tensor = 0;
		hoist_buffer *buffer = NULL;
		int err = hoist_load_target_tensor(load, (size_t)target, i, &tensor, &buffer);
		PyObject *item =
			err < 0 ? hoist_py_fail(err) : given((size_t)target, tensor, i, buffer);
		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *load_digest(PyObject *self, PyObject *args)
{
	Py_ssize_t index;
	unsigned char digest[16];
	hoist_load *load = open_load(self);
	if (load == NULL || !PyArg_ParseTuple(args, "n", &index))
		return NULL;
	int err = hoist_load_digest(load, (size_t)index, digest);
	return err < 0 ? hoist_py_fail(err)
		       : PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

/* The state of a buffer of a load in place: 0 untouched, 1 torn, 2 whole. */
static PyObject *load_into_state(PyObject *self, PyObject *args)
{
	Py_ssize_t target;
	Py_ssize_t index;
	enum hoist_into_state state;
	hoist_load *load = open_load(self);
	if (load == NULL || !PyArg_ParseTuple(args, "nn", &target, &index))
		return NULL;
	int err = hoist_load_into_state(load, (size_t)target, (size_t)index, &state);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLong(state);
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
	 "fileno($self, /)\n--\n\nA descriptor that is readable while there is something to take."},
	{"progress", load_progress, METH_NOARGS,
	 "progress($self, /)\n--\n\nBytes that have arrived, and bytes in all."},
	{"report", load_report, METH_NOARGS,
	 "report($self, /)\n--\n\nThe facts of a load that is done, as a dict."},
	{"_next", load_next, METH_VARARGS, NULL},
	{"_step", load_step, METH_VARARGS, NULL},
	{"_wait", load_wait, METH_NOARGS, NULL},
	{"_is_done", load_is_done, METH_NOARGS, NULL},
	{"_tensors", load_tensors, METH_VARARGS, NULL},
	{"_digest", load_digest, METH_VARARGS, NULL},
	{"_into_state", load_into_state, METH_VARARGS, NULL},
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

static PyMethodDef functions[] = {
	{"end_loads", end_loads, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_load_type(PyObject *module)
{
	if (PyModule_AddFunctions(module, functions) < 0)
		return -1;
	hoist_py_load_type = hoist_py_add_type(module, &type);
	return hoist_py_load_type == NULL ? -1 : 0;
}
