/* SPDX-License-Identifier: MIT */
/* alloc/fast.h - both fast paths, inline where callers meet them.
 *
 * An operation costs as much as its instructions: the functions here are one with
 * hoist_memory_alloc() and hoist_memory_free().  Whatever is rare returns false, with nothing
 * changed, and the caller goes the slow way: hoist__pool_alloc(), hoist__pool_free().
 *
 * A free reads the record of the granule (granule.h), which always stays, then exchanges the
 * block's state (slab.h).  Reads behind the exchange would wait for it, so the free has read all
 * that it needs before: it enters its cache first.
 */
#ifndef HOIST_ALLOC_FAST_H
#define HOIST_ALLOC_FAST_H

#include "alloc/pool-private.h"

/* Bytes asked for that a thread counts by itself before it tells the pool. */
#define HOIST__FOLD_BYTES ((int64_t)64 << 10)

static inline void hoist__count_requested(struct hoist__cache *cache, int64_t bytes)
{
	int64_t sum = atomic_load_explicit(&cache->requested, memory_order_relaxed) + bytes;
	if (HOIST__UNLIKELY((uint64_t)(sum + HOIST__FOLD_BYTES) >
			    2 * HOIST__FOLD_BYTES)) { /* either way */
		hoist__fold_requested(cache->pool, sum);
		sum = 0;
	}
	atomic_store_explicit(&cache->requested, sum, memory_order_relaxed);
}

static inline void hoist__cache_count_alloc(struct hoist__cache *cache, size_t bytes)
{
	hoist__cache_add(&cache->n_allocs, 1);
	hoist__count_requested(cache, (int64_t)bytes);
}

static inline void hoist__cache_count_free(struct hoist__cache *cache, size_t bytes)
{
	hoist__cache_add(&cache->n_frees, 1);
	hoist__count_requested(cache, -(int64_t)bytes);
}

/* hoist__cache_enter(); @may_stop: only if there is nothing to stop for. */
static inline bool hoist__cache_enter_fast(struct hoist__cache *cache, bool may_stop)
{
	if (may_stop)
		return hoist__cache_enter(cache);
	hoist__cache_busy(cache);
	if (HOIST__LIKELY(atomic_load_explicit(&cache->stop, memory_order_acquire) == 0))
		return true;
	hoist__cache_leave(cache);
	return false;
}

/* As hoist__pool_alloc() without flags, if it is true.  @may_stop is a constant: false where the
 * caller goes on to hoist__pool_alloc_past(). */
static inline bool hoist__pool_alloc_fast(struct hoist__pool *pool, size_t bytes, size_t align,
					  uintptr_t *ret, bool may_stop)
{
	/* bytes - 1: 0 is not small either. */
	if (HOIST__UNLIKELY(bytes - 1 >=
			    atomic_load_explicit(&pool->fast_most, memory_order_relaxed)))
		return false;
	if (HOIST__UNLIKELY(align != 0) &&
	    (align > hoist__quantum(pool) || (align & (align - 1)) != 0))
		return false;
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (HOIST__UNLIKELY(cache == NULL || !hoist__cache_enter_fast(cache, may_stop)))
		return false;
	struct hoist__magazine *magazine =
		&cache->magazines[hoist__class_of(bytes, pool->quantum_shift)];
	struct hoist__entry *top = magazine->top;
	if (HOIST__UNLIKELY(top == magazine->entries)) {
		hoist__cache_leave(cache);
		return false;
	}
	const uintptr_t address = (--top)->address;
	_Atomic uint32_t *state = top->state;
	magazine->top = top;
	atomic_store_explicit(&cache->bytes,
			      atomic_load_explicit(&cache->bytes, memory_order_relaxed) -
				      magazine->block_bytes,
			      memory_order_relaxed);
	hoist__cache_leave(cache);
	atomic_store_explicit(state, (uint32_t)bytes, memory_order_relaxed);
	*ret = address;
	if (HOIST__LIKELY(pool->counts))
		hoist__cache_count_alloc(cache, bytes);
	return true;
}

/* True if it may be ended by who only frees: live, and used by no stream. */
static inline bool hoist__state_is_plain(uint32_t state)
{
	return state - 1 < HOIST__STATE_USED - 1;
}

/* As hoist__pool_free(), if it is true; @may_stop likewise. */
static inline bool hoist__pool_free_fast(struct hoist__pool *pool, uintptr_t address, bool may_stop)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	if (HOIST__UNLIKELY(!hoist__granule_is_of(
		    granule, atomic_load_explicit(&pool->fast_number, memory_order_relaxed))))
		return false;
	struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (HOIST__UNLIKELY(slab == NULL || cache == NULL))
		return false;
	uint32_t index;
	if (HOIST__UNLIKELY(!hoist__divides(address - granule->address, granule->reciprocal,
					    granule->n_blocks, &index)))
		return false;
	struct hoist__magazine *magazine = &cache->magazines[granule->class_index];
	_Atomic uint32_t *state = &slab->states[index];
	if (HOIST__UNLIKELY(!hoist__granule_still(granule, slab) ||
			    !hoist__cache_enter_fast(cache, may_stop)))
		return false;
	struct hoist__entry *top = magazine->top;
	size_t bytes =
		atomic_load_explicit(&cache->bytes, memory_order_relaxed) + magazine->block_bytes;
	uint32_t was = atomic_load_explicit(state, memory_order_relaxed);
	/* The exchange must only meet a block that it may end. */
	if (HOIST__UNLIKELY(top == magazine->end || bytes > pool->cache_bytes ||
			    !hoist__state_is_plain(was)))
		goto leave;
	was = atomic_exchange_explicit(state, 0, memory_order_acq_rel);
	if (HOIST__UNLIKELY(!hoist__state_is_plain(was) || !hoist__granule_still(granule, slab))) {
		/* 0 is left alone: the block may be somebody's again meanwhile. */
		if (was != 0)
			atomic_store_explicit(state, was, memory_order_release);
		goto leave;
	}
	top->address = address;
	top->state = state;
	magazine->top = top + 1;
	atomic_store_explicit(&cache->bytes, bytes, memory_order_relaxed);
	hoist__cache_leave(cache);
	if (HOIST__LIKELY(pool->counts))
		hoist__cache_count_free(cache, was);
	return true;
leave:
	hoist__cache_leave(cache);
	return false;
}

/* Frees a block that the fast path, called with @may_stop false, did not take. */
static inline int hoist__pool_free_past(struct hoist__pool *pool, uintptr_t address)
{
	return hoist__cache_fences ? hoist__pool_free(pool, address)
				   : hoist__pool_free_slow(pool, address);
}

static inline int hoist__pool_alloc_past(struct hoist__pool *pool, size_t bytes, size_t align,
					 uintptr_t *ret)
{
	return hoist__cache_fences ? hoist__pool_alloc(pool, bytes, align, 0, ret)
				   : hoist__pool_alloc_slow(pool, bytes, align, 0, NULL, ret);
}

#endif
