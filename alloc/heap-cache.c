/* SPDX-License-Identifier: MIT */
/* alloc/heap-cache.c - makes and ends each thread's caches; handles fork.
 * The contract is in alloc/heap-private.h. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "alloc/heap-private.h"
#include "base/assert.h"
#include "base/error.h"

__thread struct hoist__heap_thread hoist__heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

static pthread_mutex_t heaps_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t end_of_thread;
static int setup_err;

void hoist__heaps_lock(void)
{
	pthread_mutex_lock(&heaps_lock);
}

void hoist__heaps_unlock(void)
{
	pthread_mutex_unlock(&heaps_lock);
}

/* --- one cache --- */

/* Pre: the lock is held.  Without a tcache jemalloc works, too, but slower. */
static void give_tcache(struct hoist__heap_cache *cache)
{
	const struct hoist__heap *heap = cache->heap;
	HOIST__ASSERT(hoist__mutex_held(&heaps_lock));
	cache->has_tcache = hoist__je_ctl(&heap->je, "tcache.create", &cache->tcache, NULL,
					  sizeof cache->tcache) == 0;
	cache->flags = cache->has_tcache
			       ? HOIST__JE_ARENA(heap->arena) | HOIST__JE_TCACHE(cache->tcache)
			       : heap->flags;
	cache->n_trims = atomic_load_explicit(&heap->n_trims, memory_order_relaxed);
}

/* Pre: the lock is held.  The tcache of a thread that a fork left behind may be in the midst of a
 * change, so it is left alone.  So is a tcache whose blocks are not in this process. */
static void take_tcache(struct hoist__heap_cache *cache)
{
	HOIST__ASSERT(hoist__mutex_held(&heaps_lock));
	if (!cache->has_tcache || cache->generation != hoist__fork_now() ||
	    hoist__heap_check(cache->heap) != 0)
		return;
	/* The call can only fail for a wrong name. */
	(void)hoist__je_ctl(&cache->heap->je, "tcache.destroy", NULL, &cache->tcache,
			    sizeof cache->tcache);
}

/* Makes a new tcache instead of calling "tcache.flush": if that runs out of memory, jemalloc ends
 * the program at the next use. */
void hoist__heap_cache_flush(struct hoist__heap_cache *cache)
{
	HOIST__ASSERT(cache->generation == hoist__fork_now());
	hoist__heaps_lock();
	take_tcache(cache);
	give_tcache(cache);
	hoist__heaps_unlock();
}

/* The lock is held. */
static void end_cache(struct hoist__heap_cache *cache)
{
	struct hoist__heap *heap = cache->heap;
	/* The list of a thread that a fork left behind was in the memory of that thread, which is
	 * gone. */
	if (cache->generation == hoist__fork_now())
		hoist__list_remove(&cache->of_thread);
	HOIST__ASSERT(!hoist__list_empty(&cache->of_heap));
	hoist__list_remove(&cache->of_heap);
	take_tcache(cache);
	atomic_fetch_add(&heap->n_allocs, atomic_load(&cache->n_allocs));
	atomic_fetch_add(&heap->n_frees, atomic_load(&cache->n_frees));
	free(cache);
}

void hoist__heap_caches_end(struct hoist__heap *heap)
{
	hoist__heaps_lock();
	while (!hoist__list_empty(&heap->caches))
		end_cache(
			HOIST__CONTAINER_OF(heap->caches.next, struct hoist__heap_cache, of_heap));
	hoist__heaps_unlock();
}

/* --- a thread's caches --- */

static void remember(struct hoist__heap_cache *cache)
{
	HOIST__ASSERT(cache->heap->id != 0 && cache->generation == hoist__fork_now());
	hoist__heap_thread.recent[cache->heap->id % HOIST__HEAP_RECENT] =
		(struct hoist__heap_recent){.id = cache->heap->id, .cache = cache};
}

/* The lock is held. */
static struct hoist__heap_cache *known_cache(const struct hoist__heap *heap)
{
	struct hoist__list *caches = &hoist__heap_thread.caches;
	HOIST__ASSERT(hoist__mutex_held(&heaps_lock));
	if (caches->next == NULL)
		hoist__list_init(caches);
	for (struct hoist__list *at = caches->next; at != caches; at = at->next) {
		struct hoist__heap_cache *cache =
			HOIST__CONTAINER_OF(at, struct hoist__heap_cache, of_thread);
		if (cache->heap == heap)
			return cache;
	}
	return NULL;
}

static struct hoist__heap_cache *new_cache(struct hoist__heap *heap)
{
	struct hoist__heap_cache *cache =
		hoist__heap_thread.ended ? NULL : calloc(1, sizeof *cache);
	if (cache == NULL || pthread_setspecific(end_of_thread, &hoist__heap_thread) != 0) {
		free(cache);
		return NULL;
	}
	cache->heap = heap;
	cache->generation = hoist__fork_now();
	hoist__heaps_lock();
	give_tcache(cache);
	hoist__list_push_back(&hoist__heap_thread.caches, &cache->of_thread);
	hoist__list_push_back(&heap->caches, &cache->of_heap);
	hoist__heaps_unlock();
	return cache;
}

struct hoist__heap_cache *hoist__heap_cache_find(struct hoist__heap *heap)
{
	hoist__heaps_lock();
	struct hoist__heap_cache *cache = known_cache(heap);
	hoist__heaps_unlock();
	if (cache == NULL)
		cache = new_cache(heap);
	if (cache != NULL)
		remember(cache);
	return cache;
}

/* The reference keeps the heap until the memory of its cache is the pool's again.  The arena may
 * end meanwhile, as jemalloc has nothing of it any more. */
static void end_caches(void *arg)
{
	struct hoist__heap_thread *thread = arg;
	for (size_t i = 0; i < HOIST__HEAP_RECENT; i++)
		thread->recent[i].id = 0;
	for (;;) {
		hoist__heaps_lock();
		if (hoist__list_empty(&thread->caches))
			break;
		struct hoist__heap_cache *cache = HOIST__CONTAINER_OF(
			thread->caches.next, struct hoist__heap_cache, of_thread);
		struct hoist__heap *heap = hoist__heap_ref(cache->heap);
		end_cache(cache);
		hoist__heaps_unlock();
		if (hoist__heap_check(heap) == 0)
			(void)hoist__heap_drain(heap);
		hoist__heap_unref(heap);
	}
	thread->ended = true;
	hoist__heaps_unlock();
}

/* --- fork --- */

/* This thread is the only one in the child, under a new generation. */
static void in_child(void)
{
	struct hoist__list *caches = &hoist__heap_thread.caches;
	for (struct hoist__list *at = caches->next; at != NULL && at != caches; at = at->next)
		HOIST__CONTAINER_OF(at, struct hoist__heap_cache, of_thread)->generation =
			hoist__fork_now();
	hoist__heaps_unlock();
}

static void setup(void)
{
	setup_err = -pthread_key_create(&end_of_thread, end_caches);
	if (setup_err == 0)
		setup_err = -pthread_atfork(hoist__heaps_lock, hoist__heaps_unlock, in_child);
}

/* Before a fork, handlers run in the reverse order of their registration.  The pools' handlers were
 * registered with the first pool, before these, so this lock is taken before the pools' locks.  In
 * a child the count of forks is updated first. */
int hoist__heaps_setup(void)
{
	int err = hoist__fork_watch();
	if (err != 0)
		return err;
	(void)pthread_once(&once, setup);
	if (setup_err != 0)
		return hoist__fail_errno(setup_err,
					 "preparing for the ends of threads and for fork");
	return 0;
}
