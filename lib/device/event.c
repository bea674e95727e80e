/* SPDX-License-Identifier: MIT */
/* lib/device/event.c - public events: each holds a mark, and recording again may replace the mark.
 * The contract is in hoist/stream.h. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "lib/device/stream-private.h"

struct hoist_event {
	_Atomic unsigned xrefs;
	hoist_device *device;
	unsigned flags; /* HOIST__EVENT_* */
	unsigned generation;
	pthread_mutex_t lock; /* for the fields below */
	struct hoist__mark *mark;
	struct hoist__past past;
	bool recorded;
};

_Static_assert(HOIST_EVENT_TIMING == HOIST__EVENT_TIMING, "public flags are passed on");

static int check(const hoist_event *event, const char *what)
{
	if (event == NULL)
		return hoist__fail(-EINVAL, "the event %s is NULL", what);
	return hoist__check_generation(event->generation, "the event");
}

int hoist_event_create(hoist_device *device, unsigned flags, hoist_event **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to make an event of is NULL");
	hoist_event *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("an event", sizeof *made);
	int err = hoist__mark_create(device, flags, &made->mark);
	if (err < 0) {
		free(made);
		return hoist__fail_in(err, "an event of %s", hoist_device_spec(device));
	}
	atomic_init(&made->xrefs, 1);
	made->device = device;
	made->flags = flags;
	made->generation = hoist__fork_now();
	pthread_mutex_init(&made->lock, NULL);
	*ret = made;
	return 0;
}

hoist_event *hoist_event_ref(hoist_event *event)
{
	atomic_fetch_add_explicit(&event->xrefs, 1, memory_order_relaxed);
	return event;
}

void hoist_event_unref(hoist_event *event)
{
	if (event == NULL || atomic_fetch_sub_explicit(&event->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	hoist__past_clear(&event->past);
	hoist__mark_unref(event->mark);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

hoist_device *hoist_event_device(const hoist_event *event)
{
	return event->device;
}

/* If others hold the mark, they wait for the point where the mark is.  So the event gets a new
 * mark.  The caller holds the lock, so that nobody can take another reference meanwhile. */
static int record(hoist_event *event, hoist_stream *stream)
{
	struct hoist__past past = {NULL, 0, 0};
	struct hoist__mark *mark = event->mark;
	bool shared = atomic_load_explicit(&mark->xrefs, memory_order_acquire) != 1;
	int err = shared ? hoist__mark_create(event->device, event->flags, &mark) : 0;
	if (err < 0)
		return err;
	err = hoist__mark_record(mark, stream, &past);
	if (err < 0) {
		if (shared)
			hoist__mark_unref(mark);
		return err;
	}
	if (shared)
		hoist__mark_unref(event->mark);
	hoist__past_clear(&event->past);
	event->mark = mark;
	event->past = past;
	event->recorded = true;
	return 0;
}

int hoist_event_record(hoist_event *event, hoist_stream *stream)
{
	int err = check(event, "to record");
	if (err < 0)
		return err;
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to record an event of %s on is NULL",
				   hoist_device_spec(event->device));
	if (stream->device != event->device)
		return hoist__fail(-EINVAL, "an event of %s cannot be recorded on a stream of %s",
				   hoist_device_spec(event->device),
				   hoist_device_spec(stream->device));
	pthread_mutex_lock(&event->lock);
	err = record(event, stream);
	pthread_mutex_unlock(&event->lock);
	if (err < 0)
		return hoist__fail_in(err, "recording an event on a stream of %s",
				      hoist_device_spec(event->device));
	return 0;
}

int hoist_stream_record(hoist_stream *stream, unsigned flags, hoist_event **ret)
{
	hoist_event *made;
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to record an event on is NULL");
	int err = hoist_event_create(stream->device, flags, &made);
	if (err < 0)
		return err;
	err = hoist_event_record(made, stream);
	if (err < 0) {
		hoist_event_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}

/* Returns the event's present mark, with a reference; NULL if the event was never recorded. */
static struct hoist__mark *mark_of(hoist_event *event)
{
	struct hoist__mark *mark = NULL;
	pthread_mutex_lock(&event->lock);
	if (event->recorded)
		mark = hoist__mark_ref(event->mark);
	pthread_mutex_unlock(&event->lock);
	return mark;
}

/* The mark and its past are copied under the lock, and waited for without it: another thread may
 * record the event meanwhile, and this wait is for the point that was recorded before. */
int hoist_stream_wait_event(hoist_stream *stream, hoist_event *event)
{
	struct hoist__past past = {NULL, 0, 0};
	struct hoist__mark *mark = NULL;
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to make wait is NULL");
	int err = check(event, "to wait for");
	if (err == 0)
		err = hoist__check_generation(stream->generation, "the stream");
	if (err < 0)
		return err;
	pthread_mutex_lock(&event->lock);
	if (event->recorded)
		err = hoist__past_copy(&event->past, &past);
	if (event->recorded && err == 0)
		mark = hoist__mark_ref(event->mark);
	pthread_mutex_unlock(&event->lock);
	if (mark != NULL)
		err = hoist__stream_wait_mark(stream, mark, &past);
	hoist__past_clear(&past);
	hoist__mark_unref(mark);
	if (err < 0)
		return hoist__fail_in(err, "making a stream of %s wait for an event of %s",
				      hoist_device_spec(stream->device),
				      hoist_device_spec(event->device));
	return 0;
}

/* A captured mark is a node of a graph, and never runs.  Asking a driver for it would break the
 * capture. */
static int check_captured(const struct hoist__mark *mark)
{
	if (!mark->captured)
		return 0;
	return hoist__fail(-ENOTSUP,
			   "the event was recorded while its stream captured a graph; such an "
			   "event completes only for other streams of the capture");
}

int hoist_event_query(hoist_event *event)
{
	int err = check(event, "to ask");
	struct hoist__mark *mark = err == 0 ? mark_of(event) : NULL;
	if (mark == NULL)
		return err;
	err = check_captured(mark);
	if (err == 0)
		err = hoist__dev_event_query(mark->event);
	hoist__mark_unref(mark);
	return err;
}

int hoist_event_synchronize(hoist_event *event)
{
	int err = check(event, "to wait for");
	struct hoist__mark *mark = err == 0 ? mark_of(event) : NULL;
	if (mark == NULL)
		return err;
	err = check_captured(mark);
	if (err == 0)
		err = hoist__dev_event_synchronize(mark->event);
	hoist__mark_unref(mark);
	if (err < 0)
		return hoist__fail_in(err, "work before an event of %s",
				      hoist_device_spec(event->device));
	return 0;
}

static int check_pair(const hoist_event *start, const hoist_event *end)
{
	int err = check(start, "that time begins at");
	if (err == 0)
		err = check(end, "that time ends at");
	if (err < 0)
		return err;
	if (start->device != end->device)
		return hoist__fail(-EINVAL, "events of %s and %s have no common clock",
				   hoist_device_spec(start->device),
				   hoist_device_spec(end->device));
	bool at_start = (start->flags & HOIST_EVENT_TIMING) == 0;
	if (at_start || (end->flags & HOIST_EVENT_TIMING) == 0)
		return hoist__fail(-EINVAL,
				   "the event of %s that time %s at keeps no time; create the "
				   "event with HOIST_EVENT_TIMING",
				   hoist_device_spec(start->device), at_start ? "begins" : "ends");
	return 0;
}

/* Drivers tell times only of events that have completed.  Not every driver says so of others, hence
 * the queries before. */
static int elapsed(struct hoist__mark *start, struct hoist__mark *end, uint64_t *ret)
{
	if (start == NULL || end == NULL)
		return hoist__fail(-EINVAL, "the event that time %s at was never recorded",
				   start == NULL ? "begins" : "ends");
	int err = check_captured(start);
	if (err == 0)
		err = check_captured(end);
	if (err == 0)
		err = hoist__dev_event_query(start->event);
	if (err == 0)
		err = hoist__dev_event_query(end->event);
	return err < 0 ? err : hoist__dev_event_elapsed_ns(start->event, end->event, ret);
}

int hoist_event_elapsed_ns(hoist_event *start, hoist_event *end, uint64_t *ret)
{
	int err = check_pair(start, end);
	if (err < 0)
		return err;
	struct hoist__mark *marks[2] = {mark_of(start), mark_of(end)};
	err = elapsed(marks[0], marks[1], ret);
	if (err == -EAGAIN)
		(void)hoist__fail(
			err, "an event of %s has not completed; synchronize with the event first",
			hoist_device_spec(start->device));
	hoist__mark_unref(marks[0]);
	hoist__mark_unref(marks[1]);
	return err;
}
