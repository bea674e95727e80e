/* SPDX-License-Identifier: MIT */
/* hoist/stream.h - queues of work on a device.
 *
 * A Stream is a queue of work in order.  Work on different streams overlaps.
 *
 * Threads: every function may be called from any thread.  Objects are reference
 * counted; a function that returns one through `ret` gives the caller a reference.
 * fork: a child gets -ESTALE from the streams of its parent.
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
 * caller keeps owning, and alive until the wrapper's last reference is gone; NULL
 * is the driver's legacy default stream.
 * Returns: 0; -ENOTSUP on the CPU; as above. */
HOIST_API int hoist_stream_wrap(hoist_device *device, void *native, hoist_stream **ret);

HOIST_API hoist_stream *hoist_stream_ref(hoist_stream *stream);
/* Takes NULL.  The last reference waits for the stream's work. */
HOIST_API void hoist_stream_unref(hoist_stream *stream);

HOIST_API hoist_device *hoist_stream_device(const hoist_stream *stream); /* borrowed */
HOIST_API void *hoist_stream_native(const hoist_stream *stream);         /* NULL on the CPU */

/* Blocks until all work queued so far is done.
 * Returns: 0; the first failure of that work since the last call. */
HOIST_API int hoist_stream_synchronize(hoist_stream *stream);

HOIST_END

#endif
