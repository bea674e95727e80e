/* SPDX-License-Identifier: MIT */
/* Waits that Ctrl-C ends.  The contract is in python/src/module.h.
 *
 * Drivers have waits without an end, and no signal wakes them.  So the main thread, in which Python
 * handles signals, asks again and again, and sleeps in between: a sixteenth of the time that has
 * passed, a millisecond at most.  Other threads go straight to the driver's wait.
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

int hoist_py_await_stream(hoist_stream *stream)
{
	hoist_event *event = NULL;
	int err = 0;
	if (!is_main_thread())
		return 0;
	/* A driver's call may block while its queue is full, on work that takes the GIL. */
	stream = hoist_stream_ref(stream);
	HOIST_PY_WAITING(if (hoist_stream_query(stream) == -EAGAIN)(void)
				 hoist_stream_record(stream, 0, &event));
	if (event != NULL)
		err = wait_for_event(event);
	HOIST_PY_WAITING(hoist_event_unref(event); hoist_stream_unref(stream));
	return err;
}

int hoist_py_await_buffer(PyObject *self)
{
	HOIST_PY_LOCK(self);
	const hoist_py_buffer_object *o = (hoist_py_buffer_object *)self;
	hoist_stream *stream = NULL;
	if (!is_main_thread() || hoist_buffer_stream(o->buffer, &stream) < 0)
		return 0;
	return hoist_py_await_stream(stream);
}
