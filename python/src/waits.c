/* SPDX-License-Identifier: MIT */
/* Waits that Ctrl-C ends.  The contract is in python/src/module.h.
 *
 * Drivers have waits without an end, and no signal wakes them.  So the main thread, in which Python
 * handles signals, asks again and again, and sleeps in between: a sixteenth of the time that has
 * passed, a millisecond at most.  Other threads go straight to the driver's wait.
 *
 * Where no stream can be asked, another thread calls, and the main thread waits for that thread
 * (hoist.waiting.in_thread()).
 */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "module.h"

#define MOST_NS 1000000
#define SHARE 16
/* A signal's handler may be called so much later. */
#define SIGNALS_NS 20000000

uint64_t hoist_py_now_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Asks for about SIGNALS_NS.  Returns: whether the answer was "not yet" to the end. */
static bool is_pending(hoist_event *event, uint64_t begin)
{
	const uint64_t until = hoist_py_now_ns() + SIGNALS_NS;
	uint64_t now;
	while (hoist_event_query(event) == -EAGAIN) {
		now = hoist_py_now_ns();
		if (now >= until)
			return true;
		const uint64_t ns = (now - begin) / SHARE;
		const struct timespec t = {0, (long)(ns < MOST_NS ? ns : MOST_NS)};
		(void)nanosleep(&t, NULL);
	}
	return false;
}

static int wait_for_event(hoist_event *event)
{
	const uint64_t begin = hoist_py_now_ns();
	bool pending;
	int err = 0;
	do {
		HOIST_PY_WAITING(pending = is_pending(event, begin));
		err = PyErr_CheckSignals();
	} while (pending && err == 0);
	return err;
}

static bool is_main_thread(void)
{
	return syscall(SYS_gettid) == getpid();
}

int hoist_py_await_event(hoist_event *event)
{
	return is_main_thread() ? wait_for_event(event) : 0;
}

/* A driver's call may block while its queue is full, on work that takes the GIL. */
int hoist_py_query(hoist_stream *stream)
{
	int err;
	if (strncmp(hoist_device_spec(hoist_stream_device(stream)), "cpu", 3) == 0)
		return hoist_stream_query(stream);
	HOIST_PY_WAITING(err = hoist_stream_query(stream));
	return err;
}

int hoist_py_await_stream(hoist_stream *stream)
{
	hoist_event *event = NULL;
	int err = 0;
	if (!is_main_thread())
		return 0;
	stream = hoist_stream_ref(stream);
	if (hoist_py_query(stream) == -EAGAIN)
		HOIST_PY_WAITING((void)hoist_stream_record(stream, 0, &event));
	if (event != NULL)
		err = wait_for_event(event);
	HOIST_PY_WAITING(hoist_event_unref(event); hoist_stream_unref(stream));
	return err;
}

PyObject *hoist_py_in_thread(PyObject *self, const char *name)
{
	if (!is_main_thread())
		return PyObject_CallMethod(self, name, NULL);
	PyObject *waiting = PyImport_ImportModule("hoist.waiting");
	if (waiting == NULL && PyErr_ExceptionMatches(PyExc_ImportError)) {
		PyErr_Clear(); /* the interpreter ends */
		return PyObject_CallMethod(self, name, NULL);
	}
	PyObject *method = waiting == NULL ? NULL : PyObject_GetAttrString(self, name);
	PyObject *ret =
		method == NULL ? NULL : PyObject_CallMethod(waiting, "in_thread", "O", method);
	Py_XDECREF(waiting);
	Py_XDECREF(method);
	return ret;
}

/* run_in_thread(call, [None, None], release): calls, puts the result or the exception into the
 * list, and calls release().  Behind the call, and before it, no memory is needed: a thread that
 * ended without release() would be waited for in vain. */
static PyObject *run_in_thread(PyObject *none, PyObject *args)
{
	PyObject *call;
	PyObject *end;
	PyObject *release;
	PyObject *type = NULL;
	PyObject *error = NULL;
	PyObject *trace = NULL;
	(void)none;
	if (!PyArg_UnpackTuple(args, "run_in_thread", 3, 3, &call, &end, &release))
		return NULL;
	PyObject *ret = PyObject_CallNoArgs(call);
	if (ret == NULL) {
		PyErr_Fetch(&type, &error, &trace);
		PyErr_NormalizeException(&type, &error, &trace);
		if (trace != NULL)
			(void)PyException_SetTraceback(error, trace);
		(void)PyList_SetItem(end, 1, error);
		Py_XDECREF(type);
		Py_XDECREF(trace);
	} else {
		(void)PyList_SetItem(end, 0, ret);
	}
	return PyObject_CallNoArgs(release);
}

static PyMethodDef functions[] = {
	{"run_in_thread", run_in_thread, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_waits(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}

static hoist_buffer *buffer_of(PyObject *self)
{
	return ((hoist_py_buffer_object *)self)->buffer;
}

int hoist_py_await_buffer(PyObject *self)
{
	HOIST_PY_LOCK(self);
	hoist_stream *stream = NULL;
	if (!is_main_thread() || hoist_buffer_stream(buffer_of(self), &stream) < 0)
		return 0;
	return hoist_py_await_stream(stream);
}

int hoist_py_await_buffers(PyObject *list)
{
	int err = 0;
	for (Py_ssize_t i = 0; err == 0 && i < PyList_Size(list); i++)
		err = hoist_py_await_buffer(PyList_GetItem(list, i));
	return err;
}

/* Says hoist/copy.h's table: does a copy on @stream block?  Layouts are not looked at: a copy that
 * blocks for its layout alone is not known. */
static bool blocks(hoist_buffer *to, hoist_buffer *from, hoist_stream *stream)
{
	hoist_buffer_info a = {.size = sizeof a};
	hoist_buffer_info b = {.size = sizeof b};
	hoist_device_info of_a = {.size = sizeof of_a};
	hoist_device_info of_b = {.size = sizeof of_b};
	hoist_device_info of_stream = {.size = sizeof of_stream};
	if (hoist_buffer_get_info(to, &a) < 0 || hoist_buffer_get_info(from, &b) < 0 ||
	    hoist_device_get_info(hoist_buffer_device(to), &of_a) < 0 ||
	    hoist_device_get_info(hoist_buffer_device(from), &of_b) < 0 ||
	    hoist_device_get_info(hoist_stream_device(stream), &of_stream) < 0)
		return false; /* the copy fails, too */
	if (a.is_host_accessible && b.is_host_accessible)
		return !of_stream.is_host && !a.is_managed && !b.is_managed;
	return strcmp(of_a.api, of_b.api) != 0 || hoist_dtype_bits(hoist_buffer_dtype(to)) % 8 != 0;
}

int hoist_py_await_copy(PyObject *to, PyObject *from, hoist_stream *stream)
{
	if (!is_main_thread())
		return 0;
	if (stream == NULL)
		return hoist_py_await_buffer(to) < 0 ? -1 : hoist_py_await_buffer(from);
	hoist_buffer *a = hoist_py_use_buffer(to);
	hoist_buffer *b = hoist_py_use_buffer(from);
	int err = hoist_py_open_buffer(to) == NULL || hoist_py_open_buffer(from) == NULL ? -1 : 0;
	bool waits = err == 0 && blocks(a, b, stream);
	hoist_py_leave_buffer(to);
	hoist_py_leave_buffer(from);
	return waits ? hoist_py_await_stream(stream) : err;
}

int hoist_py_await_copy_to(PyObject *self, hoist_stream *stream)
{
	hoist_device_info from = {.size = sizeof from};
	hoist_device_info to = {.size = sizeof to};
	if (!is_main_thread() ||
	    hoist_device_get_info(hoist_buffer_device(buffer_of(self)), &from) < 0 ||
	    hoist_device_get_info(hoist_stream_device(stream), &to) < 0 ||
	    strcmp(from.api, to.api) == 0)
		return 0;
	return hoist_py_await_buffer(self) < 0 ? -1 : hoist_py_await_stream(stream);
}
