/* SPDX-License-Identifier: MIT */
/* emulator/event.c - events: recording, waiting and elapsed time.
 * The contract is in emulator/core.h.
 *
 * Each recording makes a mark that travels through the stream's queue.  The event keeps the latest
 * mark; a wait keeps the mark that it saw.
 *
 * HIP: since ROCm 6.2 an event also has a bare pointer to its stream, which asking and waiting for
 * the event follow: to a stream that is gone, or into a capture that began later. */
#include "config.h"

#include "emulator/core.h"

#include <stdlib.h>

#include "emulator/pool.h"
#include "emulator/stream.h"

void hoist__emu_mark_unref(struct hoist__emu_mark *mark)
{
	if (mark != NULL && --mark->refs == 0)
		free(mark);
}

/* [locked] Returns NULL if @handle is not an event. */
static struct hoist__emu_event *find_event(struct hoist__emu_event *handle)
{
	return hoist__emu_range_find(&hoist__emu.events, (uintptr_t)handle, 1);
}

int hoist__emu_event_create(struct hoist__emu_device *device, bool timing,
			    struct hoist__emu_event **ret)
{
	struct hoist__emu_event *event = ret == NULL ? NULL : calloc(1, sizeof *event);
	if (event == NULL)
		return ret == NULL ? EMU_INVALID_VALUE : EMU_OUT_OF_MEMORY;
	event->range = (struct hoist__emu_range){.start = (uintptr_t)event, .bytes = 1};
	event->device = device;
	event->timing = timing;
	hoist__emu_lock();
	int err = hoist__emu_range_add(&hoist__emu.events, &event->range);
	hoist__emu.count.live_events += err == 0;
	hoist__emu_unlock();
	if (err < 0) {
		free(event);
		return EMU_OUT_OF_MEMORY;
	}
	*ret = event;
	return EMU_SUCCESS;
}

/* [locked] Sets the stream through which the event is asked from now on; NULL: none. */
static void set_stream(struct hoist__emu_event *event, struct hoist__emu_stream *stream)
{
	if (event->stream != NULL)
		hoist__emu_stream_unref(event->stream);
	event->stream = NULL;
	if (stream == NULL || stream->is_null || !hoist__emu_face.events_read_streams)
		return;
	stream->refs++;
	event->stream = stream;
}

/* [locked] Returns what a driver finds that reads the event's stream. */
static int read_stream(const struct hoist__emu_event *event)
{
	const struct hoist__emu_stream *stream = event->stream;
	if (stream == NULL)
		return EMU_SUCCESS;
	if (stream->closing) {
		hoist__emu.count.use_after_free++;
		return EMU_ILLEGAL_ADDRESS;
	}
	return stream->capture == EMU_CAPTURE_NONE ? EMU_SUCCESS
						   : hoist__emu_capture_break(EMU_CAPTURED_EVENT);
}

int hoist__emu_event_destroy(struct hoist__emu_event *handle)
{
	hoist__emu_lock();
	struct hoist__emu_event *event = find_event(handle);
	if (event != NULL) {
		hoist__emu_range_remove(&hoist__emu.events, &event->range);
		hoist__emu.count.live_events--;
		hoist__emu_mark_unref(event->mark);
		set_stream(event, NULL);
		free(event);
	}
	hoist__emu_unlock();
	return event != NULL ? EMU_SUCCESS : EMU_INVALID_HANDLE;
}

/* [locked] Replaces the event's mark; users of the old mark keep it. */
static int record(struct hoist__emu_event *event, struct hoist__emu_stream *stream)
{
	struct hoist__emu_mark *mark = calloc(1, sizeof *mark);
	if (mark == NULL)
		return EMU_OUT_OF_MEMORY;
	mark->refs = 2; /* one for the operation, one for the event */
	struct hoist__emu_op op = {.kind = EMU_RECORD, .mark = mark};
	int result = hoist__emu_stream_submit(stream, &op);
	if (result != EMU_SUCCESS) {
		free(mark);
		return result;
	}
	hoist__emu_mark_unref(event->mark);
	event->mark = mark;
	set_stream(event, stream);
	return EMU_SUCCESS;
}

int hoist__emu_event_record(struct hoist__emu_device *device, struct hoist__emu_event *handle,
			    struct hoist__emu_stream *stream)
{
	hoist__emu_lock();
	struct hoist__emu_event *event = find_event(handle);
	int result = EMU_INVALID_HANDLE;
	if (event != NULL)
		result = hoist__emu_stream_find(device, stream, &stream);
	/* An event belongs to one device, like its streams. */
	if (result == EMU_SUCCESS && event->device != stream->device)
		result = EMU_INVALID_HANDLE;
	if (result == EMU_SUCCESS)
		result = record(event, stream);
	hoist__emu_unlock();
	return result;
}

/* [locked] Work in one graph can wait only for other work in that graph. */
static int wait_for(struct hoist__emu_stream *stream, struct hoist__emu_mark *mark)
{
	if (mark->captured != (stream->capture != EMU_CAPTURE_NONE))
		return hoist__emu_capture_break(EMU_CAPTURE_ISOLATION);
	struct hoist__emu_op op = {.kind = EMU_WAIT, .mark = mark};
	mark->refs++;
	int result = hoist__emu_stream_submit(stream, &op);
	if (result != EMU_SUCCESS)
		mark->refs--;
	return result;
}

/* [locked] */
static bool is_in_capture(const struct hoist__emu_stream *stream)
{
	return stream != NULL && stream->capture != EMU_CAPTURE_NONE;
}

int hoist__emu_event_wait(struct hoist__emu_device *device, struct hoist__emu_event *handle,
			  struct hoist__emu_stream *stream)
{
	hoist__emu_lock();
	struct hoist__emu_event *event = find_event(handle);
	int result = EMU_INVALID_HANDLE;
	if (event != NULL)
		result = hoist__emu_stream_find(device, stream, &stream);
	/* HIP treats all work of a destroyed stream as done.  Here the work counts as done only
	 * when it is. */
	if (result == EMU_SUCCESS && event->mark != NULL)
		result = !event->mark->captured && is_in_capture(event->stream)
				 ? EMU_CAPTURE_ISOLATION
				 : wait_for(stream, event->mark);
	hoist__emu_unlock();
	return result;
}

int hoist__emu_event_query(struct hoist__emu_event *handle)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	const struct hoist__emu_event *event = find_event(handle);
	if (event == NULL)
		result = EMU_INVALID_HANDLE;
	else if (event->mark != NULL && event->mark->captured)
		result = hoist__emu_capture_break(EMU_CAPTURED_EVENT);
	else if (event->mark != NULL && (result = read_stream(event)) == EMU_SUCCESS)
		result = event->mark->done ? event->mark->error : EMU_NOT_READY;
	hoist__emu_unlock();
	return result;
}

int hoist__emu_event_synchronize(struct hoist__emu_event *handle)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	const struct hoist__emu_event *event = find_event(handle);
	result = event == NULL ? EMU_INVALID_HANDLE : EMU_SUCCESS;
	struct hoist__emu_mark *mark = event == NULL ? NULL : event->mark;
	struct hoist__emu_device *device = event == NULL ? NULL : event->device;
	if (mark != NULL && mark->captured) {
		result = hoist__emu_capture_break(EMU_CAPTURED_EVENT);
	} else if (mark != NULL && (result = read_stream(event)) == EMU_SUCCESS) {
		/* The wait frees the lock: the event may be recorded again or destroyed
		 * meanwhile. */
		mark->refs++;
		while (!mark->done)
			(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
		result = mark->error;
		hoist__emu_mark_unref(mark);
		hoist__emu_pools_synchronized(device);
	}
	hoist__emu_unlock();
	return result;
}

/* [locked] */
static int elapsed(const struct hoist__emu_event *start, const struct hoist__emu_event *end,
		   float *ret)
{
	if (start == NULL || end == NULL || !start->timing || !end->timing || start->mark == NULL ||
	    end->mark == NULL)
		return EMU_INVALID_HANDLE;
	const struct hoist__emu_mark *from = start->mark;
	const struct hoist__emu_mark *to = end->mark;
	if (from->captured || to->captured)
		return EMU_CAPTURED_EVENT;
	if (!from->done || !to->done)
		return EMU_NOT_READY;
	if (from->error != 0 || to->error != 0)
		return from->error != 0 ? from->error : to->error;
	*ret = (float)((double)(int64_t)(to->ns - from->ns) / 1e6);
	return EMU_SUCCESS;
}

int hoist__emu_event_elapsed_ms(struct hoist__emu_event *start, struct hoist__emu_event *end,
				float *ret)
{
	if (ret == NULL)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	int result = elapsed(find_event(start), find_event(end), ret);
	hoist__emu_unlock();
	return result;
}
