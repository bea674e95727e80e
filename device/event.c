/* SPDX-License-Identifier: MIT */
/* device/event.c - events, and their answers when their stream is gone.
 * The contract is in device/device.h.
 *
 * Since ROCm 6.2 an event of HIP's holds a bare pointer to the stream that it was last recorded on.
 * Asking the event, or waiting for it, reads that stream.  If the stream captures by then, asking
 * breaks the capture.  So an event knows its stream.  Destroying the stream first ends its events;
 * no driver is asked about them afterwards.  CUDA's events do not read streams; they go the same
 * way, except that they may be asked during a capture.
 *
 * Two kinds of streams end without a wait: one that is destroyed while it captures, and one whose
 * native handle the caller has destroyed.  Their events are lost.  A lost event has completed when
 * a wait for the whole device, begun later, has ended. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "device/device-ops.h"

/* --- events of streams that are gone --- */

void hoist__dev_events_end(struct hoist__dev_stream *stream, int outcome)
{
	pthread_rwlock_wrlock(&stream->asking);
	if (!stream->gone) {
		stream->outcome = outcome;
		stream->lost_until = hoist__dev_next_wait();
		stream->gone = true;
	}
	pthread_rwlock_unlock(&stream->asking);
}

/* @stream is gone. */
static int outcome_of(const struct hoist__dev_stream *stream, bool wait)
{
	HOIST__ASSERT(stream->gone && stream->outcome <= 0);
	if (stream->outcome == 0)
		return 0;
	if (stream->outcome != -EAGAIN)
		return hoist__fail(stream->outcome, "work on the event's stream had failed when "
						    "the stream was destroyed");
	if (hoist__dev_waited(stream->dev, stream->lost_until))
		return 0;
	if (!wait)
		return -EAGAIN;
	int err = hoist__dev_synchronize(stream->dev);
	return err < 0 && err != -ESTALE
		       ? hoist__fail_in(-EBUSY, "waiting for an event whose stream "
						"was destroyed early")
		       : err;
}

bool hoist__dev_event_is_over(struct hoist__dev_event *event)
{
	struct hoist__dev_stream *stream = atomic_load(&event->stream);
	if (stream == NULL)
		return false;
	pthread_rwlock_rdlock(&stream->asking);
	bool over = stream->gone && stream->outcome == 0;
	pthread_rwlock_unlock(&stream->asking);
	return over;
}

/* --- asking --- */

/* 0, or why a driver whose events read their stream must not be asked now. */
static int check_stream(struct hoist__dev_stream *stream, bool wait)
{
	bool capturing = false;
	if (!stream->dev->ops->events_read_streams || !hoist__dev_stream_may_capture(stream))
		return 0;
	int err = hoist__dev_stream_capturing(stream, &capturing);
	if (err == 0 && !capturing)
		return 0;
	if (err == -EBADF || !wait)
		return err == -EBADF ? err : -EAGAIN;
	return err < 0 ? err
		       : hoist__fail(-ENOTSUP, "the event's stream captures a graph, which waiting "
					       "for the event would break; end the capture first");
}

static int ask(struct hoist__dev_event *event, int (*driver)(struct hoist__dev_event *event),
	       bool wait)
{
	struct hoist__dev_stream *stream = atomic_load(&event->stream);
	if (stream == NULL)
		return driver(event);
	pthread_rwlock_rdlock(&stream->asking);
	bool gone = stream->gone;
	int err = gone ? 0 : check_stream(stream, wait);
	if (!gone && err == 0)
		err = driver(event);
	pthread_rwlock_unlock(&stream->asking);
	if (!gone && err == -EBADF) {
		hoist__dev_events_end(stream, -EAGAIN);
		gone = true;
	}
	return gone ? outcome_of(stream, wait) : err;
}

/* --- events --- */

int hoist__dev_event_create(struct hoist__dev *dev, unsigned flags, struct hoist__dev_event **ret)
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

void hoist__dev_event_destroy(struct hoist__dev_event *event)
{
	if (event == NULL)
		return;
	if (event->generation == hoist__fork_now())
		event->dev->ops->event_destroy(event);
	hoist__dev_stream_unref(atomic_load(&event->stream));
	free(event);
}

/* From now on questions to the event go by way of @stream, which stays in memory for them. */
static void follow(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	if (stream->dev->api == HOIST__API_CPU || atomic_load(&event->stream) == stream)
		return;
	HOIST__ASSERT(atomic_load(&stream->refs) != 0 && stream->dev == event->dev);
	atomic_fetch_add(&stream->refs, 1);
	hoist__dev_stream_unref(atomic_exchange(&event->stream, stream));
}

int hoist__dev_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0)
		return err;
	if (event->dev != stream->dev)
		return hoist__fail(-EINVAL, "an event of %s:%d cannot be recorded on %s:%d",
				   hoist__api_name(event->dev->api), event->dev->ordinal,
				   hoist__api_name(stream->dev->api), stream->dev->ordinal);
	err = event->dev->ops->event_record(event, stream);
	if (err == 0) {
		follow(event, stream);
		atomic_store(&event->recorded, true);
	}
	return err;
}

int hoist__dev_event_query(struct hoist__dev_event *event)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0 || !atomic_load(&event->recorded))
		return err;
	return ask(event, event->dev->ops->event_query, false);
}

int hoist__dev_event_synchronize(struct hoist__dev_event *event)
{
	int err = hoist__dev_check_process(event->generation, "the event");
	if (err < 0 || !atomic_load(&event->recorded))
		return err;
	return ask(event, event->dev->ops->event_synchronize, true);
}

int hoist__dev_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
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
