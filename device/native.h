/* SPDX-License-Identifier: MIT */
/* device/native.h - order between a stream and one that somebody else owns.
 *
 * Wrapping such a stream (hoist__dev_stream_wrap()) is for who keeps it: the wrapper's end waits for
 * its work.  These two only queue, and keep nothing of the handle.
 */
#ifndef HOIST_DEVICE_NATIVE_H
#define HOIST_DEVICE_NATIVE_H

#include "device/device.h"

/* Later work on @native, a native handle of @stream's device (NULL: the legacy default stream),
 * waits for what is queued on @stream now; the host does not.
 * Returns: 0; -ENOTSUP on the CPU; -ENOMEM, -EREMOTEIO, -ESTALE. */
int hoist__native_wait_stream(void *native, struct hoist__dev_stream *stream);

/* The other way round: later work on @stream waits for what is queued on @native now. */
int hoist__dev_stream_wait_native(struct hoist__dev_stream *stream, void *native);

/* As hoist__dev_stream_capturing(), of a native handle of @dev. */
int hoist__native_capturing(struct hoist__dev *dev, void *native, bool *ret);

#endif
