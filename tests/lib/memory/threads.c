/* SPDX-License-Identifier: MIT */
/* Several resources of every kind, used by several threads at once, some of them over one another:
 * blocks never overlap, the drivers see no misuse, and ThreadSanitizer sees all of it. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check.h"
#include "tests/support/lib-custom.h"
#include "tests/support/lib-make.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"
#include "tests/support/threads.h"

#define N_THREADS 4
#define N_SLOTS 16
#define ROUNDS 3000
#define MIB ((size_t)1 << 20)

enum { HOST, PINNED, DEVICE, MANAGED, DRIVER, CUSTOM, OVER, N_MEMORIES };

static hoist_device *devices[LIB_N_DEVICES];
static hoist_memory *memories[N_MEMORIES];
static pthread_barrier_t barrier;

static hoist_memory *create(int kind, hoist_memory *upstream)
{
	return make_memory(OPTIONS(.kind = kind, .upstream = upstream,
				   .device = kind == HOIST_MEMORY_HOST ? NULL : devices[1],
				   .region_bytes = kind == HOIST_MEMORY_DRIVER_POOL ? 0 : 4 * MIB));
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
	CHECK(err == 0);
	if (is_host(slot->memory))
		memset((void *)slot->address, slot->mark, slot->bytes);
}

static void empty(struct slot *slot, uint64_t *seed, hoist_stream *stream)
{
	hoist_memory *memory = memories[slot->memory];
	if (is_host(slot->memory)) {
		const unsigned char *bytes = (const unsigned char *)slot->address;
		for (size_t i = 0; i < slot->bytes; i += 61)
			CHECK(bytes[i] == slot->mark);
		CHECK(bytes[slot->bytes - 1] == slot->mark);
	}
	bool orders = slot->memory != HOST && slot->memory != CUSTOM && slot->memory != OVER;
	if (orders && random_next(seed) % 4 == 0)
		OK(hoist_memory_use(memory, slot->address, stream));
	bool on = orders && random_next(seed) % 2 == 0;
	int err = on ? hoist_memory_free_on(memory, slot->address, stream)
		     : hoist_memory_free(memory, slot->address);
	CHECK(err == 0);
	slot->address = 0;
}

/* Calls that are allowed at any time. */
static void watch(uint64_t *seed, int null)
{
	hoist_memory *memory = hoist_memory_ref(memories[random_next(seed) % N_MEMORIES]);
	switch (random_next(seed) % 4) {
	case 0:
		(void)statistics_of(memory);
		break;
	case 1:
		OK(hoist_memory_trim(memory, 0));
		break;
	case 2:
		OK(hoist_memory_reset_peaks(memory));
		break;
	default:
		OK(hoist_memory_snapshot(memory, null));
		break;
	}
	hoist_memory_unref(memory);
	hoist_memory *own = create(HOIST_MEMORY_DEVICE, NULL);
	release(own, alloc(own, 100, 0));
	hoist_memory_unref(own);
}

static void *work(void *argument)
{
	uint64_t seed = (uintptr_t)argument + 1;
	struct slot slots[N_SLOTS] = {{0}};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	hoist_stream *stream = make_stream(devices[1]);
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
			stream = make_stream(devices[1]);
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
	lib_need_emulators();
	lib_open_all(devices);
	memories[HOST] = create(HOIST_MEMORY_HOST, NULL);
	memories[PINNED] = create(HOIST_MEMORY_PINNED, NULL);
	memories[DEVICE] = create(HOIST_MEMORY_DEVICE, NULL);
	memories[MANAGED] = create(HOIST_MEMORY_MANAGED, NULL);
	memories[DRIVER] = create(HOIST_MEMORY_DRIVER_POOL, NULL);
	memories[CUSTOM] = make_custom(NULL, NULL, 1, 0);
	memories[OVER] = create(HOIST_MEMORY_HOST, memories[CUSTOM]);
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	run_threads(N_THREADS, work, NULL, 0);
	pthread_barrier_destroy(&barrier);
	for (int i = N_MEMORIES - 1; i >= 0; i--) {
		OK(hoist_memory_trim(memories[i], 0));
		hoist_memory_statistics s = statistics_of(memories[i]);
		if (i != CUSTOM)
			CHECK(s.n_blocks == 0 && s.requested_bytes == 0);
		hoist_memory_unref(memories[i]);
	}
	CHECK(lib_drivers_content());
	CHECK(lib_nothing_outstanding(devices));
	return 0;
}
