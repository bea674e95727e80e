/* SPDX-License-Identifier: MIT */
/* Events of every driver, and the streams behind them: see device-driver.h. */
#include "config.h"

#define SUITE device_events

#include "tests/support/device-driver.h"
#include "tests/support/patience.h"

/* A stream reads the bytes of another only behind the event. */
static void ordering(void)
{
	struct hoist__dev_stream *reader = NULL;
	struct hoist__dev_event *written = NULL;
	set_up();
	OK(hoist__dev_stream_create(dev, &reader));
	OK(hoist__dev_event_create(dev, 0, &written));
	OK(hoist__dev_event_query(written));
	OK(hoist__dev_stream_wait_event(reader, written));
	for (unsigned round = 1; round <= 5; round++) {
		OK(hoist__fill_async(stream, memory, (unsigned char)round, 1, BYTES));
		OK(hoist__dev_event_record(written, stream));
		OK(hoist__dev_stream_wait_event(reader, written));
		to_host(reader, host, memory, BYTES);
		OK(hoist__dev_stream_synchronize(reader));
		cr_assert_eq(host[0], round);
		cr_assert_eq(host[BYTES - 1], round);
	}
	hoist__dev_event_destroy(written);
	hoist__dev_stream_destroy(reader);
	tear_down();
}
EVERYWHERE(streams_wait_for_each_others_events, ordering)

static void timing(void)
{
	struct hoist__dev_event *start = NULL;
	struct hoist__dev_event *end = NULL;
	struct hoist__dev_event *plain = NULL;
	uint64_t ns = 77;
	set_up();
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &start));
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &end));
	OK(hoist__dev_event_create(dev, 0, &plain));
	cr_assert_eq(hoist__dev_event_elapsed_ns(start, end, &ns), -EINVAL);
	OK(hoist__dev_event_record(start, stream));
	OK(hoist__dev_event_record(plain, stream));
	for (int i = 0; i < 10; i++)
		OK(hoist__fill_async(stream, memory, 1, 1, BYTES));
	OK(hoist__dev_event_record(end, stream));
	OK(hoist__dev_event_synchronize(end));
	cr_assert_eq(hoist__dev_event_elapsed_ns(plain, end, &ns), -EINVAL);
	cr_assert_eq(ns, 77);
	OK(hoist__dev_event_elapsed_ns(start, end, &ns));
	cr_assert_gt(ns, 0);
	cr_assert_lt(ns, UINT64_C(1000000000) * PATIENCE_SECONDS);
	hoist__dev_event_destroy(plain);
	hoist__dev_event_destroy(end);
	hoist__dev_event_destroy(start);
	tear_down();
}
EVERYWHERE(events_tell_the_time_between_them, timing)

/* --- stand-ins only --- */

static void lateness(void)
{
	struct hoist__dev_stream *late = NULL;
	struct hoist__dev_event *event = NULL;
	uint64_t ns = 0;
	set_up();
	OK(hoist__dev_stream_create(dev, &late));
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &event));
	control.hold(1);
	to_device(late, memory, (uintptr_t)host, BYTES);
	OK(hoist__dev_event_record(event, late));
	cr_assert_eq(hoist__dev_stream_query(late), -EAGAIN);
	cr_assert_eq(hoist__dev_event_query(event), -EAGAIN);
	cr_assert_eq(hoist__dev_event_elapsed_ns(event, event, &ns), -EAGAIN);
	control.hold(0);
	/* A stream ends only when its work has. */
	hoist__dev_stream_destroy(late);
	OK(hoist__dev_event_query(event));
	cr_assert_eq(counters().pageable_copies, 0);
	hoist__dev_event_destroy(event);
	tear_down();
	nothing_is_left("after late work");
}
EMULATED(work_in_flight_is_EAGAIN, lateness)

static uint64_t n_asked(void)
{
	return calls_of("cuEventQuery", "hipEventQuery") +
	       calls_of("cuEventSynchronize", "hipEventSynchronize");
}

static void destroy_native(void *native)
{
	unsigned (*destroy)(void *);
	find(hoist__dev_api(dev), is_cuda() ? "cuStreamDestroy_v2" : "hipStreamDestroy", &destroy);
	cr_assert_eq(destroy(native), 0);
}

/* Since ROCm 6.2 asking an event reads the stream that it was recorded on. */
static void events_of_the_gone(void)
{
	struct hoist__dev_stream *gone = NULL;
	struct hoist__dev_event *event = NULL;
	set_up();
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_stream_create(dev, &gone));
	OK(hoist__fill_async(gone, memory, 1, 1, BYTES));
	OK(hoist__dev_event_record(event, gone));
	hoist__dev_stream_destroy(gone);
	uint64_t asked = n_asked();
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_stream_wait_event(stream, event));
	cr_expect_eq(n_asked(), asked, "no driver is asked");
	/* Once recorded elsewhere, the event is that stream's. */
	OK(hoist__fill_async(stream, memory, 2, 1, BYTES));
	OK(hoist__dev_event_record(event, stream));
	OK(hoist__dev_event_synchronize(event));
	cr_expect_eq(n_asked(), asked + 1);
	hoist__dev_event_destroy(event);
	tear_down();
	nothing_is_left("after events of streams that are gone");
}
EMULATED(events_outlive_their_stream, events_of_the_gone)

/* A stream that captures cannot be waited for: a wait for the device tells of its events. */
static void lost_events(void)
{
	struct hoist__dev_stream *lost = NULL;
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_event *event = NULL;
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_stream_create(dev, &lost));
	OK(hoist__dev_stream_create(dev, &other));
	OK(hoist__dev_event_record(event, lost));
	begin_capture(lost);
	cr_expect_eq(hoist__dev_synchronize(dev), -EBUSY);
	hoist__dev_stream_destroy(lost);
	begin_capture(other);
	uint64_t asked = n_asked();
	cr_expect_eq(hoist__dev_event_query(event), -EAGAIN);
	cr_expect_eq(hoist__dev_event_synchronize(event), -EBUSY, "never within a capture");
	cr_expect_eq(counters().broken_captures, 0);
	cr_expect_eq(end_capture(other), 0);
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_synchronize(dev));
	OK(hoist__dev_event_query(event));
	cr_expect_eq(n_asked(), asked);
	hoist__dev_stream_destroy(other);
	hoist__dev_event_destroy(event);
	nothing_is_left("after lost events");
}
EMULATED(events_of_a_stream_that_captured_wait_for_the_device, lost_events)

/* The caller of hoist__dev_stream_wrap() destroys the handle first: HIP's driver can say so. */
static void wrapped_too_long(void)
{
	struct hoist__dev_stream *own = NULL;
	struct hoist__dev_stream *wrapper = NULL;
	struct hoist__dev_event *event = NULL;
	void *native = NULL;
	unsigned (*create)(void *, unsigned);
	bool capturing = true;
	if (is_cuda())
		return;
	OK(hoist__dev_stream_create(dev, &own)); /* the driver is in use */
	find(HOIST__API_HIP, "hipStreamCreateWithFlags", &create);
	cr_assert_eq(create(&native, 1), 0);
	OK(hoist__dev_stream_wrap(dev, native, &wrapper));
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_event_record(event, wrapper));
	destroy_native(native);
	cr_expect_eq(hoist__dev_stream_capturing(wrapper, &capturing), -EBADF);
	cr_expect_eq(hoist__dev_event_query(event), -EAGAIN);
	OK(hoist__dev_synchronize(dev));
	OK(hoist__dev_event_query(event));
	hoist__dev_stream_destroy(wrapper);
	OK(hoist__dev_event_query(event));
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(own);
	nothing_is_left("after a wrapped stream");
}
EMULATED(wrapped_streams_that_are_gone_are_noticed, wrapped_too_long)

/* To ask for an event that a capture recorded breaks the capture.  HIP is asked for no event of a
 * stream that captures, not even for one that was recorded before. */
static void broken_capture(void)
{
	struct hoist__dev_event *event = NULL;
	bool capturing = false;
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_event_create(dev, 0, &event));
	bool hip = !is_cuda();
	OK(hoist__dev_event_record(event, stream));
	begin_capture(stream);
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_eq(hoist__dev_event_synchronize(event), hip ? -ENOTSUP : 0);
	cr_assert_eq(hoist__dev_event_query(event), hip ? -EAGAIN : 0);
	OK(hoist__dev_event_record(event, stream));
	cr_assert_eq(counters().broken_captures, 0);
	cr_assert_eq(hoist__dev_event_query(event), hip ? -EAGAIN : -EREMOTEIO);
	cr_assert_eq(counters().broken_captures, hip ? 0 : 1);
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert(capturing, "the broken capture has not ended");
	cr_assert_eq(end_capture(stream), hip ? 0 : -ECANCELED);
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	nothing_is_left("after a capture");
}
EMULATED(capture_is_broken_by_asking_for_its_event, broken_capture)
