/* SPDX-License-Identifier: MIT */
/* Flag: a number in pinned memory that streams wait for.  The contract is in python/src/module.h.
 *
 * A stream waits by a function that the stream calls (hoist_stream_call()).  The function may run
 * after the Flag object has ended, in a thread of a driver's, which must not call hoist.  So the
 * state that the function uses outlives the object, until no function is queued.  It holds pinned
 * memory, which only a thread of Python's may give back: reap() does, when the object ends, or when
 * the next Flag is made or ends.
 *
 * A Flag that ends, or is abandoned when the interpreter ends, lets its streams go on: nobody could
 * signal any more.
 */
#include <pthread.h>
#include <stdlib.h>

#include "flag-doc.h"
#include "module.h"

typedef struct state {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	hoist_buffer *buffer;	  /* of one u64, pinned for the device */
	_Atomic(uint64_t) *value; /* in it */
	int n_queued;		  /* functions that streams have yet to finish; under the mutex */
	bool is_abandoned;	  /* under the mutex */
	bool is_left;		  /* the object has ended; under all_lock */
	struct state *next;	  /* in `all` */
} state;

typedef struct wait {
	state *state;
	uint64_t value;
} wait;

typedef struct flag_object {
	PyObject_HEAD state *state;
} flag_object;

static state *all; /* under all_lock, which is held for a few instructions */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static state *state_of(PyObject *self)
{
	return ((flag_object *)self)->state;
}

static void end_state(state *s)
{
	HOIST_PY_WAITING(hoist_buffer_unref(s->buffer));
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

/* Frees the states that neither an object nor a stream needs any more. */
static void reap(void)
{
	state *unused = NULL;
	pthread_mutex_lock(&all_lock);
	for (state **at = &all; *at != NULL;) {
		state *s = *at;
		pthread_mutex_lock(&s->mutex);
		bool is_needed = !s->is_left || s->n_queued > 0;
		pthread_mutex_unlock(&s->mutex);
		if (is_needed) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = unused;
		unused = s;
	}
	pthread_mutex_unlock(&all_lock);
	while (unused != NULL) {
		state *s = unused;
		unused = s->next;
		end_state(s);
	}
}

static int make_state(hoist_device *device, state **ret)
{
	static const int64_t one = 1;
	state *s = calloc(1, sizeof *s);
	if (s == NULL)
		return -ENOMEM;
	int err = hoist_buffer_create(device, HOIST_U64, 1, &one,
				      HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO, &s->buffer);
	if (err == 0)
		s->value = hoist_buffer_data(s->buffer);
	if (err < 0) {
		free(s);
		return err;
	}
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->changed, NULL);
	*ret = s;
	return 0;
}

static PyObject *flag_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"device", NULL};
	PyObject *spec;
	hoist_device *device;
	state *s = NULL;
	int err;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:CompletionFlag", names, &spec) ||
	    hoist_py_device_arg(spec, &device) < 0)
		return NULL;
	reap();
	Py_BEGIN_ALLOW_THREADS err = make_state(device, &s);
	hoist_device_unref(device);
	Py_END_ALLOW_THREADS if (err < 0) return hoist_py_fail(err);
	flag_object *self = (flag_object *)PyType_GenericAlloc(type, 0);
	if (self == NULL) {
		end_state(s);
		return NULL;
	}
	self->state = s;
	pthread_mutex_lock(&all_lock);
	s->next = all;
	all = s;
	pthread_mutex_unlock(&all_lock);
	return (PyObject *)self;
}

static void abandon(state *s)
{
	pthread_mutex_lock(&s->mutex);
	s->is_abandoned = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
}

static void flag_dealloc(PyObject *self)
{
	state *s = state_of(self);
	if (s != NULL) {
		abandon(s);
		pthread_mutex_lock(&all_lock);
		s->is_left = true;
		pthread_mutex_unlock(&all_lock);
		reap();
	}
	hoist_py_free_object(self);
}

/* At the interpreter's end: nobody signals any more. */
static PyObject *abandon_all(PyObject *self, PyObject *none)
{
	(void)self;
	(void)none;
	pthread_mutex_lock(&all_lock);
	for (state *s = all; s != NULL; s = s->next)
		abandon(s);
	pthread_mutex_unlock(&all_lock);
	return Py_NewRef(Py_None);
}

static int set_value(PyObject *self, uint64_t value)
{
	state *s = state_of(self);
	pthread_mutex_lock(&s->mutex);
	atomic_store(s->value, value);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->mutex);
	return 0;
}

static PyObject *flag_signal(PyObject *self, PyObject *number)
{
	uint64_t value = PyLong_AsUnsignedLongLong(number);
	if (PyErr_Occurred() || set_value(self, value) < 0)
		return NULL;
	return Py_NewRef(Py_None);
}

static PyObject *flag_reset(PyObject *self, PyObject *none)
{
	(void)none;
	return set_value(self, 0) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *flag_load(PyObject *self, PyObject *none)
{
	(void)none;
	return PyLong_FromUnsignedLongLong(atomic_load(state_of(self)->value));
}

static PyObject *flag_device_ptr(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSize_t(hoist_buffer_address(state_of(self)->buffer));
}

/* In a thread of the stream's. */
static int wait_for_value(void *context)
{
	wait *w = context;
	state *s = w->state;
	pthread_mutex_lock(&s->mutex);
	while (!s->is_abandoned && atomic_load(s->value) < w->value)
		pthread_cond_wait(&s->changed, &s->mutex);
	s->n_queued--;
	pthread_mutex_unlock(&s->mutex);
	free(w);
	return 0;
}

static PyObject *flag_queue_wait(PyObject *self, PyObject *args)
{
	PyObject *on;
	unsigned long long value;
	hoist_stream *stream;
	int err;
	if (!PyArg_ParseTuple(args, "OK:_queue_wait", &on, &value) ||
	    hoist_py_stream_arg(on, &stream) < 0)
		return NULL;
	state *s = state_of(self);
	wait *w = malloc(sizeof *w);
	if (w == NULL)
		return PyErr_NoMemory();
	*w = (wait){s, value};
	pthread_mutex_lock(&s->mutex);
	s->n_queued++;
	pthread_mutex_unlock(&s->mutex);
	HOIST_PY_WAITING(err = hoist_stream_call(stream, wait_for_value, w));
	if (err == 0)
		return Py_NewRef(Py_None);
	pthread_mutex_lock(&s->mutex);
	s->n_queued--;
	pthread_mutex_unlock(&s->mutex);
	free(w);
	return hoist_py_fail(err);
}

static PyMethodDef methods[] = {
	{"signal", flag_signal, METH_O, signal_doc},
	{"reset", flag_reset, METH_NOARGS, "reset($self, /)\n--\n\nSets the number to 0."},
	{"load", flag_load, METH_NOARGS, "load($self, /)\n--\n\nThe number, an int."},
	{"_queue_wait", flag_queue_wait, METH_VARARGS, NULL},
	{"_abandon_all", abandon_all, METH_NOARGS | METH_STATIC, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
	{"device_ptr", flag_device_ptr, NULL, "The number's address, for kernels: 8 bytes.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)flag_new},
	{Py_tp_dealloc, (void *)flag_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, fields},
	{Py_tp_doc, (void *)(uintptr_t)flag_doc},
	{0, NULL},
};

static PyType_Spec type = {
	.name = "hoist.Flag",
	.basicsize = sizeof(flag_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int hoist_py_add_flag_type(PyObject *module)
{
	hoist_py_flag_type = hoist_py_add_type(module, &type);
	return hoist_py_flag_type == NULL ? -1 : 0;
}
