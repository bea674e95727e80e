/* SPDX-License-Identifier: MIT */
/* emulator/capture.c - stream capture: which streams record a graph instead of working.
 * The contract is in emulator/core.h and emulator/control.h.
 *
 * A capture here is always in the drivers' global mode: any thread can break it.  Work that is
 * queued on a capturing stream is checked, accepted and not done.  There are no graphs to run, and
 * no forks: a wait that would draw another stream into the capture breaks it. */
#include "config.h"

#include "emulator/graph.h"
#include "emulator/stream.h"

#include <errno.h>

/* The calling thread's capture mode; 0, global, is the drivers' default. */
static EMU_THREAD_LOCAL unsigned thread_mode;

int hoist__emu_exchange_mode(unsigned *mode)
{
	if (mode == NULL || *mode > EMU_MODE_RELAXED)
		return EMU_INVALID_VALUE;
	unsigned before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return EMU_SUCCESS;
}

/* [locked] */
static void invalidate(struct hoist__emu_device *device)
{
	struct hoist__list *head = &device->streams;
	for (struct hoist__list *node = head->next; node != head; node = node->next) {
		struct hoist__emu_stream *stream =
			HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
		if (stream->capture == EMU_CAPTURE_ACTIVE)
			stream->capture = EMU_CAPTURE_INVALIDATED;
	}
}

int hoist__emu_capture_break(int code)
{
	hoist__emu.count.broken_captures++;
	for (int i = 0; i < hoist__emu.environment.n_devices; i++)
		invalidate(&hoist__emu.devices[i]);
	return code;
}

int hoist__emu_unsafe(void)
{
	if (thread_mode == EMU_MODE_RELAXED)
		return EMU_SUCCESS;
	int result = EMU_SUCCESS;
	hoist__emu_lock();
	if (hoist__emu.n_capturing > 0)
		result = hoist__emu_capture_break(EMU_CAPTURE_UNSUPPORTED);
	hoist__emu_unlock();
	return result;
}

bool hoist__emu_capture_blocks(struct hoist__emu_device *device)
{
	struct hoist__list *head = &device->streams;
	if (hoist__emu.n_capturing == 0)
		return false;
	for (struct hoist__list *node = head->next; node != head; node = node->next) {
		const struct hoist__emu_stream *stream =
			HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
		if (stream->blocking && stream->capture != EMU_CAPTURE_NONE)
			return true;
	}
	return false;
}

int hoist__emu_stream_capturing(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
				unsigned *ret)
{
	struct hoist__emu_stream *stream = NULL;
	if (ret == NULL)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	int result = EMU_CAPTURE_IMPLICIT;
	if (handle != NULL || !hoist__emu_capture_blocks(device))
		result = hoist__emu_stream_find(device, handle, &stream);
	if (result == EMU_INVALID_HANDLE)
		result = hoist__emu_face.lost_stream;
	if (result == EMU_SUCCESS)
		*ret = stream->capture;
	hoist__emu_unlock();
	return result;
}

void hoist__emu_capture_end(struct hoist__emu_stream *stream)
{
	hoist__emu_graph_end(stream);
	hoist__emu.n_capturing -= stream->capture != EMU_CAPTURE_NONE;
	stream->capture = EMU_CAPTURE_NONE;
}

/* [locked] */
static int set_capture(struct hoist__emu_stream *stream, bool on)
{
	if (on == (stream->capture != EMU_CAPTURE_NONE))
		return -EALREADY;
	bool broken = stream->capture == EMU_CAPTURE_INVALIDATED;
	hoist__emu_capture_end(stream);
	if (on) {
		stream->capture = EMU_CAPTURE_ACTIVE;
		hoist__emu.n_capturing++;
	}
	return broken ? -ECANCELED : 0;
}

int hoist_emulator_capture(void *handle, int on)
{
	int err = -EINVAL;
	hoist__emu_load_environment();
	hoist__emu_lock();
	struct hoist__emu_stream *stream =
		hoist__emu_range_find(&hoist__emu.streams, (uintptr_t)handle, 1);
	if (stream != NULL)
		err = set_capture(stream, on != 0);
	hoist__emu_unlock();
	return err;
}
