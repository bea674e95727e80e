/* SPDX-License-Identifier: MIT */
/* One pool and one budget under several threads.  Blocks are marked at both ends
 * with their owner, so that memory given out twice is seen. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"

#define N_THREADS 4
#define N_OPERATIONS 4000
#define N_SLOTS 32
#define LIMIT (5 * HOIST__MIB)

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,        \
				hoist__error_text());                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

struct shared {
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	_Atomic uint64_t n_full; /* allocations that met the limit */
	_Atomic bool done;
};

struct worker {
	struct shared *shared;
	unsigned char mark;
	uint64_t random;
	struct hoist__block blocks[N_SLOTS];
};

static uint64_t next(struct worker *worker)
{
	worker->random =
		worker->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return worker->random >> 33;
}

static void fill(struct worker *worker, struct hoist__block *block)
{
	/* One in sixty-four is large enough for a region of its own. */
	size_t bytes = next(worker) % 64 == 0 ? 3 * HOIST__MIB : 1 + next(worker) % 65536;
	int err = hoist__pool_alloc(worker->shared->pool, bytes, 0, 0, block);
	if (err == -EDQUOT) {
		atomic_fetch_add(&worker->shared->n_full, 1);
		block->address = 0;
		return;
	}
	CHECK(err == 0);
	((unsigned char *)block->address)[0] = worker->mark;
	((unsigned char *)block->address)[bytes - 1] = worker->mark;
}

static void empty(struct worker *worker, struct hoist__block *block)
{
	struct hoist__block found;
	const unsigned char *content = (unsigned char *)block->address;
	CHECK(content[0] == worker->mark && content[block->bytes - 1] == worker->mark);
	CHECK(hoist__pool_find(worker->shared->pool, block->address, &found) == 0);
	CHECK(found.bytes == block->bytes);
	CHECK(hoist__pool_free(worker->shared->pool, block->address) == 0);
	block->address = 0;
}

static void *pool_main(void *argument)
{
	struct worker *worker = argument;
	for (int i = 0; i < N_OPERATIONS; i++) {
		struct hoist__block *block = &worker->blocks[next(worker) % N_SLOTS];
		if (block->address == 0)
			fill(worker, block);
		else
			empty(worker, block);
	}
	for (int i = 0; i < N_SLOTS; i++)
		if (worker->blocks[i].address != 0)
			empty(worker, &worker->blocks[i]);
	return NULL;
}

/* Trims and looks on, while the others work. */
static void *watch_main(void *argument)
{
	struct shared *shared = argument;
	while (!atomic_load(&shared->done)) {
		struct hoist__pool_stats stats;
		hoist__pool_stats(shared->pool, &stats);
		CHECK(stats.requested_bytes <= stats.allocated_bytes);
		CHECK(stats.allocated_bytes <= stats.reserved_bytes);
		CHECK(stats.reserved_bytes <= LIMIT);
		hoist__pool_trim(shared->pool, 0);
	}
	return NULL;
}

static void run_pool(void)
{
	static struct shared shared;
	static struct worker workers[N_THREADS];
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = 2 * HOIST__MIB,
		.keep_bytes = 4 * HOIST__MIB,
		.limit_bytes = LIMIT,
	};
	pthread_t threads[N_THREADS], watcher;
	CHECK(hoist__pool_create(&options, &shared.pool) == 0);
	CHECK(pthread_create(&watcher, NULL, watch_main, &shared) == 0);
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i].shared = &shared;
		workers[i].mark = (unsigned char)(i + 1);
		workers[i].random = i + 1;
		CHECK(pthread_create(&threads[i], NULL, pool_main, &workers[i]) == 0);
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	atomic_store(&shared.done, true);
	CHECK(pthread_join(watcher, NULL) == 0);
	struct hoist__pool_stats stats;
	hoist__pool_trim(shared.pool, 0);
	hoist__pool_stats(shared.pool, &stats);
	CHECK(stats.n_blocks == 0 && stats.n_regions == 0 && stats.reserved_bytes == 0);
	CHECK(stats.n_allocs == stats.n_frees && stats.reserved_peak_bytes <= LIMIT);
	CHECK(atomic_load(&shared.n_full) > 0); /* else the limit was never tried */
	printf("pool: %llu blocks, %llu times full\n", (unsigned long long)stats.n_allocs,
	       (unsigned long long)atomic_load(&shared.n_full));
	hoist__pool_unref(shared.pool);
}

/* Holds nothing while waiting: the rule that makes progress certain. */
static void *budget_main(void *argument)
{
	struct worker *worker = argument;
	struct hoist__budget *budget = worker->shared->budget;
	for (int i = 0; i < 1000; i++) {
		size_t first = 1 + next(worker) % 100;
		size_t second = 1 + next(worker) % 50;
		CHECK(hoist__budget_acquire_wait(budget, first, UINT64_MAX) == 0);
		CHECK(hoist__budget_used(budget) >= first);
		sched_yield(); /* holding it, so that others must wait */
		if (hoist__budget_acquire(budget, second) == 0)
			hoist__budget_release(budget, second);
		hoist__budget_release(budget, first);
	}
	hoist__budget_unref(budget);
	return NULL;
}

static void run_budget(void)
{
	static struct shared shared;
	static struct worker workers[N_THREADS];
	pthread_t threads[N_THREADS];
	CHECK(hoist__budget_create(100, &shared.budget) == 0);
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i].shared = &shared;
		workers[i].random = i + 1;
		hoist__budget_ref(shared.budget);
		CHECK(pthread_create(&threads[i], NULL, budget_main, &workers[i]) == 0);
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(hoist__budget_used(shared.budget) == 0);
	CHECK(hoist__budget_peak(shared.budget) <= 100);
	printf("budget: peak %zu of 100\n", hoist__budget_peak(shared.budget));
	hoist__budget_unref(shared.budget);
}

/* Several threads populate disjoint and overlapping parts of one lazy region. */
static void *populate_main(void *argument)
{
	struct hoist__block *block = argument;
	CHECK(hoist__populate((void *)block->address, block->bytes) == 0);
	return NULL;
}

static void run_populate(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 8 * HOIST__MIB, .lazy = true};
	struct hoist__region *region;
	pthread_t threads[N_THREADS];
	CHECK(hoist__region_create(&options, &region) == 0);
	struct hoist__block block = {.address = region->base, .bytes = region->bytes};
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, populate_main, &block) == 0);
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	hoist__region_destroy(region);
	options.lazy = false;
	options.bytes = 64 * HOIST__MIB;
	options.n_threads = N_THREADS;
	CHECK(hoist__region_create(&options, &region) == 0);
	hoist__region_destroy(region);
}

int main(void)
{
	run_pool();
	run_budget();
	run_populate();
	return 0;
}
