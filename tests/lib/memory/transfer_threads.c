/* SPDX-License-Identifier: MIT */
/* Threads that open devices, share one storage and transfer at once: every byte
 * arrives, and ThreadSanitizer sees it. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/support/check.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"

#define N_THREADS 4
#define ROUNDS 20
#define PART 30000

static hoist_buffer *shared[LIB_N_DEVICES]; /* N_THREADS parts each */
static pthread_barrier_t barrier;

/* All threads at once: the first one makes the objects that all share. */
static void open_and_compare(hoist_device *devices[LIB_N_DEVICES])
{
	static hoist_stream *_Atomic streams[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		pthread_barrier_wait(&barrier);
		devices[i] = open_device(lib_specs[i]);
		hoist_stream *stream;
		OK(hoist_device_default_stream(devices[i], &stream));
		hoist_stream *none = NULL;
		if (!atomic_compare_exchange_strong(&streams[i], &none, stream))
			CHECK(none == stream);
		hoist_stream_unref(stream);
	}
}

/* A view of the thread's part; the views of all share the storage. */
static hoist_buffer *view_part(hoist_buffer *whole, size_t part)
{
	return make_view(whole, part * PART, HOIST_U8, 1, SHAPE(PART));
}

static void use_part(hoist_buffer *whole, hoist_device *next, size_t part, uint64_t *seed)
{
	unsigned char model[PART];
	unsigned char got[PART] = {0};
	hoist_buffer *held = hoist_buffer_ref(whole);
	hoist_buffer *view = view_part(held, part);
	hoist_buffer_unref(held);
	random_fill(seed, model, PART);
	OK(hoist_buffer_write(view, 0, model, PART));
	hoist_buffer *copy = make_copy(view, next);
	OK(hoist_buffer_read(copy, 0, got, PART));
	CHECK(memcmp(model, got, PART) == 0);
	CHECK(hoist_buffer_shape(view)[0] == PART);
	DROP(view, copy);
}

static void *work(void *argument)
{
	size_t part = (uintptr_t)argument;
	uint64_t seed = part;
	hoist_device *devices[LIB_N_DEVICES];
	open_and_compare(devices);
	if (part == 0)
		for (int i = 0; i < LIB_N_DEVICES; i++)
			shared[i] =
				make_buffer(devices[i], HOIST_U8, 1, SHAPE(N_THREADS * PART), 0);
	pthread_barrier_wait(&barrier);
	hoist_buffer *mine[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++)
		mine[i] = hoist_buffer_ref(shared[i]);
	pthread_barrier_wait(&barrier);
	if (part == 0)
		drop_buffers(shared, LIB_N_DEVICES);
	for (int round = 0; round < ROUNDS; round++) {
		size_t i = random_next(&seed) % LIB_N_DEVICES;
		size_t next = random_next(&seed) % LIB_N_DEVICES;
		use_part(mine[i], devices[next], part, &seed);
	}
	/* The last thread ends the storage. */
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer_unref(mine[i]);
		hoist_device_unref(devices[i]);
	}
	return NULL;
}

int main(void)
{
	lib_need_emulators();
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	run_threads(N_THREADS, work, NULL, 0);
	pthread_barrier_destroy(&barrier);
	CHECK(lib_drivers_content());
	return 0;
}
