/* SPDX-License-Identifier: MIT */
/* lib/device/stream.h - a hoist_stream as the rooms above see it. */
#ifndef HOIST_LIB_DEVICE_STREAM_H
#define HOIST_LIB_DEVICE_STREAM_H

#include <stdbool.h>

#include "device/device.h"
#include "hoist/stream.h"

/* Returns the driver's stream; borrowed. */
struct hoist__dev_stream *hoist__stream_dev_stream(const hoist_stream *stream);

/* True if only the caller holds @stream and all its work is done: then there will be no more work.
 * Always false for a stream that may capture a graph: asking would break the capture. */
bool hoist__stream_is_over(const hoist_stream *stream);

/* Checks a stream before the host waits for it, as waiting would break a capture.
 * Returns: 0; -ENOTSUP if @stream captures a graph. */
int hoist__stream_check_capture(hoist_stream *stream);

/* Waits for @stream on the host.  Returns: 0; -ENOTSUP as above; what failed on it. */
int hoist__stream_settle(hoist_stream *stream);

#endif
