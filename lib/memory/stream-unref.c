/* SPDX-License-Identifier: MIT */
/* lib/memory/stream-unref.c - ends a stream, after all memory has forgotten it.
 * The contract is in hoist/stream.h. */
#include "config.h"

#include "alloc/pool.h"
#include "base/error.h"
#include "base/log.h"
#include "lib/device/stream-private.h"
#include "lib/memory/memory.h"

/* Blocks that were freed on the stream, or that it uses, must not name it any more. */
static void *end(void *context)
{
	hoist_stream *stream = context;
	hoist__pools_forget_stream(stream->stream);
	hoist__memories_forget_stream(stream->stream);
	hoist__stream_end(stream);
	return NULL;
}

/* Ending a stream waits for its work, which may be the function that runs here. */
void hoist_stream_unref(hoist_stream *stream)
{
	if (stream == NULL ||
	    atomic_fetch_sub_explicit(&stream->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	if (!hoist__in_cpu_stream())
		(void)end(stream);
	else if (hoist__leave_cpu_stream(end, stream) < 0)
		hoist__log(device, "a stream of %s that one of the cpu dropped is kept: %s",
			   hoist_device_spec(stream->device), hoist__error_text());
}
