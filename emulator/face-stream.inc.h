/* SPDX-License-Identifier: MIT */
/* emulator/face-stream.inc.h - streams and events; part of cuda.c. */
#include "emulator/cuda-face.h"

/* --- streams --- */

hoist__cu_result cuStreamCreate(hoist__cu_stream *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuStreamCreate, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > HOIST__CU_STREAM_NON_BLOCKING))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_stream *stream = NULL;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_create(device, flags == 0, &stream);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_stream)(void *)stream;
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamDestroy_v2(hoist__cu_stream stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuStreamDestroy_v2, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_destroy(stream_of(stream));
	return leave_free(result, forced);
}

hoist__cu_result cuStreamSynchronize(hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuStreamSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream_of(stream));
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamQuery(hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuStreamQuery, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_query(device, stream_of(stream));
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamWaitEvent(hoist__cu_stream stream, hoist__cu_event event,
				   unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuStreamWaitEvent, &device);
	if (result == EMU_SUCCESS && flags > 1)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_wait(device, event_of(event), stream_of(stream));
	return (hoist__cu_result)result;
}

/* --- capture --- */

hoist__cu_result cuStreamIsCapturing(hoist__cu_stream stream, hoist__cu_capture_status *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuStreamIsCapturing, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_capturing(device, stream_of(stream), ret);
	return (hoist__cu_result)result;
}

hoist__cu_result cuThreadExchangeStreamCaptureMode(hoist__cu_capture_mode *mode)
{
	int result = hoist__emu_cuda_enter(FN_cuThreadExchangeStreamCaptureMode);
	if (result == EMU_SUCCESS)
		result = hoist__emu_exchange_mode(mode);
	return (hoist__cu_result)result;
}

/* --- events --- */

hoist__cu_result cuEventCreate(hoist__cu_event *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuEventCreate, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > 7))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_event *event = NULL;
	bool timing = (flags & HOIST__CU_EVENT_DISABLE_TIMING) == 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_create(device, timing, &event);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_event)(void *)event;
	return (hoist__cu_result)result;
}

hoist__cu_result cuEventDestroy_v2(hoist__cu_event event)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuEventDestroy_v2, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_destroy(event_of(event));
	return leave_free(result, forced);
}

hoist__cu_result cuEventRecord(hoist__cu_event event, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuEventRecord, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_record(device, event_of(event), stream_of(stream));
	return (hoist__cu_result)result;
}

hoist__cu_result cuEventQuery(hoist__cu_event event)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuEventQuery, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_query(event_of(event));
	return (hoist__cu_result)result;
}

hoist__cu_result cuEventSynchronize(hoist__cu_event event)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuEventSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_synchronize(event_of(event));
	return (hoist__cu_result)result;
}

hoist__cu_result cuEventElapsedTime(float *ret, hoist__cu_event start, hoist__cu_event end)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuEventElapsedTime, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_elapsed_ms(event_of(start), event_of(end), ret);
	return (hoist__cu_result)result;
}
