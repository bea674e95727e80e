/* SPDX-License-Identifier: MIT */
/* alloc/magazine.c - makes, enters, empties and ends the threads' caches.
 * The contract is in alloc/magazine.h. */
#include "config.h"

#include "alloc/magazine.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/pool-private.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

/* The table of threads without a cache: none of its places is open. */
static struct hoist__table no_table;

__thread struct hoist__thread hoist__this_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden"))) = {.table = &no_table};

bool hoist__cache_fences;

/* One class gets an eighth of the cache's bytes, so that many classes are served.  It gets nothing
 * if that is less than a block, which would only push others out.  A class of large blocks gets
 * MAGAZINE_LEAST blocks if the cache can hold them, so that batches are worth their lock. */
#define MAGAZINE_SHARE 8
#define MAGAZINE_LEAST 16

/* Guards the indices, and every thread's list of caches by index, which the thread itself reads
 * without the lock.  A pool's own lock, caches_lock, guards its list of caches and, beside their
 * owners' work, their contents: so threads of different pools end without meeting. */
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;

/* Pools by index; a free index is NULL. */
static struct hoist__pool **indexed;
static uint32_t n_indexed;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t end_of_thread;
static int setup_err;

/* --- fences --- */

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Makes every thread pass a full fence.  False if the kernel does not do that (any more). */
static bool fence_all(void)
{
	if (hoist__cache_fences) {
		hoist__fence(memory_order_seq_cst);
		return true;
	}
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
		return true;
	/* A child of fork may lack the registration. */
	return errno == EPERM && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
	       membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

static struct hoist__place *place_of(const struct hoist__cache *cache)
{
	return &cache->table->places[cache->pool->index % HOIST__PLACES];
}

/* Called by the owner, which is busy and met a `stop` that is not 0. */
static bool may_enter(struct hoist__cache *cache, struct hoist__place *place)
{
#ifdef HOIST__TSAN
	(void)atomic_exchange(&place->busy, 1); /* instead of the fence */
#else
	(void)place;
	hoist__fence(memory_order_seq_cst);
#endif
	return (atomic_load(&cache->stop) & HOIST__STOP_EMPTIED) == 0;
}

bool hoist__cache_enter(struct hoist__cache *cache)
{
	HOIST__ASSERT(cache->table == hoist__this_thread.table && !hoist__this_thread.ended);
	struct hoist__place *place = place_of(cache);
	/* Another pool may have the place open: it must not lead to this cache. */
	if (!hoist__place_enter(place, cache->pool))
		atomic_store_explicit(&place->open, NULL, memory_order_release);
	atomic_store_explicit(&place->cache, cache, memory_order_relaxed);
	if (atomic_load_explicit(&cache->stop, memory_order_acquire) != 0) {
		if (may_enter(cache, place))
			return true;
		hoist__place_leave(place);
		return false;
	}
	if (atomic_load_explicit(&cache->pool->slow, memory_order_relaxed) == 0)
		atomic_store_explicit(&place->open, cache->pool, memory_order_release);
	return true;
}

void hoist__cache_leave(struct hoist__cache *cache)
{
	hoist__place_leave(place_of(cache));
}

/* --- a thread and its caches --- */

static size_t most_blocks(const struct hoist__pool *pool, unsigned class)
{
	const size_t block = pool->shards[0].classes[class].block_bytes;
	size_t most = pool->cache_bytes / MAGAZINE_SHARE / block;
	if (most == 0)
		return 0;
	if (most < MAGAZINE_LEAST)
		most = hoist__min_u64(MAGAZINE_LEAST, pool->cache_bytes / block);
	return hoist__min_u64(most, HOIST__MAGAZINE_MOST);
}

/* Makes room for @n caches in this thread's table, which others find where it was.  Pre: the
 * threads' lock is held. */
static int need_table(uint32_t n)
{
	HOIST__ASSERT(hoist__mutex_held(&threads_lock));
	struct hoist__table *table = hoist__this_thread.table;
	if (table == &no_table) {
		table = aligned_alloc(64, hoist__round_up(sizeof *table, 64));
		if (table == NULL)
			return -ENOMEM;
		memset(table, 0, sizeof *table);
		hoist__this_thread.table = table;
	}
	if (table->n >= n)
		return 0;
	struct hoist__cache **grown = realloc(table->caches, n * sizeof *grown);
	if (grown == NULL)
		return -ENOMEM;
	memset(grown + table->n, 0, (n - table->n) * sizeof *grown);
	table->caches = grown;
	table->n = n;
	return 0;
}

/* Returns: the largest size that is looked up at @i. */
static size_t looked_up_bytes(size_t i)
{
	return i < HOIST__FINE_BYTES >> HOIST__FINE_SHIFT
		       ? (i + 1) << HOIST__FINE_SHIFT
		       : (i + 1 - HOIST__COARSE_FIRST) << HOIST__COARSE_SHIFT;
}

/* One allocation holds the cache and the entries of all magazines, so that ending the cache is one
 * free(). */
static struct hoist__cache *make_cache(struct hoist__pool *pool)
{
	size_t n_entries = 0;
	for (unsigned i = 0; i < pool->n_classes; i++)
		n_entries += most_blocks(pool, i);
	struct hoist__cache *cache =
		calloc(1, sizeof *cache + n_entries * sizeof cache->entries[0]);
	if (cache == NULL)
		return NULL;
	cache->pool = pool;
	cache->left = pool->cache_bytes;
	cache->counts = pool->counts;
	atomic_init(&cache->requested, HOIST__FOLD_BYTES);
	atomic_init(&cache->stop, hoist__cache_fences ? HOIST__STOP_FENCES : 0);
	cache->shard = atomic_fetch_add(&pool->next_shard, 1) % pool->n_shards;
	for (size_t i = 0; i < HOIST__LOOKUPS; i++)
		cache->class_of[i] =
			(uint8_t)hoist__class_of(looked_up_bytes(i), pool->quantum_shift);
	n_entries = 0;
	for (unsigned i = 0; i < pool->n_classes; i++) {
		struct hoist__magazine *magazine = &cache->magazines[i];
		magazine->block_bytes = pool->shards[0].classes[i].block_bytes;
		magazine->entries = cache->entries + n_entries;
		atomic_init(&magazine->top, magazine->entries);
		n_entries += most_blocks(pool, i);
		magazine->end = cache->entries + n_entries;
	}
	return cache;
}

/* Setting the key makes thread_ends() run at the end of the thread, which frees the table, also one
 * that need_table() made before it failed. */
struct hoist__cache *hoist__cache_create(struct hoist__pool *pool)
{
	struct hoist__cache *cache = hoist__this_thread.ended ? NULL : make_cache(pool);
	if (cache == NULL)
		return NULL;
	int err = pthread_setspecific(end_of_thread, &hoist__this_thread);
	pthread_mutex_lock(&threads_lock);
	if (err == 0)
		err = need_table(n_indexed);
	pthread_mutex_unlock(&threads_lock);
	if (err != 0) {
		free(cache);
		return NULL;
	}
	/* A thread that sets the key while it is ending may end without calling thread_ends().  Its
	 * table outlives the thread then, and other threads write to nothing else of it. */
	cache->table = hoist__this_thread.table;
	HOIST__ASSERT(cache->table->caches[pool->index] == NULL);
	cache->table->caches[pool->index] = cache;
	pthread_mutex_lock(&pool->caches_lock);
	hoist__list_push_back(&pool->caches, &cache->link);
	pthread_mutex_unlock(&pool->caches_lock);
	return cache;
}

/* Pre: no other thread works in @cache: its owner is stopped, gone, or the caller. */
static bool empty_cache(struct hoist__cache *cache)
{
	HOIST__ASSERT(hoist__mutex_held(&cache->pool->caches_lock));
	HOIST__ASSERT(cache->left <= cache->pool->cache_bytes);
	bool any = false;
	for (unsigned i = 0; i < cache->pool->n_classes; i++) {
		struct hoist__magazine *magazine = &cache->magazines[i];
		if (hoist__magazine_empty(magazine))
			continue;
		HOIST__ASSERT(hoist__magazine_n(magazine) <= hoist__magazine_most(magazine));
		hoist__small_give(cache->pool, magazine->entries, hoist__magazine_n(magazine),
				  NULL);
		hoist__magazine_set_top(magazine, magazine->entries);
		any = true;
	}
	cache->left = cache->pool->cache_bytes;
	return any;
}

/* Ends a cache, whose counts are added to the pool's. */
static void end_cache(struct hoist__cache *cache)
{
	struct hoist__pool *pool = cache->pool;
	atomic_fetch_add(&pool->n_allocs, atomic_load(&cache->n_allocs));
	atomic_fetch_add(&pool->n_frees, atomic_load(&cache->n_frees));
	hoist__fold_requested(pool, atomic_load(&cache->requested) - HOIST__FOLD_BYTES);
	hoist__list_remove(&cache->link);
	free(cache);
}

/* Closes the place that leads to @cache.  Another pool's cache may have the place by now, and is
 * left alone: a thread that empties that one must see by itself whether the place was open.
 * Returns: true if the place was open. */
static bool close_place(struct hoist__cache *cache)
{
	struct hoist__pool *open = cache->pool;
	return atomic_compare_exchange_strong(&place_of(cache)->open, &open, NULL);
}

/* Unlinks @cache from its owner's table and lookaside. */
static void forget_cache(struct hoist__cache *cache)
{
	(void)close_place(cache);
	HOIST__ASSERT(cache->table->caches[cache->pool->index] == cache);
	cache->table->caches[cache->pool->index] = NULL;
	cache->table = NULL;
}

/* Returns: one of the table's caches, with a reference to its pool; NULL if there is none left. The
 * caches of pools that are ending are left to these. */
static struct hoist__cache *take_cache(struct hoist__table *table)
{
	struct hoist__cache *taken = NULL;
	pthread_mutex_lock(&threads_lock);
	for (uint32_t i = 0; taken == NULL && i < table->n; i++) {
		struct hoist__cache *cache = table->caches[i];
		if (cache == NULL)
			continue;
		if (hoist__pool_try_ref(cache->pool)) {
			taken = cache;
			continue;
		}
		/* hoist__caches_part() of the pool waits for the threads' lock.  Its last trim may
		 * be at work in the cache. */
		pthread_mutex_lock(&cache->pool->caches_lock);
		forget_cache(cache);
		pthread_mutex_unlock(&cache->pool->caches_lock);
	}
	pthread_mutex_unlock(&threads_lock);
	return taken;
}

static void thread_ends(void *arg)
{
	struct hoist__thread *thread = arg;
	struct hoist__cache *cache;
	while ((cache = take_cache(thread->table)) != NULL) {
		struct hoist__pool *pool = cache->pool;
		pthread_mutex_lock(&pool->caches_lock);
		forget_cache(cache);
		(void)empty_cache(cache);
		end_cache(cache);
		pthread_mutex_unlock(&pool->caches_lock);
		hoist__pool_settle(pool);
		hoist__pool_unref(pool);
	}
	if (thread->table != &no_table) {
		free(thread->table->caches);
		free(thread->table);
	}
	thread->table = &no_table;
	thread->ended = true;
}

void hoist__cache_wait(struct hoist__pool *pool)
{
	pthread_mutex_lock(&pool->caches_lock);
	pthread_mutex_unlock(&pool->caches_lock);
}

/* --- a pool's caches --- */

static void setup(void)
{
	setup_err = -pthread_key_create(&end_of_thread, thread_ends);
#ifdef HOIST__TSAN
	hoist__cache_fences = true;
#else
	hoist__cache_fences = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
			      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
#endif
	if (hoist__cache_fences)
		hoist__log(alloc, "no membarrier: magazines use fences of their own");
}

static int need_index(uint32_t *ret)
{
	for (uint32_t i = 0; i < n_indexed; i++)
		if (indexed[i] == NULL) {
			*ret = i;
			return 0;
		}
	struct hoist__pool **grown = realloc(indexed, (n_indexed + 1) * sizeof *indexed);
	if (grown == NULL)
		return hoist__fail_nomem("the list of pools", (n_indexed + 1) * sizeof *indexed);
	indexed = grown;
	indexed[n_indexed] = NULL;
	*ret = n_indexed++;
	return 0;
}

int hoist__caches_join(struct hoist__pool *pool)
{
	pthread_once(&once, setup);
	if (setup_err != 0)
		return hoist__fail_errno(setup_err, "a key for the ends of threads");
	hoist__list_init(&pool->caches);
	pthread_mutex_lock(&threads_lock);
	int err = need_index(&pool->index);
	if (err == 0) {
		indexed[pool->index] = pool;
		pool->number = pool->index + 1;
		pool->place = hoist__place_offset(pool->index);
	}
	pthread_mutex_unlock(&threads_lock);
	return err;
}

void hoist__caches_part(struct hoist__pool *pool)
{
	struct hoist__list *link;
	pthread_mutex_lock(&threads_lock);
	pthread_mutex_lock(&pool->caches_lock);
	while ((link = hoist__list_pop(&pool->caches)) != NULL) {
		struct hoist__cache *cache = HOIST__CONTAINER_OF(link, struct hoist__cache, link);
		HOIST__ASSERT(cache->pool == pool);
		if (cache->table != NULL)
			forget_cache(cache);
		free(cache);
	}
	pthread_mutex_unlock(&pool->caches_lock);
	pthread_mutex_unlock(&threads_lock);
}

struct hoist__pool *hoist__caches_pool(uint32_t number)
{
	pthread_mutex_lock(&threads_lock);
	struct hoist__pool *pool = number - 1 < n_indexed ? indexed[number - 1] : NULL;
	if (pool != NULL && !hoist__pool_try_ref(pool))
		pool = NULL;
	pthread_mutex_unlock(&threads_lock);
	return pool;
}

void hoist__caches_leave(const struct hoist__pool *pool)
{
	pthread_mutex_lock(&threads_lock);
	HOIST__ASSERT(indexed[pool->index] == pool);
	indexed[pool->index] = NULL;
	pthread_mutex_unlock(&threads_lock);
}

/* Closes all places that lead to a cache of @pool.  Returns: true if one did. */
static bool shut(struct hoist__pool *pool)
{
	struct hoist__cache *cache;
	bool any = false;
	HOIST__EACH_CACHE(pool, cache)
	if (cache->table != NULL)
		any |= close_place(cache);
	return any;
}

/* Waits until no owner works in a cache of @pool.  An owner that entered just before may have
 * opened its place again, so the places are closed once more.  An owner that enters after the fence
 * meets `stop`.  False if there is no such fence. */
static bool stop_owners(struct hoist__pool *pool)
{
	struct hoist__cache *cache;
	HOIST__EACH_CACHE(pool, cache)
	atomic_fetch_or(&cache->stop, HOIST__STOP_EMPTIED);
	(void)shut(pool);
	do {
		if (!fence_all())
			return false;
		HOIST__EACH_CACHE(pool, cache)
		while (cache->table != NULL &&
		       atomic_load_explicit(&place_of(cache)->busy, memory_order_acquire) != 0)
			sched_yield();
	} while (shut(pool));
	return true;
}

bool hoist__caches_empty(struct hoist__pool *pool)
{
	struct hoist__cache *cache;
	bool any = false;
	pthread_mutex_lock(&pool->caches_lock);
	bool stopped = stop_owners(pool);
	HOIST__EACH_CACHE(pool, cache)
	{
		/* Without the fences only the caller's own cache is known to be at rest. */
		if (stopped || cache->table == hoist__this_thread.table)
			any |= empty_cache(cache);
		atomic_fetch_and(&cache->stop, ~HOIST__STOP_EMPTIED);
	}
	pthread_mutex_unlock(&pool->caches_lock);
	return any;
}

size_t hoist__cache_bytes(const struct hoist__cache *cache)
{
	size_t bytes = 0;
	for (unsigned i = 0; i < cache->pool->n_classes; i++)
		bytes += hoist__magazine_n(&cache->magazines[i]) * cache->magazines[i].block_bytes;
	return bytes;
}

/* --- fork --- */

void hoist__caches_lock(void)
{
	pthread_mutex_lock(&threads_lock);
}

void hoist__caches_unlock(void)
{
	pthread_mutex_unlock(&threads_lock);
}

/* True if the owner may have been at work in the cache. */
static bool in_hand(const struct hoist__cache *cache)
{
	return atomic_load(&place_of(cache)->busy) != 0;
}

/* The cache of a thread that was at work in it is lost to the child.  Caches that were at rest can
 * still be emptied.  Memory of a driver is not in the child at all, so all its blocks are dropped:
 * another pool may soon have their addresses. */
void hoist__caches_forked(struct hoist__pool *pool)
{
	struct hoist__cache *cache;
	HOIST__EACH_CACHE(pool, cache)
	{
		bool whole = cache->table == NULL || !in_hand(cache);
		if (cache->table != NULL && hoist__pool_is_stale(pool))
			atomic_store(&place_of(cache)->open, NULL);
		if (cache->table != hoist__this_thread.table)
			cache->table = NULL;
		if (whole && !hoist__pool_is_stale(pool))
			continue;
		for (unsigned i = 0; i < pool->n_classes; i++) {
			struct hoist__magazine *magazine = &cache->magazines[i];
			hoist__magazine_set_top(magazine, magazine->entries);
		}
		cache->left = pool->cache_bytes;
	}
}
