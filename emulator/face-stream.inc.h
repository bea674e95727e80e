/* SPDX-License-Identifier: MIT */
/* emulator/face-stream.inc.h - streams and events; part of cuda.c and of hip.c.
 * See face.h. */

/* --- streams --- */

RESULT SYMBOL(StreamCreateWithFlags)(NATIVE(stream) *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(StreamCreateWithFlags), &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > VALUE(STREAM_NON_BLOCKING)))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_stream *stream = NULL;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_create(device, flags == 0, &stream);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(stream))(void *)stream;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(StreamDestroy)(NATIVE(stream) stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(StreamDestroy), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_destroy(stream_of(stream));
	return leave_free(result, forced);
}

RESULT SYMBOL(StreamSynchronize)(NATIVE(stream) stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(StreamSynchronize), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream_of(stream));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(StreamQuery)(NATIVE(stream) stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(StreamQuery), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_query(device, stream_of(stream));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(StreamWaitEvent)(NATIVE(stream) stream, NATIVE(event) event, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(StreamWaitEvent), &device);
	if (result == EMU_SUCCESS && flags > 1)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_wait(device, event_of(event), stream_of(stream));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(LaunchHostFunc)(NATIVE(stream) stream, NATIVE(host_function) function, void *argument)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(LaunchHostFunc), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_call(device, stream_of(stream), function, argument);
	return hoist__emu_face_leave(result);
}

/* --- capture --- */

RESULT SYMBOL(StreamIsCapturing)(NATIVE(stream) stream, NATIVE(capture_status) *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(StreamIsCapturing), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_capturing(device, stream_of(stream), ret);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(ThreadExchangeStreamCaptureMode)(NATIVE(capture_mode) *mode)
{
	int result = hoist__emu_face_enter(FN(ThreadExchangeStreamCaptureMode));
	if (result == EMU_SUCCESS)
		result = hoist__emu_exchange_mode(mode);
	return hoist__emu_face_leave(result);
}

/* --- events --- */

RESULT SYMBOL(EventCreateWithFlags)(NATIVE(event) *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(EventCreateWithFlags), &device);
	if (result == EMU_SUCCESS && (ret == NULL || (flags & ~EVENT_FLAGS) != 0))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_event *event = NULL;
	bool timing = (flags & VALUE(EVENT_DISABLE_TIMING)) == 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_create(device, timing, &event);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(event))(void *)event;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(EventDestroy)(NATIVE(event) event)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(EventDestroy), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_destroy(event_of(event));
	return leave_free(result, forced);
}

RESULT SYMBOL(EventRecord)(NATIVE(event) event, NATIVE(stream) stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(EventRecord), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_record(device, event_of(event), stream_of(stream));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(EventQuery)(NATIVE(event) event)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(EventQuery), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_query(event_of(event));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(EventSynchronize)(NATIVE(event) event)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(EventSynchronize), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_synchronize(event_of(event));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(EventElapsedTime)(float *ret, NATIVE(event) start, NATIVE(event) end)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(EventElapsedTime), &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_elapsed_ms(event_of(start), event_of(end), ret);
	return hoist__emu_face_leave(result);
}
