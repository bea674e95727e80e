/* SPDX-License-Identifier: MIT */
/* Several resources of every kind, used by several threads at once, some of them over one another:
 * blocks never overlap, the drivers see no misuse, and ThreadSanitizer sees all of it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

#define N_THREADS 4
#define N_SLOTS 16
#define ROUNDS 3000
#define MIB ((size_t)1 << 20)

enum { HOST, PINNED, DEVICE, MANAGED, DRIVER, CUSTOM, OVER, N_MEMORIES };

static hoist_device *devices[LIB_N_DEVICES];
static hoist_memory *memories[N_MEMORIES];
static pthread_barrier_t barrier;

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "%s: %s\n", what, hoist_error());
	exit(1);
}

static int take(void *context, size_t bytes, size_t align, hoist_stream *stream, uintptr_t *ret)
{
	(void)context;
	(void)stream;
	void *memory = NULL;
	if (posix_memalign(&memory, align < 64 ? 64 : align, bytes) != 0)
		return -ENOMEM;
	*ret = (uintptr_t)memory;
	return 0;
}

static void give(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)context;
	(void)bytes;
	(void)stream;
	free((void *)address);
}

static hoist_memory *create(int kind, hoist_memory *upstream)
{
	static const hoist_memory_functions functions = {
		.size = sizeof functions, .alloc = take, .free = give, .is_host_accessible = 1};
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = kind,
		.device = kind == HOIST_MEMORY_HOST || kind == HOIST_MEMORY_CUSTOM ? NULL
										   : devices[1],
		.functions = kind == HOIST_MEMORY_CUSTOM ? &functions : NULL,
		.region_bytes = kind == HOIST_MEMORY_CUSTOM || kind == HOIST_MEMORY_DRIVER_POOL
					? 0
					: 4 * MIB,
		.upstream = upstream,
	};
	hoist_memory *memory = NULL;
	require(hoist_memory_create(&options, &memory) == 0, "a resource");
	return memory;
}

struct slot {
	int memory;
	uintptr_t address;
	size_t bytes;
	unsigned char mark;
};

static bool is_host(int memory)
{
	return memory == HOST || memory == PINNED || memory == CUSTOM || memory == OVER;
}

static void fill(struct slot *slot, uint64_t *seed, hoist_stream *stream)
{
	slot->memory = (int)(random_next(seed) % N_MEMORIES);
	slot->bytes = 1 + random_next(seed) % (random_next(seed) % 8 == 0 ? 300000 : 3000);
	slot->mark = (unsigned char)random_next(seed);
	hoist_memory *memory = memories[slot->memory];
	bool on = !is_host(slot->memory) && random_next(seed) % 2 == 0;
	int err = on ? hoist_memory_alloc_on(memory, slot->bytes, 0, stream, &slot->address)
		     : hoist_memory_alloc(memory, slot->bytes, 0, &slot->address);
	require(err == 0, "a block");
	if (is_host(slot->memory))
		memset((void *)slot->address, slot->mark, slot->bytes);
}

static void empty(struct slot *slot, uint64_t *seed, hoist_stream *stream)
{
	hoist_memory *memory = memories[slot->memory];
	if (is_host(slot->memory)) {
		const unsigned char *bytes = (const unsigned char *)slot->address;
		for (size_t i = 0; i < slot->bytes; i += 61)
			require(bytes[i] == slot->mark, "another thread wrote to the block");
		require(bytes[slot->bytes - 1] == slot->mark, "another wrote to its end");
	}
	bool orders = slot->memory != HOST && slot->memory != CUSTOM && slot->memory != OVER;
	if (orders && random_next(seed) % 4 == 0)
		require(hoist_memory_use(memory, slot->address, stream) == 0, "using");
	bool on = orders && random_next(seed) % 2 == 0;
	int err = on ? hoist_memory_free_on(memory, slot->address, stream)
		     : hoist_memory_free(memory, slot->address);
	require(err == 0, "freeing");
	slot->address = 0;
}

/* What other threads may do at any time. */
static void watch(uint64_t *seed, int null)
{
	hoist_memory *memory = hoist_memory_ref(memories[random_next(seed) % N_MEMORIES]);
	hoist_memory_statistics s = {.size = sizeof s};
	switch (random_next(seed) % 4) {
	case 0:
		require(hoist_memory_get_statistics(memory, &s) == 0, "statistics");
		break;
	case 1:
		require(hoist_memory_trim(memory, 0) == 0, "trimming");
		break;
	case 2:
		require(hoist_memory_reset_peaks(memory) == 0, "peaks");
		break;
	default:
		require(hoist_memory_snapshot(memory, null) == 0, "a snapshot");
		break;
	}
	hoist_memory_unref(memory);
	hoist_memory *own = create(HOIST_MEMORY_DEVICE, NULL);
	uintptr_t block = 0;
	require(hoist_memory_alloc(own, 100, 0, &block) == 0, "a block of its own");
	require(hoist_memory_free(own, block) == 0, "freeing it");
	hoist_memory_unref(own);
}

static void *work(void *argument)
{
	uint64_t seed = *(size_t *)argument;
	struct slot slots[N_SLOTS] = {{0}};
	hoist_stream *stream = NULL;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	require(hoist_stream_create(devices[1], &stream) == 0, "a stream");
	pthread_barrier_wait(&barrier); /* the first blocks of all at once */
	for (int round = 0; round < ROUNDS; round++) {
		struct slot *slot = &slots[random_next(&seed) % N_SLOTS];
		if (slot->address == 0)
			fill(slot, &seed, stream);
		else
			empty(slot, &seed, stream);
		if (round % 20 == 19)
			watch(&seed, null);
		if (round % 100 == 99) {
			hoist_stream_unref(stream);
			require(hoist_stream_create(devices[1], &stream) == 0, "a stream");
		}
	}
	for (size_t i = 0; i < N_SLOTS; i++)
		if (slots[i].address != 0)
			empty(&slots[i], &seed, stream);
	hoist_stream_unref(stream);
	close(null);
	return NULL;
}

int main(void)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	lib_open_all(devices);
	memories[HOST] = create(HOIST_MEMORY_HOST, NULL);
	memories[PINNED] = create(HOIST_MEMORY_PINNED, NULL);
	memories[DEVICE] = create(HOIST_MEMORY_DEVICE, NULL);
	memories[MANAGED] = create(HOIST_MEMORY_MANAGED, NULL);
	memories[DRIVER] = create(HOIST_MEMORY_DRIVER_POOL, NULL);
	memories[CUSTOM] = create(HOIST_MEMORY_CUSTOM, NULL);
	memories[OVER] = create(HOIST_MEMORY_HOST, memories[CUSTOM]);
	pthread_t threads[N_THREADS];
	size_t seeds[N_THREADS];
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (size_t i = 0; i < N_THREADS; i++) {
		seeds[i] = i + 1;
		require(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0, "a thread");
	}
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	for (int i = N_MEMORIES - 1; i >= 0; i--) {
		hoist_memory_statistics s = {.size = sizeof s};
		require(hoist_memory_trim(memories[i], 0) == 0, "trimming");
		require(hoist_memory_get_statistics(memories[i], &s) == 0, "statistics");
		if (i != CUSTOM)
			require(s.n_blocks == 0 && s.requested_bytes == 0, "blocks are left");
		hoist_memory_unref(memories[i]);
	}
	require(lib_drivers_content(), "the drivers saw a misuse");
	require(lib_nothing_outstanding(devices), "the drivers still have something");
	return 0;
}
