/* SPDX-License-Identifier: MIT */
/* Job: the part that Load and Save have in common.  The contract is in python/src/module.h.
 *
 * No call waits longer than its caller says, except _wait(): python/hoist/waiting.py waits for the
 * descriptor in steps, so that signals are handled between them. */
#include <stdlib.h>
#include <unistd.h>

#include "module.h"

static PyTypeObject *job_type;

#define KIND(noun)                                                                                 \
	static void cancel_##noun(void *job)                                                       \
	{                                                                                          \
		hoist_##noun##_cancel(job);                                                        \
	}                                                                                          \
	static void destroy_##noun(void *job)                                                      \
	{                                                                                          \
		hoist_##noun##_destroy(job);                                                       \
	}                                                                                          \
	static int wait_##noun(void *job)                                                          \
	{                                                                                          \
		return hoist_##noun##_wait(job);                                                   \
	}                                                                                          \
	static bool is_done_##noun(void *job)                                                      \
	{                                                                                          \
		hoist_##noun##_report r = {.size = sizeof r};                                      \
		return hoist_##noun##_get_report(job, &r) == 0;                                    \
	}                                                                                          \
	static int fd_##noun(void *job)                                                            \
	{                                                                                          \
		return hoist_##noun##_fd(job);                                                     \
	}                                                                                          \
	static void progress_##noun(const void *job, uint64_t *done, uint64_t *total)              \
	{                                                                                          \
		hoist_##noun##_progress(job, done, total);                                         \
	}                                                                                          \
	const struct hoist_py_job_kind hoist_py_##noun##_kind = {                                  \
		"the " #noun " was closed",                                                        \
		"another thread waits for the " #noun "; cancel() ends that wait",                 \
		cancel_##noun,                                                                     \
		destroy_##noun,                                                                    \
		wait_##noun,                                                                       \
		is_done_##noun,                                                                    \
		fd_##noun,                                                                         \
		progress_##noun,                                                                   \
	}

KIND(load);
KIND(save);

/* --- the list of all objects --- */

/* The interpreter's end stops the jobs of these objects.  A WeakSet would do, but for its callback
 * in Python, in which a signal's exception is lost. */
static hoist_py_job *all;
/* Guards the list, and the taking of a job from its object: held for a few instructions. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

void hoist_py_count_loads(PyObject *buffers, int change)
{
	for (Py_ssize_t i = 0; i < PyList_Size(buffers); i++) {
		hoist_py_buffer_object *o = (hoist_py_buffer_object *)PyList_GetItem(buffers, i);
		atomic_fetch_add(&o->n_loads, (unsigned)change);
	}
}

void hoist_py_job_begin(hoist_py_job *self, const struct hoist_py_job_kind *kind, void *job)
{
	self->kind = kind;
	self->job = job;
	self->process = getpid();
	hoist_py_enable_try_ref((PyObject *)self);
	pthread_mutex_lock(&all_lock);
	self->after = all;
	if (all != NULL)
		all->before = self;
	all = self;
	pthread_mutex_unlock(&all_lock);
}

static void delist(hoist_py_job *self)
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

/* An object's job, and all that ends with it, which the object has no more. */
struct ending {
	void (*destroy)(void *job);
	void *job; /* NULL: nothing is to end */
	char *folder;
	PyObject *kept;
	bool is_in_place;
};

/* Under the lock of @self, unless @self ends. */
static struct ending take(hoist_py_job *self)
{
	pthread_mutex_lock(&all_lock);
	struct ending ret = {self->kind->destroy, self->job, self->folder, self->kept,
			     self->is_in_place};
	self->job = NULL;
	self->folder = NULL;
	self->kept = NULL;
	pthread_mutex_unlock(&all_lock);
	if (self->process != getpid()) { /* a child of fork: the folder is its parent's */
		free(ret.folder);
		ret.folder = NULL;
	}
	return ret;
}

/* A folder that files have come to stays, as it is not empty. */
static void destroy(struct ending ending)
{
	if (ending.job != NULL)
		ending.destroy(ending.job);
	if (ending.folder != NULL)
		(void)rmdir(ending.folder);
	free(ending.folder);
}

/* Objects that the job's threads use are dropped after it, by the thread that ends it. */
static void end(struct ending ending)
{
	HOIST_PY_WAITING(destroy(ending));
	if (ending.is_in_place && ending.kept != NULL)
		hoist_py_count_loads(ending.kept, -1);
	Py_XDECREF(ending.kept);
}

/* An object with a job that no call uses, a new reference; NULL. */
static hoist_py_job *unused_one(void)
{
	pthread_mutex_lock(&all_lock);
	hoist_py_job *o = all;
	while (o != NULL &&
	       (o->job == NULL || atomic_load(&o->n_uses) > 0 || !hoist_py_try_ref((PyObject *)o)))
		o = o->after;
	pthread_mutex_unlock(&all_lock);
	return o;
}

/* Cancels and closes all jobs: their threads may not call into an interpreter that is gone.  A job
 * that another thread waits for is cancelled only. */
static PyObject *end_jobs(PyObject *self, PyObject *none)
{
	hoist_py_job *unused;
	(void)self;
	(void)none;
	pthread_mutex_lock(&all_lock);
	for (hoist_py_job *o = all; o != NULL; o = o->after)
		if (o->job != NULL)
			o->kind->cancel(o->job);
	pthread_mutex_unlock(&all_lock);
	while ((unused = unused_one()) != NULL) {
		if (hoist_py_close_job(unused) < 0)
			PyErr_Clear(); /* another thread has begun to wait */
		Py_DECREF((PyObject *)unused);
	}
	return Py_NewRef(Py_None);
}

/* --- for Load and Save --- */

void *hoist_py_open_job(PyObject *self)
{
	const hoist_py_job *o = (hoist_py_job *)self;
	if (o->job == NULL)
		hoist_py_fail_text(-EBADF, o->kind->closed);
	return o->job;
}

int hoist_py_close_job(hoist_py_job *self)
{
	HOIST_PY_LOCK(self);
	if (atomic_load(&self->n_uses) > 0) {
		PyErr_SetString(PyExc_ValueError, self->kind->used);
		return -1;
	}
	const struct ending ending = take(self);
	end(ending);
	return 0;
}

void hoist_py_end_job(hoist_py_job *self)
{
	if (self->kind == NULL)
		return;
	delist(self);
	const struct ending ending = take(self);
	end(ending);
}

/* --- methods --- */

static PyObject *job_close(PyObject *self, PyObject *none)
{
	(void)none;
	return hoist_py_close_job((hoist_py_job *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *job_cancel(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	const hoist_py_job *o = (hoist_py_job *)self;
	(void)none;
	if (o->job != NULL)
		o->kind->cancel(o->job);
	return Py_NewRef(Py_None);
}

static PyObject *job_fileno(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	void *job = hoist_py_open_job(self);
	(void)none;
	if (job == NULL)
		return NULL;
	int fd = ((hoist_py_job *)self)->kind->fd(job);
	return fd < 0 ? hoist_py_fail(fd) : PyLong_FromLong(fd);
}

static PyObject *job_progress(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	uint64_t done = 0;
	uint64_t total = 0;
	void *job = hoist_py_open_job(self);
	(void)none;
	if (job == NULL)
		return NULL;
	((hoist_py_job *)self)->kind->progress(job, &done, &total);
	return Py_BuildValue("(KK)", (unsigned long long)done, (unsigned long long)total);
}

/* Waits for the end; raises what the job failed with. */
static PyObject *job_wait(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	hoist_py_job *o = (hoist_py_job *)self;
	int err;
	void *job = hoist_py_open_job(self);
	(void)none;
	if (job == NULL)
		return NULL;
	HOIST_PY_USING(o, err = o->kind->wait(job));
	if (err < 0)
		return hoist_py_fail(err);
	free(o->folder); /* the folder stays, whatever becomes of the files */
	o->folder = NULL;
	return Py_NewRef(Py_None);
}

/* True: _wait() does not wait. */
static PyObject *job_is_done(PyObject *self, PyObject *none)
{
	HOIST_PY_LOCK(self);
	void *job = hoist_py_open_job(self);
	(void)none;
	return job == NULL ? NULL : PyBool_FromLong(((hoist_py_job *)self)->kind->is_done(job));
}

static PyObject *get_closed(PyObject *self, void *closure)
{
	HOIST_PY_LOCK(self);
	(void)closure;
	return PyBool_FromLong(((hoist_py_job *)self)->job == NULL);
}

/* --- the type --- */

static PyMethodDef methods[] = {
	{"close", job_close, METH_NOARGS,
	 "close($self, /)\n--\n\nCancels the job if it still runs.  Buffers that a load has given "
	 "live on; a save lets go of its tensors."},
	{"cancel", job_cancel, METH_NOARGS,
	 "cancel($self, /)\n--\n\nAsks the job to end soon.  A save that is cancelled leaves the "
	 "old "
	 "file."},
	{"fileno", job_fileno, METH_NOARGS,
	 "fileno($self, /)\n--\n\nA descriptor that is readable once the job has ended, and while "
	 "a "
	 "load has a tensor to take."},
	{"progress", job_progress, METH_NOARGS,
	 "progress($self, /)\n--\n\nBytes that have been moved, and bytes in all."},
	{"_wait", job_wait, METH_NOARGS, NULL},
	{"_is_done", job_is_done, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"closed", get_closed, NULL, "True after close().", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist._hoist.Job",
	.basicsize = sizeof(hoist_py_job),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

static PyMethodDef functions[] = {
	{"end_jobs", end_jobs, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_job_type(PyObject *module)
{
	if (PyModule_AddFunctions(module, functions) < 0)
		return -1;
	job_type = hoist_py_add_type(module, &type);
	return job_type == NULL ? -1 : 0;
}

PyTypeObject *hoist_py_add_job_kind(PyObject *module, PyType_Spec *spec)
{
	return hoist_py_add_subtype(module, spec, job_type);
}
