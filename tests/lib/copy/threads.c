/* SPDX-License-Identifier: MIT */
/* Threads that copy, view and drop one storage at once, with streams and without: every byte
 * arrives, and ThreadSanitizer sees it. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/hoist.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

enum { N_THREADS = 4, ROUNDS = 30, ROWS = 12, COLUMNS = 50 };

static hoist_device *devices[LIB_N_DEVICES];
static hoist_buffer *shared[LIB_N_DEVICES]; /* N_THREADS parts of ROWS x COLUMNS */

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

/* The thread's rows, backwards. */
static hoist_buffer *view_part(hoist_buffer *whole, int64_t part)
{
	const hoist_slice slices[] = {HOIST_RANGE(part * ROWS, (part + 1) * ROWS),
				      HOIST_STEP(HOIST_NONE, HOIST_NONE, -1)};
	hoist_buffer *view = NULL;
	require(hoist_buffer_slice(whole, 2, slices, &view) == 0, "a view");
	return view;
}

/* On a stream that one of the two is on, or none. */
static void copy(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream)
{
	if (stream == NULL) {
		require(hoist_buffer_copy_into(dst, src) == 0, "copying");
		return;
	}
	require(hoist_buffer_copy_on(dst, src, stream) == 0, "copying on a stream");
	require(hoist_stream_synchronize(stream) == 0, "the stream");
}

static void use_part(int64_t part, size_t from, size_t to, hoist_stream *stream, uint64_t *seed)
{
	unsigned char model[ROWS * COLUMNS];
	unsigned char got[ROWS * COLUMNS] = {0};
	hoist_buffer *src = view_part(shared[from], part);
	hoist_buffer *dst = view_part(shared[to], part);
	hoist_buffer *made = NULL;
	random_fill(seed, model, sizeof model);
	require(hoist_buffer_copy_in(src, model, sizeof model) == 0, "copying in");
	copy(dst, src, stream);
	require(hoist_buffer_to(dst, devices[(to + 1) % LIB_N_DEVICES], &made) == 0, "to");
	require(hoist_buffer_copy_out(made, got, sizeof got) == 0, "copying out");
	require(memcmp(model, got, sizeof got) == 0, "the bytes are those written");
	require(hoist_buffer_fill(dst, "f", 1) == 0, "filling");
	hoist_buffer_unref(src);
	hoist_buffer_unref(dst);
	hoist_buffer_unref(made);
}

static void *work(void *argument)
{
	int64_t part = *(int64_t *)argument;
	uint64_t seed = (uint64_t)part;
	hoist_stream *streams[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		require(hoist_stream_create(devices[i], &streams[i]) == 0, "a stream");
		hoist_buffer_ref(shared[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		size_t from = random_next(&seed) % LIB_N_DEVICES;
		size_t to = random_next(&seed) % LIB_N_DEVICES;
		hoist_stream *const choice[] = {NULL, streams[from], streams[to]};
		use_part(part, from, to, choice[random_next(&seed) % 3], &seed);
	}
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer_unref(shared[i]);
		hoist_stream_unref(streams[i]);
	}
	return NULL;
}

/* proves: S0.22 S0.27 S2.08 */
int main(void)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	pthread_t threads[N_THREADS];
	int64_t parts[N_THREADS];
	const int64_t shape[] = {N_THREADS * ROWS, COLUMNS};
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		require(hoist_buffer_create(devices[i], HOIST_U8, 2, shape, 0, &shared[i]) == 0,
			"a buffer");
	for (int i = 0; i < N_THREADS; i++) {
		parts[i] = i;
		require(pthread_create(&threads[i], NULL, work, &parts[i]) == 0, "a thread");
	}
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_buffer_unref(shared[i]);
	require(lib_drivers_content(), "the drivers saw a misuse");
	return 0;
}
