/* SPDX-License-Identifier: MIT */
/* alloc/heap.c - makes and ends a heap; allocates and frees through jemalloc.
 * The contract is in alloc/heap.h. */
#include "config.h"

#include "alloc/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc/heap-private.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"

static _Atomic uint64_t last_id;

/* --- making and ending one --- */

/* jemalloc 5.3 can keep its books outside the hooks.  An older version asks the hooks for memory
 * for its books.  Only those requests want zeroed memory, unless the program has all of its memory
 * zeroed. */
static int create_arena(struct hoist__heap *heap)
{
	struct hoist__je_hooks *hooks = &heap->hooks;
	struct hoist__je_arena_config config = {.hooks = hooks, .metadata_use_hooks = false};
	size_t bytes = sizeof heap->arena;
	int err = -heap->je.mallctl("experimental.arenas_create_ext", &heap->arena, &bytes, &config,
				    sizeof config);
	if (err != -ENOENT)
		return err == 0 ? 0 : hoist__fail_errno(err, "creating an arena of jemalloc's");
	bool zeroes = false;
	(void)hoist__je_ctl(&heap->je, "opt.zero", &zeroes, NULL, sizeof zeroes);
	if (zeroes)
		return hoist__fail(-ENOTSUP,
				   "heap memory: jemalloc %s does not go with its option \"zero\"; "
				   "take that out of MALLOC_CONF, or jemalloc 5.3",
				   heap->je.version);
	heap->books_by_hooks = true;
	bytes = sizeof heap->arena;
	err = -heap->je.mallctl("arenas.create", &heap->arena, &bytes, &hooks, sizeof hooks);
	return err == 0 ? 0 : hoist__fail_errno(err, "creating an arena of jemalloc's");
}

/* With a decay of 0, free extents go to the hooks at once. */
static int set_decay(const struct hoist__heap *heap)
{
	const ssize_t none = 0;
	int err = hoist__je_arena_set(&heap->je, heap->arena, "dirty_decay_ms", &none, sizeof none);
	if (err == 0)
		err = hoist__je_arena_set(&heap->je, heap->arena, "muzzy_decay_ms", &none,
					  sizeof none);
	return err == 0 ? 0 : hoist__fail_errno(err, "setting up an arena of jemalloc's");
}

/* Returns: false if jemalloc keeps the arena, and so the hooks. */
static bool destroy_arena(struct hoist__heap *heap)
{
	int err = hoist__je_arena_set(&heap->je, heap->arena, "destroy", NULL, 0);
	if (err == 0)
		return true;
	hoist__log(alloc, "a heap's arena %u stays, with its memory: mallctl() says %d",
		   heap->arena, -err);
	return false;
}

static void init(struct hoist__heap *heap, struct hoist__pool *pool)
{
	const struct hoist__pool_options *options = hoist__pool_options_of(pool);
	heap->hooks = hoist__heap_hooks;
	heap->pool = hoist__pool_ref(pool);
	heap->pool_number = hoist__pool_number(pool);
	heap->id = atomic_fetch_add(&last_id, 1) + 1;
	if (options->dev != NULL && hoist__dev_api(options->dev) != HOIST__API_CPU)
		heap->dev = options->dev;
	atomic_init(&heap->n_refs, 1);
	hoist__list_init(&heap->caches);
}

/* The arena knows the heap by its hooks, so once the arena exists, the heap ends by
 * hoist__heap_destroy(). */
int hoist__heap_create(struct hoist__pool *pool, struct hoist__heap **ret)
{
	const struct hoist__pool_options *options = hoist__pool_options_of(pool);
	struct hoist__je je;
	if (options->kind != HOIST__MEMORY_HOST && options->kind != HOIST__MEMORY_PINNED)
		return hoist__fail(-EINVAL, "a heap over %s memory: jemalloc works in host memory",
				   hoist__memory_kind_name(options->kind));
	int err = hoist__je_find(&je);
	if (err == 0)
		err = hoist__heaps_setup();
	if (err != 0)
		return err;
	struct hoist__heap *heap = calloc(1, sizeof *heap);
	if (heap == NULL)
		return hoist__fail_nomem("heap", sizeof *heap);
	init(heap, pool);
	heap->je = je;
	err = create_arena(heap);
	if (err != 0) {
		hoist__heap_unref(heap);
		return err;
	}
	HOIST__ASSERT(heap->id != 0 && hoist__list_empty(&heap->caches));
	heap->flags = HOIST__JE_ARENA(heap->arena) | HOIST__JE_TCACHE_NONE;
	err = set_decay(heap);
	if (err != 0) {
		hoist__heap_destroy(heap);
		return err;
	}
	*ret = heap;
	return 0;
}

struct hoist__heap *hoist__heap_ref(struct hoist__heap *heap)
{
	atomic_fetch_add_explicit(&heap->n_refs, 1, memory_order_relaxed);
	return heap;
}

void hoist__heap_unref(struct hoist__heap *heap)
{
	HOIST__ASSERT(atomic_load(&heap->n_refs) != 0);
	if (atomic_fetch_sub(&heap->n_refs, 1) != 1)
		return;
	HOIST__ASSERT(hoist__list_empty(&heap->caches));
	if (atomic_load(&heap->mapped) != 0)
		hoist__log(alloc, "a heap ends and jemalloc has not given back %zu bytes",
			   atomic_load(&heap->mapped));
	hoist__pool_unref(heap->pool);
	free(heap);
}

void hoist__heap_destroy(struct hoist__heap *heap)
{
	if (heap == NULL)
		return;
	/* In a child of fork without the memory the arena belongs to the parent, and is left
	 * alone. */
	if (hoist__heap_check(heap) != 0)
		return;
	hoist__heap_caches_end(heap);
	HOIST__ASSERT(hoist__heap_thread.growing == 0);
	if (!destroy_arena(heap))
		return;
	(void)hoist__heap_drain(heap);
	hoist__heap_unref(heap);
}

/* --- blocks --- */

static int check_request(const struct hoist__heap *heap, size_t bytes, size_t align)
{
	if (bytes == 0)
		return hoist__fail(-EINVAL, "a block of 0 bytes");
	if (align != 0 && (!hoist__is_power_of_two(align) || align > HOIST__HUGE_PAGE_BYTES))
		return hoist__fail(-EINVAL, "alignment %zu is no power of two up to 2 MiB", align);
	if (hoist__heap_thread.growing != 0)
		return hoist__fail(-EDEADLK,
				   "allocating from a heap while one grows in this thread; an "
				   "exhausted function may free, not allocate");
	return hoist__heap_check(heap);
}

/* Another thread asked for caches to be emptied. */
static void heed_trims(struct hoist__heap *heap, struct hoist__heap_cache *cache)
{
	if (HOIST__UNLIKELY(cache->n_trims !=
			    atomic_load_explicit(&heap->n_trims, memory_order_relaxed)))
		hoist__heap_cache_flush(cache);
}

/* Hands to the pool the parts that jemalloc gave back during the call. */
static void settle(struct hoist__heap *heap)
{
	if (HOIST__UNLIKELY(atomic_load_explicit(&heap->returned, memory_order_relaxed) != NULL))
		(void)hoist__heap_drain(heap);
}

/* Returns: NULL if there is no memory; the thread's err says why. */
static void *take(struct hoist__heap *heap, struct hoist__heap_cache *cache, size_t bytes,
		  size_t align)
{
	int flags = cache != NULL ? cache->flags : heap->flags;
	if (align > HOIST__HEAP_ALIGN)
		flags |= __builtin_ctzl(align);
	HOIST__ASSERT(hoist__heap_thread.growing == 0);
	HOIST__ASSERT(cache == NULL ||
		      (cache->heap == heap && cache->generation == hoist__fork_now()));
	hoist__heap_thread.err = 0;
	/* jemalloc's only smaller class has 8 bytes. */
	return heap->je.mallocx(bytes < HOIST__HEAP_ALIGN ? HOIST__HEAP_ALIGN : bytes, flags);
}

/* The pool has no more memory.  Blocks in caches may keep whole extents from the pool. */
static void *take_again(struct hoist__heap *heap, struct hoist__heap_cache *cache, size_t bytes,
			size_t align)
{
	struct hoist__failure failure;
	int err = hoist__heap_thread.err;
	if (err == 0)
		return NULL;
	hoist__failure_keep(&failure);
	atomic_fetch_add_explicit(&heap->n_trims, 1, memory_order_relaxed);
	if (cache != NULL)
		hoist__heap_cache_flush(cache);
	if (hoist__heap_drain(heap) > 0)
		return take(heap, cache, bytes, align);
	HOIST__ASSERT(err < 0);
	hoist__heap_thread.err = hoist__fail_again(err, &failure);
	return NULL;
}

static int fail_alloc(size_t bytes)
{
	int err = hoist__heap_thread.err;
	if (err == 0)
		return hoist__fail(-ENOMEM,
				   "allocating %s from a heap: jemalloc has no memory for "
				   "its books, or no class of that size",
				   hoist__figure(bytes).text);
	return hoist__fail_in(err, "allocating %s from a heap", hoist__figure(bytes).text);
}

/* jemalloc takes memory of another arena at the end of a thread, so every block is checked to be
 * the heap's. */
int hoist__heap_alloc(struct hoist__heap *heap, size_t bytes, size_t align, uintptr_t *ret)
{
	int err = check_request(heap, bytes, align);
	if (HOIST__UNLIKELY(err != 0))
		return err;
	struct hoist__heap_cache *cache = hoist__heap_cache_of(heap);
	if (HOIST__LIKELY(cache != NULL))
		heed_trims(heap, cache);
	void *block = take(heap, cache, bytes, align);
	if (HOIST__UNLIKELY(block == NULL))
		block = take_again(heap, cache, bytes, align);
	if (HOIST__UNLIKELY(block == NULL))
		return fail_alloc(bytes);
	settle(heap);
	if (HOIST__UNLIKELY(!hoist__heap_holds(heap, (uintptr_t)block))) {
		/* At the end of a thread jemalloc serves from its first arena alone. */
		heap->je.dallocx(block, 0);
		return hoist__fail(-ENOTSUP, "allocating from a heap in a thread that is ending: "
					     "jemalloc has left it already");
	}
	if (HOIST__LIKELY(cache != NULL))
		hoist__count_own(&cache->n_allocs, 1);
	else
		atomic_fetch_add_explicit(&heap->n_allocs, 1, memory_order_relaxed);
	HOIST__ASSERT((uintptr_t)block % (align > HOIST__HEAP_ALIGN ? align : 8) == 0);
	HOIST__ASSERT(heap->je.sallocx(block, 0) >= bytes);
	*ret = (uintptr_t)block;
	return 0;
}

static int check_block(const struct hoist__heap *heap, uintptr_t address)
{
	if (HOIST__LIKELY(hoist__heap_holds(heap, address)))
		return 0;
	return hoist__fail(-EINVAL, "%#zx is not in the memory of this heap", (size_t)address);
}

int hoist__heap_free(struct hoist__heap *heap, uintptr_t address)
{
	int err = hoist__heap_check(heap);
	if (err == 0)
		err = check_block(heap, address);
	if (HOIST__UNLIKELY(err != 0))
		return err;
	/* From within a hook the cache may be in the midst of a change; jemalloc then uses none
	 * if none is named. */
	const bool growing = hoist__heap_thread.growing != 0;
	struct hoist__heap_cache *cache = growing ? NULL : hoist__heap_cache_of(heap);
	if (HOIST__LIKELY(cache != NULL)) {
		heed_trims(heap, cache);
		heap->je.dallocx((void *)address, cache->flags);
		hoist__count_own(&cache->n_frees, 1);
	} else {
		heap->je.dallocx((void *)address, growing ? 0 : heap->flags);
		atomic_fetch_add_explicit(&heap->n_frees, 1, memory_order_relaxed);
	}
	settle(heap);
	return 0;
}

int hoist__heap_bytes(struct hoist__heap *heap, uintptr_t address, size_t *ret)
{
	int err = check_block(heap, address);
	if (err == 0)
		*ret = heap->je.sallocx((const void *)address, 0);
	return err;
}

void hoist__heap_trim(struct hoist__heap *heap, size_t keep_bytes)
{
	if (hoist__heap_check(heap) != 0)
		return;
	atomic_fetch_add_explicit(&heap->n_trims, 1, memory_order_relaxed);
	if (hoist__heap_thread.growing == 0) {
		struct hoist__heap_cache *cache = hoist__heap_cache_of(heap);
		if (cache != NULL)
			heed_trims(heap, cache);
		/* Purges extents that another thread was giving back just then. */
		(void)hoist__je_arena_set(&heap->je, heap->arena, "purge", NULL, 0);
	}
	(void)hoist__heap_drain(heap);
	hoist__pool_trim(heap->pool, keep_bytes);
}

/* --- statistics --- */

static void sum_caches(struct hoist__heap *heap, struct hoist__heap_stats *ret)
{
	ret->n_allocs = atomic_load(&heap->n_allocs);
	ret->n_frees = atomic_load(&heap->n_frees);
	hoist__heaps_lock();
	for (struct hoist__list *at = heap->caches.next; at != &heap->caches; at = at->next) {
		struct hoist__heap_cache *cache =
			HOIST__CONTAINER_OF(at, struct hoist__heap_cache, of_heap);
		ret->n_allocs += atomic_load(&cache->n_allocs);
		ret->n_frees += atomic_load(&cache->n_frees);
	}
	hoist__heaps_unlock();
}

void hoist__heap_stats(struct hoist__heap *heap, struct hoist__heap_stats *ret)
{
	*ret = (struct hoist__heap_stats){.mapped_bytes = atomic_load(&heap->mapped)};
	sum_caches(heap, ret);
	uint64_t epoch = 1;
	size_t page = 0;
	(void)hoist__je_ctl(&heap->je, "config.stats", &ret->detailed, NULL, sizeof ret->detailed);
	(void)hoist__je_ctl(&heap->je, "arenas.page", &page, NULL, sizeof page);
	/* jemalloc refreshes its statistics when the epoch is written. */
	(void)hoist__je_ctl(&heap->je, "epoch", NULL, &epoch, sizeof epoch);
	ret->active_bytes = hoist__je_arena_stat(&heap->je, heap->arena, "pactive") * page;
	ret->allocated_bytes = ret->active_bytes;
	if (!ret->detailed)
		return;
	ret->allocated_bytes = hoist__je_arena_stat(&heap->je, heap->arena, "small.allocated") +
			       hoist__je_arena_stat(&heap->je, heap->arena, "large.allocated");
	ret->books_bytes = hoist__je_arena_stat(&heap->je, heap->arena, "base");
}
