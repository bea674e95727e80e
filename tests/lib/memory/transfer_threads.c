/* SPDX-License-Identifier: MIT */
/* Threads that open devices, share one storage and transfer at once: every byte
 * arrives, and ThreadSanitizer sees it. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/hoist.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

#define N_THREADS 4
#define ROUNDS 20
#define PART 30000

static hoist_buffer *shared[LIB_N_DEVICES]; /* N_THREADS parts each */
static pthread_barrier_t barrier;

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* All at once: whoever is first makes what the others then share. */
static void open_and_compare(hoist_device *devices[LIB_N_DEVICES])
{
	static hoist_stream *_Atomic streams[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		pthread_barrier_wait(&barrier);
		require(hoist_device_open(lib_specs[i], &devices[i]) == 0, "opening");
		hoist_stream *stream;
		require(hoist_device_default_stream(devices[i], &stream) == 0, "a stream");
		hoist_stream *none = NULL;
		if (!atomic_compare_exchange_strong(&streams[i], &none, stream))
			require(none == stream, "all threads get one default stream");
		hoist_stream_unref(stream);
	}
}

/* A view of the thread's part; the views of all share the storage. */
static hoist_buffer *view_part(hoist_buffer *whole, size_t part)
{
	hoist_buffer *view = NULL;
	require(hoist_buffer_view(whole, part * PART, HOIST_U8, 1, (const int64_t[]){PART},
				  &view) == 0,
		"a view");
	return view;
}

static void use_part(hoist_buffer *whole, hoist_device *next, size_t part, uint64_t *seed)
{
	unsigned char model[PART];
	unsigned char got[PART] = {0};
	hoist_buffer *held = hoist_buffer_ref(whole);
	hoist_buffer *view = view_part(held, part);
	hoist_buffer_unref(held);
	random_fill(seed, model, PART);
	require(hoist_buffer_write(view, 0, model, PART) == 0, "writing");
	hoist_buffer *copy = NULL;
	require(hoist_buffer_copy(view, next, &copy) == 0, "copying");
	require(hoist_buffer_read(copy, 0, got, PART) == 0, "reading");
	require(memcmp(model, got, PART) == 0, "the bytes are those written");
	require(hoist_buffer_shape(view)[0] == PART, "the shape");
	hoist_buffer_unref(view);
	hoist_buffer_unref(copy);
}

static void *work(void *argument)
{
	size_t part = *(size_t *)argument;
	uint64_t seed = part;
	hoist_device *devices[LIB_N_DEVICES];
	open_and_compare(devices);
	if (part == 0)
		for (int i = 0; i < LIB_N_DEVICES; i++)
			require(hoist_buffer_create(devices[i], HOIST_U8, 1,
						    (const int64_t[]){N_THREADS * PART}, 0,
						    &shared[i]) == 0,
				"a buffer");
	pthread_barrier_wait(&barrier);
	hoist_buffer *mine[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++)
		mine[i] = hoist_buffer_ref(shared[i]);
	pthread_barrier_wait(&barrier);
	if (part == 0)
		for (int i = 0; i < LIB_N_DEVICES; i++)
			hoist_buffer_unref(shared[i]);
	for (int round = 0; round < ROUNDS; round++) {
		size_t i = random_next(&seed) % LIB_N_DEVICES;
		size_t next = random_next(&seed) % LIB_N_DEVICES;
		use_part(mine[i], devices[next], part, &seed);
	}
	/* Whoever is last ends the storage. */
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer_unref(mine[i]);
		hoist_device_unref(devices[i]);
	}
	return NULL;
}

int main(void)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	pthread_t threads[N_THREADS];
	size_t parts[N_THREADS];
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (size_t i = 0; i < N_THREADS; i++) {
		parts[i] = i;
		require(pthread_create(&threads[i], NULL, work, &parts[i]) == 0, "a thread");
	}
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	require(lib_drivers_content(), "the drivers saw a misuse");
	return 0;
}
