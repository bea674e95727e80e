/* SPDX-License-Identifier: MIT */
/* alloc/pools.c - lists all pools: forks, the ends of streams, shared budgets.
 * The contract is in alloc/pool.h and alloc/pool-private.h. */
#include "config.h"

#include <errno.h>

#include "alloc/deferred.h"
#include "alloc/pin.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/error.h"
#include "numa/group.h"

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hoist__list pools = {&pools, &pools};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int atfork_err;

#define EACH_POOL(pool)                                                                            \
	for (struct hoist__list *at_ = pools.next;                                                 \
	     at_ != &pools && ((pool) = HOIST__CONTAINER_OF(at_, struct hoist__pool, link), true); \
	     at_ = at_->next)

void hoist__pool_lock_all(struct hoist__pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	for (unsigned i = 0; i < pool->n_shards; i++)
		for (unsigned j = 0; j < pool->n_classes; j++)
			hoist__lock(&pool->shards[i].classes[j].lock);
	for (unsigned i = 0; i < pool->n_shards; i++)
		hoist__lock(&pool->shards[i].lock);
}

void hoist__pool_unlock_all(struct hoist__pool *pool)
{
	for (unsigned i = pool->n_shards; i-- > 0;)
		hoist__unlock(&pool->shards[i].lock);
	for (unsigned i = pool->n_shards; i-- > 0;)
		for (unsigned j = pool->n_classes; j-- > 0;)
			hoist__unlock(&pool->shards[i].classes[j].lock);
	pthread_mutex_unlock(&pool->lock);
}

/* --- fork: every lock is held across it, so that the child finds consistent books --- */

static void before_fork(void)
{
	struct hoist__pool *pool;
	pthread_mutex_lock(&pools_lock);
	hoist__caches_lock();
	EACH_POOL(pool)
	{
		pthread_mutex_lock(&pool->caches_lock);
		pthread_mutex_lock(&pool->trace_lock);
		hoist__pool_lock_all(pool);
		struct hoist__deferred *deferred = atomic_load(&pool->deferred);
		if (deferred != NULL)
			hoist__deferred_lock(deferred);
		if (pool->watch != NULL)
			hoist__watch_lock(pool->watch);
	}
	hoist__granules_lock();
}

static void release_all(void)
{
	struct hoist__pool *pool;
	hoist__granules_unlock();
	EACH_POOL(pool)
	{
		if (pool->watch != NULL)
			hoist__watch_unlock(pool->watch);
		struct hoist__deferred *deferred = atomic_load(&pool->deferred);
		if (deferred != NULL)
			hoist__deferred_unlock(deferred);
		hoist__pool_unlock_all(pool);
		pthread_mutex_unlock(&pool->trace_lock);
		pthread_mutex_unlock(&pool->caches_lock);
	}
	hoist__caches_unlock();
	pthread_mutex_unlock(&pools_lock);
}

static void in_child(void)
{
	struct hoist__pool *pool;
	EACH_POOL(pool)
	{
		if (hoist__pinned_by_driver(pool->options.dev))
			hoist__pool_set_slow(pool, HOIST__SLOW_STALE, true);
		/* Another thread may have been creating a region.  In the child it never finishes,
		 * and no thread waits for it. */
		pool->one_grows = false;
		(void)pthread_cond_init(&pool->changed, NULL);
		pool->growing = 0;
		/* Nor does a release of another thread ever finish here. */
		HOIST__ASSERT(pool->releasing <= pool->reserved);
		pool->reserved -= pool->releasing;
		pool->releasing = 0;
		hoist__caches_forked(pool);
		for (struct hoist__list *node = pool->regions.next; node != &pool->regions;
		     node = node->next)
			hoist__region_forked(
				HOIST__CONTAINER_OF(node, struct hoist__pool_region, link)->region);
	}
	release_all();
}

static void setup(void)
{
	atfork_err = -pthread_atfork(before_fork, release_all, in_child);
}

int hoist__pools_join(struct hoist__pool *pool)
{
	int err = hoist__fork_watch();
	if (err < 0)
		return err;
	pthread_once(&once, setup);
	if (atfork_err != 0)
		return hoist__fail_errno(atfork_err, "preparing for fork");
	HOIST__ASSERT(pool->link.next == NULL);
	pthread_mutex_lock(&pools_lock);
	hoist__list_push_back(&pools, &pool->link);
	pthread_mutex_unlock(&pools_lock);
	return 0;
}

void hoist__pools_part(struct hoist__pool *pool)
{
	pthread_mutex_lock(&pools_lock);
	HOIST__ASSERT(atomic_load(&pool->n_refs) == 0);
	hoist__list_remove(&pool->link);
	pthread_mutex_unlock(&pools_lock);
}

/* --- calls that concern several pools --- */

/* Returns: a reference to the next pool behind @before in the list (NULL: from the first on) that
 * is not ending.  Gives up the reference to @before. */
static struct hoist__pool *next_pool(struct hoist__pool *before)
{
	struct hoist__pool *found = NULL;
	pthread_mutex_lock(&pools_lock);
	struct hoist__list *at = before == NULL ? pools.next : before->link.next;
	for (; found == NULL && at != &pools; at = at->next) {
		struct hoist__pool *pool = HOIST__CONTAINER_OF(at, struct hoist__pool, link);
		if (hoist__pool_try_ref(pool))
			found = pool;
	}
	pthread_mutex_unlock(&pools_lock);
	hoist__pool_unref(before);
	return found;
}

void hoist__pools_yield(const struct hoist__budget *budget)
{
	struct hoist__pool *pool = NULL;
	while ((pool = next_pool(pool)) != NULL)
		if (pool->options.budget == budget)
			hoist__pool_trim(pool, 0);
}

int hoist__pools_make_room(uint64_t bytes, const char *what)
{
	int err = hoist__group_check(bytes, 0, what);
	struct hoist__pool *pool = NULL;
	while (err == -ENOMEM && (pool = next_pool(pool)) != NULL)
		if (hoist__memory_is_host(pool->options.kind)) {
			hoist__pool_trim(pool, 0);
			err = hoist__group_check(bytes, 0, what);
		}
	hoist__pool_unref(pool);
	return err;
}

void hoist__pools_forget_stream(struct hoist__dev_stream *stream)
{
	struct hoist__pool *pool = NULL;
	while ((pool = next_pool(pool)) != NULL) {
		struct hoist__deferred *deferred = atomic_load(&pool->deferred);
		if (deferred != NULL)
			hoist__deferred_forget(deferred, stream);
	}
}
