/* SPDX-License-Identifier: MIT */
/* device/stream.c - streams: checks arguments and the process, then calls the backend.
 * The contract is in device/device.h; event.c has the events, work.c the work on streams. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
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
	hoist__dev_stream_init(stream, dev, NULL);
	*ret = stream;
	return 0;
}

void hoist__dev_stream_init(struct hoist__dev_stream *stream, struct hoist__dev *dev, void *native)
{
	stream->dev = dev;
	stream->native = native;
	stream->generation = hoist__fork_now();
	atomic_init(&stream->refs, 1);
	(void)pthread_rwlock_init(&stream->asking, NULL); /* cannot fail without attributes */
	hoist__list_init(&stream->node);
}

void hoist__dev_stream_unref(struct hoist__dev_stream *stream)
{
	HOIST__ASSERT(stream == NULL || atomic_load(&stream->refs) != 0);
	if (stream == NULL || atomic_fetch_sub(&stream->refs, 1) != 1)
		return;
	HOIST__ASSERT(hoist__list_empty(&stream->node) || stream->generation != hoist__fork_now());
	(void)pthread_rwlock_destroy(&stream->asking);
	free(stream);
}

/* From here on a wait for the device asks the stream whether it captures (query.c).  Streams of the
 * CPU never capture. */
static void join(struct hoist__dev_stream *stream)
{
	struct hoist__dev *dev = stream->dev;
	if (dev->api == HOIST__API_CPU)
		return;
	pthread_mutex_lock(&dev->streams_lock);
	HOIST__ASSERT(hoist__list_empty(&stream->node));
	hoist__list_push_back(&dev->streams, &stream->node);
	pthread_mutex_unlock(&dev->streams_lock);
}

static void part(struct hoist__dev_stream *stream)
{
	struct hoist__dev *dev = stream->dev;
	if (dev->api == HOIST__API_CPU)
		return;
	pthread_mutex_lock(&dev->streams_lock);
	HOIST__ASSERT(!hoist__list_empty(&stream->node));
	hoist__list_remove(&stream->node);
	pthread_mutex_unlock(&dev->streams_lock);
}

int hoist__dev_stream_create(struct hoist__dev *dev, struct hoist__dev_stream **ret)
{
	struct hoist__dev_stream *stream = NULL;
	int err = make_stream(dev, &stream);
	if (err < 0)
		return err;
	err = dev->ops->stream_create(stream);
	if (err < 0) {
		hoist__dev_stream_unref(stream);
		return err;
	}
	join(stream);
	*ret = stream;
	return 0;
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.  HIP has the same numbers, the first since 6.3. */
#define STREAM_LEGACY ((void *)1)
#define STREAM_OF_THREAD ((void *)2)

int hoist__dev_stream_wrap(struct hoist__dev *dev, void *native, struct hoist__dev_stream **ret)
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
	join(stream);
	*ret = stream;
	return 0;
}

/* Asks whether @stream captures, once more where the driver does not say.  If the driver does not
 * say either how much memory there is, which no capture forbids, the context is broken: nothing
 * runs there any more, and there is no capture to keep. */
static int ask_twice(struct hoist__dev_stream *stream, bool *ret)
{
	uint64_t free_bytes;
	uint64_t total_bytes;
	int err = hoist__dev_stream_capturing(stream, ret);
	if (err < 0 && err != -EBADF)
		err = hoist__dev_stream_capturing(stream, ret);
	if (err < 0 && err != -EBADF &&
	    stream->dev->ops->mem_info(stream->dev, &free_bytes, &total_bytes) < 0) {
		*ret = false;
		return 0;
	}
	return err;
}

/* Waits for the work, and returns the answer of the stream's events from now on: 0; a failure,
 * where the driver runs nothing any more; -EAGAIN if nobody knows.  Does not wait if the stream
 * captures, or if the driver does not say: the wait may break the capture.  Nobody can wait for a
 * stream that the caller has destroyed. */
static int wait_for_end(struct hoist__dev_stream *stream)
{
	const struct hoist__dev_ops *ops = stream->dev->ops;
	bool capturing = false;
	int err = hoist__dev_stream_may_capture(stream) ? ask_twice(stream, &capturing) : 0;
	if (capturing || err < 0)
		return -EAGAIN;
	err = ops->stream_synchronize(stream);
	if (err < 0)
		err = ops->stream_query(stream);
	return err == -EAGAIN ? ops->stream_synchronize(stream) : err;
}

/* Waits first, then ends the events that ask by way of the stream, then the stream. */
void hoist__dev_stream_destroy(struct hoist__dev_stream *stream)
{
	if (stream == NULL)
		return;
	/* In a child of fork the native stream is the parent's. */
	if (stream->generation == hoist__fork_now()) {
		part(stream);
		if (stream->dev->api != HOIST__API_CPU)
			hoist__dev_events_end(stream, wait_for_end(stream));
		if (!stream->wrapped)
			stream->dev->ops->stream_destroy(stream);
		hoist__call_queue_end(stream);
	}
	hoist__dev_stream_unref(stream);
}

void *hoist__dev_stream_native(struct hoist__dev_stream *stream)
{
	if (stream->dev->api == HOIST__API_CPU)
		return NULL;
	atomic_store(&stream->may_capture, true);
	return stream->native;
}

bool hoist__dev_stream_may_capture(const struct hoist__dev_stream *stream)
{
	return atomic_load(&stream->may_capture);
}

struct hoist__dev *hoist__dev_stream_dev(const struct hoist__dev_stream *stream)
{
	return stream->dev;
}

int hoist__dev_stream_await(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	return err < 0 ? err : stream->dev->ops->stream_synchronize(stream);
}

int hoist__dev_stream_synchronize(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0)
		return err;
	err = stream->dev->ops->stream_synchronize(stream);
	int call_err =
		atomic_load(&stream->calls) != NULL ? hoist__call_queue_take_failure(stream) : 0;
	return call_err < 0 ? call_err : err;
}

int hoist__dev_stream_query(struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err == 0)
		err = stream->dev->ops->stream_query(stream);
	return err < 0 ? err : hoist__call_queue_failure(stream);
}

int hoist__dev_stream_capturing(struct hoist__dev_stream *stream, bool *ret)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0)
		return err;
	if (stream->dev->ops->stream_capturing != NULL)
		return stream->dev->ops->stream_capturing(stream, ret);
	*ret = false;
	return 0;
}

bool hoist__dev_stream_forbids_wait(struct hoist__dev_stream *stream)
{
	struct hoist__failure failure;
	bool capturing = false;
	if (!hoist__dev_stream_may_capture(stream))
		return false;
	hoist__failure_keep(&failure);
	int err = ask_twice(stream, &capturing);
	(void)hoist__fail_again(0, &failure);
	/* A stream that the caller has destroyed captures nothing. */
	return capturing || (err < 0 && err != -EBADF);
}

int hoist__dev_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
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
	if (hoist__dev_event_is_over(event))
		return 0;
	/* If the event's stream captures, the wait draws this stream into the capture. */
	if (stream->dev->ops->stream_capturing != NULL)
		atomic_store(&stream->may_capture, true);
	return stream->dev->ops->stream_wait_event(stream, event);
}
