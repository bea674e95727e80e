/* SPDX-License-Identifier: MIT */
/* lib/stream.c - the public face of device/device.h's streams. */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "lib/memory.h"

/* Devices live as long as the process, so that a stream need not hold one. */
struct hoist_stream {
	_Atomic unsigned xrefs;
	hoist_device *device;
	struct hoist__dev_stream *stream;
};

static int check_device(const hoist_device *device)
{
	return device != NULL ? 0 : hoist__fail(-EINVAL, "a stream needs a device; it is NULL");
}

/* Takes over @stream, on failure too. */
static int make(hoist_device *device, struct hoist__dev_stream *stream, hoist_stream **ret)
{
	hoist_stream *made = malloc(sizeof *made);
	if (made == NULL) {
		hoist__stream_destroy(stream);
		return hoist__fail_nomem("a stream", sizeof *made);
	}
	atomic_init(&made->xrefs, 1);
	made->device = device;
	made->stream = stream;
	*ret = made;
	return 0;
}

int hoist_stream_create(hoist_device *device, hoist_stream **ret)
{
	int err = check_device(device);
	if (err < 0)
		return err;
	struct hoist__dev_stream *stream;
	err = hoist__stream_create(hoist__device_dev(device), &stream);
	if (err < 0)
		return hoist__fail_in(err, "a stream on %s", hoist_device_spec(device));
	return make(device, stream, ret);
}

int hoist_stream_wrap(hoist_device *device, void *native, hoist_stream **ret)
{
	int err = check_device(device);
	if (err < 0)
		return err;
	struct hoist__dev_stream *stream;
	err = hoist__stream_wrap(hoist__device_dev(device), native, &stream);
	if (err < 0)
		return hoist__fail_in(err, "wrapping a stream of %s", hoist_device_spec(device));
	return make(device, stream, ret);
}

hoist_stream *hoist_stream_ref(hoist_stream *stream)
{
	atomic_fetch_add_explicit(&stream->xrefs, 1, memory_order_relaxed);
	return stream;
}

void hoist_stream_unref(hoist_stream *stream)
{
	if (stream == NULL ||
	    atomic_fetch_sub_explicit(&stream->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	/* Blocks that were freed on it, or that it uses, must not name it any more. */
	hoist__pools_forget_stream(stream->stream);
	hoist__memories_forget_stream(stream->stream);
	hoist__stream_destroy(stream->stream);
	free(stream);
}

hoist_device *hoist_stream_device(const hoist_stream *stream)
{
	return stream->device;
}

void *hoist_stream_native(const hoist_stream *stream)
{
	return hoist__stream_native(stream->stream);
}

int hoist_stream_synchronize(hoist_stream *stream)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to wait for is NULL");
	int err = hoist__stream_synchronize(stream->stream);
	if (err < 0)
		return hoist__fail_in(err, "work on a stream of %s",
				      hoist_device_spec(stream->device));
	return 0;
}

struct hoist__dev_stream *hoist__stream_dev_stream(const hoist_stream *stream)
{
	return stream->stream;
}
