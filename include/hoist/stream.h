/* SPDX-License-Identifier: MIT */
/* hoist/stream.h - queues of work on a device, points in them, and waiting.
 *
 * A Stream is a queue of work in order.  Work on different streams overlaps, unless
 * one is told to wait for the other.  Two streams are the same if their pointers are.
 *
 * An Event is a point in a stream: recorded behind the work queued so far, it has
 * completed when that work has.
 *
 * Waiting never blocks the host, but for the functions called *_synchronize():
 *
 *   streams of one API          the driver's own events, or the CPU's
 *   a stream of the CPU for     the CPU stream's thread waits, and gets the failure of
 *   one of an accelerator       what it waited for: its next synchronize reports that too
 *   a stream of an accelerator  the driver calls a function that waits (see hoist_stream_call());
 *   for another API's, or the   what that stream itself waits for in the driver is waited for
 *   CPU's                       first, so that such waits cannot wait for each other in a circle;
 *                               those of CUDA for HIP and of HIP for CUDA at once could, in
 *                               drivers that have one thread for the calls of all streams
 *
 * Threads: every function may be called from any thread.  Objects are reference
 * counted; a function that returns one through `ret` gives the caller a reference.
 * Streams, and events, may be given back while others still wait for their work.  An event
 * outlives the stream that it was recorded on: it has completed then.
 * fork: a child gets -ESTALE from the streams and events of its parent.
 */
#ifndef HOIST_STREAM_H
#define HOIST_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/error.h>

HOIST_BEGIN

/* A new stream.  A CPU stream is a queue served by a thread of its own.
 * Returns: 0; -ENOMEM (also: no thread for a CPU stream); -ENOSPC (the device's
 *   memory); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_stream_create(hoist_device *device, hoist_stream **ret);

/* Wraps a CUstream or hipStream_t of this device's primary context that the
 * caller keeps owning; NULL is the driver's legacy default stream, and so is the handle 1, which
 * becomes NULL.
 * The caller destroys the native stream only after the last reference to the wrapper is gone.
 * Buffers that were made with the wrapper, and whatever it was named to, hold such references:
 * close them first.  The end of the wrapper waits for the native stream's work, and nothing of
 * hoist's reaches the native stream afterwards.  A native stream that captures a graph then is
 * not waited for: it must stay until its work is done.  A HIP driver says that a native stream
 * was destroyed too early; what waits for it is then held until a wait for the whole device
 * (hoist_device_synchronize()).  CUDA's does not say so: what happens is undefined.
 * Returns: 0; -ENOTSUP on the CPU, and for the handle 2 (CU_STREAM_PER_THREAD,
 *   hipStreamPerThread): that names another stream in each thread; as above. */
HOIST_API int hoist_stream_wrap(hoist_device *device, void *native, hoist_stream **ret);

HOIST_API hoist_stream *hoist_stream_ref(hoist_stream *stream);
/* Takes NULL.  The last reference waits for the stream's work; in a function that a stream of the
 * CPU calls, another thread does. */
HOIST_API void hoist_stream_unref(hoist_stream *stream);

HOIST_API hoist_device *hoist_stream_device(const hoist_stream *stream); /* borrowed */
/* 1 for what hoist_device_default_stream() gives, else 0. */
HOIST_API int hoist_stream_is_default(const hoist_stream *stream);
HOIST_API void *hoist_stream_native(const hoist_stream *stream);         /* NULL on the CPU */

/* Blocks until all work queued so far is done.
 * Returns: 0; the first failure of that work since the last call; -EDEADLK, see
 *   hoist_stream_call(). */
HOIST_API int hoist_stream_synchronize(hoist_stream *stream);

/* Returns: 0 if all work queued so far is done; -EAGAIN, without a text, if it is not; what failed,
 *   which the next synchronize still reports. */
HOIST_API int hoist_stream_query(hoist_stream *stream);

/* Work queued on @stream from now on waits for all that is queued on @other now, or on @device's
 * default stream (which need not exist: then there is none).  The host does not wait.
 * Waiting for itself is no wait.
 * Returns: 0; -EINVAL for NULL; -ENOTSUP (streams of two APIs, one of which captures a graph;
 *   the driver is too old to call functions); -ENOMEM, -EREMOTEIO, -ESTALE.  After a failure
 *   @stream may wait for part of that work. */
HOIST_API int hoist_stream_wait_for(hoist_stream *stream, hoist_stream *other);
HOIST_API int hoist_stream_wait_for_device(hoist_stream *stream, hoist_device *device);

/* Calls @run(@context) when the work queued so far is done; work queued later waits for it.  On the
 * CPU the stream's own thread calls it; it must not wait there for what is queued behind it, and
 * synchronizing with its own stream is -EDEADLK.  On an accelerator a thread of the driver's does: it
 * must call neither the driver nor hoist, and drivers may have but one such thread, so that a
 * function that blocks keeps those of other streams waiting.
 * It returns 0 or a negative errno value: the first of these is what the stream's next
 * synchronize returns.  Work behind it goes on either way.  If earlier work failed in the driver,
 * it may never be called.
 * Returns: 0; -EINVAL for NULL; -ENOTSUP (the driver is too old); -ENOMEM, -EREMOTEIO, -ESTALE.
 *   After a failure @run is not called. */
HOIST_API int hoist_stream_call(hoist_stream *stream, int (*run)(void *context), void *context);

/* --- events --- */

typedef struct hoist_event hoist_event;

#define HOIST_EVENT_TIMING 1u /* hoist_event_elapsed_ns() will be asked; recording costs more */

/* An event for streams of @device.  Until it is recorded it counts as completed.
 * Returns: 0; -EINVAL (unknown flags); -ENOMEM, -ENOSPC, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_create(hoist_device *device, unsigned flags, hoist_event **ret);
HOIST_API hoist_event *hoist_event_ref(hoist_event *event);
HOIST_API void hoist_event_unref(hoist_event *event);             /* takes NULL */
HOIST_API hoist_device *hoist_event_device(const hoist_event *event); /* borrowed */

/* The event is now the point behind all work queued on @stream so far; who waits for its earlier
 * point goes on with that.
 * Returns: 0; -EINVAL (@stream is of another device, with both); -ENOMEM, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_record(hoist_event *event, hoist_stream *stream);

/* Both at once: a new event, recorded.  Returns: as the two. */
HOIST_API int hoist_stream_record(hoist_stream *stream, unsigned flags, hoist_event **ret);

/* As hoist_stream_wait_for(), for the work before the event's present point. */
HOIST_API int hoist_stream_wait_event(hoist_stream *stream, hoist_event *event);

/* No event is asked where that would break a capture.  One that was recorded while its stream
 * captured a graph never completes: -ENOTSUP.  HIP cannot tell of an event whose stream captures
 * now, though it was recorded before: query says -EAGAIN, synchronize -ENOTSUP, until the capture
 * has ended.
 * Returns: 0 if it has completed; -EAGAIN, without a text, if not; -ENOTSUP, see above;
 *   -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_query(hoist_event *event);

/* Blocks until it has.  Returns: 0; -ENOTSUP, see above; -EBUSY (its stream was destroyed while it
 * captured a graph, and another captures now: try again when that has ended); -EREMOTEIO,
 * -ESTALE. */
HOIST_API int hoist_event_synchronize(hoist_event *event);

/* Nanoseconds from @start to @end, 0 if @end was before; the drivers' clocks tick every 500 ns or
 * so.
 * Returns: 0; -EINVAL (one was made without TIMING or never recorded; their devices differ);
 *   -EAGAIN if one has not completed; -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_elapsed_ns(hoist_event *start, hoist_event *end, uint64_t *ret);

HOIST_END

#endif
