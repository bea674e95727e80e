/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: streams, events, and the work on them. */
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

/* --- asynchronous work --- */

static int direction_of(hoist__hip_copy_kind kind, enum hoist__emu_direction *ret)
{
	switch (kind) {
	case HOIST__HIP_COPY_HOST_TO_DEVICE:
		*ret = EMU_TO_DEVICE;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_HOST:
		*ret = EMU_TO_HOST;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_DEVICE:
		*ret = EMU_ON_DEVICE;
		return EMU_SUCCESS;
	default:
		return EMU_INVALID_VALUE;
	}
}

hoist__hip_error hipMemcpyAsync(void *dst, const void *src, size_t bytes, hoist__hip_copy_kind kind,
				hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	int result = hoist__emu_hip_enter_current(FN_hipMemcpyAsync, &device);
	if (result == EMU_SUCCESS)
		result = direction_of(kind, &direction);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), direction, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				    size_t bytes, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemcpyPeerAsync, &device);
	if (result == EMU_SUCCESS &&
	    (hoist__emu_device(dst_device) == NULL || hoist__emu_device(src_device) == NULL))
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), EMU_ON_DEVICE, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return hoist__emu_hip_leave(result);
}

static hoist__hip_error set(unsigned function, void *dst, uint32_t value, unsigned width, size_t n,
			    hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(function, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_memset(device, stream_of(stream), (uintptr_t)dst, value, width,
					   n);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemsetAsync(void *dst, int value, size_t bytes, hoist__hip_stream stream)
{
	return set(FN_hipMemsetAsync, dst, (uint32_t)value, 1, bytes, stream);
}

hoist__hip_error hipMemsetD16Async(void *dst, unsigned short value, size_t n,
				   hoist__hip_stream stream)
{
	return set(FN_hipMemsetD16Async, dst, value, 2, n, stream);
}

hoist__hip_error hipMemsetD32Async(void *dst, int value, size_t n, hoist__hip_stream stream)
{
	return set(FN_hipMemsetD32Async, dst, (uint32_t)value, 4, n, stream);
}
