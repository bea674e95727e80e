/* SPDX-License-Identifier: MIT */
/* emulator/stream.c - streams: queues of operations, each served by a thread of its own.
 * The contract is in emulator/core.h.
 *
 * An operation may start when the one before it in its stream has ended, when its latency since
 * submission is over, and when the legacy NULL stream lets it.  Work in the NULL stream waits for
 * all work submitted earlier to the blocking streams of its device, and they wait for it. Latencies
 * run from submission: they make single operations late and streams out of step with each other,
 * and cost no throughput once a queue is deep.
 *
 * A failure sticks to its stream: operations queued behind it do nothing, marks and synchronize
 * give the failure, and further submissions are refused with it. */
#include "config.h"

#include "emulator/core.h"

#include <signal.h>
#include <stdlib.h>

#include "emulator/pool.h"
#include "emulator/stream.h"

/* --- life --- */

void hoist__emu_stream_unref(struct hoist__emu_stream *stream)
{
	if (--stream->refs > 0)
		return;
	(void)pthread_cond_destroy(&stream->wake);
	free(stream);
}

static struct hoist__emu_op *first_op(const struct hoist__emu_stream *stream)
{
	return HOIST__CONTAINER_OF(stream->queue.next, struct hoist__emu_op, node);
}

bool hoist__emu_stream_has_older(const struct hoist__emu_stream *stream, uint64_t ticket)
{
	return !hoist__list_empty(&stream->queue) && first_op(stream)->ticket < ticket;
}

/* The NULL stream's rule, described above. */
static bool may_start(struct hoist__emu_stream *stream, const struct hoist__emu_op *op)
{
	struct hoist__emu_device *device = stream->device;
	if (hoist__emu.hold)
		return false;
	if (!stream->is_null)
		return !stream->blocking || device->null_stream == NULL ||
		       !hoist__emu_stream_has_older(device->null_stream, op->ticket);
	struct hoist__list *node = device->streams.next;
	for (; node != &device->streams; node = node->next) {
		const struct hoist__emu_stream *other =
			HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
		if (other->blocking && hoist__emu_stream_has_older(other, op->ticket))
			return false;
	}
	return true;
}

/* [locked] Waits until @op may start.  The engine's time does not include this wait. */
static void wait_for_start(struct hoist__emu_stream *stream, struct hoist__emu_op *op)
{
	bool waited = false;
	while (!may_start(stream, op) || (op->kind == EMU_WAIT && !op->mark->done)) {
		(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
		waited = true;
	}
	if (waited)
		stream->free_ns = hoist__emu_now_ns();
}

/* [locked] A driver waits here for the function, and so does all work behind it. */
static int call(struct hoist__emu_op *op)
{
	hoist__emu_unlock();
	hoist__emu_sleep_until(op->ready_ns);
	hoist__emu_in_call = true;
	op->function(op->argument);
	hoist__emu_in_call = false;
	hoist__emu_lock();
	hoist__emu.count.host_calls++;
	return EMU_SUCCESS;
}

/* [locked] Performs @op; the lock may be released meanwhile. */
static int perform(struct hoist__emu_stream *stream, struct hoist__emu_op *op)
{
	wait_for_start(stream, op);
	switch (op->kind) {
	case EMU_WAIT:
		return op->mark->error;
	case EMU_RECORD:
		op->mark->ns = hoist__emu_now_ns();
		op->mark->error = stream->error;
		op->mark->done = true;
		return EMU_SUCCESS;
	case EMU_RELEASE:
		hoist__emu_pool_passed(op);
		return EMU_SUCCESS;
	case EMU_CALL:
	case EMU_COPY:
	case EMU_MEMSET:
		break;
	}
	if (stream->error != 0)
		return EMU_SUCCESS;
	return op->kind == EMU_CALL ? call(op) : hoist__emu_copy_perform(stream, op);
}

/* [locked] */
static void finish(struct hoist__emu_stream *stream, struct hoist__emu_op *op, int result)
{
	if (stream->error == 0)
		stream->error = result;
	stream->completed = op->ticket;
	hoist__list_remove(&op->node);
	hoist__emu_span_release(&op->dst);
	hoist__emu_span_release(&op->src);
	hoist__emu_mark_unref(op->mark);
	free(op);
	(void)pthread_cond_broadcast(&hoist__emu.progress);
}

static void *stream_main(void *argument)
{
	struct hoist__emu_stream *stream = argument;
	hoist__emu_lock();
	for (;;) {
		while (hoist__list_empty(&stream->queue) && !stream->closing)
			(void)pthread_cond_wait(&stream->wake, &hoist__emu.lock);
		if (hoist__list_empty(&stream->queue))
			break;
		struct hoist__emu_op *op = first_op(stream);
		finish(stream, op, perform(stream, op));
	}
	hoist__list_remove(&stream->node);
	hoist__emu_stream_unref(stream);
	hoist__emu_unlock();
	return NULL;
}

/* Starts a detached thread that blocks all signals: the program's handlers must not run in it. */
static int start_thread(struct hoist__emu_stream *stream)
{
	pthread_attr_t attributes;
	if (pthread_attr_init(&attributes) != 0)
		return EMU_OUT_OF_MEMORY;
	sigset_t all, before;
	(void)sigfillset(&all);
	(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t thread;
	int err = pthread_create(&thread, &attributes, stream_main, stream);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attributes);
	return err == 0 ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
}

/* [locked] The lock is held while the stream is made; its thread waits for the lock. */
static int make_stream(struct hoist__emu_device *device, bool blocking, bool is_null,
		       struct hoist__emu_stream **ret)
{
	struct hoist__emu_stream *stream = calloc(1, sizeof *stream);
	if (stream == NULL)
		return EMU_OUT_OF_MEMORY;
	stream->range = (struct hoist__emu_range){.start = (uintptr_t)stream, .bytes = 1};
	stream->device = device;
	stream->blocking = blocking;
	stream->is_null = is_null;
	stream->refs = 2;
	/* The multiplier makes neighbouring seeds start far apart; the lowest bit keeps the state
	 * from being 0. */
	stream->random =
		(hoist__emu.now.seed + ++hoist__emu.n_streams_made) * UINT64_C(0x9E3779B97F4A7C15) |
		1;
	hoist__list_init(&stream->queue);
	(void)pthread_cond_init(&stream->wake, NULL); /* cannot fail without attributes */
	if (!is_null && hoist__emu_range_add(&hoist__emu.streams, &stream->range) < 0)
		goto out;
	if (start_thread(stream) != EMU_SUCCESS)
		goto out_set;
	hoist__list_push_back(&device->streams, &stream->node);
	*ret = stream;
	return EMU_SUCCESS;
out_set:
	if (!is_null)
		hoist__emu_range_remove(&hoist__emu.streams, &stream->range);
out:
	(void)pthread_cond_destroy(&stream->wake);
	free(stream);
	return EMU_OUT_OF_MEMORY;
}

int hoist__emu_stream_create(struct hoist__emu_device *device, bool blocking,
			     struct hoist__emu_stream **ret)
{
	if (ret == NULL)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	int result = make_stream(device, blocking, false, ret);
	hoist__emu.count.live_streams += result == EMU_SUCCESS;
	hoist__emu_unlock();
	return result;
}

/* Returns at once, as drivers do; the thread ends when the queue is empty. */
int hoist__emu_stream_destroy(struct hoist__emu_stream *handle)
{
	int result = EMU_INVALID_HANDLE;
	hoist__emu_lock();
	struct hoist__emu_stream *stream =
		hoist__emu_range_find(&hoist__emu.streams, (uintptr_t)handle, 1);
	if (stream != NULL) {
		hoist__emu_range_remove(&hoist__emu.streams, &stream->range);
		hoist__emu.count.live_streams--;
		hoist__emu_capture_end(stream);
		stream->closing = true;
		(void)pthread_cond_signal(&stream->wake);
		hoist__emu_stream_unref(stream);
		result = EMU_SUCCESS;
	}
	hoist__emu_unlock();
	return result;
}

/* [locked] Finds the calling thread's own default stream of @device, which is ordered with the NULL
 * stream.  The stream stays when the thread ends; a later thread with the same id gets it. */
static int find_of_thread(struct hoist__emu_device *device, struct hoist__emu_stream **ret)
{
	struct hoist__list *node = device->streams.next;
	for (; node != &device->streams; node = node->next) {
		struct hoist__emu_stream *stream =
			HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
		if (stream->is_of_thread && pthread_equal(stream->owner, pthread_self())) {
			*ret = stream;
			return EMU_SUCCESS;
		}
	}
	int result = make_stream(device, true, false, ret);
	if (result == EMU_SUCCESS) {
		(*ret)->is_of_thread = true;
		(*ret)->owner = pthread_self();
	}
	return result;
}

int hoist__emu_stream_find(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			   struct hoist__emu_stream **ret)
{
	if (handle == EMU_STREAM_OF_THREAD)
		return find_of_thread(device, ret);
	if (handle != NULL && handle != EMU_STREAM_LEGACY) {
		*ret = hoist__emu_range_find(&hoist__emu.streams, (uintptr_t)handle, 1);
		/* Drivers take some work for a stream of a device that is not current, and refuse
		 * other work; this stand-in takes none. */
		return *ret != NULL && (*ret)->device == device ? EMU_SUCCESS : EMU_INVALID_HANDLE;
	}
	if (hoist__emu_capture_blocks(device))
		return hoist__emu_capture_break(EMU_CAPTURE_IMPLICIT);
	if (device->null_stream == NULL) {
		int result = make_stream(device, false, true, &device->null_stream);
		if (result != EMU_SUCCESS)
			return result;
	}
	*ret = device->null_stream;
	return EMU_SUCCESS;
}

/* [locked] Asking is no work: it neither needs the stream's device nor breaks a capture. */
static int find_any(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		    struct hoist__emu_stream **ret)
{
	if (handle == EMU_STREAM_OF_THREAD)
		return find_of_thread(device, ret);
	*ret = NULL;
	if (handle == NULL || handle == EMU_STREAM_LEGACY)
		return EMU_SUCCESS;
	*ret = hoist__emu_range_find(&hoist__emu.streams, (uintptr_t)handle, 1);
	return *ret != NULL ? EMU_SUCCESS : EMU_INVALID_HANDLE;
}

int hoist__emu_stream_set_priority(struct hoist__emu_stream *handle, int priority)
{
	struct hoist__emu_stream *stream = NULL;
	hoist__emu_lock();
	int result = find_any(NULL, handle, &stream);
	if (result == EMU_SUCCESS)
		stream->priority = priority;
	hoist__emu_unlock();
	return result;
}

int hoist__emu_stream_info(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			   struct hoist__emu_stream_info *ret)
{
	struct hoist__emu_stream *stream = NULL;
	hoist__emu_lock();
	int result = find_any(device, handle, &stream);
	if (result == EMU_SUCCESS)
		*ret = (struct hoist__emu_stream_info){
			.device = stream != NULL ? stream->device : device,
			.blocking = stream == NULL || stream->blocking,
			.priority = stream != NULL ? stream->priority : 0,
			.id = stream != NULL ? (uintptr_t)stream : 1 + (uint64_t)device->ordinal,
		};
	hoist__emu_unlock();
	return result;
}

/* --- work --- */

/* Returns the latency of the stream's next operation (xorshift64*). */
static uint64_t next_latency(struct hoist__emu_stream *stream)
{
	uint64_t low = hoist__emu.now.latency_ns[0];
	uint64_t high = hoist__emu.now.latency_ns[1];
	uint64_t x = stream->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	stream->random = x;
	return low + (x * UINT64_C(0x2545F4914F6CDD1D) >> 32) % (high - low + 1);
}

/* [locked] Makes the operation a node of a graph, which never runs. */
static int capture_op(const struct hoist__emu_stream *stream, struct hoist__emu_op op)
{
	if (stream->capture == EMU_CAPTURE_INVALIDATED)
		return EMU_CAPTURE_INVALID;
	if (op.kind == EMU_RECORD)
		op.mark->captured = true;
	hoist__emu_span_release(&op.dst);
	hoist__emu_span_release(&op.src);
	hoist__emu_mark_unref(op.mark);
	return EMU_SUCCESS;
}

int hoist__emu_stream_submit(struct hoist__emu_stream *stream, const struct hoist__emu_op *op)
{
	if (stream->error != 0)
		return stream->error;
	if (stream->capture != EMU_CAPTURE_NONE)
		return capture_op(stream, *op);
	return hoist__emu_stream_queue(stream, op);
}

int hoist__emu_stream_queue(struct hoist__emu_stream *stream, const struct hoist__emu_op *op)
{
	struct hoist__emu_op *queued = malloc(sizeof *queued);
	if (queued == NULL)
		return EMU_OUT_OF_MEMORY;
	*queued = *op;
	queued->ticket = ++hoist__emu.ticket;
	queued->ready_ns = hoist__emu_now_ns() + next_latency(stream);
	stream->submitted = queued->ticket;
	hoist__list_push_back(&stream->queue, &queued->node);
	(void)pthread_cond_signal(&stream->wake);
	return EMU_SUCCESS;
}

int hoist__emu_call(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		    void (*function)(void *), void *argument)
{
	struct hoist__emu_stream *stream = NULL;
	const struct hoist__emu_op op = {
		.kind = EMU_CALL, .function = function, .argument = argument};
	if (function == NULL)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	int result = hoist__emu_stream_find(device, handle, &stream);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_submit(stream, &op);
	hoist__emu_unlock();
	return result;
}

/* [locked] Finds a stream that the host may ask or wait for: one that does not capture. */
static int find_working(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			struct hoist__emu_stream **ret)
{
	int result = hoist__emu_stream_find(device, handle, ret);
	if (result == EMU_SUCCESS && (*ret)->capture != EMU_CAPTURE_NONE)
		result = hoist__emu_capture_break(EMU_CAPTURE_UNSUPPORTED);
	return result;
}

int hoist__emu_stream_drain(struct hoist__emu_stream *stream)
{
	uint64_t last = stream->submitted;
	stream->refs++;
	while (stream->completed < last)
		(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
	int error = stream->error;
	hoist__emu_stream_unref(stream);
	return error;
}

int hoist__emu_stream_synchronize(struct hoist__emu_device *device,
				  struct hoist__emu_stream *handle)
{
	struct hoist__emu_stream *stream = NULL;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	result = find_working(device, handle, &stream);
	if (result == EMU_SUCCESS) {
		struct hoist__emu_device *whose = stream->device;
		result = hoist__emu_stream_drain(stream);
		hoist__emu_pools_synchronized(whose);
	}
	hoist__emu_unlock();
	return result;
}

int hoist__emu_stream_query(struct hoist__emu_device *device, struct hoist__emu_stream *handle)
{
	struct hoist__emu_stream *stream = NULL;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	result = find_working(device, handle, &stream);
	if (result == EMU_SUCCESS)
		result = stream->completed < stream->submitted ? EMU_NOT_READY : stream->error;
	hoist__emu_unlock();
	return result;
}
