/* SPDX-License-Identifier: MIT */
/* device/stream.c - streams and events: arguments and the process are checked
 * here, then the backend is called.  work.c does the same for the work on them. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "device/device-ops.h"

/* --- streams --- */

static int make_stream(struct hoist__dev *dev, struct hoist__dev_stream **ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	struct hoist__dev_stream *stream = calloc(1, sizeof *stream);
	if (stream == NULL)
		return hoist__fail_nomem("a stream", sizeof *stream);
	stream->dev = dev;
	stream->generation = hoist__fork_now();
	*ret = stream;
	return 0;
}

int hoist__stream_create(struct hoist__dev *dev, struct hoist__dev_stream **ret)
{
	struct hoist__dev_stream *stream = NULL;
	int err = make_stream(dev, &stream);
	if (err < 0)
		return err;
	err = dev->ops->stream_create(stream);
	if (err < 0) {
		free(stream);
		return err;
	}
	*ret = stream;
	return 0;
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD; HIP has the same, the first since 6.3. */
#define STREAM_LEGACY ((void *)1)
#define STREAM_OF_THREAD ((void *)2)

int hoist__stream_wrap(struct hoist__dev *dev, void *native, struct hoist__dev_stream **ret)
{
	if (dev->api == HOIST__API_CPU)
		return hoist__fail(-ENOTSUP, "the CPU has no native streams to wrap");
	if (native == STREAM_OF_THREAD)
		return hoist__fail(
			-ENOTSUP,
			"handle 2 names the calling thread's default stream, which is "
			"another one in each thread; wrap a stream that was made, or NULL "
			"for the legacy default stream");
	struct hoist__dev_stream *stream = NULL;
	int err = make_stream(dev, &stream);
	if (err < 0)
		return err;
	stream->native = native == STREAM_LEGACY ? NULL : native;
	stream->wrapped = true;
	atomic_store(&stream->may_capture, true);
	*ret = stream;
	return 0;
}

static bool is_capturing(struct hoist__dev_stream *stream)
{
	bool capturing = false;
	return hoist__stream_capturing(stream, &capturing) == 0 && capturing;
}

void hoist__stream_destroy(struct hoist__dev_stream *stream)
{
	if (stream == NULL)
		return;
	/* In a child of fork the native stream is the parent's. */
	if (stream->generation == hoist__fork_now()) {
		if (!stream->wrapped)
			stream->dev->ops->stream_destroy(stream);
		else if (!is_capturing(stream)) /* waiting for it would break the capture */
			(void)stream->dev->ops->stream_synchronize(stream);
		hoist__calls_end(stream);
	}
	free(stream);
}

void *hoist__stream_native(struct hoist__dev_stream *stream)
{
	if (stream->dev->api == HOIST__API_CPU)
		return NULL;
	atomic_store(&stream->may_capture, true);
	return stream->native;
}

bool hoist__stream_may_capture(const struct hoist__dev_stream *stream)
{
	return atomic_load(&stream->may_capture);
}

struct hoist__dev *hoist__stream_dev(const struct hoist__dev_stream *stream)
{
	return stream->dev;
}

int hoist__stream_await(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	return err < 0 ? err : stream->dev->ops->stream_synchronize(stream);
}

int hoist__stream_synchronize(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0)
		return err;
	err = stream->dev->ops->stream_synchronize(stream);
	int call_err = hoist__calls_take_failure(stream);
	return call_err < 0 ? call_err : err;
}

int hoist__stream_query(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err == 0)
		err = stream->dev->ops->stream_query(stream);
	return err < 0 ? err : hoist__calls_failure(stream);
}

int hoist__stream_capturing(struct hoist__dev_stream *stream, bool *ret)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0)
		return err;
	if (stream->dev->ops->stream_capturing != NULL)
		return stream->dev->ops->stream_capturing(stream, ret);
	*ret = false;
	return 0;
}

int hoist__stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0)
		return err;
	if (event->dev->api != stream->dev->api)
		return hoist__fail(-EINVAL, "a %s stream cannot wait for an event of %s",
				   hoist__api_name(stream->dev->api),
				   hoist__api_name(event->dev->api));
	if (!atomic_load(&event->recorded))
		return 0;
	/* An event of a capturing stream draws this one in. */
	if (stream->dev->ops->stream_capturing != NULL)
		atomic_store(&stream->may_capture, true);
	return stream->dev->ops->stream_wait_event(stream, event);
}

/* --- events --- */

int hoist__event_create(struct hoist__dev *dev, unsigned flags, struct hoist__dev_event **ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if ((flags & ~HOIST__EVENT_TIMING) != 0)
		return hoist__fail(-EINVAL, "unknown event flags %#x", flags);
	struct hoist__dev_event *event = calloc(1, sizeof *event);
	if (event == NULL)
		return hoist__fail_nomem("an event", sizeof *event);
	event->dev = dev;
	event->flags = flags;
	event->generation = hoist__fork_now();
	err = dev->ops->event_create(event);
	if (err < 0) {
		free(event);
		return err;
	}
	*ret = event;
	return 0;
}

void hoist__event_destroy(struct hoist__dev_event *event)
{
	if (event == NULL)
		return;
	if (event->generation == hoist__fork_now())
		event->dev->ops->event_destroy(event);
	free(event);
}

int hoist__event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0)
		return err;
	if (event->dev != stream->dev)
		return hoist__fail(-EINVAL, "an event of %s:%d cannot be recorded on %s:%d",
				   hoist__api_name(event->dev->api), event->dev->ordinal,
				   hoist__api_name(stream->dev->api), stream->dev->ordinal);
	err = event->dev->ops->event_record(event, stream);
	if (err == 0)
		atomic_store(&event->recorded, true);
	return err;
}

int hoist__event_query(struct hoist__dev_event *event)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0 || !atomic_load(&event->recorded))
		return err;
	return event->dev->ops->event_query(event);
}

int hoist__event_synchronize(struct hoist__dev_event *event)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0 || !atomic_load(&event->recorded))
		return err;
	return event->dev->ops->event_synchronize(event);
}

int hoist__event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
			    uint64_t *ret)
{
	int err = hoist__dev_check_process(start->generation, "the event");
	if (err < 0)
		return err;
	if (start->dev->api != end->dev->api)
		return hoist__fail(-EINVAL, "events of %s and %s have no common clock",
				   hoist__api_name(start->dev->api),
				   hoist__api_name(end->dev->api));
	if ((start->flags & end->flags & HOIST__EVENT_TIMING) == 0)
		return hoist__fail(-EINVAL, "an event was made without timing");
	if (!atomic_load(&start->recorded) || !atomic_load(&end->recorded))
		return hoist__fail(-EINVAL, "an event was never recorded");
	return start->dev->ops->event_elapsed_ns(start, end, ret);
}
