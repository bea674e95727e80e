/* SPDX-License-Identifier: MIT */
/* device/driver-stream.inc.h - streams and events, for both drivers; part of driver-ops.inc.h. */

/* --- streams --- */

static int driver_stream_create(struct hoist__dev_stream *stream)
{
	NATIVE(stream) native = NULL;
	int err = RUN(stream->dev, "creating a stream",
		      CALL(StreamCreateWithFlags)(&native, VALUE(STREAM_NON_BLOCKING)));
	if (err == 0)
		stream->native = native;
	return err;
}

static void driver_stream_destroy(struct hoist__dev_stream *stream)
{
	int err = RELEASE(stream->dev, "destroying a stream", CALL(StreamDestroy)(stream->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int driver_stream_synchronize(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "waiting for a stream",
			   CALL(StreamSynchronize)(stream->native));
}

static int driver_stream_query(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "asking a stream for its state",
			   CALL(StreamQuery)(stream->native));
}

/* Asks the driver whether @stream captures.  Where work on the NULL stream would break the capture
 * of a blocking stream, the driver returns ERROR_CAPTURE_IMPLICIT: the answer is yes, too. */
static RESULT ask_capture(NATIVE(stream) stream, NATIVE(capture_status) *status)
{
	RESULT result = CALL(StreamIsCapturing)(stream, status);
	if (result != VALUE(ERROR_CAPTURE_IMPLICIT))
		return result;
	FORGET_ERROR();
	*status = VALUE(CAPTURE_ACTIVE);
	return VALUE(SUCCESS);
}

static int driver_stream_capturing(struct hoist__dev_stream *stream, bool *ret)
{
	NATIVE(capture_status) status = VALUE(CAPTURE_NONE);
	RESULT result = VALUE(SUCCESS);
	int err = 0;
	if (CALL(StreamIsCapturing) != NULL)
		err = RUN(stream->dev, "asking whether a stream captures",
			  result = ask_capture(stream->native, &status));
	if (driver_says_destroyed(result))
		return hoist__fail(-EBADF, "%s:%d: a wrapped stream is destroyed already",
				   hoist__api_name(stream->dev->api), stream->dev->ordinal);
	if (err == 0)
		*ret = status != VALUE(CAPTURE_NONE);
	return err;
}

static int driver_stream_wait_event(struct hoist__dev_stream *stream,
				    struct hoist__dev_event *event)
{
	return RUN(stream->dev, "making a stream wait for an event",
		   CALL(StreamWaitEvent)(stream->native, event->native, 0));
}

static int driver_stream_call(struct hoist__dev_stream *stream, void (*function)(void *argument),
			      void *argument)
{
	if (CALL(LaunchHostFunc) == NULL)
		return hoist__call_queue_fail_lack(stream->dev);
	return RUN(stream->dev, "queueing a call",
		   CALL(LaunchHostFunc)(stream->native, function, argument));
}

/* --- events --- */

static int driver_event_create(struct hoist__dev_event *event)
{
	unsigned flags = VALUE(EVENT_BLOCKING_SYNC);
	if ((event->flags & HOIST__EVENT_TIMING) == 0)
		flags |= VALUE(EVENT_DISABLE_TIMING);
	NATIVE(event) native = NULL;
	int err = RUN(event->dev, "creating an event", CALL(EventCreateWithFlags)(&native, flags));
	if (err == 0)
		event->native = native;
	return err;
}

static void driver_event_destroy(struct hoist__dev_event *event)
{
	int err = RELEASE(event->dev, "destroying an event", CALL(EventDestroy)(event->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int driver_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	return RUN(event->dev, "recording an event",
		   CALL(EventRecord)(event->native, stream->native));
}

static int driver_event_query(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "asking an event for its state",
			   CALL(EventQuery)(event->native));
}

static int driver_event_synchronize(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "waiting for an event",
			   CALL(EventSynchronize)(event->native));
}

static int driver_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
				   uint64_t *ret)
{
	float ms = 0;
	int err = RUN(start->dev, "asking for the time between two events",
		      CALL(EventElapsedTime)(&ms, start->native, end->native));
	if (err == 0)
		*ret = hoist__driver_ns(ms);
	return err;
}
