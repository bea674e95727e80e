/* SPDX-License-Identifier: MIT */
/* Blocks in stream order from several threads: each frees, takes and uses on its own stream and
 * on a common one, some of them sweep, waiting or not, one makes and forgets streams.  A stream
 * marks each use of a block; one that comes out, from whichever thread, must be marked by
 * all its users, and comes out once.  Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc/deferred.h"
#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#define BLOCK 256
#define N_WORKERS 4
#define N_SLOTS 128 /* of each worker */
#define N_STEPS 30000
#define N_FORGOTTEN 150

enum { FREE, LIVE, PENDING };

static struct slot {
	atomic_int state;
	atomic_uint users;	/* 1: the worker's own stream, 2: the common one */
	unsigned char marks[2]; /* written by streams */
	unsigned char due[2];
} slots[(N_WORKERS + 1) * N_SLOTS];

static struct hoist__calls calls;
static struct hoist__deferred *deferred;
static struct hoist__dev *cpu;
static struct hoist__dev_stream *common;
static atomic_uint n_running = N_WORKERS + 1;
static atomic_size_t n_freed;
static atomic_size_t n_back; /* taken, or come out */

static uintptr_t address_of(size_t slot)
{
	return (slot + 1) * BLOCK;
}

static void mark(size_t slot, int which, struct hoist__dev_stream *stream)
{
	unsigned char due = ++slots[slot].due[which];
	CHECK(hoist__fill_async(stream, (uintptr_t)&slots[slot].marks[which], due, 1, 1) == 0);
	atomic_fetch_or(&slots[slot].users, 1u << which);
}

static void came_out(const uintptr_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct slot *slot = &slots[out[i] / BLOCK - 1];
		unsigned users = atomic_load(&slot->users);
		CHECK((users & 1) == 0 || slot->marks[0] == slot->due[0]);
		CHECK((users & 2) == 0 || slot->marks[1] == slot->due[1]);
		atomic_store(&slot->users, 0);
		CHECK(atomic_exchange(&slot->state, FREE) == PENDING);
	}
	atomic_fetch_add(&n_back, n);
}

static void sweep(bool wait, size_t most)
{
	uintptr_t out[32];
	came_out(out, hoist__deferred_sweep(deferred, wait, out, most));
}

static void give(size_t slot, struct hoist__dev_stream *stream)
{
	CHECK(atomic_exchange(&slots[slot].state, PENDING) == LIVE);
	atomic_fetch_add(&n_freed, 1);
	CHECK(hoist__deferred_push(deferred, address_of(slot), BLOCK, stream) == 0);
}

static void take(struct hoist__dev_stream *stream, size_t first)
{
	uintptr_t address = hoist__deferred_take(deferred, stream, BLOCK, BLOCK);
	if (address == 0)
		return;
	size_t slot = address / BLOCK - 1;
	CHECK(slot >= first && slot < first + N_SLOTS);
	CHECK(atomic_load(&slots[slot].users) == 1);
	CHECK(atomic_exchange(&slots[slot].state, LIVE) == PENDING);
	atomic_fetch_add(&n_back, 1);
}

static void step(size_t slot, size_t first, struct hoist__dev_stream *stream, unsigned dice)
{
	int free = FREE;
	switch (dice % 8) {
	case 0:
		sweep(dice / 8 % 16 == 0, 1 + dice / 128 % 32);
		break;
	case 1:
	case 2:
		take(stream, first);
		break;
	case 3:
		if (atomic_load(&slots[slot].state) != LIVE)
			break;
		mark(slot, 1, common);
		CHECK(hoist__deferred_use(deferred, address_of(slot), common) == 0);
		break;
	default:
		if (atomic_compare_exchange_strong(&slots[slot].state, &free, LIVE) ||
		    free == LIVE) {
			mark(slot, 0, stream);
			give(slot, stream);
		}
	}
}

static void *worker(void *argument)
{
	size_t first = *(const size_t *)argument * N_SLOTS;
	uint64_t seed = first + 1;
	struct hoist__dev_stream *stream;
	CHECK(hoist__dev_stream_create(cpu, &stream) == 0);
	for (int i = 0; i < N_STEPS; i++)
		step(first + random_below(&seed, N_SLOTS), first, stream,
		     (unsigned)random_next(&seed));
	hoist__deferred_forget(deferred, stream);
	/* The users of a block that is still live are gone, or it has none. */
	for (size_t slot = first; slot < first + N_SLOTS; slot++)
		if (atomic_load(&slots[slot].state) == LIVE)
			give(slot, common);
	hoist__dev_stream_destroy(stream);
	atomic_fetch_sub(&n_running, 1);
	return NULL;
}

/* Streams that come and go under the sweeps of the others. */
static void *forgetter(void *argument)
{
	size_t first = N_WORKERS * N_SLOTS;
	(void)argument;
	for (int i = 0; i < N_FORGOTTEN; i++) {
		struct hoist__dev_stream *stream;
		CHECK(hoist__dev_stream_create(cpu, &stream) == 0);
		for (size_t slot = first; slot < first + N_SLOTS; slot++) {
			int free = FREE;
			if (!atomic_compare_exchange_strong(&slots[slot].state, &free, LIVE))
				continue;
			mark(slot, 0, stream);
			if (slot % 4 == 0)
				CHECK(hoist__deferred_use(deferred, address_of(slot), stream) == 0);
			else
				give(slot, stream);
		}
		hoist__deferred_forget(deferred, stream);
		for (size_t slot = first; slot < first + N_SLOTS; slot += 4)
			if (atomic_load(&slots[slot].state) == LIVE)
				give(slot, NULL);
		hoist__dev_stream_destroy(stream);
	}
	atomic_fetch_sub(&n_running, 1);
	return NULL;
}

static void *waiter(void *argument)
{
	(void)argument;
	while (atomic_load(&n_running) != 0) {
		(void)hoist__deferred_any(deferred);
		(void)hoist__deferred_bytes(deferred);
		(void)hoist__deferred_holds(deferred, BLOCK);
		sweep(true, 32);
		hoist__deferred_release_captured(deferred);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[N_WORKERS + 3];
	static size_t numbers[N_WORKERS];
	const struct hoist__deferred_options options = {.reuse = true, .calls = &calls};
	CHECK(hoist__dev_get(HOIST__API_CPU, 0, &cpu) == 0);
	CHECK(hoist__dev_stream_create(cpu, &common) == 0);
	CHECK(hoist__deferred_create(&options, &deferred) == 0);
	for (size_t i = 0; i < N_WORKERS; i++) {
		numbers[i] = i;
		CHECK(pthread_create(&threads[i], NULL, worker, &numbers[i]) == 0);
	}
	CHECK(pthread_create(&threads[N_WORKERS], NULL, forgetter, NULL) == 0);
	CHECK(pthread_create(&threads[N_WORKERS + 1], NULL, waiter, NULL) == 0);
	CHECK(pthread_create(&threads[N_WORKERS + 2], NULL, waiter, NULL) == 0);
	for (size_t i = 0; i < N_WORKERS + 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	uintptr_t out[32];
	for (size_t n; (n = hoist__deferred_drain(deferred, out, 32)) != 0;)
		came_out(out, n);
	CHECK(atomic_load(&n_freed) == atomic_load(&n_back));
	CHECK(hoist__deferred_bytes(deferred) == 0 && !hoist__deferred_any(deferred));
	hoist__deferred_destroy(deferred);
	hoist__dev_stream_destroy(common);
	return 0;
}
