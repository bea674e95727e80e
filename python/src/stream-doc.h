/* SPDX-License-Identifier: MIT */
/* Docstrings of Stream and Event (stream.c), in numpydoc's form. */
#ifndef HOIST_PY_STREAM_DOC_H
#define HOIST_PY_STREAM_DOC_H

static const char stream_doc[] =
	"Stream(device=None, native=None)\n"
	"--\n\n"
	"A queue of work on a device, which runs in order.\n\n"
	"Parameters\n"
	"----------\n"
	"device : Device or str, optional\n"
	"    None: the CPU, whose streams each have a thread of their own.\n"
	"native : int, optional\n"
	"    The driver's stream, a CUstream or hipStream_t, to be wrapped; the program keeps it "
	"alive.\n"
	"    None: a new stream.\n\n"
	"Raises\n"
	"------\n"
	"UnsupportedError\n"
	"    `native` for the CPU; the handle 2, which means another stream in each thread.\n"
	"OutOfMemoryError, DeviceError\n"
	"    There is no memory or thread for the stream; the driver failed.\n\n"
	"Notes\n"
	"-----\n"
	"Threads: any thread may call every method.  The end of a stream's last reference waits "
	"for its work.\n"
	"fork: in a child, streams raise StaleError.";

static const char stream_synchronize_doc[] =
	"synchronize($self, /)\n"
	"--\n\n"
	"Waits for all work that is queued on the stream.  In the main thread, Ctrl-C ends the "
	"wait.\n\n"
	"Raises\n"
	"------\n"
	"DeviceError\n"
	"    Work on the stream has failed.";

static const char stream_is_ready_doc[] =
	"is_ready($self, /)\n"
	"--\n\n"
	"Whether all work that was queued so far is done.  The call does not wait.\n\n"
	"Returns\n"
	"-------\n"
	"bool\n\n"
	"Raises\n"
	"------\n"
	"DeviceError\n"
	"    Work on the stream has failed.";

static const char wait_for_doc[] =
	"wait_for($self, other, /)\n"
	"--\n\n"
	"Work that is queued on this stream from now on waits for other work.  The host does "
	"not wait.\n\n"
	"Parameters\n"
	"----------\n"
	"other : Stream, Event or Device\n"
	"    The work that is queued now on a stream, behind an event, or on a device's "
	"default stream.\n\n"
	"Raises\n"
	"------\n"
	"TypeError\n"
	"    `other` is none of these.\n"
	"DeviceError\n"
	"    The driver failed.";

static const char wait_for_host_value_doc[] =
	"wait_for_host_value($self, flag, value, /)\n"
	"--\n\n"
	"Work that is queued on this stream from now on waits for a flag.\n\n"
	"Parameters\n"
	"----------\n"
	"flag : hoist.driver.CompletionFlag\n"
	"value : int\n"
	"    The wait ends when the flag's value is this or more.\n\n"
	"Raises\n"
	"------\n"
	"DeviceError\n"
	"    The driver failed.";

static const char record_event_doc[] =
	"record_event($self, event=None, /)\n"
	"--\n\n"
	"An event behind all work that was queued so far.\n\n"
	"Parameters\n"
	"----------\n"
	"event : Event, optional\n"
	"    The event to move there; None: a new one.\n\n"
	"Returns\n"
	"-------\n"
	"Event\n\n"
	"Raises\n"
	"------\n"
	"InvalidError\n"
	"    The event is another device's.";

static const char event_doc[] =
	"Event(device=None, enable_timing=False)\n"
	"--\n\n"
	"A point in the work of a stream, which `Stream.record_event()` sets.\n\n"
	"Parameters\n"
	"----------\n"
	"device : Device or str, optional\n"
	"    None: the CPU.\n"
	"enable_timing : bool\n"
	"    Whether `elapsed_time()` can ask for the event's time.\n\n"
	"Raises\n"
	"------\n"
	"OutOfMemoryError, DeviceError\n"
	"    The driver failed.";

static const char event_synchronize_doc[] =
	"synchronize($self, /)\n"
	"--\n\n"
	"Waits until the event has completed.\n\n"
	"Raises\n"
	"------\n"
	"DeviceError\n"
	"    Work before the event has failed.";

static const char event_is_ready_doc[] =
	"is_ready($self, /)\n"
	"--\n\n"
	"Whether the event has completed.  The call does not wait.\n\n"
	"Returns\n"
	"-------\n"
	"bool";

static const char elapsed_time_doc[] =
	"elapsed_time($self, end, /)\n"
	"--\n\n"
	"The time from this event to another one.\n\n"
	"Parameters\n"
	"----------\n"
	"end : Event\n\n"
	"Returns\n"
	"-------\n"
	"float\n"
	"    Milliseconds.\n\n"
	"Raises\n"
	"------\n"
	"RuntimeError\n"
	"    An event was made without `enable_timing`, was not recorded, or has not completed.";

#endif
