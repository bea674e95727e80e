/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: streams and events. */
#include "config.h"

#include "emulator/hip-face.h"

/* --- streams --- */

hoist__hip_error hipStreamCreateWithFlags(hoist__hip_stream *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipStreamCreateWithFlags, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > HOIST__HIP_STREAM_NON_BLOCKING))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_stream *stream = NULL;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_create(device, flags == 0, &stream);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_stream)(void *)stream;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipStreamDestroy(hoist__hip_stream stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipStreamDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_destroy(stream_of(stream));
	return leave_free(result, forced);
}

hoist__hip_error hipStreamSynchronize(hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipStreamSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream_of(stream));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipStreamQuery(hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipStreamQuery, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_query(device, stream_of(stream));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipStreamWaitEvent(hoist__hip_stream stream, hoist__hip_event event,
				    unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipStreamWaitEvent, &device);
	if (result == EMU_SUCCESS && flags > 1)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_wait(device, event_of(event), stream_of(stream));
	return hoist__emu_hip_leave(result);
}

/* --- capture --- */

hoist__hip_error hipStreamIsCapturing(hoist__hip_stream stream, hoist__hip_capture_status *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipStreamIsCapturing, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_capturing(device, stream_of(stream), ret);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipThreadExchangeStreamCaptureMode(hoist__hip_capture_mode *mode)
{
	int result = hoist__emu_hip_enter(FN_hipThreadExchangeStreamCaptureMode);
	if (result == EMU_SUCCESS)
		result = hoist__emu_exchange_mode(mode);
	return hoist__emu_hip_leave(result);
}

/* --- events --- */

hoist__hip_error hipEventCreateWithFlags(hoist__hip_event *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipEventCreateWithFlags, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	struct hoist__emu_event *event = NULL;
	bool timing = (flags & HOIST__HIP_EVENT_DISABLE_TIMING) == 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_create(device, timing, &event);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_event)(void *)event;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipEventDestroy(hoist__hip_event event)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipEventDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_destroy(event_of(event));
	return leave_free(result, forced);
}

hoist__hip_error hipEventRecord(hoist__hip_event event, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipEventRecord, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_record(device, event_of(event), stream_of(stream));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipEventQuery(hoist__hip_event event)
{
	int result = hoist__emu_hip_enter(FN_hipEventQuery);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_query(event_of(event));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipEventSynchronize(hoist__hip_event event)
{
	int result = hoist__emu_hip_enter(FN_hipEventSynchronize);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_synchronize(event_of(event));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipEventElapsedTime(float *ret, hoist__hip_event start, hoist__hip_event end)
{
	int result = hoist__emu_hip_enter(FN_hipEventElapsedTime);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_elapsed_ms(event_of(start), event_of(end), ret);
	return hoist__emu_hip_leave(result);
}
