/* SPDX-License-Identifier: MIT */
/* Many threads on one stand-in driver, opened from a thread; for ThreadSanitizer.
 *
 * Each worker has its stream, memory and registration and checks its own bytes;
 * neighbours wait for each other's events.  At the end nothing is left, and the
 * process exits with one stream still asleep on held work. */
#include "config.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"

#define WORKERS 4
#define ROUNDS 25
#define BYTES ((size_t)64 << 10)

static struct cuda cu;
static hoist__cu_context context;
static pthread_barrier_t barrier;
static hoist__cu_event events[WORKERS];
static hoist__cu_pool pool; /* the device's own, which all share */

static void *open_driver(void *unused)
{
	cuda_start(&cu, "cuda:2", 0);
	CHECK(cu.cuCtxGetCurrent(&context) == 0);
	CHECK(cu.cuDeviceGetMemPool(&pool, 0) == 0);
	return unused;
}

/* One round: there and back, behind the neighbour's work, in plain memory and the pool's in
 * turn. */
static void round_trip(unsigned worker, int number, unsigned char *host, hoist__cu_stream stream)
{
	hoist__cu_device_ptr memory = 0;
	bool pooled = number % 2 == 0;
	unsigned char value = (unsigned char)(worker * 50 + (unsigned)number);
	memset(host, value, BYTES);
	memset(host + BYTES, 0, BYTES);
	CHECK((pooled ? cu.cuMemAllocFromPoolAsync(&memory, BYTES, pool, stream)
		      : cu.cuMemAlloc(&memory, BYTES)) == 0);
	CHECK(cu.cuMemcpyHtoDAsync(memory, host, BYTES, stream) == 0);
	CHECK(cu.cuEventRecord(events[worker], stream) == 0);
	CHECK(cu.cuStreamWaitEvent(stream, events[(worker + 1) % WORKERS], 0) == 0);
	CHECK(cu.cuMemcpyDtoHAsync(host + BYTES, memory, BYTES, stream) == 0);
	unsigned code;
	while ((code = cu.cuEventQuery(events[worker])) == HOIST__CU_ERROR_NOT_READY)
		CHECK(cu.cuEventSynchronize(events[worker]) == 0);
	CHECK(code == 0);
	memset(host, 0xff, BYTES); /* the event says that the source is free */
	if (pooled)
		CHECK(cu.cuMemFreeAsync(memory, stream) == 0);
	CHECK(cu.cuStreamSynchronize(stream) == 0);
	CHECK(host[BYTES] == value && host[2 * BYTES - 1] == value);
	if (!pooled)
		CHECK(cu.cuMemFree(memory) == 0);
}

static void *work(void *argument)
{
	unsigned worker = (unsigned)(uintptr_t)argument;
	unsigned char *host = malloc(2 * BYTES);
	CHECK(host != NULL);
	CHECK(cu.cuCtxPushCurrent(context) == 0);
	CHECK(cu.cuEventCreate(&events[worker], 0) == 0);
	(void)pthread_barrier_wait(&barrier);
	for (int number = 0; number < ROUNDS; number++) {
		hoist__cu_stream stream = NULL;
		CHECK(cu.cuStreamCreate(&stream, (unsigned)number % 2) == 0);
		CHECK(cu.cuMemHostRegister(host, 2 * BYTES, 1) == 0);
		round_trip(worker, number, host, stream);
		CHECK(cu.cuMemHostUnregister(host) == 0);
		CHECK(cu.cuStreamDestroy(stream) == 0);
	}
	(void)pthread_barrier_wait(&barrier);
	CHECK(cu.cuEventDestroy(events[worker]) == 0);
	free(host);
	return NULL;
}

int main(void)
{
	pthread_t threads[WORKERS];
	CHECK(pthread_create(&threads[0], NULL, open_driver, NULL) == 0);
	CHECK(pthread_join(threads[0], NULL) == 0);
	CHECK(pthread_barrier_init(&barrier, NULL, WORKERS) == 0);
	for (uintptr_t i = 0; i < WORKERS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	struct hoist_emulator_counters count = counters_of(&cu.control);
	CHECK(count.copies == 2 * WORKERS * ROUNDS);
	CHECK(count.pageable_copies == 0 && count.use_after_free == 0 && count.bad_copies == 0);
	CHECK(count.live_allocations + count.live_registrations + count.live_streams +
		      count.live_events ==
	      0);

	hoist__cu_stream stream = NULL;
	hoist__cu_event event = NULL;
	CHECK(cu.cuCtxPushCurrent(context) == 0);
	CHECK(cu.cuStreamCreate(&stream, 1) == 0 && cu.cuEventCreate(&event, 0) == 0);
	cu.control.hold(1);
	CHECK(cu.cuEventRecord(event, stream) == 0);
	return 0;
}
