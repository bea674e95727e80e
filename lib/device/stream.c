/* SPDX-License-Identifier: MIT */
/* lib/device/stream.c - streams as objects: their list, and the public face of the driver's
 * streams.
 * The contract is in hoist/stream.h and lib/device/stream-private.h.
 */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/lock-fork.h"
#include "hoist/user.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/device/stream-private.h"
#include "lib/device/stream.h"

/* All streams, in the order of their ids. */
static struct hoist__lock all_lock;
static struct hoist__list all = {&all, &all};
static uint64_t last_id; /* under all_lock */

/* The lock is held across fork: the child uses the list for streams of its own. */
HOIST__WATCH_FORKS(all_lock, device, "streams")

static void join_all(hoist_stream *stream)
{
	watch_forks();
	hoist__lock(&all_lock);
	stream->id = ++last_id;
	hoist__list_push_back(&all, &stream->link);
	hoist__unlock(&all_lock);
}

static int check_device(const hoist_device *device)
{
	return device != NULL ? 0 : hoist__fail(-EINVAL, "the device to make a stream of is NULL");
}

/* Takes over @stream, also on failure. */
static int make(hoist_device *device, struct hoist__dev_stream *stream, hoist_stream **ret)
{
	hoist_stream *made = calloc(1, sizeof *made);
	if (made == NULL) {
		hoist__dev_stream_destroy(stream);
		return hoist__fail_nomem("a stream", sizeof *made);
	}
	atomic_init(&made->xrefs, 1);
	made->device = device;
	made->stream = stream;
	made->generation = hoist__fork_now();
	pthread_mutex_init(&made->lock, NULL);
	join_all(made);
	*ret = made;
	return 0;
}

int hoist_stream_create(hoist_device *device, hoist_stream **ret)
{
	int err = check_device(device);
	if (err < 0)
		return err;
	struct hoist__dev_stream *stream;
	err = hoist__dev_stream_create(hoist__device_dev(device), &stream);
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
	err = hoist__dev_stream_wrap(hoist__device_dev(device), native, &stream);
	if (err < 0)
		return hoist__fail_in(err, "wrapping a stream of %s", hoist_device_spec(device));
	return make(device, stream, ret);
}

hoist_stream *hoist_stream_ref(hoist_stream *stream)
{
	atomic_fetch_add_explicit(&stream->xrefs, 1, memory_order_relaxed);
	return stream;
}

void hoist__stream_end(hoist_stream *stream)
{
	hoist__lock(&all_lock);
	hoist__list_remove(&stream->link);
	hoist__unlock(&all_lock);
	hoist__dev_stream_destroy(stream->stream);
	hoist__past_clear(&stream->past);
	pthread_mutex_destroy(&stream->lock);
	struct hoist__user user = stream->user;
	free(stream);
	hoist__user_end(&user);
}

bool hoist__stream_is_over(const hoist_stream *stream)
{
	return atomic_load(&stream->xrefs) == 1 && stream->generation == hoist__fork_now() &&
	       !hoist__dev_stream_may_capture(stream->stream) &&
	       hoist__dev_stream_query(stream->stream) == 0;
}

hoist_device *hoist_stream_device(const hoist_stream *stream)
{
	return stream->device;
}

int hoist_stream_is_default(const hoist_stream *stream)
{
	return atomic_load(&stream->device->xstream) == stream;
}

void *hoist_stream_native(const hoist_stream *stream)
{
	return hoist__dev_stream_native(stream->stream);
}

int hoist__stream_drain(hoist_stream *stream)
{
	int err = hoist__dev_stream_synchronize(stream->stream);
	if (err == 0 && atomic_load(&stream->xwaits))
		hoist__stream_forget_reached(stream);
	return err;
}

int hoist__stream_settle(hoist_stream *stream)
{
	int err = hoist__dev_stream_may_capture(stream->stream)
			  ? hoist__stream_check_capture(stream)
			  : 0;
	return err < 0 ? err : hoist_stream_synchronize(stream);
}

int hoist_stream_synchronize(hoist_stream *stream)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to wait for is NULL");
	int err = hoist__stream_drain(stream);
	if (err < 0)
		return hoist__fail_in(err, "work on a stream of %s",
				      hoist_device_spec(stream->device));
	return 0;
}

int hoist_stream_query(hoist_stream *stream)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to ask is NULL");
	int err = hoist__dev_stream_query(stream->stream);
	if (err < 0 && err != -EAGAIN)
		return hoist__fail_in(err, "work on a stream of %s",
				      hoist_device_spec(stream->device));
	return err;
}

/* --- calls --- */

struct call {
	int (*run)(void *context);
	void *context;
};

/* The caller's function does not set hoist's error text.  A positive number is neither a failure of
 * hoist's nor a negative errno value, and is refused. */
static int perform(void *context)
{
	struct call call = *(struct call *)context;
	free(context);
	int err = call.run(call.context);
	if (err > 0)
		return hoist__fail(-EINVAL,
				   "a function that the stream called gave %d, which is neither 0 "
				   "nor a negative errno value",
				   err);
	return err == 0 ? 0 : hoist__fail_errno(err, "a function that the stream called failed");
}

int hoist_stream_call(hoist_stream *stream, int (*run)(void *context), void *context)
{
	if (stream == NULL || run == NULL)
		return hoist__fail(-EINVAL, "the %s is NULL",
				   stream == NULL ? "stream that calls" : "function to call");
	struct call *call = malloc(sizeof *call);
	if (call == NULL)
		return hoist__fail_nomem("a call in a stream's order", sizeof *call);
	*call = (struct call){run, context};
	int err = hoist__dev_stream_call(stream->stream, perform, call);
	if (err < 0) {
		free(call);
		return hoist__fail_in(err, "calling a function on a stream of %s",
				      hoist_device_spec(stream->device));
	}
	return 0;
}

/* --- all streams of a device --- */

hoist_stream *hoist__streams_next(const hoist_device *device, uint64_t after, uint64_t last)
{
	hoist_stream *found = NULL;
	hoist__lock(&all_lock);
	for (struct hoist__list *link = all.next; link != &all && found == NULL;
	     link = link->next) {
		hoist_stream *stream = HOIST__CONTAINER_OF(link, hoist_stream, link);
		if (stream->id > last)
			break;
		if (stream->id <= after || stream->device != device ||
		    stream->generation != hoist__fork_now())
			continue;
		/* A stream without references is about to end, and is passed over. */
		unsigned refs = atomic_load(&stream->xrefs);
		while (refs != 0 &&
		       !atomic_compare_exchange_weak(&stream->xrefs, &refs, refs + 1)) {
		}
		if (refs != 0)
			found = stream;
	}
	hoist__unlock(&all_lock);
	return found;
}

uint64_t hoist__streams_last(void)
{
	hoist__lock(&all_lock);
	uint64_t last = last_id;
	hoist__unlock(&all_lock);
	return last;
}

struct hoist__dev_stream *hoist__stream_dev_stream(const hoist_stream *stream)
{
	return stream->stream;
}

int hoist_stream_set_user(hoist_stream *stream, void *expected, void *data,
			  void (*release)(void *data))
{
	return hoist__user_set(stream != NULL ? &stream->user : NULL, "stream", expected, data,
			       release);
}

void *hoist_stream_get_user(const hoist_stream *stream)
{
	return hoist__user_get(&stream->user);
}
