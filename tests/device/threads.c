/* SPDX-License-Identifier: MIT */
/* Streams and events of every device here, used by several threads at once.
 * Plain C, so that ThreadSanitizer can watch.  Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device.h"
#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"

/* glibc frees a finished thread's storage under locks that ThreadSanitizer does
 * not see: what the thread did to its thread-local variables in a library opened
 * with dlopen (the stand-ins) then looks like a race. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:_dl_deallocate_tls\n";
}

enum { N_THREADS = 4, N_ROUNDS = 100, BYTES = 4096 };

static enum hoist__api api;
static struct hoist__dev_stream *shared_stream;
static struct hoist__dev_event *shared_event;
static unsigned char *host;	/* N_THREADS pages, registered */
static uintptr_t device_memory; /* as many */

/* Two streams of the thread's own and one that all share hand the thread's
 * page on to each other; an event that all record is waited for and queried. */
static void round_trip(struct hoist__dev *dev, struct hoist__dev_stream *streams[2],
		       struct hoist__dev_event *event, size_t page, unsigned char value)
{
	unsigned char *mine = host + page * BYTES;
	uintptr_t there = device_memory + page * BYTES;
	memset(mine, value, BYTES);
	OK(hoist__copy_async(streams[0], HOIST__COPY_HOST_TO_DEVICE, there, (uintptr_t)mine,
			     BYTES));
	OK(hoist__dev_event_record(event, streams[0]));
	OK(hoist__dev_stream_wait_event(shared_stream, event));
	OK(hoist__fill_async(shared_stream, there, (unsigned char)~value, 1, BYTES / 2));
	OK(hoist__dev_event_record(shared_event, shared_stream));
	int busy = hoist__dev_event_query(shared_event);
	CHECK(busy == 0 || busy == -EAGAIN);
	/* Another thread's record may be the later one: it lies behind ours. */
	OK(hoist__dev_stream_wait_event(streams[1], shared_event));
	OK(hoist__copy_async(streams[1], HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)mine, there,
			     BYTES));
	OK(hoist__dev_event_record(event, streams[1]));
	OK(hoist__dev_event_synchronize(event));
	CHECK(mine[0] == (unsigned char)~value && mine[BYTES / 2 - 1] == (unsigned char)~value);
	CHECK(mine[BYTES / 2] == value && mine[BYTES - 1] == value);
	OK(hoist__dev_event_synchronize(shared_event));
	(void)hoist__dev_stream_query(shared_stream);
	CHECK(hoist__dev_stream_dev(streams[0]) == dev);
}

/* How many calls came to the shared stream: its order is all that guards it. */
static unsigned n_shared;

static int count_shared(void *context)
{
	(void)context;
	n_shared++;
	return 0;
}

static int add(void *context)
{
	++*(unsigned *)context;
	return 0;
}

static int fails(void *context)
{
	return hoist__fail(-EILSEQ, "thread %zu", (size_t)(uintptr_t)context);
}

/* Calls of many threads to one stream, and to the thread's own, which fail there only. */
static void calls(struct hoist__dev *dev, struct hoist__dev_stream *own, size_t page)
{
	struct hoist__pointer pointer;
	unsigned n_own = 0;
	char text[32];
	for (int i = 0; i < N_ROUNDS; i++) {
		OK(hoist__dev_stream_call(shared_stream, count_shared, NULL));
		OK(hoist__dev_stream_call(own, add, &n_own));
		OK(hoist__pointer_find(device_memory + page * BYTES, &pointer));
	}
	OK(hoist__dev_stream_call(own, fails, (void *)page));
	int err = 0;
	while ((err = hoist__dev_stream_query(own)) == -EAGAIN)
		usleep(100);
	CHECK(err == -EILSEQ && n_own == N_ROUNDS);
	OK(hoist__dev_synchronize(dev));
	CHECK(hoist__dev_stream_synchronize(own) == -EILSEQ);
	(void)snprintf(text, sizeof text, "thread %zu", page);
	CHECK(strcmp(hoist__error_text(), text) == 0);
	OK(hoist__dev_stream_synchronize(own));
}

static void *thread_main(void *argument)
{
	size_t page = (size_t)(uintptr_t)argument;
	struct hoist__dev *dev = NULL;
	struct hoist__dev_stream *streams[2];
	struct hoist__dev_event *event = NULL;
	OK(hoist__dev_get(api, 0, &dev));
	OK(hoist__dev_stream_create(dev, &streams[0]));
	OK(hoist__dev_stream_create(dev, &streams[1]));
	OK(hoist__dev_event_create(dev, 0, &event));
	for (unsigned i = 0; i < N_ROUNDS; i++)
		round_trip(dev, streams, event, page, (unsigned char)(i + page));
	calls(dev, streams[0], page);
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(streams[0]);
	hoist__dev_stream_destroy(streams[1]);
	return dev;
}

/* All threads ask for the device at once, and none is opened before: they must
 * agree on it. */
static void *first_get(void *argument)
{
	struct hoist__dev *dev = NULL;
	(void)argument;
	return hoist__dev_get(api, 0, &dev) == 0 ? dev : NULL;
}

static struct hoist__dev *run_threads(void *(*body)(void *))
{
	pthread_t threads[N_THREADS];
	void *devs[N_THREADS];
	for (size_t i = 0; i < N_THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)i) == 0);
	for (size_t i = 0; i < N_THREADS; i++) {
		CHECK(pthread_join(threads[i], &devs[i]) == 0);
		CHECK(devs[i] == devs[0]);
	}
	return devs[0];
}

static void exercise(enum hoist__api which)
{
	const size_t bytes = (size_t)N_THREADS * BYTES;
	api = which;
	struct hoist__dev *dev = run_threads(first_get);
	CHECK(dev != NULL);
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(host != MAP_FAILED);
	/* The CPU's registration may be forbidden and is not needed here. */
	if (which != HOIST__API_CPU)
		OK(hoist__dev_host_register(dev, host, bytes));
	OK(hoist__dev_mem_alloc(dev, bytes, &device_memory));
	OK(hoist__dev_stream_create(dev, &shared_stream));
	OK(hoist__dev_event_create(dev, 0, &shared_event));
	CHECK(run_threads(thread_main) == dev);
	OK(hoist__dev_stream_synchronize(shared_stream));
	CHECK(n_shared == N_THREADS * N_ROUNDS);
	n_shared = 0;
	hoist__dev_event_destroy(shared_event);
	hoist__dev_stream_destroy(shared_stream);
	OK(hoist__dev_mem_free(dev, device_memory, bytes));
	if (which != HOIST__API_CPU)
		OK(hoist__dev_host_unregister(dev, host, bytes));
	CHECK(munmap(host, bytes) == 0);
	printf("%s: %d threads, %d rounds each\n", hoist__api_name(which), N_THREADS, N_ROUNDS);
}

int main(void)
{
	exercise(HOIST__API_CPU);
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	if (!have_stand_ins()) {
		printf("the stand-in drivers are not built: the CPU only\n");
		return 0;
	}
	exercise(HOIST__API_CUDA);
	exercise(HOIST__API_HIP);
	return 0;
}
