/* SPDX-License-Identifier: MIT */
/* Threads that open devices, then read, write, copy, view and drop one storage at once, with
 * streams and without: every byte arrives, and ThreadSanitizer watches. */
#include "config.h"

#include <stdatomic.h>
#include <string.h>

#include "tests/support/check.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"

enum { N_THREADS = 4, ROUNDS = 30, ROWS = 12, COLUMNS = 50, TRANSFERS = 20, PART = 30000 };

static hoist_device *devices[LIB_N_DEVICES];
static hoist_buffer *shared[LIB_N_DEVICES]; /* N_THREADS parts each */
static pthread_barrier_t barrier;

/* --- reads and writes, while devices are opened --- */

/* All threads at once: the first one makes the objects that all share. */
static void open_and_compare(hoist_device *opened[LIB_N_DEVICES])
{
	static hoist_stream *_Atomic streams[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		pthread_barrier_wait(&barrier);
		opened[i] = open_device(lib_specs[i]);
		hoist_stream *stream;
		OK(hoist_device_default_stream(opened[i], &stream));
		hoist_stream *none = NULL;
		if (!atomic_compare_exchange_strong(&streams[i], &none, stream))
			CHECK(none == stream);
		hoist_stream_unref(stream);
	}
}

/* A view of the thread's part; the views of all share the storage. */
static hoist_buffer *view_bytes(hoist_buffer *whole, size_t part)
{
	return make_view(whole, part * PART, HOIST_U8, 1, SHAPE(PART));
}

static void transfer_part(hoist_buffer *whole, hoist_device *next, size_t part, uint64_t *seed)
{
	unsigned char model[PART];
	unsigned char got[PART] = {0};
	hoist_buffer *held = hoist_buffer_ref(whole);
	hoist_buffer *view = view_bytes(held, part);
	hoist_buffer_unref(held);
	random_fill(seed, model, PART);
	OK(hoist_buffer_write(view, 0, model, PART));
	hoist_buffer *copy = make_copy(view, next);
	OK(hoist_buffer_read(copy, 0, got, PART));
	CHECK(memcmp(model, got, PART) == 0);
	CHECK(hoist_buffer_shape(view)[0] == PART);
	DROP(view, copy);
}

static void *open_and_transfer(void *argument)
{
	size_t part = (uintptr_t)argument;
	uint64_t seed = part;
	hoist_device *opened[LIB_N_DEVICES];
	open_and_compare(opened);
	if (part == 0)
		for (int i = 0; i < LIB_N_DEVICES; i++)
			shared[i] = make_buffer(opened[i], HOIST_U8, 1, SHAPE(N_THREADS * PART), 0);
	pthread_barrier_wait(&barrier);
	hoist_buffer *mine[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++)
		mine[i] = hoist_buffer_ref(shared[i]);
	pthread_barrier_wait(&barrier);
	if (part == 0)
		drop_buffers(shared, LIB_N_DEVICES);
	for (int round = 0; round < TRANSFERS; round++) {
		size_t i = random_next(&seed) % LIB_N_DEVICES;
		size_t next = random_next(&seed) % LIB_N_DEVICES;
		transfer_part(mine[i], opened[next], part, &seed);
	}
	/* The last thread ends the storage. */
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer_unref(mine[i]);
		hoist_device_unref(opened[i]);
	}
	return NULL;
}

/* --- copies --- */

/* The thread's rows, backwards. */
static hoist_buffer *view_part(hoist_buffer *whole, int64_t part)
{
	const hoist_slice slices[] = {HOIST_RANGE(part * ROWS, (part + 1) * ROWS),
				      HOIST_STEP(HOIST_NONE, HOIST_NONE, -1)};
	return make_slice(whole, 2, slices);
}

/* On a stream of one of the two devices, or without a stream. */
static void copy(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream)
{
	if (stream == NULL) {
		OK(hoist_buffer_copy_into(dst, src));
		return;
	}
	OK(hoist_buffer_copy_on(dst, src, stream));
	OK(hoist_stream_synchronize(stream));
}

static void use_part(int64_t part, size_t from, size_t to, hoist_stream *stream, uint64_t *seed)
{
	unsigned char model[ROWS * COLUMNS];
	unsigned char got[ROWS * COLUMNS] = {0};
	hoist_buffer *src = view_part(shared[from], part);
	hoist_buffer *dst = view_part(shared[to], part);
	hoist_buffer *made = NULL;
	random_fill(seed, model, sizeof model);
	OK(hoist_buffer_copy_in(src, model, sizeof model));
	copy(dst, src, stream);
	OK(hoist_buffer_to(dst, devices[(to + 1) % LIB_N_DEVICES], &made));
	OK(hoist_buffer_copy_out(made, got, sizeof got));
	CHECK(memcmp(model, got, sizeof got) == 0);
	OK(hoist_buffer_fill(dst, "f", 1));
	DROP(src, dst, made);
}

static void *work(void *argument)
{
	int64_t part = (int64_t)(intptr_t)argument;
	uint64_t seed = (uint64_t)part;
	hoist_stream *streams[LIB_N_DEVICES];
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		streams[i] = make_stream(devices[i]);
		hoist_buffer_ref(shared[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		size_t from = random_next(&seed) % LIB_N_DEVICES;
		size_t to = random_next(&seed) % LIB_N_DEVICES;
		hoist_stream *const choice[] = {NULL, streams[from], streams[to]};
		use_part(part, from, to, choice[random_next(&seed) % 3], &seed);
	}
	drop_buffers(shared, LIB_N_DEVICES);
	drop_streams(streams, LIB_N_DEVICES);
	return NULL;
}

/* proves: S0.22 S0.27 S2.08 */
int main(void)
{
	lib_need_emulators();
	const int64_t shape[] = {N_THREADS * ROWS, COLUMNS};
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	run_threads(N_THREADS, open_and_transfer, NULL, 0);
	pthread_barrier_destroy(&barrier);
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++)
		shared[i] = make_buffer(devices[i], HOIST_U8, 2, shape, 0);
	run_threads(N_THREADS, work, NULL, 0);
	drop_buffers(shared, LIB_N_DEVICES);
	CHECK(lib_drivers_content());
	return 0;
}
