/* SPDX-License-Identifier: MIT */
/* device/call.c - calls of functions in the order of a stream, and their failures.
 * The contract is in device/device.h.
 *
 * A backend calls a plain function once, or never if earlier work failed.  Each call on its way
 * is in its stream's list, so that none is lost.  Calls that were never made are kept when the
 * stream ends, because no driver says when it is done with them.  A captured call would be made
 * each time that somebody runs the graph, so a capturing stream takes no calls. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "device/device-ops.h"

/* The calls of one stream. */
struct hoist__call_queue {
	struct hoist__list link; /* in abandoned */
	pthread_mutex_t lock;	 /* guards all below */
	struct hoist__list pending;
	int err; /* the first failure that was not taken */
	struct hoist__failure failure;
};

struct call {
	struct hoist__list link;
	struct hoist__call_queue *calls;
	int (*run)(void *context);
	void *context;
};

/* The calls of streams that broke. */
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoist__list abandoned = {&abandoned, &abandoned};

static struct hoist__call_queue *calls_of(struct hoist__dev_stream *stream)
{
	struct hoist__call_queue *calls = atomic_load(&stream->calls);
	if (calls != NULL)
		return calls;
	struct hoist__call_queue *made = calloc(1, sizeof *made);
	if (made == NULL)
		return NULL;
	pthread_mutex_init(&made->lock, NULL);
	hoist__list_init(&made->pending);
	if (atomic_compare_exchange_strong(&stream->calls, &calls, made))
		return made;
	pthread_mutex_destroy(&made->lock);
	free(made);
	return calls;
}

/* Runs on the driver's thread.  Nobody reads that thread's error text, so the failure keeps it. */
static void perform(void *argument)
{
	struct call *call = argument;
	struct hoist__call_queue *calls = call->calls;
	int err = call->run(call->context);
	pthread_mutex_lock(&calls->lock);
	HOIST__ASSERT(!hoist__list_empty(&calls->pending));
	if (err < 0 && calls->err == 0) {
		calls->err = err;
		hoist__failure_keep(&calls->failure);
	}
	hoist__list_remove(&call->link);
	pthread_mutex_unlock(&calls->lock);
	free(call);
}

static void drop(struct call *call)
{
	pthread_mutex_lock(&call->calls->lock);
	HOIST__ASSERT(!hoist__list_empty(&call->link));
	hoist__list_remove(&call->link);
	pthread_mutex_unlock(&call->calls->lock);
	free(call);
}

static int check_capture(struct hoist__dev_stream *stream)
{
	bool capturing = false;
	if (!hoist__dev_stream_may_capture(stream))
		return 0;
	int err = hoist__dev_stream_capturing(stream, &capturing);
	if (err < 0 || !capturing)
		return err;
	return hoist__fail(-ENOTSUP,
			   "%s:%d: the stream captures a graph, which may run never or many times; "
			   "end the capture first",
			   hoist__api_name(stream->dev->api), stream->dev->ordinal);
}

int hoist__call_queue_fail_lack(const struct hoist__dev *dev)
{
	return hoist__fail(-ENOTSUP,
			   "%s:%d: the driver (version %d) cannot call a function in a stream's "
			   "order; update the driver",
			   hoist__api_name(dev->api), dev->ordinal, dev->props.driver_version);
}

int hoist__dev_stream_call(struct hoist__dev_stream *stream, int (*run)(void *context),
			   void *context)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err == 0)
		err = check_capture(stream);
	if (err < 0)
		return err;
	struct hoist__call_queue *calls = calls_of(stream);
	struct call *call = calls == NULL ? NULL : calloc(1, sizeof *call);
	if (call == NULL)
		return hoist__fail_nomem("a call in a stream's order",
					 calls == NULL ? sizeof *calls : sizeof *call);
	*call = (struct call){.calls = calls, .run = run, .context = context};
	pthread_mutex_lock(&calls->lock);
	hoist__list_push_back(&calls->pending, &call->link);
	pthread_mutex_unlock(&calls->lock);
	err = stream->dev->ops->stream_call(stream, perform, call);
	if (err < 0)
		drop(call);
	return err;
}

static int failure(struct hoist__dev_stream *stream, bool take)
{
	struct hoist__call_queue *calls = atomic_load(&stream->calls);
	if (calls == NULL)
		return 0;
	pthread_mutex_lock(&calls->lock);
	int err = calls->err;
	if (err < 0)
		(void)hoist__fail_again(err, &calls->failure);
	if (take)
		calls->err = 0;
	pthread_mutex_unlock(&calls->lock);
	return err;
}

int hoist__call_queue_take_failure(struct hoist__dev_stream *stream)
{
	return failure(stream, true);
}

int hoist__call_queue_failure(struct hoist__dev_stream *stream)
{
	return failure(stream, false);
}

void hoist__call_queue_end(struct hoist__dev_stream *stream)
{
	struct hoist__call_queue *calls = atomic_load(&stream->calls);
	if (calls == NULL)
		return;
	if (hoist__call_queue_take_failure(stream) < 0)
		hoist__log(device, "the stream ends with: %s", hoist__error_text());
	pthread_mutex_lock(&calls->lock);
	bool broken = !hoist__list_empty(&calls->pending);
	pthread_mutex_unlock(&calls->lock);
	if (broken) {
		pthread_mutex_lock(&abandoned_lock);
		hoist__list_push_back(&abandoned, &calls->link);
		pthread_mutex_unlock(&abandoned_lock);
		return;
	}
	pthread_mutex_destroy(&calls->lock);
	free(calls);
}
