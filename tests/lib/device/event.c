/* SPDX-License-Identifier: MIT */
/* Streams and events: their answers, and the calls that are refused. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/lib-gate.h"
#include "tests/support/lib-unit.h"
#include "tests/support/patience.h"

static int sleep_2_ms(void *unused)
{
	(void)unused;
	usleep(2000);
	return 0;
}

/* proves: S1.12 */
Test(event, is_a_point_in_its_stream, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		struct gate gate;
		hoist_event *event = NULL;
		hoist_stream *stream = make_stream(devices[i]);
		gate_init(&gate);
		OK(hoist_event_create(devices[i], 0, &event));
		cr_expect_eq(hoist_event_device(event), devices[i]);
		OK(hoist_event_query(event)); /* never recorded */
		OK(hoist_event_synchronize(event));
		OK(hoist_stream_wait_event(stream, event));
		OK(hoist_stream_call(stream, gate_pass, &gate));
		OK(hoist_event_record(event, stream));
		cr_expect_eq(hoist_event_query(event), -EAGAIN);
		gate_open(&gate);
		OK(hoist_event_synchronize(event));
		OK(hoist_event_query(event));
		cr_expect_eq(hoist_event_ref(event), event);
		hoist_event_unref(event);
		hoist_event_unref(event);
		hoist_stream_unref(stream);
	}
	hoist_event_unref(NULL);
	cr_expect_eq(lib_counters("cuda").live_events, 0);
	cr_expect_eq(lib_counters("hip").live_events, 0);
}

/* proves: S1.12 */
Test(event, tells_the_time_between_two, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_event *start = NULL;
		hoist_event *end = NULL;
		uint64_t ns = 77;
		hoist_stream *stream = make_stream(devices[i]);
		OK(hoist_event_create(devices[i], HOIST_EVENT_TIMING, &end));
		OK(hoist_stream_record(stream, HOIST_EVENT_TIMING, &start));
		REFUSED(hoist_event_elapsed_ns(start, end, &ns), -EINVAL, "never recorded");
		OK(hoist_stream_call(stream, sleep_2_ms, NULL));
		OK(hoist_event_record(end, stream));
		OK(hoist_event_synchronize(end));
		OK(hoist_event_elapsed_ns(start, end, &ns));
		cr_expect_geq(ns, 1900000, "%s: %llu", lib_specs[i], (unsigned long long)ns);
		cr_expect_lt(ns, UINT64_C(1000000000) * PATIENCE_SECONDS, "%s", lib_specs[i]);
		hoist_event_unref(start);
		hoist_event_unref(end);
		hoist_stream_unref(stream);
	}
}

/* proves: S1.12 */
Test(event, without_timing_or_unfinished_has_no_time, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		struct gate gate;
		hoist_event *timed = NULL, *plain = NULL, *late = NULL;
		uint64_t ns = 77;
		hoist_stream *stream = make_stream(devices[i]);
		gate_init(&gate);
		OK(hoist_stream_record(stream, HOIST_EVENT_TIMING, &timed));
		OK(hoist_stream_record(stream, 0, &plain));
		OK(hoist_stream_call(stream, gate_pass, &gate));
		OK(hoist_stream_record(stream, HOIST_EVENT_TIMING, &late));
		REFUSED(hoist_event_elapsed_ns(timed, plain, &ns), -EINVAL, "HOIST_EVENT_TIMING");
		REFUSED(hoist_event_elapsed_ns(plain, timed, &ns), -EINVAL, "begins at keeps no");
		OK(hoist_event_synchronize(timed));
		REFUSED(hoist_event_elapsed_ns(timed, late, &ns), -EAGAIN, "has not completed");
		cr_expect_eq(ns, 77);
		gate_open(&gate);
		hoist_event_unref(timed);
		hoist_event_unref(plain);
		hoist_event_unref(late);
		hoist_stream_unref(stream);
	}
	hoist_event *of_cuda = NULL, *of_other = NULL;
	uint64_t ns = 0;
	OK(hoist_event_create(devices[1], HOIST_EVENT_TIMING, &of_cuda));
	OK(hoist_event_create(devices[2], HOIST_EVENT_TIMING, &of_other));
	REFUSED(hoist_event_elapsed_ns(of_cuda, of_other, &ns), -EINVAL,
		"events of cuda:0 and cuda:1 have no common clock");
	hoist_event_unref(of_cuda);
	hoist_event_unref(of_other);
}

/* A stream that waits for the first point of an event still waits for that point after the event
 * was recorded again, in any driver. */
Test(event, recorded_again_leaves_its_waiters_alone, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (int w = 0; w < LIB_N_DEVICES; w++) {
			struct gate gate;
			hoist_event *event = NULL;
			hoist_stream *held = make_stream(devices[i]),
				     *free_one = make_stream(devices[i]),
				     *waits = make_stream(devices[w]);
			gate_init(&gate);
			OK(hoist_stream_call(held, gate_pass, &gate));
			OK(hoist_stream_record(held, 0, &event));
			OK(hoist_stream_wait_event(waits, event));
			OK(hoist_event_record(event, free_one));
			OK(hoist_event_synchronize(event));
			cr_expect_eq(hoist_stream_query(waits), -EAGAIN, "%s for %s", lib_specs[w],
				     lib_specs[i]);
			gate_open(&gate);
			OK(hoist_stream_synchronize(waits));
			hoist_event_unref(event);
			DROP_STREAMS(held, free_one, waits);
		}
}

Test(event, null_wrong_flags_and_other_devices_are_refused, .init = open_all)
{
	hoist_event *event = NULL;
	uint64_t ns;
	hoist_stream *cuda = make_stream(devices[1]), *other = make_stream(devices[2]);
	REFUSED(hoist_event_create(NULL, 0, &event), -EINVAL, "NULL");
	REFUSED(hoist_event_create(devices[0], 6, &event), -EINVAL, "flags 0x6");
	REFUSED(hoist_stream_record(NULL, 0, &event), -EINVAL, "NULL");
	REFUSED(hoist_stream_record(cuda, 6, &event), -EINVAL, "flags 0x6");
	cr_expect_null(event);
	OK(hoist_event_create(devices[1], 0, &event));
	REFUSED(hoist_event_record(event, other), -EINVAL,
		"an event of cuda:0 cannot be recorded on a stream of cuda:1");
	REFUSED(hoist_event_record(event, NULL), -EINVAL, "NULL");
	REFUSED(hoist_event_record(NULL, cuda), -EINVAL, "NULL");
	REFUSED(hoist_event_query(NULL), -EINVAL, "NULL");
	REFUSED(hoist_event_synchronize(NULL), -EINVAL, "NULL");
	REFUSED(hoist_event_elapsed_ns(NULL, event, &ns), -EINVAL, "NULL");
	REFUSED(hoist_stream_wait_event(NULL, event), -EINVAL, "NULL");
	REFUSED(hoist_stream_wait_event(cuda, NULL), -EINVAL, "NULL");
	REFUSED(hoist_stream_wait_for(NULL, cuda), -EINVAL, "make wait is NULL");
	REFUSED(hoist_stream_wait_for(cuda, NULL), -EINVAL, "wait for is NULL");
	REFUSED(hoist_stream_wait_for_device(cuda, NULL), -EINVAL, "NULL");
	REFUSED(hoist_stream_wait_for_device(NULL, devices[0]), -EINVAL, "NULL");
	REFUSED(hoist_stream_query(NULL), -EINVAL, "NULL");
	REFUSED(hoist_stream_call(NULL, sleep_2_ms, NULL), -EINVAL, "NULL");
	REFUSED(hoist_stream_call(cuda, NULL, NULL), -EINVAL, "function to call is NULL");
	hoist_event_unref(event);
	DROP_STREAMS(cuda, other);
}

/* proves: S1.08 S1.10 */
Test(stream, knows_whether_it_is_the_default, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *first = NULL;
		hoist_stream *other = make_stream(devices[i]), *third = make_stream(devices[i]);
		OK(hoist_stream_wait_for_device(other, devices[i])); /* there is none yet */
		OK(hoist_device_default_stream(devices[i], &first));
		cr_expect_eq(hoist_stream_is_default(first), 1);
		cr_expect_eq(hoist_stream_is_default(other), 0);
		cr_expect_neq(other, third);
		cr_expect_eq(hoist_stream_device(other), devices[i]);
		OK(hoist_stream_wait_for(other, other));
		OK(hoist_stream_wait_for_device(first, devices[i]));
		OK(hoist_stream_query(other));
		DROP_STREAMS(first, other, third);
	}
}

/* Work across APIs would never run in a graph, or break the graph, and is refused. */
Test(stream, captures_stay_whole, .init = open_all)
{
	hoist_stream *captures = make_stream(devices[1]), *cpu = make_stream(devices[0]),
		     *hip = make_stream(devices[3]), *joins = make_stream(devices[1]);
	hoist_event *event = NULL;
	OK(set_capture(captures, 1));
	REFUSED(hoist_stream_wait_for(cpu, captures), -ENOTSUP, "the second captures a graph");
	REFUSED(hoist_stream_wait_for(hip, captures), -ENOTSUP,
		"a stream of hip:0 cannot wait for one of cuda");
	REFUSED(hoist_stream_wait_for(captures, cpu), -ENOTSUP, "the first captures a graph");
	REFUSED(hoist_stream_call(captures, sleep_2_ms, NULL), -ENOTSUP, "captures a graph");
	OK(hoist_stream_record(captures, 0, &event));
	REFUSED(hoist_stream_wait_event(cpu, event), -ENOTSUP, "the second captures a graph");
	OK(hoist_stream_synchronize(cpu));
	OK(hoist_stream_synchronize(joins));
	OK(set_capture(captures, 0));
	cr_expect_eq(lib_counters("cuda").broken_captures, 0);
	hoist_event_unref(event);
	DROP_STREAMS(captures, cpu, hip, joins);
}

Test(device, synchronize_passes_over_captures, .init = open_all)
{
	hoist_stream *captures = make_stream(devices[1]);
	OK(set_capture(captures, 1));
	OK(hoist_device_synchronize(devices[1]));
	cr_expect_eq(lib_counters("cuda").broken_captures, 0);
	OK(set_capture(captures, 0));
	OK(hoist_device_synchronize(devices[1]));
	REFUSED(hoist_device_synchronize(NULL), -EINVAL, "NULL");
	hoist_stream_unref(captures);
}

/* Since ROCm 6.2 a query of an event of HIP's reads the event's stream. */
Test(event, outlives_its_stream, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_event *event = NULL;
		hoist_stream *stream = make_stream(devices[i]), *other = make_stream(devices[i]);
		hoist_memory *memory = memory_of(devices[i], HOIST_MEMORY_DEVICE);
		uintptr_t block = alloc(memory, 1000, 0);
		OK(hoist_memory_free_on(memory, block, stream));
		OK(hoist_stream_record(stream, 0, &event));
		hoist_stream_unref(stream);
		OK(hoist_event_query(event));
		OK(hoist_event_synchronize(event));
		OK(hoist_stream_wait_event(other, event));
		OK(hoist_memory_trim(memory, 0));
		hoist_memory_statistics now = statistics_of(memory);
		cr_expect_eq(now.pending_bytes, 0, "%s: its blocks came back",
			     hoist_device_spec(devices[i]));
		hoist_event_unref(event);
		hoist_stream_unref(other);
		hoist_memory_unref(memory);
	}
	cr_expect_eq(lib_counters("hip").use_after_free, 0);
}

Test(event, is_not_asked_while_its_stream_captures, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		const char *api = api_of(devices[i]);
		hoist_stream *stream = make_stream(devices[i]), *cpu = make_stream(devices[0]);
		hoist_event *before = NULL, *within = NULL;
		OK(hoist_stream_record(stream, 0, &before));
		OK(set_capture(stream, 1));
		OK(hoist_stream_record(stream, 0, &within));
		if (api[0] == 'h') {
			cr_expect_eq(hoist_event_query(before), -EAGAIN);
			REFUSED(hoist_event_synchronize(before), -ENOTSUP, "captures a graph");
		} else {
			OK(hoist_event_synchronize(before));
			OK(hoist_event_query(before));
		}
		REFUSED(hoist_event_query(within), -ENOTSUP, "completes only for other streams");
		REFUSED(hoist_event_synchronize(within), -ENOTSUP,
			"completes only for other streams");
		/* A stream of the CPU waits for the end of the capture. */
		OK(hoist_stream_wait_event(cpu, before));
		usleep(1000);
		cr_expect_eq(lib_counters(api).broken_captures, 0);
		OK(set_capture(stream, 0));
		OK(hoist_stream_synchronize(cpu));
		OK(hoist_event_query(before));
		hoist_event_unref(before);
		hoist_event_unref(within);
		DROP_STREAMS(stream, cpu);
	}
}

/* A broken context answers no question. An event must not say "not yet" for ever. */
Test(event, fails_after_its_stream_ended_in_a_broken_context)
{
	open_all();
	for (int i = 1; i < LIB_N_DEVICES; i += 2) {
		hoist_event *event = NULL;
		hoist_stream *stream = make_stream(devices[i]);
		(void)hoist_stream_native(stream); /* the caller may make the stream capture */
		OK(hoist_event_create(devices[i], 0, &event));
		OK(hoist_event_record(event, stream));
		OK(lib_fail(api_of(devices[i]), "any:1+:700"));
		hoist_stream_unref(stream);
		REFUSED(hoist_event_query(event), -EREMOTEIO, "when the stream was destroyed");
		REFUSED(hoist_event_synchronize(event), -EREMOTEIO,
			"when the stream was destroyed");
		OK(lib_fail(api_of(devices[i]), NULL));
		hoist_event_unref(event);
	}
}
