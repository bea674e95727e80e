/* SPDX-License-Identifier: MIT */
/* Heaps over pools: what they refuse, limits and failures, and how heaps, threads and processes
 * end, in a program that is linked with jemalloc. */
#include "config.h"

#include <jemalloc/jemalloc.h>

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "alloc/heap-private.h"
#include "tests/support/alloc-heap.h"

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

static void run_limit(void)
{
	static uintptr_t blocks[MOST_BLOCKS];
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 4 * HOIST__MIB);
	struct hoist__heap *heap = new_heap(pool);
	uintptr_t large;
	size_t n, again;
	CHECK(fill_up(heap, 60000, blocks, &n) == -EDQUOT);
	CHECK(n > 40);
	/* The attempt, and the pool's own reason. */
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

struct busy {
	struct hoist__heap *heap;
	_Atomic bool done;
};

static void *busy_main(void *argument)
{
	struct busy *busy = argument;
	for (size_t i = 0; !atomic_load(&busy->done); i++) {
		uintptr_t block;
		/* Cached, of a slab, and of an extent of its own, now and then. */
		CHECK(hoist__heap_alloc(busy->heap, i % 64 == 0 ? 300000 : i % 5000 + 1, 0,
					&block) == 0);
		CHECK(hoist__heap_free(busy->heap, block) == 0);
		if (i % 256 == 0)
			hoist__heap_trim(busy->heap, 0);
	}
	return NULL;
}

static void in_child(struct busy *busy)
{
	static uintptr_t blocks[500];
	alarm(100); /* a lock that nobody will release */
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(blocks); i++)
			CHECK(hoist__heap_alloc(busy->heap, 1 + i * 37, 0, &blocks[i]) == 0);
		free_all(busy->heap, blocks, HOIST__ARRAY_SIZE(blocks));
		hoist__heap_trim(busy->heap, 0);
	}
	hoist__heap_destroy(busy->heap);
	_exit(0);
}

static void run_fork(void)
{
	struct busy busy = {0};
	pthread_t threads[2];
	struct hoist__pool *pool = new_pool(HOIST__MEMORY_HOST, 0);
	busy.heap = new_heap(pool);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(threads); i++)
		CHECK(pthread_create(&threads[i], NULL, busy_main, &busy) == 0);
	for (int i = 0; i < 30; i++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			in_child(&busy);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	atomic_store(&busy.done, true);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(threads); i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	end_both(busy.heap, pool);
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
		alarm(100);
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

int main(void)
{
	CHECK(nallocx(1, 0) > 0); /* it is jemalloc that is linked */
	run_refused();
	run_limit();
	run_failures();
	run_exhausted(3 * HOIST__MIB);
	run_exhausted(3000);
	run_destroy();
	run_threads_end();
	run_fork();
	run_stale();
	return 0;
}
