/* SPDX-License-Identifier: MIT */
/* alloc/pool-stats.c - counts, walks and checks a pool.
 * The contract is in alloc/pool.h. */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "alloc/deferred.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"

static size_t pending_bytes(struct hoist__pool *pool)
{
	const struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	size_t bytes = deferred == NULL ? 0 : hoist__deferred_bytes(deferred);
	return bytes + (pool->watch == NULL ? 0 : hoist__watch_quarantined(pool->watch));
}

struct cache_sums {
	size_t bytes;
	uint64_t n_allocs;
	uint64_t n_frees;
	int64_t requested;
};

static struct cache_sums sum_caches(struct hoist__pool *pool)
{
	struct cache_sums sums = {0};
	struct hoist__cache *cache;
	pthread_mutex_lock(&pool->caches_lock);
	HOIST__EACH_CACHE(pool, cache)
	{
		sums.bytes += hoist__cache_bytes(cache);
		sums.n_allocs += atomic_load_explicit(&cache->n_allocs, memory_order_relaxed);
		sums.n_frees += atomic_load_explicit(&cache->n_frees, memory_order_relaxed);
		sums.requested += atomic_load_explicit(&cache->requested, memory_order_relaxed) -
				  HOIST__FOLD_BYTES;
	}
	pthread_mutex_unlock(&pool->caches_lock);
	return sums;
}

/* Sums over the shards.  Returns: the bytes of blocks that left the shards; *ret gets the free
 * bytes. */
static size_t sum_shards(struct hoist__pool *pool, struct hoist__pool_stats *ret)
{
	size_t out = 0;
	for (unsigned i = 0; i < pool->n_shards; i++) {
		struct hoist__shard *shard = &pool->shards[i];
		for (unsigned j = 0; j < pool->n_classes; j++) {
			struct hoist__class *class = &shard->classes[j];
			hoist__lock(&class->lock);
			out += class->n_out * class->block_bytes;
			hoist__unlock(&class->lock);
		}
		hoist__lock(&shard->lock);
		out += shard->large_bytes;
		ret->free_bytes += shard->spans.free_granules << HOIST__GRANULE_SHIFT;
		size_t largest = hoist__spans_largest(&shard->spans) << HOIST__GRANULE_SHIFT;
		if (largest > ret->largest_free_bytes)
			ret->largest_free_bytes = largest;
		hoist__unlock(&shard->lock);
	}
	return out;
}

static void copy_calls(const struct hoist__calls *from, struct hoist__calls *to)
{
	for (int i = 0; i < HOIST__N_CALLS; i++) {
		to->of[i].n = atomic_load(&from->of[i].n);
		to->of[i].ns = atomic_load(&from->of[i].ns);
		to->of[i].longest_ns = atomic_load(&from->of[i].longest_ns);
	}
}

static size_t least_zero(int64_t bytes)
{
	return bytes < 0 ? 0 : (size_t)bytes;
}

/* Figures are read one after the other, not at one moment.  A difference that other threads make
 * negative meanwhile is reported as 0. */
void hoist__pool_stats(struct hoist__pool *pool, struct hoist__pool_stats *ret)
{
	const struct cache_sums sums = sum_caches(pool);
	memset(ret, 0, sizeof *ret);
	int64_t requested = atomic_load(&pool->requested) + sums.requested;
	int64_t peak = atomic_load(&pool->requested_peak);
	ret->requested_bytes = least_zero(requested);
	ret->requested_peak_bytes = least_zero(peak > requested ? peak : requested);
	ret->n_allocs = atomic_load(&pool->n_allocs) + sums.n_allocs;
	ret->n_frees = atomic_load(&pool->n_frees) + sums.n_frees;
	ret->n_blocks = least_zero((int64_t)(ret->n_allocs - ret->n_frees));
	ret->n_exhausted = atomic_load(&pool->n_exhausted);
	ret->cached_bytes = sums.bytes;
	ret->pending_bytes = pending_bytes(pool);
	size_t out = sum_shards(pool, ret);
	pthread_mutex_lock(&pool->lock);
	ret->reserved_bytes = hoist__pool_held(pool);
	ret->reserved_peak_bytes = pool->reserved_peak;
	ret->n_regions = pool->n_regions;
	ret->n_growths = pool->n_growths;
	memcpy(ret->step_ns, pool->step_ns, sizeof ret->step_ns);
	pthread_mutex_unlock(&pool->lock);
	ret->allocated_bytes = least_zero((int64_t)(out - ret->cached_bytes - ret->pending_bytes));
	copy_calls(&pool->calls, &ret->calls);
}

void hoist__pool_reset_peak(struct hoist__pool *pool)
{
	const struct cache_sums sums = sum_caches(pool);
	atomic_store(&pool->requested_peak, atomic_load(&pool->requested) + sums.requested);
	pthread_mutex_lock(&pool->lock);
	pool->reserved_peak = hoist__pool_held(pool);
	pthread_mutex_unlock(&pool->lock);
}

/* --- walking --- */

struct walk {
	struct hoist__pool *pool;
	struct hoist__deferred *deferred;
	const struct hoist__pool_visitor *visitor;
	void *arg;
};

/* The state of a block that is neither free in a slab's bitmap nor a free span. */
static enum hoist__block_state state_of(const struct walk *walk, uintptr_t address, uint64_t state)
{
	if (state != 0)
		return HOIST__BLOCK_LIVE;
	if ((walk->deferred != NULL && hoist__deferred_holds(walk->deferred, address)) ||
	    (walk->pool->watch != NULL && hoist__watch_holds(walk->pool->watch, address)))
		return HOIST__BLOCK_PENDING;
	return HOIST__BLOCK_CACHED;
}

static void walk_slab(const struct walk *walk, const struct hoist__slab *slab)
{
	for (uint32_t i = 0; i < slab->n_blocks; i++) {
		uintptr_t address = hoist__slab_block(slab, i);
		uint32_t state = atomic_load_explicit(&slab->states[i], memory_order_relaxed);
		enum hoist__block_state is = hoist__slab_has_free(slab, i)
						     ? HOIST__BLOCK_CACHED
						     : state_of(walk, address, state);
		walk->visitor->block(walk->arg, address, slab->block_bytes,
				     state & HOIST__STATE_BYTES_MASK, is);
	}
}

static void walk_extent(const struct walk *walk, const struct hoist__extent *extent)
{
	for (size_t i = 0; i < extent->n;) {
		const struct hoist__granule *span = hoist__granule_at(extent->base, i);
		size_t bytes = hoist__span_bytes(span);
		uint64_t state = atomic_load_explicit(&span->state, memory_order_relaxed);
		const struct hoist__slab *slab =
			atomic_load_explicit(&span->slab, memory_order_relaxed);
		if (span->kind == HOIST__SPAN_SLAB && slab != NULL)
			walk_slab(walk, slab);
		else if (span->kind == HOIST__SPAN_BLOCK)
			walk->visitor->block(walk->arg, span->address, bytes,
					     state & HOIST__LARGE_BYTES_MASK,
					     state_of(walk, span->address, state));
		else
			walk->visitor->block(walk->arg, span->address, bytes, 0, HOIST__BLOCK_FREE);
		i += span->n;
	}
}

#define EACH_REGION(pool, holder)                                                                  \
	for (struct hoist__list *at_ = (pool)->regions.next;                                       \
	     at_ != &(pool)->regions &&                                                            \
	     ((holder) = HOIST__CONTAINER_OF(at_, struct hoist__pool_region, link), true);         \
	     at_ = at_->next)

void hoist__pool_walk(struct hoist__pool *pool, const struct hoist__pool_visitor *visitor,
		      void *arg)
{
	const struct walk walk = {pool, atomic_load(&pool->deferred), visitor, arg};
	const struct hoist__pool_region *holder;
	hoist__pool_lock_all(pool);
	EACH_REGION(pool, holder)
	{
		visitor->region(arg, holder->region);
		for (size_t i = 0; i < holder->n_extents; i++)
			walk_extent(&walk, &holder->extents[i]->extent);
	}
	hoist__pool_unlock_all(pool);
}

void hoist__pool_check(struct hoist__pool *pool)
{
	const struct hoist__pool_region *holder;
	size_t reserved = 0;
	size_t discarded = 0;
	hoist__pool_lock_all(pool);
	for (unsigned i = 0; i < pool->n_shards; i++)
		for (unsigned j = 0; j < pool->n_classes; j++)
			hoist__class_check(&pool->shards[i].classes[j]);
	EACH_REGION(pool, holder)
	{
		for (size_t i = 0; i < holder->n_extents; i++)
			hoist__spans_check(&holder->shard->spans, &holder->extents[i]->extent);
		reserved += holder->region->bytes;
		discarded += holder->discarded;
	}
	assert(reserved + pool->releasing == pool->reserved);
	assert(discarded == pool->discarded);
	(void)reserved;
	(void)discarded;
	hoist__pool_unlock_all(pool);
}
