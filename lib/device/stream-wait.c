/* SPDX-License-Identifier: MIT */
/* lib/device/stream-wait.c - marks and pasts: lets a stream wait for a point in any other stream.
 * The contract is in lib/device/stream-private.h. */
#include "config.h"

#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/device/stream-private.h"
#include "lib/device/stream.h"

#define CAPTURE_POLL_NS 200000

int hoist__check_generation(unsigned generation, const char *what)
{
	if (generation == hoist__fork_now())
		return 0;
	return hoist__fail(-ESTALE,
			   "%s belongs to the process that forked this one; a child of fork cannot "
			   "use that: the child must make one of its own",
			   what);
}

/* --- marks --- */

static enum hoist__api api_of(const hoist_stream *stream)
{
	return hoist__dev_api(hoist__dev_stream_dev(stream->stream));
}

static enum hoist__api mark_api(const struct hoist__mark *mark)
{
	return hoist__dev_api(mark->dev);
}

int hoist__mark_create(hoist_device *device, unsigned flags, struct hoist__mark **ret)
{
	struct hoist__mark *mark = calloc(1, sizeof *mark);
	if (mark == NULL)
		return hoist__fail_nomem("a point in a stream", sizeof *mark);
	mark->dev = hoist__device_dev(device);
	int err = hoist__dev_event_create(mark->dev, flags, &mark->event);
	if (err < 0) {
		free(mark);
		return err;
	}
	atomic_init(&mark->xrefs, 1);
	*ret = mark;
	return 0;
}

struct hoist__mark *hoist__mark_ref(struct hoist__mark *mark)
{
	atomic_fetch_add_explicit(&mark->xrefs, 1, memory_order_relaxed);
	return mark;
}

void hoist__mark_unref(struct hoist__mark *mark)
{
	if (mark == NULL || atomic_fetch_sub_explicit(&mark->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	hoist__dev_event_destroy(mark->event);
	free(mark);
}

static int is_capturing(hoist_stream *stream, bool *ret)
{
	*ret = false;
	if (!hoist__dev_stream_may_capture(stream->stream))
		return 0;
	return hoist__dev_stream_capturing(stream->stream, ret);
}

int hoist__stream_check_capture(hoist_stream *stream)
{
	bool capturing;
	int err = is_capturing(stream, &capturing);
	if (err < 0 || !capturing)
		return err;
	return hoist__fail(-ENOTSUP,
			   "the stream of %s captures a graph, and this has to wait for the host; "
			   "copies on it between its memory and pinned memory do not",
			   hoist_device_spec(stream->device));
}

/* A stream's past has each mark before the stream's wait for the mark is queued.  So the copy of
 * the past, taken before the event is recorded, has all that the event is behind. */
int hoist__mark_record(struct hoist__mark *mark, hoist_stream *stream, struct hoist__past *ret)
{
	struct hoist__past past = {NULL, 0, 0};
	bool captured = false;
	int err = hoist__check_generation(stream->generation, "the stream");
	if (err == 0)
		err = is_capturing(stream, &captured);
	if (err < 0)
		return err;
	pthread_mutex_lock(&stream->lock);
	err = hoist__past_copy(&stream->past, &past);
	if (err == 0)
		err = hoist__dev_event_record(mark->event, stream->stream);
	if (err == 0) {
		mark->stream_id = stream->id;
		mark->serial = ++stream->n_marks;
		mark->captured = captured;
	}
	pthread_mutex_unlock(&stream->lock);
	if (err < 0)
		hoist__past_clear(&past);
	else
		*ret = past;
	return err;
}

/* --- pasts --- */

void hoist__past_clear(struct hoist__past *past)
{
	for (size_t i = 0; i < past->n; i++)
		hoist__mark_unref(past->marks[i]);
	free(past->marks);
	*past = (struct hoist__past){NULL, 0, 0};
}

int hoist__past_copy(const struct hoist__past *past, struct hoist__past *ret)
{
	struct hoist__past made = {NULL, past->n, past->n};
	if (made.n > 0) {
		made.marks = calloc(made.n, sizeof(struct hoist__mark *));
		if (made.marks == NULL)
			return hoist__fail_nomem("the marks that a stream waits for",
						 made.n * sizeof(struct hoist__mark *));
	}
	for (size_t i = 0; i < made.n; i++)
		made.marks[i] = hoist__mark_ref(past->marks[i]);
	*ret = made;
	return 0;
}

/* A mark that was reached, or that failed, holds up no stream. */
static void forget_reached(struct hoist__past *past)
{
	size_t kept = 0;
	for (size_t i = 0; i < past->n; i++)
		if (hoist__dev_event_query(past->marks[i]->event) == -EAGAIN)
			past->marks[kept++] = past->marks[i];
		else
			hoist__mark_unref(past->marks[i]);
	past->n = kept;
}

void hoist__stream_forget_reached(hoist_stream *stream)
{
	if (!atomic_load(&stream->xwaits) || stream->generation != hoist__fork_now())
		return;
	pthread_mutex_lock(&stream->lock);
	forget_reached(&stream->past);
	atomic_store(&stream->xwaits, stream->past.n != 0);
	pthread_mutex_unlock(&stream->lock);
}

/* Makes room for @n more marks. */
static int make_room(struct hoist__past *past, size_t n)
{
	if (past->room - past->n >= n)
		return 0;
	forget_reached(past);
	if (past->room - past->n >= n)
		return 0;
	size_t room = 2 * past->n + n;
	struct hoist__mark **marks = realloc(past->marks, room * sizeof(struct hoist__mark *));
	if (marks == NULL)
		return hoist__fail_nomem("the marks that a stream waits for",
					 room * sizeof(struct hoist__mark *));
	past->marks = marks;
	past->room = room;
	return 0;
}

/* If two marks are in one stream, the later one includes the earlier.  Pre: there is room. */
static void add(struct hoist__past *past, struct hoist__mark *mark)
{
	size_t i = 0;
	while (i < past->n && past->marks[i]->stream_id != mark->stream_id)
		i++;
	if (i == past->n)
		past->n++;
	else if (past->marks[i]->serial < mark->serial)
		hoist__mark_unref(past->marks[i]);
	else
		return;
	past->marks[i] = hoist__mark_ref(mark);
}

/* Adds the mark to the stream's past before the wait is queued.  If queueing fails, the mark makes
 * later waits more careful than needed, which does no harm. */
static int remember(hoist_stream *stream, struct hoist__mark *mark, const struct hoist__past *past)
{
	bool crosses = mark_api(mark) != api_of(stream);
	if (!crosses && past->n == 0)
		return 0;
	pthread_mutex_lock(&stream->lock);
	atomic_store(&stream->xwaits, true);
	int err = make_room(&stream->past, past->n + 1);
	for (size_t i = 0; err == 0 && i < past->n; i++)
		add(&stream->past, past->marks[i]);
	if (err == 0 && crosses)
		add(&stream->past, mark);
	pthread_mutex_unlock(&stream->lock);
	return err;
}

/* --- waiting --- */

/* Runs in the order of the waiting stream.  Takes over the reference to the mark. */
static int block_for_mark(void *context)
{
	struct hoist__mark *mark = context;
	struct hoist__failure failure;
	const struct hoist__dev *dev = mark->dev;
	int err = hoist__dev_event_synchronize(mark->event);
	/* The mark's stream has begun to capture a graph: wait for the capture's end. */
	while (err == -ENOTSUP) {
		(void)nanosleep(&(struct timespec){.tv_nsec = CAPTURE_POLL_NS}, NULL);
		err = hoist__dev_event_synchronize(mark->event);
	}
	if (err < 0)
		hoist__failure_keep(&failure);
	hoist__mark_unref(mark);
	if (err < 0)
		return hoist__fail_because(err, &failure, "waiting for a stream of %s:%d: %s",
					   hoist__api_name(hoist__dev_api(dev)),
					   hoist__dev_ordinal(dev), failure.text);
	return 0;
}

static int check_captures(hoist_stream *stream, const struct hoist__mark *mark)
{
	bool capturing = false;
	int err = is_capturing(stream, &capturing);
	if (err < 0 || (!capturing && !mark->captured))
		return err;
	return hoist__fail(
		-ENOTSUP,
		"a stream of %s cannot wait for one of %s: the %s captures a graph, which "
		"takes in work of its own API alone; end the capture first",
		hoist_device_spec(stream->device), hoist__api_name(mark_api(mark)),
		capturing ? "first" : "second");
}

static int wait_across(hoist_stream *stream, struct hoist__mark *mark,
		       const struct hoist__past *past)
{
	int err = 0;
	if (api_of(stream) != HOIST__API_CPU)
		for (size_t i = 0; err == 0 && i < past->n; i++)
			if (mark_api(past->marks[i]) == api_of(stream))
				err = hoist__dev_stream_wait_event(stream->stream,
								   past->marks[i]->event);
	if (err < 0)
		return err;
	err = hoist__dev_stream_call(stream->stream, block_for_mark, hoist__mark_ref(mark));
	if (err < 0)
		hoist__mark_unref(mark);
	return err;
}

int hoist__stream_wait_mark(hoist_stream *stream, struct hoist__mark *mark,
			    const struct hoist__past *past)
{
	bool crosses = mark_api(mark) != api_of(stream);
	int err = hoist__check_generation(stream->generation, "the stream");
	if (err == 0 && crosses)
		err = check_captures(stream, mark);
	if (err == 0)
		err = remember(stream, mark, past);
	if (err < 0)
		return err;
	return crosses ? wait_across(stream, mark, past)
		       : hoist__dev_stream_wait_event(stream->stream, mark->event);
}

static int wait_for(hoist_stream *stream, hoist_stream *other)
{
	struct hoist__mark *mark;
	struct hoist__past past = {NULL, 0, 0};
	int err = hoist__mark_create(other->device, 0, &mark);
	if (err < 0)
		return err;
	err = hoist__mark_record(mark, other, &past);
	if (err == 0)
		err = hoist__stream_wait_mark(stream, mark, &past);
	hoist__past_clear(&past);
	hoist__mark_unref(mark);
	return err;
}

int hoist_stream_wait_for(hoist_stream *stream, hoist_stream *other)
{
	if (stream == NULL || other == NULL)
		return hoist__fail(-EINVAL, "the stream to %s is NULL",
				   stream == NULL ? "make wait" : "wait for");
	int err = stream == other ? hoist__check_generation(stream->generation, "the stream")
				  : wait_for(stream, other);
	if (err < 0)
		return hoist__fail_in(err, "making a stream of %s wait for one of %s",
				      hoist_device_spec(stream->device),
				      hoist_device_spec(other->device));
	return 0;
}

int hoist_stream_wait_for_device(hoist_stream *stream, hoist_device *device)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to wait for is NULL");
	hoist_stream *other = hoist__device_known_stream(device);
	if (stream == NULL || other != NULL)
		return hoist_stream_wait_for(stream, other);
	return hoist__check_generation(stream->generation, "the stream");
}
