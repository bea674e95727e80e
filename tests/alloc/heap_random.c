/* SPDX-License-Identifier: MIT */
/* Heaps over pools: random work of several threads, in a program that is linked with jemalloc.
 * The program has a mallctl() of its own before jemalloc's: by that it plays an older jemalloc,
 * one without statistics, and one that has run out of things. */
#include "config.h"

#include <jemalloc/jemalloc.h>

#include <dlfcn.h>
#include <stdatomic.h>

#include "alloc/heap-private.h"
#include "tests/support/alloc-heap.h"

#define N_THREADS 4
#define N_SLOTS 64
#define N_OPERATIONS 20000

/* --- in front of jemalloc --- */

static const char *refused;	     /* the name that mallctl() refuses, */
static int refused_err;		     /* and how */
static const char *version_override; /* what it says of itself */
static bool no_statistics;

__attribute__((visibility("default"))) int mallctl(const char *name, void *old, size_t *old_bytes,
						   void *new, size_t new_bytes)
{
	static int (*next)(const char *, void *, size_t *, void *, size_t);
	if (next == NULL) {
		void *found = dlsym(RTLD_NEXT, "mallctl");
		memcpy(&next, &found, sizeof found);
	}
	if (refused != NULL && strcmp(name, refused) == 0)
		return refused_err;
	if (version_override != NULL && strcmp(name, "version") == 0) {
		memcpy(old, &version_override, sizeof version_override);
		return 0;
	}
	if (no_statistics && strcmp(name, "config.stats") == 0) {
		*(bool *)old = false;
		return 0;
	}
	return next(name, old, old_bytes, new, new_bytes);
}

/* --- random work of several threads, some blocks freed by others --- */

struct slot {
	unsigned char *block;
	size_t bytes;
	unsigned char mark;
};

struct shared {
	struct hoist__pool *pool;
	struct hoist__heap *heap;
	size_t most;
	pthread_mutex_t lock;
	struct slot exchange[N_SLOTS];
	bool limited;
	_Atomic uint64_t n_full;
	_Atomic bool done;
};

struct worker {
	struct shared *shared;
	unsigned char mark;
	uint64_t random;
	struct slot slots[N_SLOTS];
};

/* Sizes spread evenly over the powers of two. */
static size_t random_bytes(struct worker *worker)
{
	size_t most = (size_t)1 << random_below(&worker->random, 64) %
					   (size_t)__builtin_ctzl(worker->shared->most * 2);
	return 1 + random_below(&worker->random, most);
}

static void fill(struct worker *worker, struct slot *slot)
{
	const size_t aligns[] = {0, 0, 0, 16, 64, 4096, 65536};
	size_t align = aligns[random_below(&worker->random, HOIST__ARRAY_SIZE(aligns))];
	size_t bytes = random_bytes(worker);
	size_t usable;
	uintptr_t address;
	struct hoist__block first, last;
	int err = hoist__heap_alloc(worker->shared->heap, bytes, align, &address);
	if (err == -EDQUOT) {
		atomic_fetch_add(&worker->shared->n_full, 1);
		return;
	}
	CHECK(err == 0);
	CHECK(address % (align == 0 ? HOIST__HEAP_ALIGN : align) == 0);
	CHECK(hoist__heap_bytes(worker->shared->heap, address, &usable) == 0);
	CHECK(usable >= bytes);
	/* All of it lies in one block of the pool. */
	CHECK(hoist__pool_find(worker->shared->pool, address, &first) == 0);
	CHECK(hoist__pool_find(worker->shared->pool, address + usable - 1, &last) == 0);
	CHECK(first.address == last.address);
	slot->block = (unsigned char *)address;
	slot->bytes = bytes;
	slot->mark = worker->mark;
	slot->block[0] = slot->block[bytes / 2] = slot->block[bytes - 1] = slot->mark;
}

static void empty(struct shared *shared, struct slot *slot)
{
	CHECK(slot->block[0] == slot->mark && slot->block[slot->bytes / 2] == slot->mark &&
	      slot->block[slot->bytes - 1] == slot->mark);
	CHECK(hoist__heap_free(shared->heap, (uintptr_t)slot->block) == 0);
	slot->block = NULL;
}

static void swap(struct shared *shared, struct slot *slot, size_t at)
{
	pthread_mutex_lock(&shared->lock);
	struct slot other = shared->exchange[at];
	shared->exchange[at] = *slot;
	*slot = other;
	pthread_mutex_unlock(&shared->lock);
}

static void *random_main(void *argument)
{
	struct worker *worker = argument;
	struct shared *shared = worker->shared;
	/* Until the limit was met, however the threads come to run. */
	for (int i = 0; i < N_OPERATIONS || (shared->limited && atomic_load(&shared->n_full) == 0);
	     i++) {
		struct slot *slot = &worker->slots[random_below(&worker->random, N_SLOTS)];
		if (random_below(&worker->random, 8) == 0)
			swap(worker->shared, slot, random_below(&worker->random, N_SLOTS));
		else if (slot->block == NULL)
			fill(worker, slot);
		else
			empty(worker->shared, slot);
		if (random_below(&worker->random, 4096) == 0)
			hoist__heap_trim(worker->shared->heap, 0);
	}
	for (int i = 0; i < N_SLOTS; i++)
		if (worker->slots[i].block != NULL)
			empty(worker->shared, &worker->slots[i]);
	return NULL;
}

static void work(struct shared *shared)
{
	static struct worker workers[N_THREADS];
	pthread_t threads[N_THREADS];
	CHECK(pthread_mutex_init(&shared->lock, NULL) == 0);
	for (unsigned i = 0; i < N_THREADS; i++) {
		memset(&workers[i], 0, sizeof workers[i]);
		workers[i].shared = shared;
		workers[i].mark = (unsigned char)(i + 1);
		workers[i].random = i + 1;
		CHECK(pthread_create(&threads[i], NULL, random_main, &workers[i]) == 0);
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < N_SLOTS; i++)
		if (shared->exchange[i].block != NULL)
			empty(shared, &shared->exchange[i]);
	pthread_mutex_destroy(&shared->lock);
}

static void run_random(enum hoist__memory_kind kind, size_t most, size_t limit)
{
	struct shared shared = {.most = most, .limited = limit != 0};
	struct hoist__heap_stats stats;
	shared.pool = new_pool(kind, limit);
	shared.heap = new_heap(shared.pool);
	CHECK(mapped_by(shared.heap) == 0); /* jemalloc's books are elsewhere */
	work(&shared);
	hoist__heap_trim(shared.heap, 0);
	hoist__heap_stats(shared.heap, &stats);
	CHECK(stats.n_allocs == stats.n_frees && stats.n_allocs > N_OPERATIONS);
	CHECK(stats.mapped_bytes == 0); /* every part of every extent came back */
	printf("random, %s: %llu blocks, %llu times full\n", hoist__memory_kind_name(kind),
	       (unsigned long long)stats.n_allocs, (unsigned long long)atomic_load(&shared.n_full));
	end_both(shared.heap, shared.pool);
}

/* RLIMIT_MEMLOCK may allow none, or less than this. */
static void run_pinned(void)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_PINNED, 4 * HOIST__MIB);
	uintptr_t first, second;
	int err = hoist__pool_alloc(pool, HOIST__MIB, 0, 0, &first);
	if (err == 0) {
		err = hoist__pool_alloc(pool, 2 * HOIST__MIB, 0, 0, &second);
		if (err == 0)
			give_block(pool, second);
		give_block(pool, first);
	}
	end_pool(pool);
	if (err == 0)
		run_random(HOIST__MEMORY_PINNED, 256 * HOIST__KIB, 4 * HOIST__MIB);
	else
		printf("pinned: skipped: %s\n", hoist__error_text());
}

/* Splitting needs free extents to stay in the arena, which a heap's do not: it is told to keep
 * them.  Pieces come back one by one, in no order; blocks of the pool only whole. */
static void run_splits(void)
{
	struct shared shared = {.most = HOIST__MIB};
	char name[64];
	ssize_t decay = -1;
	shared.pool = new_pool(HOIST__MEMORY_HOST, 0);
	shared.heap = new_heap(shared.pool);
	(void)snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", shared.heap->arena);
	CHECK(mallctl(name, NULL, NULL, &decay, sizeof decay) == 0);
	work(&shared);
	CHECK(mapped_by(shared.heap) > 0);
	hoist__heap_trim(shared.heap, 0);
	CHECK(mapped_by(shared.heap) == 0);
	end_both(shared.heap, shared.pool);
}

/* --- other jemallocs --- */

static void run_without(const char *name, int err)
{
	refused = name;
	refused_err = err;
	run_random(HOIST__MEMORY_HOST, 64 * HOIST__KIB, 0);
	refused = NULL;
}

static void expect_refused(const char *name, int err, int expected)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	struct hoist__heap *heap;
	refused = name;
	refused_err = err;
	CHECK(hoist__heap_create(pool, &heap) == expected);
	refused = NULL;
	end_pool(pool);
}

static void run_other_jemallocs(void)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	struct hoist__heap *heap;
	struct hoist__heap_stats stats;
	uintptr_t block;
	run_without("experimental.arenas_create_ext", ENOENT); /* 5.2: books by the hooks */
	run_without("tcache.create", EAGAIN);
	expect_refused("experimental.arenas_create_ext", EAGAIN, -EAGAIN);
	expect_refused("version", ENOENT, -ENOTSUP);
	version_override = "5.1.0-0-g0";
	CHECK(hoist__heap_create(pool, &heap) == -ENOTSUP);
	CHECK(strstr(hoist__error_text(), "5.1.0") != NULL);
	version_override = NULL;

	heap = new_heap(pool);
	CHECK(hoist__heap_alloc(heap, 100000, 0, &block) == 0);
	hoist__heap_stats(heap, &stats);
	CHECK(stats.detailed && stats.books_bytes > 0 && stats.n_allocs == 1);
	CHECK(stats.allocated_bytes >= 100000 && stats.allocated_bytes <= stats.active_bytes);
	CHECK(stats.active_bytes <= stats.mapped_bytes);
	no_statistics = true;
	hoist__heap_stats(heap, &stats);
	CHECK(!stats.detailed && stats.books_bytes == 0);
	CHECK(stats.allocated_bytes >= 100000 && stats.allocated_bytes <= stats.mapped_bytes);
	no_statistics = false;
	end_both(heap, pool);
}

int main(void)
{
	CHECK(nallocx(1, 0) > 0); /* it is jemalloc that is linked */
	run_random(HOIST__MEMORY_HOST, 4 * HOIST__MIB, 0);
	run_random(HOIST__MEMORY_HOST, HOIST__MIB, 8 * HOIST__MIB);
	run_pinned();
	run_splits();
	run_other_jemallocs();
	return 0;
}
