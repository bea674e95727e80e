/* SPDX-License-Identifier: MIT */
/* Heaps over pools, in a program that is linked with jemalloc.  The program has a mallctl()
 * of its own before jemalloc's: by that it plays an older jemalloc, one without statistics,
 * and one that has run out of things. */
#include "config.h"

#include <jemalloc/jemalloc.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/heap-private.h"
#include "alloc/heap.h"
#include "base/checked.h"
#include "base/error.h"

#define N_THREADS 4
#define N_SLOTS 64
#define N_OPERATIONS 20000

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition,        \
				hoist__error_text());                                              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

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

/* --- support --- */

static struct hoist__pool *new_pool(enum hoist__memory_kind kind, size_t limit)
{
	struct hoist__pool_options options = {
		.kind = kind,
		.region_bytes = 2 * HOIST__MIB,
		.limit_bytes = limit,
	};
	struct hoist__pool *pool;
	CHECK(hoist__pool_create(&options, &pool) == 0);
	return pool;
}

static struct hoist__heap *new_heap(struct hoist__pool *pool)
{
	struct hoist__heap *heap;
	CHECK(hoist__heap_create(pool, &heap) == 0);
	return heap;
}

static size_t mapped_by(struct hoist__heap *heap)
{
	struct hoist__heap_stats stats;
	hoist__heap_stats(heap, &stats);
	return stats.mapped_bytes;
}

/* The heap has ended: the pool has everything back. */
static void end_pool(struct hoist__pool *pool)
{
	struct hoist__pool_stats stats;
	hoist__pool_trim(pool, 0);
	hoist__pool_stats(pool, &stats);
	CHECK(stats.n_blocks == 0 && stats.requested_bytes == 0);
	CHECK(stats.n_regions == 0 && stats.reserved_bytes == 0);
	hoist__pool_unref(pool);
}

static void end_both(struct hoist__heap *heap, struct hoist__pool *pool)
{
	hoist__heap_destroy(heap);
	end_pool(pool);
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
	_Atomic uint64_t n_full;
	_Atomic bool done;
};

struct worker {
	struct shared *shared;
	unsigned char mark;
	uint64_t random;
	struct slot slots[N_SLOTS];
};

static uint64_t next_random(struct worker *worker)
{
	worker->random =
		worker->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return worker->random >> 33;
}

/* Sizes spread evenly over the powers of two. */
static size_t random_bytes(struct worker *worker)
{
	size_t most = (size_t)1 << next_random(worker) % 64 %
					   (size_t)__builtin_ctzl(worker->shared->most * 2);
	return 1 + next_random(worker) % most;
}

static void fill(struct worker *worker, struct slot *slot)
{
	const size_t aligns[] = {0, 0, 0, 16, 64, 4096, 65536};
	size_t align = aligns[next_random(worker) % HOIST__ARRAY_SIZE(aligns)];
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
	for (int i = 0; i < N_OPERATIONS; i++) {
		struct slot *slot = &worker->slots[next_random(worker) % N_SLOTS];
		if (next_random(worker) % 8 == 0)
			swap(worker->shared, slot, next_random(worker) % N_SLOTS);
		else if (slot->block == NULL)
			fill(worker, slot);
		else
			empty(worker->shared, slot);
		if (next_random(worker) % 4096 == 0)
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
	struct shared shared = {.most = most};
	struct hoist__heap_stats stats;
	shared.pool = new_pool(kind, limit);
	shared.heap = new_heap(shared.pool);
	CHECK(mapped_by(shared.heap) == 0); /* jemalloc's books are elsewhere */
	work(&shared);
	hoist__heap_trim(shared.heap, 0);
	hoist__heap_stats(shared.heap, &stats);
	CHECK(stats.n_allocs == stats.n_frees && stats.n_allocs > N_OPERATIONS);
	CHECK(stats.mapped_bytes == 0); /* every part of every extent came back */
	if (limit != 0)
		CHECK(atomic_load(&shared.n_full) > 0);
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
			CHECK(hoist__pool_free(pool, second) == 0);
		CHECK(hoist__pool_free(pool, first) == 0);
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

/* --- limits and failures --- */

#define MOST_BLOCKS 4096

/* As many blocks as there can be: the last one's error. */
static int fill_up(struct hoist__heap *heap, size_t bytes, uintptr_t *blocks, size_t *n)
{
	int err = 0;
	for (*n = 0; err == 0; ++*n) {
		CHECK(*n < MOST_BLOCKS);
		err = hoist__heap_alloc(heap, bytes, 0, &blocks[*n]);
	}
	--*n;
	return err;
}

static void free_all(struct hoist__heap *heap, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(hoist__heap_free(heap, blocks[i]) == 0);
}

static void run_limit(void)
{
	static uintptr_t blocks[MOST_BLOCKS];
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 4 * HOIST__MIB);
	struct hoist__heap *heap = new_heap(pool);
	uintptr_t large;
	size_t n, again;
	CHECK(fill_up(heap, 60000, blocks, &n) == -EDQUOT);
	CHECK(n > 40);
	/* What was to be done, and the pool's own reason. */
	CHECK(strstr(hoist__error_text(), "from a heap: ") != NULL);
	CHECK(strstr(hoist__error_text(), "4 MiB") != NULL);
	free_all(heap, blocks, n);
	CHECK(fill_up(heap, 60000, blocks, &again) == -EDQUOT);
	CHECK(again == n);
	free_all(heap, blocks, n);
	CHECK(mapped_by(heap) == 0);
	/* Free blocks in this thread's cache keep extents, until memory is short. */
	CHECK(fill_up(heap, 8 * HOIST__KIB, blocks, &n) == -EDQUOT);
	for (size_t i = 1; i < n; i += 2)
		CHECK(hoist__heap_free(heap, blocks[i]) == 0);
	for (size_t i = 0; i < n; i += 2)
		CHECK(hoist__heap_free(heap, blocks[i]) == 0);
	CHECK(mapped_by(heap) > 0);
	CHECK(hoist__heap_alloc(heap, 3 * HOIST__MIB, 0, &large) == 0);
	CHECK(hoist__heap_free(heap, large) == 0);
	end_both(heap, pool);
}

struct failing {
	int left; /* regions until the source fails */
	int n;	  /* that it has out */
};

/* Not by malloc(), which is jemalloc here: see heap.h. */
static int failing_acquire(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	struct failing *failing = context;
	if (failing->left == 0)
		return hoist__fail(-ENOMEM, "the source is dry");
	char *base = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	CHECK(base != MAP_FAILED);
	size_t lead = hoist__round_up((uintptr_t)base, align) - (uintptr_t)base;
	CHECK(lead == 0 || munmap(base, lead) == 0);
	CHECK(lead == align || munmap(base + lead + bytes, align - lead) == 0);
	failing->left--;
	failing->n++;
	*ret = (uintptr_t)base + lead;
	return 0;
}

static void failing_release(void *context, uintptr_t address, size_t bytes)
{
	struct failing *failing = context;
	failing->n--;
	CHECK(munmap((void *)address, bytes) == 0);
}

static void run_failures(void)
{
	static uintptr_t blocks[MOST_BLOCKS];
	for (int left = 0; left < 5; left++) {
		struct failing failing = {.left = left};
		struct hoist__source source = {failing_acquire, failing_release, &failing};
		struct hoist__pool_options options = {.region_bytes = HOIST__MIB,
						      .source = &source};
		struct hoist__pool *pool;
		size_t n, after;
		CHECK(hoist__pool_create(&options, &pool) == 0);
		struct hoist__heap *heap = new_heap(pool);
		CHECK(fill_up(heap, 4000, blocks, &n) == -ENOMEM);
		CHECK(strstr(hoist__error_text(), "the source is dry") != NULL);
		CHECK((left == 0) == (n == 0));
		/* It goes on when there is more. */
		failing.left = 1;
		CHECK(fill_up(heap, 4000, blocks + n, &after) == -ENOMEM);
		CHECK(after > 0);
		free_all(heap, blocks, n + after);
		end_both(heap, pool);
		CHECK(failing.n == 0);
	}
}

/* The pool's exhausted function frees blocks of the heap that is growing. */
struct last_resort {
	struct hoist__heap *heap;
	const uintptr_t *blocks;
	const size_t *n; /* how many there are: the first half of them goes */
	size_t n_freed;
	int alloc_err;
};

static int free_half(void *context, size_t bytes, unsigned attempt)
{
	struct last_resort *last = context;
	uintptr_t ignored;
	(void)bytes;
	(void)attempt;
	if (last->n_freed != 0)
		return 0;
	last->alloc_err = hoist__heap_alloc(last->heap, 1, 0, &ignored);
	last->n_freed = (*last->n + 1) / 2;
	free_all(last->heap, last->blocks, last->n_freed);
	return 1;
}

static void run_exhausted(size_t bytes)
{
	static uintptr_t blocks[MOST_BLOCKS];
	size_t n = 0;
	struct last_resort last = {.blocks = blocks, .n = &n};
	struct hoist__pool_options options = {
		.region_bytes = 2 * HOIST__MIB,
		.limit_bytes = 4 * HOIST__MIB,
		.exhausted = free_half,
		.exhausted_context = &last,
		.exhausted_retries = 1,
	};
	struct hoist__pool *pool;
	CHECK(hoist__pool_create(&options, &pool) == 0);
	last.heap = new_heap(pool);
	CHECK(fill_up(last.heap, bytes, blocks, &n) == -EDQUOT);
	CHECK(last.n_freed > 0 && n > last.n_freed && last.alloc_err == -EDEADLK);
	free_all(last.heap, blocks + last.n_freed, n - last.n_freed);
	hoist__heap_trim(last.heap, 0);
	CHECK(mapped_by(last.heap) == 0);
	end_both(last.heap, pool);
}

static void run_refused(void)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	struct hoist__heap *heap = new_heap(pool);
	uintptr_t block = 0, local = (uintptr_t)&block;
	size_t bytes;
	CHECK(hoist__heap_alloc(heap, 0, 0, &block) == -EINVAL);
	CHECK(hoist__heap_alloc(heap, 1, 3, &block) == -EINVAL);
	CHECK(hoist__heap_alloc(heap, 1, 4 * HOIST__MIB, &block) == -EINVAL);
	CHECK(hoist__heap_alloc(heap, SIZE_MAX / 2, 0, &block) == -ENOMEM);
	CHECK(block == 0);
	CHECK(hoist__heap_free(heap, local) == -EINVAL);
	CHECK(hoist__heap_bytes(heap, local, &bytes) == -EINVAL);
	CHECK(hoist__heap_alloc(heap, 1, 2 * HOIST__MIB, &block) == 0);
	CHECK(block % (2 * HOIST__MIB) == 0);
	CHECK(hoist__heap_free(heap, block) == 0);
	hoist__heap_destroy(NULL);
	end_both(heap, pool);
}

/* --- ends: of heaps with blocks in use, of threads --- */

static void run_destroy(void)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	/* More heaps than a thread remembers at once, and their arenas' numbers again. */
	for (int round = 0; round < 3; round++) {
		struct hoist__heap *heaps[2 * HOIST__HEAP_RECENT];
		uintptr_t block;
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(heaps); i++)
			heaps[i] = new_heap(pool);
		for (size_t n = 0; n < 200; n++)
			for (size_t i = 0; i < HOIST__ARRAY_SIZE(heaps); i++)
				CHECK(hoist__heap_alloc(heaps[i], 1 + n * n, 0, &block) == 0);
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(heaps); i++)
			hoist__heap_destroy(heaps[i]);
	}
	end_pool(pool);
}

static void *small_main(void *argument)
{
	static __thread uintptr_t blocks[1000];
	struct hoist__heap *heap = argument;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(blocks); i++)
		CHECK(hoist__heap_alloc(heap, 100, 0, &blocks[i]) == 0);
	free_all(heap, blocks, HOIST__ARRAY_SIZE(blocks));
	CHECK(mapped_by(heap) > 0); /* some are in this thread's cache */
	return NULL;
}

static pthread_key_t late_key;
static int late_err;
static uintptr_t late_block;

static void late(void *argument)
{
	uintptr_t block;
	late_err = hoist__heap_alloc(argument, 100, 0, &block);
	CHECK(hoist__heap_free(argument, late_block) == 0);
}

static void *late_main(void *argument)
{
	CHECK(hoist__heap_alloc(argument, 100, 0, &late_block) == 0);
	CHECK(pthread_setspecific(late_key, argument) == 0);
	return NULL;
}

static void run_threads_end(void)
{
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	struct hoist__heap *heap = new_heap(pool);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, small_main, heap) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(mapped_by(heap) == 0);
	/* A destructor that runs after jemalloc's own. */
	CHECK(pthread_key_create(&late_key, late) == 0);
	CHECK(pthread_create(&thread, NULL, late_main, heap) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(late_err == -ENOTSUP);
	CHECK(mapped_by(heap) == 0);
	CHECK(pthread_key_delete(late_key) == 0);
	end_both(heap, pool);
}

/* --- fork, while others are in calls --- */

static void *busy_main(void *argument)
{
	struct shared *shared = argument;
	for (size_t i = 0; !atomic_load(&shared->done); i++) {
		uintptr_t block;
		/* Cached, of a slab, and of an extent of its own, now and then. */
		CHECK(hoist__heap_alloc(shared->heap, i % 64 == 0 ? 300000 : i % 5000 + 1, 0,
					&block) == 0);
		CHECK(hoist__heap_free(shared->heap, block) == 0);
		if (i % 256 == 0)
			hoist__heap_trim(shared->heap, 0);
	}
	return NULL;
}

static void in_child(struct shared *shared)
{
	static uintptr_t blocks[500];
	alarm(30); /* a lock that nobody will release */
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(blocks); i++)
			CHECK(hoist__heap_alloc(shared->heap, 1 + i * 37, 0, &blocks[i]) == 0);
		free_all(shared->heap, blocks, HOIST__ARRAY_SIZE(blocks));
		hoist__heap_trim(shared->heap, 0);
	}
	hoist__heap_destroy(shared->heap);
	_exit(0);
}

static void run_fork(void)
{
	struct shared shared = {0};
	pthread_t threads[2];
	shared.pool = new_pool(HOIST__MEMORY_HOST, 0);
	shared.heap = new_heap(shared.pool);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(threads); i++)
		CHECK(pthread_create(&threads[i], NULL, busy_main, &shared) == 0);
	for (int i = 0; i < 30; i++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			in_child(&shared);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	atomic_store(&shared.done, true);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(threads); i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	end_both(shared.heap, shared.pool);
}

/* After the heaps' own, as its key is the younger. */
static void end_child(void *status)
{
	_exit(status == &late_key ? 0 : 1);
}

/* A driver's memory is not in the child, whose thread ends with a cache of it. */
static void *stale_main(void *argument)
{
	struct hoist__heap *heap = argument;
	uintptr_t block;
	size_t bytes;
	int status;
	CHECK(hoist__heap_alloc(heap, 100, 0, &block) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(30);
		CHECK(hoist__heap_alloc(heap, 100, 0, &block) == -ESTALE);
		CHECK(hoist__heap_free(heap, block) == -ESTALE);
		CHECK(hoist__heap_bytes(heap, block, &bytes) == 0);
		hoist__heap_trim(heap, 0);
		hoist__heap_destroy(heap);
		CHECK(pthread_setspecific(late_key, &late_key) == 0);
		return NULL;
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(hoist__heap_free(heap, block) == 0);
	return NULL;
}

static void run_stale(void)
{
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_PINNED,
					      .region_bytes = 2 * HOIST__MIB};
	struct hoist__pool *pool;
	pthread_t thread;
	setenv("HOIST_EMULATE", "cuda:1", 1);
	CHECK(hoist__dev_get(HOIST__API_CUDA, 0, &options.dev) == 0);
	CHECK(hoist__pool_create(&options, &pool) == 0);
	struct hoist__heap *heap = new_heap(pool);
	CHECK(pthread_key_create(&late_key, end_child) == 0);
	CHECK(pthread_create(&thread, NULL, stale_main, heap) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pthread_key_delete(late_key) == 0);
	CHECK(mapped_by(heap) == 0);
	end_both(heap, pool);
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
	run_refused();
	run_random(HOIST__MEMORY_HOST, 4 * HOIST__MIB, 0);
	run_random(HOIST__MEMORY_HOST, HOIST__MIB, 8 * HOIST__MIB);
	run_pinned();
	run_splits();
	run_limit();
	run_failures();
	run_exhausted(3 * HOIST__MIB);
	run_exhausted(3000);
	run_destroy();
	run_threads_end();
	run_fork();
	run_stale();
	run_other_jemallocs();
	return 0;
}
