/* SPDX-License-Identifier: MIT */
/* lib/device/stream.h - a hoist_stream as the rooms above see it. */
#ifndef HOIST_LIB_DEVICE_STREAM_H
#define HOIST_LIB_DEVICE_STREAM_H

#include <stdbool.h>

#include "device/device.h"
#include "hoist/stream.h"

/* The driver's stream; borrowed. */
struct hoist__dev_stream *hoist__stream_dev_stream(const hoist_stream *stream);

/* True if nobody but the caller has @stream and all its work is done: there will be no more.  Never
 * for one that may capture a graph, which asking would break. */
bool hoist__stream_is_over(const hoist_stream *stream);

/* Comes before waiting for a stream on the host, which would break a capture.
 * Returns: 0; -ENOTSUP if @stream captures a graph. */
int hoist__stream_check_capture(hoist_stream *stream);

/* Waits for @stream on the host.  Returns: 0; -ENOTSUP as above; what failed on it. */
int hoist__stream_settle(hoist_stream *stream);

#endif
