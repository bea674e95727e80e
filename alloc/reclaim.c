/* SPDX-License-Identifier: MIT */
/* alloc/reclaim.c - takes spans, and takes back cached, pending and empty memory.
 * The contract is in alloc/pool.h and alloc/pool-private.h. */
#include "config.h"

#include <errno.h>

#include "alloc/deferred.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

#define SWEEP_BLOCKS 64

/* Reclaiming goes on as long as it finds memory, but other threads may keep taking that memory. */
#define TRIES_MOST 1000

/* Spans that a shard borrows before it gets a region of its own.  A thread that allocates now and
 * then never costs a region.  A thread that allocates all the time has one within milliseconds. */
#define BORROWS_MOST 1000

/* Frees the blocks that streams have passed.  True if there was one. */
static bool sweep(struct hoist__pool *pool, bool wait)
{
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	uintptr_t blocks[SWEEP_BLOCKS];
	bool any = false;
	while (deferred != NULL) {
		size_t n = hoist__deferred_sweep(deferred, wait, blocks, SWEEP_BLOCKS);
		HOIST__ASSERT(n <= SWEEP_BLOCKS);
		for (size_t i = 0; i < n; i++)
			hoist__pool_passed(pool, blocks[i]);
		any |= n != 0;
		/* One wait is enough: the further rounds only fetch the blocks that did not fit in
		 * the array. */
		wait = false;
		if (n < SWEEP_BLOCKS)
			break;
	}
	return any;
}

bool hoist__pool_reclaim(struct hoist__pool *pool, enum hoist__reclaim how)
{
	bool any = sweep(pool, how == HOIST__RECLAIM_WAIT);
	if (how == HOIST__RECLAIM_PASSED)
		return any;
	struct hoist__doomed doomed;
	hoist__doomed_init(&doomed);
	if (pool->watch != NULL)
		any |= hoist__pool_watched_empty(pool);
	any |= hoist__caches_empty(pool);
	any |= hoist__small_shrink(pool, &doomed);
	hoist__pool_destroy_doomed(pool, &doomed);
	return any;
}

void hoist__pool_settle(struct hoist__pool *pool)
{
	struct hoist__doomed doomed;
	if (hoist__pool_is_stale(pool))
		return;
	hoist__doomed_init(&doomed);
	pthread_mutex_lock(&pool->lock);
	hoist__pool_doom(pool, pool->options.keep_bytes, &doomed);
	pthread_mutex_unlock(&pool->lock);
	hoist__pool_destroy_doomed(pool, &doomed);
}

void hoist__pool_trim(struct hoist__pool *pool, size_t keep_bytes)
{
	struct hoist__doomed doomed;
	if (hoist__pool_is_stale(pool))
		return;
	hoist__doomed_init(&doomed);
	/* From the small to the large: swept blocks go to caches, emptied caches free slabs, freed
	 * slabs empty regions. */
	(void)sweep(pool, false);
	if (pool->watch != NULL)
		(void)hoist__pool_watched_empty(pool);
	(void)hoist__caches_empty(pool);
	(void)hoist__small_shrink(pool, &doomed);
	pthread_mutex_lock(&pool->lock);
	hoist__pool_doom(pool, keep_bytes, &doomed);
	pthread_mutex_unlock(&pool->lock);
	hoist__pool_destroy_doomed(pool, &doomed);
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	if (keep_bytes == 0 && deferred != NULL)
		hoist__deferred_trim(deferred);
}

/* Counts a large block that was taken, and the change of the bytes in empty extents. */
static void note_change(struct hoist__pool *pool, struct hoist__shard *shard, size_t empty_before,
			const struct hoist__granule *span)
{
	HOIST__ASSERT(hoist__lock_held(&shard->lock));
	HOIST__ASSERT(atomic_load(&pool->empty_bytes) + shard->spans.empty_bytes >= empty_before);
	if (shard->spans.empty_bytes != empty_before)
		atomic_fetch_add(&pool->empty_bytes, shard->spans.empty_bytes - empty_before);
	if (span != NULL && span->kind == HOIST__SPAN_BLOCK)
		shard->large_bytes += hoist__span_bytes(span);
}

void hoist__pool_span_release(struct hoist__pool *pool, struct hoist__granule *span,
			      struct hoist__doomed *doomed)
{
	struct hoist__extent *extent = atomic_load_explicit(&span->extent, memory_order_relaxed);
	struct hoist__shard *shard = hoist__pool_extent_of(extent)->region->shard;
	hoist__lock(&shard->lock);
	size_t before = shard->spans.empty_bytes;
	HOIST__ASSERT(hoist__pool_extent_of(extent)->pool == pool);
	HOIST__ASSERT(atomic_load(&span->slab) == NULL && atomic_load(&span->state) == 0);
	/* A block that gave pages back had the region to itself. */
	size_t left = hoist__span_bytes(span) - hoist__pool_extent_of(extent)->region->discarded;
	HOIST__ASSERT(span->kind == HOIST__SPAN_SLAB || shard->large_bytes >= left);
	if (span->kind == HOIST__SPAN_BLOCK)
		shard->large_bytes -= left;
	struct hoist__extent *empty = hoist__spans_release(&shard->spans, span);
	bool keep = empty == NULL || empty->keep;
	const uintptr_t address = extent->base;
	note_change(pool, shard, before, NULL);
	HOIST__ASSERT(empty == NULL || empty == extent);
	hoist__unlock(&shard->lock);
	/* Another thread may doom the extent from here on, so it is looked up again by address. */
	if (empty != NULL && doomed != NULL)
		hoist__pool_emptied(pool, address, keep, doomed);
}

/* Takes a span from the shard. */
static struct hoist__granule *take(struct hoist__pool *pool, struct hoist__shard *shard,
				   const struct hoist__want *want, bool own)
{
	/* Small blocks do not break a large empty region, unless the caller has given regions. */
	bool given = atomic_load_explicit(&pool->n_given, memory_order_relaxed) != 0;
	size_t most = given ? SIZE_MAX
			    : hoist__round_up(pool->options.region_bytes, HOIST__HUGE_PAGE_BYTES);
	hoist__lock(&shard->lock);
	size_t before = shard->spans.empty_bytes;
	struct hoist__granule *span = own ? hoist__spans_take_whole(&shard->spans, want) : NULL;
	if (span == NULL && (!own || given))
		span = hoist__spans_take(&shard->spans, want, most);
	HOIST__ASSERT(span == NULL || (span->n >= want->n && span->kind == want->kind));
	HOIST__ASSERT(span == NULL || atomic_load(&span->state) == 0);
	note_change(pool, shard, before, span);
	hoist__unlock(&shard->lock);
	return span;
}

struct hoist__granule *hoist__pool_span_at_hand(struct hoist__pool *pool,
						struct hoist__shard *shard,
						const struct hoist__want *want)
{
	return take(pool, shard, want, false);
}

/* Takes a span from any shard, this one first. */
static struct hoist__granule *take_or_borrow(struct hoist__pool *pool, struct hoist__shard *shard,
					     const struct hoist__want *want, bool own)
{
	struct hoist__granule *span = take(pool, shard, want, own);
	for (unsigned i = 0; span == NULL && i < pool->n_shards; i++) {
		if (&pool->shards[i] == shard)
			continue;
		span = take(pool, &pool->shards[i], want, own);
		if (span != NULL)
			atomic_fetch_add_explicit(&shard->n_borrows, 1, memory_order_relaxed);
	}
	return span;
}

static bool over_soft_limit(struct hoist__pool *pool, size_t bytes)
{
	size_t soft = pool->options.soft_bytes;
	if (soft == 0)
		return false;
	pthread_mutex_lock(&pool->lock);
	bool over = bytes > soft || hoist__pool_held(pool) + pool->growing > soft - bytes;
	pthread_mutex_unlock(&pool->lock);
	return over;
}

/* True if the shard has borrowed often enough, and one more region leaves half of the limit to
 * shards that are less busy. */
static bool should_grow(struct hoist__pool *pool, const struct hoist__shard *shard)
{
	if (atomic_load_explicit(&shard->n_borrows, memory_order_relaxed) < BORROWS_MOST ||
	    atomic_load_explicit(&pool->n_given, memory_order_relaxed) != 0 ||
	    pool->options.budget != NULL)
		return false;
	size_t limit = pool->options.soft_bytes != 0 ? pool->options.soft_bytes
						     : pool->options.limit_bytes;
	pthread_mutex_lock(&pool->lock);
	size_t then = hoist__pool_held(pool) + pool->growing + pool->options.region_bytes;
	pthread_mutex_unlock(&pool->lock);
	return limit == 0 || then <= limit / 2;
}

/* Each round tries the cheapest source that is left: spans of the shard, spans of other shards,
 * blocks that streams have passed, and, above the soft limit, everything that can be taken back.
 * Only then does the pool grow, unless the shard has borrowed so often that it should grow first.
 */
static int take_or_grow(struct hoist__pool *pool, struct hoist__shard *shard,
			const struct hoist__want *want, unsigned flags, struct hoist__granule **ret)
{
	bool unpopulated = (flags & HOIST__ALLOC_UNPOPULATED) != 0;
	bool own = want->kind == HOIST__SPAN_BLOCK && hoist__pool_wants_own(pool, want->bytes);
	bool swept = false;
	bool pressed = false;
	int err = 1;
	while (err > 0) {
		if (!unpopulated && !own && should_grow(pool, shard)) {
			*ret = take(pool, shard, want, own);
			if (*ret != NULL || hoist__pool_grow(pool, shard, want, flags, ret) == 0)
				return 0;
			atomic_store(&shard->n_borrows, 0);
		}
		*ret = unpopulated ? NULL : take_or_borrow(pool, shard, want, own);
		HOIST__ASSERT(*ret == NULL || (*ret)->kind == want->kind);
		if (*ret != NULL)
			return 0;
		const struct hoist__deferred *deferred = atomic_load(&pool->deferred);
		if (!swept && deferred != NULL && hoist__deferred_any(deferred)) {
			swept = true;
			(void)hoist__pool_reclaim(pool, HOIST__RECLAIM_PASSED);
		} else if (!pressed && over_soft_limit(pool, want->bytes)) {
			pressed = true;
			(void)hoist__pool_reclaim(pool, HOIST__RECLAIM_WAIT);
		} else {
			err = hoist__pool_grow(pool, shard, want, flags, ret);
		}
	}
	return err;
}

/* The first failure is reported, as it names the cause, whatever the later tries say. */
int hoist__pool_span(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret)
{
	HOIST__ASSERT(!hoist__lock_held(&shard->lock) && want->n != 0);
	int err = take_or_grow(pool, shard, want, flags, ret);
	if (!hoist__is_exhaustion(err))
		return err;
	int first_err = err;
	struct hoist__failure cause;
	hoist__failure_keep(&cause);
	flags |= HOIST__GROW_AT_ONCE; /* the first try has waited for the budget */
	for (int i = 0; i < TRIES_MOST && hoist__pool_reclaim(pool, HOIST__RECLAIM_WAIT); i++)
		if (take_or_grow(pool, shard, want, flags, ret) == 0)
			return 0;
	for (unsigned attempt = 1; attempt <= pool->options.exhausted_retries; attempt++) {
		if (pool->options.exhausted == NULL)
			break;
		atomic_fetch_add(&pool->n_exhausted, 1);
		if (pool->options.exhausted(pool->options.exhausted_context, want->bytes,
					    attempt) == 0)
			break;
		(void)hoist__pool_reclaim(pool, HOIST__RECLAIM_WAIT);
		if (take_or_grow(pool, shard, want, flags, ret) == 0)
			return 0;
	}
	return hoist__fail_again(first_err, &cause);
}
