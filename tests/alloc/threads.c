/* SPDX-License-Identifier: MIT */
/* One pool and one budget under several threads.  Blocks are marked at both ends
 * with their owner, so that memory given out twice is seen. */
#include "config.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "alloc/budget.h"
#include "alloc/magazine.h"
#include "tests/support/alloc-support.h"

#define N_THREADS 4
#define N_OPERATIONS 4000
#define N_SLOTS 32
#define LIMIT (5 * HOIST__MIB)

struct shared {
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	_Atomic uint64_t n_full; /* allocations that met the limit */
	_Atomic bool done;
};

struct held {
	uintptr_t address; /* 0: none */
	size_t bytes;
};

struct worker {
	struct shared *shared;
	unsigned char mark;
	uint64_t random;
	struct held blocks[N_SLOTS];
};

static uint64_t next(struct worker *worker)
{
	return random_next(&worker->random);
}

static void fill(struct worker *worker, struct held *block)
{
	/* One in sixty-four is large enough for a region of its own. */
	size_t bytes = next(worker) % 64 == 0 ? 3 * HOIST__MIB : 1 + next(worker) % 65536;
	int err = hoist__pool_alloc(worker->shared->pool, bytes, 0, 0, &block->address);
	block->bytes = bytes;
	if (err == -EDQUOT) {
		atomic_fetch_add(&worker->shared->n_full, 1);
		block->address = 0;
		return;
	}
	CHECK(err == 0);
	((unsigned char *)block->address)[0] = worker->mark;
	((unsigned char *)block->address)[bytes - 1] = worker->mark;
}

static void empty(struct worker *worker, struct held *block)
{
	struct hoist__block found;
	const unsigned char *content = (unsigned char *)block->address;
	CHECK(content[0] == worker->mark && content[block->bytes - 1] == worker->mark);
	CHECK(hoist__pool_find(worker->shared->pool, block->address, &found) == 0);
	CHECK(found.bytes == block->bytes);
	give_block(worker->shared->pool, block->address);
	block->address = 0;
}

static void *pool_main(void *argument)
{
	struct worker *worker = argument;
	/* Until the limit was tried, however the threads come to run. */
	for (int i = 0; i < N_OPERATIONS || atomic_load(&worker->shared->n_full) == 0; i++) {
		struct held *block = &worker->blocks[next(worker) % N_SLOTS];
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

static void see_region(void *arg, const struct hoist__region *region)
{
	*(size_t *)arg += region->bytes;
}

static void see_block(void *arg, uintptr_t address, size_t bytes, size_t requested,
		      enum hoist__block_state state)
{
	(void)arg;
	CHECK(address != 0 && requested <= bytes && state <= HOIST__BLOCK_FREE);
}

/* Trims and looks on, while the others work: sums are exact only when nobody is in a call, but
 * what is reserved always is. */
static void *watch_main(void *argument)
{
	static const struct hoist__pool_visitor visitor = {see_region, see_block};
	struct shared *shared = argument;
	while (!atomic_load(&shared->done)) {
		size_t seen = 0;
		CHECK(pool_stats(shared->pool).reserved_bytes <= LIMIT);
		hoist__pool_walk(shared->pool, &visitor, &seen);
		CHECK(seen <= LIMIT);
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
	pthread_t watcher;
	CHECK(hoist__pool_create(&options, &shared.pool) == 0);
	start(&watcher, watch_main, &shared);
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i].shared = &shared;
		workers[i].mark = (unsigned char)(i + 1);
		workers[i].random = i + 1;
	}
	run_all(pool_main, workers, sizeof workers[0], N_THREADS);
	atomic_store(&shared.done, true);
	join(watcher);
	expect_unused(shared.pool);
	struct hoist__pool_stats stats = pool_stats(shared.pool);
	CHECK(stats.n_allocs == stats.n_frees && stats.reserved_peak_bytes <= LIMIT);
	printf("pool: %llu blocks, %llu times full\n", (unsigned long long)stats.n_allocs,
	       (unsigned long long)atomic_load(&shared.n_full));
	hoist__pool_unref(shared.pool);
}

/* --- two threads free the same block: exactly one does --- */

struct race {
	struct hoist__pool *pool;
	pthread_barrier_t barrier;
	uintptr_t block;
	_Atomic unsigned n_freed;
};

#define N_RACES 2000

static void race_once(struct race *race)
{
	(void)pthread_barrier_wait(&race->barrier);
	int err = hoist__pool_free(race->pool, race->block);
	CHECK(err == 0 || err == -EINVAL);
	if (err == 0)
		atomic_fetch_add(&race->n_freed, 1);
	(void)pthread_barrier_wait(&race->barrier);
}

static void *race_main(void *argument)
{
	for (int i = 0; i < N_RACES; i++)
		race_once(argument);
	return NULL;
}

static void run_races(void)
{
	const struct hoist__pool_options options = {.region_bytes = 8 * HOIST__MIB,
						    .keep_bytes = 8 * HOIST__MIB};
	struct race race = {.pool = make_pool(&options)};
	pthread_t thread;
	CHECK(pthread_barrier_init(&race.barrier, NULL, 2) == 0);
	start(&thread, race_main, &race);
	for (unsigned i = 0; i < N_RACES; i++) {
		race.block = take_block(race.pool, i % 2 == 0 ? 100 : 2 * HOIST__MIB);
		race_once(&race);
		CHECK(atomic_load(&race.n_freed) == i + 1);
	}
	join(thread);
	expect_unused(race.pool);
	hoist__pool_unref(race.pool);
	CHECK(pthread_barrier_destroy(&race.barrier) == 0);
}

/* --- a wrong free, and the end of the region that its address was in --- */

#define N_ENDS 20

struct late_free {
	struct hoist__pool *pool;
	_Atomic uintptr_t block; /* relaxed, as all is here: nothing orders the two threads */
	_Atomic bool freed;
};

static void *free_again_main(void *argument)
{
	struct late_free *late = argument;
	uintptr_t block;
	while ((block = atomic_load_explicit(&late->block, memory_order_relaxed)) == 0)
		sched_yield();
	CHECK(hoist__pool_free(late->pool, block) == -EINVAL);
	atomic_store_explicit(&late->freed, true, memory_order_relaxed);
	CHECK(hoist__pool_free(late->pool, block) == -EINVAL); /* while the region ends */
	return NULL;
}

/* ThreadSanitizer reports a wrong free that reads what the region's end gives to free(). */
static void end_region_once(size_t bytes)
{
	const struct hoist__pool_options options = {.region_bytes = 8 * HOIST__MIB};
	struct late_free late = {.pool = make_pool(&options)};
	pthread_t thread;
	start(&thread, free_again_main, &late);
	uintptr_t block = take_block(late.pool, bytes);
	give_block(late.pool, block);
	atomic_store_explicit(&late.block, block, memory_order_relaxed);
	while (!atomic_load_explicit(&late.freed, memory_order_relaxed))
		sched_yield();
	hoist__pool_trim(late.pool, 0);
	CHECK(pool_stats(late.pool).n_regions == 0);
	join(thread);
	hoist__pool_unref(late.pool);
}

static void run_ends(void)
{
	for (int i = 0; i < N_ENDS; i++)
		end_region_once(i % 2 == 0 ? 100 : HOIST__MIB);
}

#ifndef HOIST__TSAN /* which has ended in the thread before the last round */

/* --- destructors that allocate after the thread's caches have ended --- */

#define STACK_BYTES HOIST__MIB

static pthread_key_t late;
static struct hoist__pool *late_pool;
static int n_late;

/* Comes again until the system has had enough: in the last round nobody comes behind it. */
static void allocate_late(void *value)
{
	give_block(late_pool, take_block(late_pool, 1000));
	n_late++;
	CHECK(pthread_setspecific(late, value) == 0);
}

static void *late_main(void *argument)
{
	give_block(late_pool, take_block(late_pool, 1000));
	CHECK(pthread_setspecific(late, argument) == 0);
	return NULL;
}

/* The records that a pool keeps of a thread must not lie in its stack, which is gone here. */
static void run_late(void)
{
	const struct hoist__pool_options options = {.region_bytes = 8 * HOIST__MIB};
	pthread_attr_t attributes;
	pthread_t thread;
	late_pool = make_pool(&options);
	CHECK(pthread_key_create(&late, allocate_late) == 0);
	void *stack =
		mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED);
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
	CHECK(pthread_create(&thread, &attributes, late_main, &late) == 0);
	join(thread);
	CHECK(pthread_attr_destroy(&attributes) == 0);
	CHECK(munmap(stack, STACK_BYTES) == 0);
	CHECK(n_late > 1);
	expect_unused(late_pool);
	hoist__pool_unref(late_pool);
	CHECK(pthread_key_delete(late) == 0);
}

#endif

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
	CHECK(hoist__budget_create(100, &shared.budget) == 0);
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i].shared = &shared;
		workers[i].random = i + 1;
		hoist__budget_ref(shared.budget);
	}
	run_all(budget_main, workers, sizeof workers[0], N_THREADS);
	CHECK(hoist__budget_used(shared.budget) == 0);
	CHECK(hoist__budget_peak(shared.budget) <= 100);
	printf("budget: peak %zu of 100\n", hoist__budget_peak(shared.budget));
	hoist__budget_unref(shared.budget);
}

/* Several threads populate disjoint and overlapping parts of one lazy region. */
static void *populate_main(void *argument)
{
	const struct held *block = argument;
	CHECK(hoist__populate((void *)block->address, block->bytes) == 0);
	return NULL;
}

static void run_populate(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 8 * HOIST__MIB, .unpopulated = true};
	struct hoist__region *region;
	CHECK(hoist__region_create(&options, &region) == 0);
	struct held block = {.address = region->base, .bytes = region->bytes};
	run_all(populate_main, &block, 0, N_THREADS);
	hoist__region_destroy(region);
	options.unpopulated = false;
	options.bytes = 64 * HOIST__MIB;
	options.n_threads = N_THREADS;
	CHECK(hoist__region_create(&options, &region) == 0);
	hoist__region_destroy(region);
}

/* --- a trace begins while others have the fast path open --- */

struct traced {
	struct hoist__pool *pool;
	pthread_barrier_t barrier;
};

static void *work_untraced_then_traced(void *argument)
{
	struct traced *traced = argument;
	uintptr_t block = take_block(traced->pool, 1000);
	give_block(traced->pool, take_block(traced->pool, 1000));
	(void)pthread_barrier_wait(&traced->barrier);
	(void)pthread_barrier_wait(&traced->barrier);
	give_block(traced->pool, block);
	give_block(traced->pool, take_block(traced->pool, 1000));
	return NULL;
}

static int lines_of(const char *path)
{
	FILE *file = fopen(path, "r");
	int n = 0;
	CHECK(file != NULL);
	for (int c; (c = getc(file)) != EOF;)
		n += c == '\n';
	CHECK(fclose(file) == 0);
	return n;
}

static void run_traced(void)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB};
	struct traced traced = {.pool = make_pool(&options)};
	const char *folder = getenv("TMPDIR");
	char path[4096];
	pthread_t id;
	(void)snprintf(path, sizeof path, "%s/threads.%ld.csv", folder == NULL ? "/tmp" : folder,
		       (long)getpid());
	CHECK(pthread_barrier_init(&traced.barrier, NULL, 2) == 0);
	start(&id, work_untraced_then_traced, &traced);
	(void)pthread_barrier_wait(&traced.barrier);
	CHECK(hoist__pool_trace(traced.pool, path) == 0);
	(void)pthread_barrier_wait(&traced.barrier);
	join(id);
	CHECK(hoist__pool_trace(traced.pool, NULL) == 0);
	CHECK(lines_of(path) == 1 + 3); /* the header */
	CHECK(unlink(path) == 0);
	CHECK(pthread_barrier_destroy(&traced.barrier) == 0);
	expect_unused(traced.pool);
	hoist__pool_unref(traced.pool);
}

int main(void)
{
	run_pool();
	run_races();
	run_ends();
#ifndef HOIST__TSAN
	run_late();
#endif
	run_budget();
	run_populate();
	run_traced();
	return 0;
}
