/* SPDX-License-Identifier: MIT */
/* device/native.c - order between a stream and one that somebody else owns. */
#include "config.h"

#include "device/native.h"

#include "base/error.h"
#include "device/device-ops.h"

static int order(struct hoist__dev_stream *first, struct hoist__dev_stream *then)
{
	struct hoist__dev_event *event;
	int err = hoist__dev_event_create(first->dev, 0, &event);
	if (err < 0)
		return err;
	err = hoist__dev_event_record(event, first);
	if (err == 0)
		err = hoist__dev_stream_wait_event(then, event);
	hoist__dev_event_destroy(event); /* a wait that is queued keeps what it needs */
	return err;
}

static int check(const struct hoist__dev_stream *stream)
{
	return stream->dev->api != HOIST__API_CPU
		       ? hoist__dev_check_process(stream->generation, "the stream")
		       : hoist__fail(-ENOTSUP, "the CPU has no native streams");
}

/* As long as this call: nothing is waited for at its end.  The event that it is named in is gone
 * by then. */
static void init_handle(struct hoist__dev_stream *handle, struct hoist__dev *dev, void *native)
{
	hoist__dev_stream_init(handle, dev, native);
	handle->wrapped = true;
	atomic_init(&handle->may_capture, true);
}

int hoist__native_wait_stream(void *native, struct hoist__dev_stream *stream)
{
	int err = check(stream);
	if (err < 0 || stream->native == native)
		return err;
	struct hoist__dev_stream handle = {0};
	init_handle(&handle, stream->dev, native);
	return order(stream, &handle);
}

int hoist__dev_stream_wait_native(struct hoist__dev_stream *stream, void *native)
{
	int err = check(stream);
	if (err < 0 || stream->native == native)
		return err;
	struct hoist__dev_stream handle = {0};
	init_handle(&handle, stream->dev, native);
	return order(&handle, stream);
}

int hoist__native_capturing(struct hoist__dev *dev, void *native, bool *ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	struct hoist__dev_stream handle = {0};
	init_handle(&handle, dev, native);
	return hoist__dev_stream_capturing(&handle, ret);
}
