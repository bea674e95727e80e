/* SPDX-License-Identifier: MIT */
/* Load: one asynchronous load.  The contract is in python/src/module.h.
 *
 * No call waits longer than its caller says: python/hoist/load.py waits in steps, so that signals
 * are handled between them. */

#include "options.h"

/* --- making and ending --- */

static int start(struct load_options *o, hoist_checkpoint *checkpoint, hoist_load **ret)
{
	return o->group.name != NULL
		       ? hoist_group_load(&o->group.group, checkpoint, &o->options, ret)
		       : hoist_load_start(checkpoint, &o->options, ret);
}

/* The load keeps the objects of the Buffers, so that the collector knows who holds them. */
static void begin(hoist_py_job *self, hoist_load *load, PyObject *buffers)
{
	hoist_py_job_begin(self, &hoist_py_load_kind, load);
	if (buffers == NULL)
		return;
	hoist_py_count_loads(buffers, 1);
	self->is_in_place = true;
	self->kept = Py_NewRef(buffers);
}

static PyObject *load_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	struct load_options o = {0};
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	int err;
	if (hoist_py_read_options(args, keywords, &o) == 0)
		checkpoint = hoist_py_use_checkpoint(o.checkpoint);
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	PyObject *self = checkpoint == NULL ? NULL : allocate(type, 0);
	if (self != NULL) {
		HOIST_PY_WAITING(err = start(&o, checkpoint, &load));
		if (err < 0) {
			hoist_py_fail(err);
			Py_CLEAR(self);
		} else {
			begin((hoist_py_job *)self, load, o.buffers);
		}
	}
	if (checkpoint != NULL)
		hoist_py_leave_checkpoint(o.checkpoint);
	hoist_py_drop_options(&o);
	return self;
}

static int load_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((hoist_py_job *)self)->kept);
	return 0;
}

/* Ends a load that is garbage: its threads write to memory whose owners are garbage, too.  `kept`
 * holds these until then. */
static int load_clear(PyObject *self)
{
	if (((hoist_py_job *)self)->kind != NULL && hoist_py_close_job((hoist_py_job *)self) < 0)
		PyErr_Clear(); /* a thread that waits has a reference, so this is no garbage */
	return 0;
}

static void load_dealloc(PyObject *self)
{
	PyObject_GC_UnTrack(self);
	hoist_py_end_job((hoist_py_job *)self);
	hoist_py_free_object(self);
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
	HOIST_PY_LOCK(self);
	unsigned long long timeout;
	hoist_load_item item = {.size = sizeof item};
	int got;
	if (!PyArg_ParseTuple(args, "K", &timeout))
		return NULL;
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	HOIST_PY_USING((hoist_py_job *)self, got = hoist_load_next(load, timeout, &item));
	if (got == 0)
		return Py_NewRef(Py_None);
	if (got == -ETIMEDOUT)
		return PyTuple_New(0);
	if (got == -ECONNRESET) /* it also stands for a group's failure with -ETIMEDOUT */
		HOIST_PY_USING((hoist_py_job *)self, got = hoist_load_wait(load));
	if (got < 0)
		return hoist_py_fail(got);
	return given(item.target, item.tensor, item.index, item.buffer);
}

/* Drives a caller-driven load for about so many nanoseconds.  Returns: whether the load is done. */
static PyObject *load_step(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	unsigned long long timeout;
	int done;
	if (!PyArg_ParseTuple(args, "K", &timeout))
		return NULL;
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	atomic_fetch_add(&((hoist_py_job *)self)->n_uses, 1);
	Py_BEGIN_ALLOW_THREADS;
	const uint64_t begin = hoist_py_now_ns();
	uint64_t passed = 0;
	do {
		done = hoist_load_step(load, timeout - passed);
		passed = hoist_py_now_ns() - begin;
	} while (done == 0 && passed < timeout);
	Py_END_ALLOW_THREADS;
	atomic_fetch_sub(&((hoist_py_job *)self)->n_uses, 1);
	return done < 0 ? hoist_py_fail(done) : PyBool_FromLong(done);
}

/* --- results --- */

/* All tensors of one target of a load that is done and does not stream, as _next() gives them. */
static PyObject *load_tensors(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	Py_ssize_t target;
	if (!PyArg_ParseTuple(args, "n", &target))
		return NULL;
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	atomic_fetch_add(&((hoist_py_job *)self)->n_uses, 1);
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
	atomic_fetch_sub(&((hoist_py_job *)self)->n_uses, 1);
	return list;
}

/* {name: @make(buffer, @context)} of the tensors that _tensors() gives; @names: of the checkpoint's
 * tensors.  @make takes the reference to the buffer. */
static PyObject *collect(PyObject *self, Py_ssize_t target, PyObject *names,
			 PyObject *(*make)(hoist_buffer *buffer, PyObject *context),
			 PyObject *context)
{
	HOIST_PY_LOCK(self);
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	/* Other threads get the GIL meanwhile, and may close the load. */
	atomic_fetch_add(&((hoist_py_job *)self)->n_uses, 1);
	size_t n = hoist_load_target_n_tensors(load, (size_t)target);
	PyObject *dict = PyDict_New();
	for (size_t i = 0; i < n && dict != NULL; i++) {
		size_t tensor = 0;
		hoist_buffer *buffer = NULL;
		int err = hoist_load_target_tensor(load, (size_t)target, i, &tensor, &buffer);
		PyObject *object = err < 0 ? hoist_py_fail(err) : make(buffer, context);
		PyObject *name =
			object == NULL ? NULL : PySequence_GetItem(names, (Py_ssize_t)tensor);
		if (name == NULL || PyDict_SetItem(dict, name, object) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(name);
		Py_XDECREF(object);
	}
	atomic_fetch_sub(&((hoist_py_job *)self)->n_uses, 1);
	return dict;
}

static PyObject *make_buffer(hoist_buffer *buffer, PyObject *none)
{
	(void)none;
	return hoist_py_buffer(buffer);
}

/* (target, names): {name: Buffer}. */
static PyObject *load_buffers(PyObject *self, PyObject *args)
{
	Py_ssize_t target;
	PyObject *names;
	return PyArg_ParseTuple(args, "nO!", &target, &PyList_Type, &names)
		       ? collect(self, target, names, make_buffer, NULL)
		       : NULL;
}

static PyObject *make_capsule(hoist_buffer *buffer, PyObject *unlike)
{
	PyObject *dtype = hoist_py_dtype_name(hoist_buffer_dtype(buffer));
	int is_unlike = dtype == NULL ? -1 : PyDict_Contains(unlike, dtype);
	Py_XDECREF(dtype);
	if (is_unlike > 0)
		return hoist_py_buffer(buffer);
	PyObject *ret = is_unlike < 0 ? NULL : hoist_py_capsule(buffer);
	HOIST_PY_WAITING(hoist_buffer_unref(buffer));
	return ret;
}

/* (target, names, dict): {name: DLPack capsule}, of tensors on the host; a Buffer where the dict
 * has the tensor's dtype. */
static PyObject *load_capsules(PyObject *self, PyObject *args)
{
	Py_ssize_t target;
	PyObject *names;
	PyObject *unlike;
	return PyArg_ParseTuple(args, "nO!O!", &target, &PyList_Type, &names, &PyDict_Type, &unlike)
		       ? collect(self, target, names, make_capsule, unlike)
		       : NULL;
}

static PyObject *load_digest(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	Py_ssize_t index;
	unsigned char digest[16];
	if (!PyArg_ParseTuple(args, "n", &index))
		return NULL;
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	int err = hoist_load_digest(load, (size_t)index, digest);
	return err < 0 ? hoist_py_fail(err)
		       : PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

/* The state of a buffer of a load in place: 0 untouched, 1 torn, 2 whole. */
static PyObject *load_into_state(PyObject *self, PyObject *args)
{
	HOIST_PY_LOCK(self);
	Py_ssize_t target;
	Py_ssize_t index;
	enum hoist_into_state state;
	if (!PyArg_ParseTuple(args, "nn", &target, &index))
		return NULL;
	hoist_load *load = hoist_py_open_job(self);
	if (load == NULL)
		return NULL;
	int err = hoist_load_into_state(load, (size_t)target, (size_t)index, &state);
	return err < 0 ? hoist_py_fail(err) : PyLong_FromLong(state);
}

/* The report of a load that is done.  Returns: 0; -1, with an exception. */
static int get_report(PyObject *self, hoist_load_report *ret)
{
	hoist_load *load = hoist_py_open_job(self);
	*ret = (hoist_load_report){.size = sizeof *ret};
	if (load == NULL)
		return -1;
	int err = hoist_load_get_report(load, ret);
	if (err < 0)
		(void)hoist_py_fail(err);
	return err < 0 ? -1 : 0;
}

/* Adds "group" to the report of a load of a group of several machines.  Returns: 0; -1, with an
 * exception. */
static int add_group(PyObject *self, PyObject *report)
{
	hoist_load *load = hoist_py_open_job(self);
	hoist_group_report g = {.size = sizeof g};
	if (load == NULL)
		return -1;
	int err = hoist_group_get_report(load, &g);
	if (err == -ENOTSUP)
		return 0;
	if (err < 0) {
		(void)hoist_py_fail(err);
		return -1;
	}
	PyObject *group = Py_BuildValue(
		"{s:I,s:K,s:K,s:K,s:K,s:K,s:s,s:K,s:s,s:s}", "members", g.n_members,
		"storage_bytes", (unsigned long long)g.storage_bytes, "received_bytes",
		(unsigned long long)g.received_bytes, "sent_bytes",
		(unsigned long long)g.sent_bytes, "refused", (unsigned long long)g.n_refused,
		"late", (unsigned long long)g.n_late, "note", g.note, "damaged",
		(unsigned long long)g.n_damaged, "damage", g.damage, "way", g.way);
	err = group == NULL ? -1 : PyDict_SetItemString(report, "group", group);
	Py_XDECREF(group);
	return err;
}

static PyObject *load_report(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_load_report r;
	(void)none;
	if (get_report(self, &r) < 0)
		return NULL;
#define U(field) #field, (unsigned long long)r.field
	PyObject *report = Py_BuildValue(
		"{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,"
		"s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:s,s:s,s:s,s:s}",
		U(bytes), U(n_tensors), U(ns), U(cpu_ns), U(direct_bytes), U(cached_bytes),
		U(mapped_bytes), U(n_reads), U(n_copies), U(staging_peak_bytes),
		U(pinned_peak_bytes), U(budget_bytes), U(window_peak_bytes), U(open_ns), U(plan_ns),
		U(allocate_ns), U(caller_ns), U(read_ns), U(convert_ns), U(copy_ns), U(pages_ns),
		U(group_ns), U(budget_ns), U(work_ns), "emulated", PyBool_FromLong(r.emulated),
		"device", r.device, "engine", r.engine, "engine_reason", r.engine_reason,
		"io_reason", r.io_reason);
#undef U
	if (report != NULL && add_group(self, report) < 0)
		Py_CLEAR(report);
	return report;
}

static PyObject *load_explain(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	char text[512];
	hoist_load_report r;
	(void)none;
	if (get_report(self, &r) < 0)
		return NULL;
	(void)hoist_load_explain(&r, text, sizeof text);
	return PyUnicode_FromString(text);
}

static PyMethodDef methods[] = {
	{"explain", load_explain, METH_NOARGS,
	 "explain($self, /)\n--\n\nOne line for a log about a load that is done: bytes, time, "
	 "rate, and "
	 "where the time went."},
	{"report", load_report, METH_NOARGS,
	 "report($self, /)\n--\n\nThe facts of a load that is done, as a dict."},
	{"_next", load_next, METH_VARARGS, NULL},
	{"_step", load_step, METH_VARARGS, NULL},
	{"_tensors", load_tensors, METH_VARARGS, NULL},
	{"_buffers", load_buffers, METH_VARARGS, NULL},
	{"_capsules", load_capsules, METH_VARARGS, NULL},
	{"_digest", load_digest, METH_VARARGS, NULL},
	{"_into_state", load_into_state, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)load_new},
	{Py_tp_dealloc, (void *)load_dealloc},
	{Py_tp_traverse, (void *)load_traverse},
	{Py_tp_clear, (void *)load_clear},
	{Py_tp_methods, methods},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Load",
	.basicsize = sizeof(hoist_py_job),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

int hoist_py_add_load_type(PyObject *module)
{
	return hoist_py_add_job_kind(module, &type) == NULL ? -1 : 0;
}
