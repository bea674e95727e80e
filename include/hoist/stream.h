/* SPDX-License-Identifier: MIT */
/* hoist/stream.h - queues of work on a device, points in them, and waiting.
 *
 *     hoist_stream_create(device, &copies);
 *     hoist_stream_create(device, &kernels);
 *     hoist_buffer_copy_on(on_device, pinned, copies);  // queued: returns at once
 *     hoist_stream_wait_for(kernels, copies);           // the host does not wait
 *     launch(hoist_stream_native(kernels));             // a kernel that needs the copy
 *     hoist_stream_synchronize(kernels);                // the host waits: 0, or what failed
 *     hoist_stream_unref(kernels);
 *     hoist_stream_unref(copies);
 *
 * A Stream is a queue of work, which runs in order.  Work on different streams overlaps, unless one
 * stream is told to wait for the other.  Two streams are the same if their pointers are equal.
 *
 * An Event is a point in a stream, behind the work queued when the event was recorded.  The event
 * has completed when that work has.
 *
 * Only the functions called *_synchronize() block the host.  The last unref of a stream waits for
 * the stream's work, too.  One stream waits for another in one of three ways:
 *
 *   streams of one API          the driver's own events, or the CPU's
 *   a stream of the CPU for     the CPU stream's thread waits.  If the awaited work fails, the
 *   one of an accelerator       next synchronize of the CPU stream reports that failure, too
 *   a stream of an accelerator  the driver calls a function that waits (see hoist_stream_call()).
 *   for a stream of another     Before, the waiting stream waits in its driver for the work of its
 *   API, or of the CPU          own API that the awaited work is behind: so such waits do not form
 *                               a circle.  One case remains: CUDA streams that wait for HIP while
 *                               HIP streams wait for CUDA can block each other, in drivers that
 *                               have one thread for the calls of all streams
 *
 * Threads: every function may be called from any thread.  Streams and events are reference counted;
 * a function that returns one through `ret` gives the caller a reference.  The caller may drop a
 * stream or an event while other streams still wait for its work.  An event outlives the stream
 * that it was recorded on; the event has completed then.
 * fork: a child gets -ESTALE from the streams and events of its parent.
 */
#ifndef HOIST_STREAM_H
#define HOIST_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/error.h>

HOIST_BEGIN

/* --- streams --- */

/* A new stream.  A CPU stream is a queue that a thread of its own serves.
 * Returns: 0; -EINVAL (@device is NULL); -ENOMEM (also: no thread for a CPU stream); -ENOSPC (the
 *   device's memory is exhausted); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_stream_create(hoist_device *device, hoist_stream **ret);

/* Wraps a CUstream or hipStream_t of this device's primary context.  The caller keeps owning the
 * native stream.  NULL is the driver's legacy default stream; so is the handle 1, which becomes
 * NULL.
 *
 * The caller destroys the native stream only after the last reference to the wrapper is gone.
 * Buffers that were made with the wrapper, and objects that were given the wrapper, hold
 * references: close them first.  The end of the wrapper waits for the native stream's work;
 * afterwards no work of hoist's reaches the native stream.  A native stream that captures a graph
 * at that time is not waited for: the caller must keep it until its work is done.
 *
 * If the native stream was destroyed too early, a HIP driver reports that: memory that waits for
 * the stream is then held until a wait for the whole device (hoist_device_synchronize()).  CUDA's
 * driver does not: the behaviour is undefined then.
 * Returns: as hoist_stream_create(); -ENOTSUP (the CPU; the handle 2, CU_STREAM_PER_THREAD or
 *   hipStreamPerThread, which names another stream in each thread). */
HOIST_API int hoist_stream_wrap(hoist_device *device, void *native, hoist_stream **ret);

/* One more reference.  Returns: @stream. */
HOIST_API hoist_stream *hoist_stream_ref(hoist_stream *stream);
/* Takes NULL.  Dropping the last reference waits for the stream's work.  In a function that a
 * stream of the CPU calls, another thread does that waiting. */
HOIST_API void hoist_stream_unref(hoist_stream *stream);

HOIST_API hoist_device *hoist_stream_device(const hoist_stream *stream); /* borrowed */
/* 1 if @stream is its device's default stream (hoist_device_default_stream()), else 0. */
HOIST_API int hoist_stream_is_default(const hoist_stream *stream);
/* The driver's handle: a CUstream or hipStream_t; NULL on the CPU. */
HOIST_API void *hoist_stream_native(const hoist_stream *stream);

/* --- waiting --- */

/* Blocks until all work queued so far is done.
 * Returns: 0; the first failure of that work since the last call; -EDEADLK (called from a function
 *   that this stream calls, see hoist_stream_call()). */
HOIST_API int hoist_stream_synchronize(hoist_stream *stream);

/* Asks whether all work queued so far is done, without blocking.
 * Returns: 0 if the work is done; -EAGAIN, without a text, if not; the failure of the work, which
 *   the next synchronize still reports. */
HOIST_API int hoist_stream_query(hoist_stream *stream);

/* Work queued on @stream from now on waits for all work that is queued on @other now.  A stream
 * does not wait for itself.  The host does not wait.
 * Returns: 0; -EINVAL (NULL); -ENOTSUP (streams of two APIs, one of which captures a graph; the
 *   driver is too old to call functions); -ENOMEM, -EREMOTEIO, -ESTALE.  After a failure @stream
 *   may wait for a part of that work. */
HOIST_API int hoist_stream_wait_for(hoist_stream *stream, hoist_stream *other);

/* As hoist_stream_wait_for(), with @device's default stream as the other.  A default stream that
 * does not exist yet has no work. */
HOIST_API int hoist_stream_wait_for_device(hoist_stream *stream, hoist_device *device);

/* Queues a call of @run(@context): the call comes when the work queued before is done, and work
 * queued later waits until the function returns.
 *
 * On the CPU the stream's own thread calls the function.  The function must not wait for work that
 * is queued behind it; hoist_stream_synchronize() of its own stream is -EDEADLK there.
 *
 * On an accelerator a thread of the driver's calls the function.  The function must call neither
 * the driver nor hoist.  A driver may have only one such thread: a function that blocks then delays
 * the functions of all other streams.
 *
 * The function returns 0 or a negative errno value.  The stream's next synchronize returns the
 * first such failure.  Work behind the function goes on either way.  If earlier work failed in the
 * driver, the driver may never call the function.
 * Returns: 0; -EINVAL (NULL); -ENOTSUP (the driver is too old); -ENOMEM, -EREMOTEIO, -ESTALE.
 *   After a failure @run is not called. */
HOIST_API int hoist_stream_call(hoist_stream *stream, int (*run)(void *context), void *context);

/* --- events --- */

typedef struct hoist_event hoist_event;

#define HOIST_EVENT_TIMING 1u /* for hoist_event_elapsed_ns(); recording costs more */

/* A new event for streams of @device.  An event that was not recorded counts as completed.
 * Returns: 0; -EINVAL (@device is NULL; unknown flags); -ENOMEM, -ENOSPC, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_create(hoist_device *device, unsigned flags, hoist_event **ret);

/* One more reference.  Returns: @event. */
HOIST_API hoist_event *hoist_event_ref(hoist_event *event);
HOIST_API void hoist_event_unref(hoist_event *event);             /* takes NULL */
HOIST_API hoist_device *hoist_event_device(const hoist_event *event); /* borrowed */

/* Moves the event to the point behind all work queued on @stream so far.  Streams and threads that
 * wait for the event's earlier point go on waiting for that point.
 * Returns: 0; -EINVAL (NULL; @stream is of another device: the text has both); -ENOMEM,
 *   -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_record(hoist_event *event, hoist_stream *stream);

/* A new event, recorded on @stream.
 * Returns: as hoist_event_create() and hoist_event_record(). */
HOIST_API int hoist_stream_record(hoist_stream *stream, unsigned flags, hoist_event **ret);

/* Work queued on @stream from now on waits for the work before the event's present point.  The host
 * does not wait.
 * Returns: as hoist_stream_wait_for(). */
HOIST_API int hoist_stream_wait_event(hoist_stream *stream, hoist_event *event);

/* Asks whether the event has completed, without blocking.  The driver is not asked where its answer
 * would break a graph capture.  An event that was recorded while its stream captured a graph never
 * completes: -ENOTSUP.  HIP gives no answer for an event whose stream captures now, even if the
 * event was recorded before the capture: until the capture has ended, query gives -EAGAIN and
 * synchronize -ENOTSUP.
 * Returns: 0 if the event has completed; -EAGAIN, without a text, if not; -EINVAL (NULL); -ENOTSUP
 *   (see above); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_query(hoist_event *event);

/* Blocks until the event has completed.
 * Returns: 0; -EINVAL (NULL); -ENOTSUP (see hoist_event_query()); -EBUSY (the event's stream was
 *   destroyed while it captured a graph, and another stream captures now: try again when that
 *   capture has ended); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_synchronize(hoist_event *event);

/* Nanoseconds from @start to @end; 0 if @end came first.  The drivers' clocks tick about every
 * 500 ns.
 * Returns: 0; -EINVAL (an event is NULL, was made without TIMING or was never recorded; the devices
 *   of the two differ); -EAGAIN (an event has not completed); -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_event_elapsed_ns(hoist_event *start, hoist_event *end, uint64_t *ret);

HOIST_END

#endif
