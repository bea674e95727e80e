/* SPDX-License-Identifier: MIT */
/* Captures on a stand-in: the calls that they forbid and the threads that may not make
 * them, and the work that they record. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/emulator-driver.h"

#define BYTES 4096

enum {
	UNSUPPORTED = HOIST__CU_ERROR_CAPTURE_UNSUPPORTED,
	INVALIDATED = HOIST__CU_ERROR_CAPTURE_INVALIDATED,
	ISOLATION = HOIST__CU_ERROR_CAPTURE_ISOLATION,
	IMPLICIT = HOIST__CU_ERROR_CAPTURE_IMPLICIT,
	CAPTURED = HOIST__CU_ERROR_CAPTURED_EVENT,
};

static struct cuda cu;
static char host[BYTES];
static char unregistered[BYTES];
static hoist__cu_device_ptr memory;
static hoist__cu_stream capturing;
static hoist__cu_stream working;
static hoist__cu_event event;

static void start(void)
{
	cuda_start(&cu, "cuda:1", 0);
	cr_assert(cu.cuMemAlloc(&memory, BYTES) == 0);
	cr_assert(cu.cuMemHostRegister(host, BYTES, 1) == 0);
	cr_assert(cu.cuStreamCreate(&capturing, 1) == 0);
	cr_assert(cu.cuStreamCreate(&working, 1) == 0);
	cr_assert(cu.cuEventCreate(&event, 0) == 0);
	cr_assert(cu.cuEventRecord(event, working) == 0);
	cr_assert(cu.cuStreamSynchronize(working) == 0);
	cr_assert(cu.control.capture(capturing, 1) == 0);
}

static unsigned status_of(hoist__cu_stream stream)
{
	hoist__cu_capture_status status = 99;
	cr_assert(cu.cuStreamIsCapturing(stream, &status) == 0);
	return status;
}

static uint64_t broken(void)
{
	return counters_of(&cu.control).broken_captures;
}

/* Ends the capture, which the calls before broke, and begins another. */
static void begin_again(void)
{
	cr_assert(status_of(capturing) == HOIST__CU_CAPTURE_INVALIDATED);
	cr_assert(cu.control.capture(capturing, 0) == -ECANCELED);
	cr_assert(status_of(capturing) == HOIST__CU_CAPTURE_NONE);
	cr_assert(cu.control.capture(capturing, 1) == 0);
	cr_assert(status_of(capturing) == HOIST__CU_CAPTURE_ACTIVE);
}

/* Each of them in turn; the result of the one that failed otherwise. */
static unsigned unsafe_call(int which)
{
	hoist__cu_device_ptr more = 0;
	switch (which) {
	case 0:
		return cu.cuMemAlloc(&more, BYTES);
	case 1:
		return cu.cuMemFree(memory);
	case 2:
		return cu.cuMemHostRegister(unregistered, BYTES, 1);
	case 3:
		return cu.cuMemHostUnregister(host);
	case 4:
		return cu.cuEventQuery(event);
	case 5:
		return cu.cuEventSynchronize(event);
	case 6:
		return cu.cuStreamQuery(working);
	default:
		return cu.cuStreamSynchronize(working);
	}
}

#define N_UNSAFE 8

Test(emulator_capture, an_unsafe_call_breaks_a_capture_and_does_nothing, .init = start)
{
	struct hoist_emulator_counters before = counters_of(&cu.control);
	for (int i = 0; i < N_UNSAFE; i++) {
		cr_expect(unsafe_call(i) == UNSUPPORTED, "call %d", i);
		cr_expect(broken() == (uint64_t)i + 1, "call %d", i);
		begin_again();
	}
	cr_expect(counters_of(&cu.control).live_allocations == before.live_allocations);
	cr_expect(counters_of(&cu.control).live_registrations == before.live_registrations);
}

Test(emulator_capture, a_relaxed_thread_may_do_it_all, .init = start)
{
	hoist__cu_capture_mode mode = HOIST__CU_CAPTURE_RELAXED;
	cr_assert(cu.cuThreadExchangeStreamCaptureMode(&mode) == 0);
	cr_expect(mode == 0, "global at first");
	for (int i = 0; i < N_UNSAFE; i++)
		cr_expect(unsafe_call(i) == 0, "call %d", i);
	cr_expect(broken() == 0);
	cr_expect(cu.control.capture(capturing, 0) == 0, "whole");
	cr_assert(cu.cuThreadExchangeStreamCaptureMode(&mode) == 0);
	cr_expect(mode == HOIST__CU_CAPTURE_RELAXED);
	mode = 3;
	cr_expect(cu.cuThreadExchangeStreamCaptureMode(&mode) == HOIST__CU_ERROR_INVALID_VALUE);
}

Test(emulator_capture, its_own_stream_and_events_cannot_be_asked, .init = start)
{
	hoist__cu_capture_mode mode = HOIST__CU_CAPTURE_RELAXED;
	cr_assert(cu.cuThreadExchangeStreamCaptureMode(&mode) == 0);
	cr_expect(cu.cuStreamQuery(capturing) == UNSUPPORTED);
	begin_again();
	cr_expect(cu.cuStreamSynchronize(capturing) == UNSUPPORTED);
	begin_again();
	cr_expect(cu.cuEventRecord(event, capturing) == 0, "a node of the graph");
	cr_expect(cu.cuStreamWaitEvent(capturing, event, 0) == 0, "likewise");
	cr_expect(cu.control.capture(capturing, 0) == 0);
	cr_expect(cu.control.capture(capturing, 1) == 0);
	cr_expect(cu.cuEventQuery(event) == CAPTURED);
	begin_again();
	cr_expect(cu.cuEventSynchronize(event) == CAPTURED);
	begin_again();
	cr_expect(cu.cuStreamWaitEvent(working, event, 0) == ISOLATION);
	cr_expect(cu.cuEventRecord(event, capturing) == INVALIDATED);
	begin_again();
	cr_expect(cu.cuEventRecord(event, working) == 0);
	cr_expect(cu.cuEventSynchronize(event) == 0, "recorded anew");
	cr_expect(cu.cuStreamWaitEvent(capturing, event, 0) == ISOLATION);
	cr_expect(broken() == 6);
}

Test(emulator_capture, nobody_waits_for_the_whole_device, .init = start)
{
	hoist__cu_capture_mode mode = HOIST__CU_CAPTURE_RELAXED;
	cr_expect(cu.cuCtxSynchronize() == UNSUPPORTED);
	begin_again();
	cr_assert(cu.cuThreadExchangeStreamCaptureMode(&mode) == 0);
	cr_expect(cu.cuCtxSynchronize() == UNSUPPORTED, "in no mode");
	begin_again();
	cr_expect(cu.control.capture(capturing, 0) == 0);
	cr_expect(cu.cuCtxSynchronize() == 0);
	cr_expect(broken() == 2);
}

static void never(void *argument)
{
	(void)argument;
	abort();
}

Test(emulator_capture, its_work_is_recorded_and_not_done, .init = start)
{
	memset(host, 7, BYTES);
	cr_expect(cu.cuMemsetD8Async(memory, 1, BYTES, capturing) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, memory, BYTES, capturing) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, memory, 2 * BYTES, capturing) != 0, "still checked");
	cr_expect(cu.cuLaunchHostFunc(capturing, never, NULL) == 0);
	cr_expect(cu.control.capture(capturing, 0) == 0);
	cr_expect(cu.cuStreamSynchronize(capturing) == 0);
	cr_expect(host[0] == 7 && host[BYTES - 1] == 7);
	cr_expect(counters_of(&cu.control).device_to_host_bytes == 0);
	cr_expect(cu.cuMemHostUnregister(host) == 0, "nothing holds it");
	cr_expect(cu.cuMemFree(memory) == 0);
}

Test(emulator_capture, the_null_stream_would_wait_for_a_blocking_one, .init = start)
{
	hoist__cu_stream blocking = NULL;
	hoist__cu_capture_status status = 99;
	cr_expect(status_of(NULL) == HOIST__CU_CAPTURE_NONE, "the first does not block");
	cr_expect(cu.cuMemsetD8Async(memory, 1, BYTES, NULL) == 0);
	cr_expect(cu.control.capture(capturing, 0) == 0);
	cr_assert(cu.cuStreamCreate(&blocking, 0) == 0);
	cr_expect(cu.control.capture(blocking, 1) == 0);
	cr_expect(cu.cuStreamIsCapturing(NULL, &status) == IMPLICIT);
	cr_expect(status_of(blocking) == HOIST__CU_CAPTURE_ACTIVE, "asking broke nothing");
	cr_expect(cu.cuMemsetD8Async(memory, 1, BYTES, NULL) == IMPLICIT);
	cr_expect(status_of(blocking) == HOIST__CU_CAPTURE_INVALIDATED);
	cr_expect(cu.cuStreamDestroy(blocking) == 0, "and its capture with it");
	cr_expect(cu.cuStreamSynchronize(NULL) == 0);
}

Test(emulator_capture, it_begins_and_ends_once, .init = start)
{
	cr_expect(cu.control.capture(NULL, 1) == -EINVAL);
	cr_expect(cu.control.capture(capturing, 1) == -EALREADY);
	cr_expect(cu.control.capture(capturing, 0) == 0);
	cr_expect(cu.control.capture(capturing, 0) == -EALREADY);
	cr_expect(cu.control.capture(capturing, 1) == 0);
	cu.control.reset();
	cr_expect(status_of(capturing) == HOIST__CU_CAPTURE_NONE);
	cr_expect(cu.cuEventQuery(event) == 0);
}

/* Since ROCm 6.2: to ask an event is to read the stream that it was recorded on. */
Test(emulator_capture, events_of_hip_read_their_stream)
{
	struct hip hip;
	hoist__hip_stream native = NULL;
	hoist__hip_stream other = NULL;
	hoist__hip_event done = NULL;
	hoist__hip_capture_status status = 0;
	hoist__hip_capture_mode mode = HOIST__HIP_CAPTURE_RELAXED;
	hip_open(&hip, "hip:1");
	cr_assert(hip.hipInit(0) == 0);
	cr_assert(hip.hipStreamCreateWithFlags(&native, 1) == 0);
	cr_assert(hip.hipStreamCreateWithFlags(&other, 1) == 0);
	cr_assert(hip.hipEventCreateWithFlags(&done, 0) == 0);
	cr_assert(hip.hipEventRecord(done, native) == 0);
	cr_assert(hip.hipEventSynchronize(done) == 0);
	cr_assert(hip.hipThreadExchangeStreamCaptureMode(&mode) == 0);
	/* Recorded before, asked meanwhile. */
	for (int wait = 0; wait < 2; wait++) {
		cr_assert(hip.control.capture(native, 1) == 0);
		cr_expect(hip.hipStreamWaitEvent(other, done, 0) == ISOLATION);
		cr_expect(counters_of(&hip.control).broken_captures == (uint64_t)wait);
		cr_expect((wait ? hip.hipEventSynchronize(done) : hip.hipEventQuery(done)) ==
			  CAPTURED);
		cr_expect(counters_of(&hip.control).broken_captures == (uint64_t)wait + 1);
		cr_expect(hip.control.capture(native, 0) == -ECANCELED);
	}
	cr_expect(hip.hipEventQuery(done) == 0);
	cr_assert(hip.hipStreamDestroy(native) == 0);
	cr_expect(hip.hipStreamIsCapturing(native, &status) == HOIST__HIP_ERROR_CONTEXT_DESTROYED);
	cr_expect(hip.hipEventQuery(done) == HOIST__HIP_ERROR_ILLEGAL_ADDRESS);
	cr_expect(hip.hipEventSynchronize(done) == HOIST__HIP_ERROR_ILLEGAL_ADDRESS);
	cr_expect(counters_of(&hip.control).use_after_free == 2);
	cr_expect(hip.hipStreamWaitEvent(other, done, 0) == 0);
	cr_expect(hip.hipEventRecord(done, other) == 0);
	cr_expect(hip.hipEventSynchronize(done) == 0);
	cr_expect(hip.hipStreamDestroy(other) == 0);
	cr_expect(hip.hipEventDestroy(done) == 0);
	cr_expect(counters_of(&hip.control).use_after_free == 2);
}
