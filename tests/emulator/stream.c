/* SPDX-License-Identifier: MIT */
/* Streams, events and copies of the stand-in drivers: late, ordered, paced. */
#include "config.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/support/emulator-driver.h"

#define MIB ((size_t)1 << 20)

enum { READY = 0, BUSY = HOIST__CU_ERROR_NOT_READY, ILLEGAL = HOIST__CU_ERROR_ILLEGAL_ADDRESS };

static struct cuda cu;
static unsigned char *host;	    /* 8 MiB, registered */
static hoist__cu_device_ptr device; /* 8 MiB */
static hoist__cu_stream stream[2];
static hoist__cu_event event;

static void start(void)
{
	cuda_start(&cu, "cuda:2", 0);
	host = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(host != MAP_FAILED);
	cr_assert(cu.cuMemHostRegister(host, 8 * MIB, 1) == 0);
	cr_assert(cu.cuMemAlloc(&device, 8 * MIB) == 0);
	for (int i = 0; i < 2; i++)
		cr_assert(cu.cuStreamCreate(&stream[i], 1) == 0);
	cr_assert(cu.cuEventCreate(&event, 0) == 0);
}

static void stop(void)
{
	for (int i = 0; i < 2; i++) {
		(void)cu.cuStreamSynchronize(stream[i]);
		cr_expect(cu.cuStreamDestroy(stream[i]) == 0);
	}
	cr_expect(cu.cuEventDestroy(event) == 0);
	cr_expect(cu.cuMemFree(device) == 0);
	cr_expect(cu.cuMemHostUnregister(host) == 0);
	struct hoist_emulator_counters count = counters_of(&cu.control);
	cr_expect(count.live_allocations + count.live_registrations + count.live_streams +
			  count.live_events ==
		  0);
}

static struct hoist_emulator_counters count(void)
{
	return counters_of(&cu.control);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	cr_assert(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill(unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)((i * 131u + seed) >> 3);
}

Test(emulator_stream, bytes_go_there_and_back, .init = start)
{
	size_t n = 3 * MIB + 12345;
	fill(host, n, 7);
	cr_expect(cu.cuMemcpyHtoDAsync(device + 3, host, n, stream[0]) == 0);
	cr_expect(cu.cuMemcpyDtoDAsync(device + 4 * MIB, device + 3, n, stream[0]) == 0);
	cr_expect(cu.cuMemsetD8Async(device + 4 * MIB, 0xEE, 10, stream[0]) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host + 4 * MIB, device + 4 * MIB, n, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(host[4 * MIB] == 0xEE && host[4 * MIB + 9] == 0xEE);
	cr_expect(memcmp(host + 4 * MIB + 10, host + 10, n - 10) == 0);
	cr_expect(count().host_to_device_bytes == n);
	cr_expect(count().device_to_host_bytes == n);
	cr_expect(count().device_to_device_bytes == n);
	cr_expect(count().copies == 3 && count().memsets == 1);
	cr_expect(count().pageable_copies == 0);
	stop();
}

Test(emulator_stream, a_source_changed_too_early_gives_the_later_bytes, .init = start)
{
	memset(host, 'a', 4096);
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 4096, stream[0]) == 0);
	cr_expect(cu.cuEventRecord(event, stream[0]) == 0);
	cr_expect(cu.cuStreamQuery(stream[0]) == BUSY);
	cr_expect(cu.cuEventQuery(event) == BUSY);
	memset(host, 'b', 4096);
	cu.control.hold(0);
	cr_expect(cu.cuEventSynchronize(event) == READY);
	cr_expect(cu.cuMemcpyDtoHAsync(host + MIB, device, 4096, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(host[MIB] == 'b' && host[MIB + 4095] == 'b');
	cr_expect(cu.cuStreamQuery(stream[0]) == READY);
	stop();
}

Test(emulator_stream, latency_delays_the_bytes_without_a_hold, .init = start)
{
	cu.control.set_latency(30000, 30000);
	uint64_t before = now_ns();
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 1, stream[0]) == 0);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 1, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(now_ns() - before >= 30000000);
	stop();
}

Test(emulator_stream, pageable_copies_are_counted_and_wait_for_their_bytes, .init = start)
{
	unsigned char *pageable = malloc(MIB);
	cr_assert(pageable != NULL);
	fill(pageable, MIB, 3);
	cr_expect(cu.cuMemcpyHtoDAsync(device, pageable, MIB, stream[0]) == 0);
	cr_expect(count().host_to_device_bytes == MIB, "done when the call returns");
	memset(pageable, 0, MIB);
	cr_expect(cu.cuMemcpyDtoHAsync(pageable, device, MIB, stream[0]) == 0);
	fill(host, MIB, 3);
	cr_expect(memcmp(host, pageable, MIB) == 0);
	cr_expect(count().pageable_copies == 2);
	cr_expect(count().pageable_bytes == 2 * MIB);
	free(pageable);
	stop();
}

Test(emulator_stream, a_stream_waits_for_anothers_event, .init = start)
{
	/* The first stream is slow; the second would overtake it. */
	cu.control.set_rate(256 * MIB);
	memset(host, 'x', 8 * MIB);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 8 * MIB, stream[0]) == 0);
	cr_expect(cu.cuEventRecord(event, stream[0]) == 0);
	cr_expect(cu.cuStreamWaitEvent(stream[1], event, 0) == 0);
	cr_expect(cu.cuMemsetD8Async(device, 'y', 8 * MIB, stream[1]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == 0);
	cu.control.set_rate(0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, device, 8 * MIB, stream[1]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == 0);
	for (size_t i = 0; i < 8 * MIB; i += 4096)
		cr_assert(host[i] == 'y');
	stop();
}

Test(emulator_stream, the_null_stream_orders_blocking_streams, .init = start)
{
	hoist__cu_stream blocking = NULL;
	cr_assert(cu.cuStreamCreate(&blocking, 0) == 0);
	cu.control.set_latency(0, 3000);
	for (unsigned char round = 1; round <= 10; round++) {
		cr_assert(cu.cuMemsetD8Async(device, 100, 4096, blocking) == 0);
		cr_assert(cu.cuMemsetD8Async(device, round, 4096, NULL) == 0);
		cr_assert(cu.cuMemcpyDtoHAsync(host, device, 4096, blocking) == 0);
		cr_assert(cu.cuStreamSynchronize(blocking) == 0);
		cr_assert(host[0] == round && host[4095] == round);
	}
	cr_expect(cu.cuStreamDestroy(blocking) == 0);
	stop();
}

#define LEGACY ((hoist__cu_stream)1)
#define OF_THREAD ((hoist__cu_stream)2)

/* The state of this thread's own default stream. */
static void *query_own(void *context)
{
	cr_assert(cu.cuCtxPushCurrent(context) == 0);
	return (void *)(uintptr_t)cu.cuStreamQuery(OF_THREAD);
}

Test(emulator_stream, default_streams_have_handles, .init = start)
{
	hoist__cu_context context = NULL;
	pthread_t thread;
	void *other = NULL;
	cu.control.hold(1);
	cr_assert(cu.cuMemsetD8Async(device, 5, 4096, OF_THREAD) == 0);
	cr_expect(cu.cuStreamQuery(OF_THREAD) == HOIST__CU_ERROR_NOT_READY);
	cr_assert(cu.cuCtxGetCurrent(&context) == 0);
	cr_assert(pthread_create(&thread, NULL, query_own, context) == 0 &&
		  pthread_join(thread, &other) == 0);
	cr_expect_null(other, "another thread's has nothing to do");
	cr_expect(cu.cuStreamQuery(LEGACY) == 0);
	cr_assert(cu.cuMemsetD8Async(device, 6, 4096, LEGACY) == 0);
	cr_expect(cu.cuStreamQuery(NULL) == HOIST__CU_ERROR_NOT_READY, "one stream, two names");
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(NULL) == 0);
	cr_assert(cu.cuMemcpyDtoHAsync(host, device, 4096, OF_THREAD) == 0);
	cr_expect(cu.cuStreamSynchronize(OF_THREAD) == 0 && host[0] == 6 && host[4095] == 6,
		  "they are ordered");
	stop();
}

Test(emulator_stream, streams_finish_out_of_step, .init = start)
{
	/* Some pairs that are submitted in one order finish in the other: until both have been
	 * seen. */
	unsigned overtaken = 0;
	unsigned in_order = 0;
	cu.control.set_latency(0, 2000);
	hoist__cu_event end[2];
	cr_assert(cu.cuEventCreate(&end[0], 0) == 0);
	cr_assert(cu.cuEventCreate(&end[1], 0) == 0);
	while (overtaken == 0 || in_order == 0) {
		float ms = 0;
		for (size_t i = 0; i < 2; i++) {
			cr_assert(cu.cuMemcpyHtoDAsync(device + i, host, 1, stream[i]) == 0);
			cr_assert(cu.cuEventRecord(end[i], stream[i]) == 0);
		}
		cr_assert(cu.cuEventSynchronize(end[0]) == 0);
		cr_assert(cu.cuEventSynchronize(end[1]) == 0);
		cr_assert(cu.cuEventElapsedTime(&ms, end[0], end[1]) == 0);
		overtaken += ms < 0;
		in_order += ms >= 0;
	}
	cr_expect(cu.cuEventDestroy(end[0]) == 0);
	cr_expect(cu.cuEventDestroy(end[1]) == 0);
	stop();
}

Test(emulator_stream, the_copy_engine_is_shared_and_keeps_its_rate, .init = start)
{
	cu.control.set_rate(64 * MIB);
	uint64_t before = now_ns();
	for (size_t i = 0; i < 4; i++)
		cr_expect(cu.cuMemcpyHtoDAsync(device, host, MIB, stream[i % 2]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == 0);
	uint64_t took = now_ns() - before;
	cr_expect(count().engine_busy_ns == 62500000);
	cr_expect(took >= 62500000, "four copies cannot pass faster than the engine");
	stop();
}

Test(emulator_stream, events_tell_their_state_and_time, .init = start)
{
	hoist__cu_event untimed = NULL;
	float ms = -1;
	cr_assert(cu.cuEventCreate(&untimed, HOIST__CU_EVENT_DISABLE_TIMING) == 0);
	cr_expect(cu.cuEventQuery(event) == READY, "never recorded: nothing to wait for");
	cr_expect(cu.cuEventSynchronize(event) == READY);
	cr_expect(cu.cuStreamWaitEvent(stream[0], event, 0) == 0);
	cr_expect(cu.cuEventElapsedTime(&ms, event, event) == HOIST__CU_ERROR_INVALID_HANDLE);
	cr_expect(cu.cuEventRecord(untimed, stream[0]) == 0);
	cu.control.hold(1);
	cr_expect(cu.cuEventRecord(event, stream[0]) == 0);
	cr_expect(cu.cuEventElapsedTime(&ms, event, event) == BUSY);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(cu.cuEventElapsedTime(&ms, event, untimed) == HOIST__CU_ERROR_INVALID_HANDLE);
	cr_expect(ms == -1.0f, "untouched on failure");
	cr_expect(cu.cuEventElapsedTime(&ms, event, event) == 0);
	cr_expect(ms == 0.0f);
	cr_expect(cu.cuEventDestroy(untimed) == 0);
	cr_expect(cu.cuEventDestroy(untimed) == HOIST__CU_ERROR_INVALID_HANDLE);
	stop();
}

Test(emulator_stream, an_event_belongs_to_its_device, .init = start)
{
	hoist__cu_context other = NULL;
	hoist__cu_stream foreign = NULL;
	cr_assert(cu.cuDevicePrimaryCtxRetain(&other, 1) == 0);
	cr_assert(cu.cuCtxPushCurrent(other) == 0);
	cr_assert(cu.cuStreamCreate(&foreign, 1) == 0);
	cr_expect(cu.cuEventRecord(event, foreign) == HOIST__CU_ERROR_INVALID_HANDLE);
	cr_expect(cu.cuEventRecord(event, stream[0]) == HOIST__CU_ERROR_INVALID_HANDLE,
		  "the stream's device is not current");
	cr_expect(cu.cuStreamSynchronize(stream[0]) == HOIST__CU_ERROR_INVALID_HANDLE);
	cr_assert(cu.cuCtxPopCurrent(NULL) == 0);
	cr_assert(cu.cuEventRecord(event, stream[0]) == 0);
	cr_assert(cu.cuCtxPushCurrent(other) == 0);
	cr_expect(cu.cuStreamWaitEvent(foreign, event, 0) == 0, "waiting across is fine");
	cr_expect(cu.cuStreamSynchronize(foreign) == 0);
	cr_expect(cu.cuStreamDestroy(foreign) == 0);
	cr_assert(cu.cuCtxPopCurrent(&other) == 0);
	stop();
}

Test(emulator_stream, a_copy_goes_from_one_device_to_another, .init = start)
{
	hoist__cu_context context[2];
	hoist__cu_device_ptr there = 0;
	cr_assert(cu.cuCtxGetCurrent(&context[0]) == 0);
	cr_assert(cu.cuDevicePrimaryCtxRetain(&context[1], 1) == 0);
	cr_assert(cu.cuCtxPushCurrent(context[1]) == 0);
	cr_assert(cu.cuMemAlloc(&there, MIB) == 0);
	cr_assert(cu.cuCtxPopCurrent(NULL) == 0);
	fill(host, MIB, 5);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemcpyPeerAsync(there, context[1], device, context[0], MIB, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_assert(cu.cuCtxPushCurrent(context[1]) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host + MIB, there, MIB, NULL) == 0);
	cr_expect(cu.cuStreamSynchronize(NULL) == 0);
	cr_assert(cu.cuCtxPopCurrent(NULL) == 0);
	cr_expect(memcmp(host, host + MIB, MIB) == 0);
	cr_expect(cu.cuMemFree(there) == 0);
	stop();
}

Test(emulator_stream, a_destroyed_stream_finishes_its_work, .init = start)
{
	memset(host, 'q', 4096);
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 4096, stream[0]) == 0);
	cr_expect(cu.cuEventRecord(event, stream[0]) == 0);
	cr_expect(cu.cuStreamDestroy(stream[0]) == 0);
	cr_expect(cu.cuStreamDestroy(stream[0]) == HOIST__CU_ERROR_INVALID_HANDLE);
	cr_expect(cu.cuStreamQuery(stream[0]) == HOIST__CU_ERROR_INVALID_HANDLE);
	cu.control.hold(0);
	cr_expect(cu.cuEventSynchronize(event) == READY);
	cr_expect(count().host_to_device_bytes == 4096);
	cr_assert(cu.cuStreamCreate(&stream[0], 1) == 0);
	stop();
}

/* --- what must not be freed yet --- */

Test(emulator_stream, freeing_under_a_copy_is_caught, .init = start)
{
	hoist__cu_device_ptr short_lived = 0;
	cr_assert(cu.cuMemAlloc(&short_lived, MIB) == 0);
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyHtoDAsync(short_lived, host, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemFree(short_lived) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	cr_expect(cu.cuStreamQuery(stream[0]) == ILLEGAL, "it sticks");
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 1, stream[0]) == ILLEGAL);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == READY, "to that stream alone");
	cr_expect(count().host_to_device_bytes == 0);
	stop();
}

Test(emulator_stream, unregistering_under_a_copy_is_caught, .init = start)
{
	unsigned char *page =
		mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(page != MAP_FAILED);
	cr_assert(cu.cuMemHostRegister(page, MIB, 1) == 0);
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyDtoHAsync(page, device, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemHostUnregister(page) == ILLEGAL);
	cr_assert(munmap(page, MIB) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
	stop();
}

Test(emulator_stream, unregistering_during_a_copy_is_caught, .init = start)
{
	cu.control.set_rate(MIB / 4); /* half a minute for all of it */
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, 8 * MIB, stream[0]) == 0);
	while (cu.cuStreamQuery(stream[0]) == BUSY && count().engine_busy_ns == 0) {
	}
	cr_expect(cu.cuMemHostUnregister(host) == ILLEGAL);
	cr_assert(munmap(host, 8 * MIB) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
}

Test(emulator_stream, unmapping_under_a_copy_is_caught, .init = start)
{
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyHtoDAsync(device, host, MIB, stream[0]) == 0);
	cr_assert(munmap(host, 8 * MIB) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
	cr_expect(cu.cuMemHostUnregister(host) == 0);
}
