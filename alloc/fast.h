/* SPDX-License-Identifier: MIT */
/* alloc/fast.h - the fast paths of allocating and freeing, inline where callers meet them.
 *
 * An operation costs as much as its instructions, so the functions here are inlined into
 * hoist_memory_alloc() and hoist_memory_free().  In every rare case they return false with nothing
 * changed, and the caller goes on to hoist__pool_alloc_past() or hoist__pool_free_past().
 *
 * A free reads the record of the granule (granule.h), which stays mapped, and then exchanges the
 * block's state (slab.h).  Loads behind the exchange would wait for it, so the free loads
 * everything that it needs before the exchange.
 */
#ifndef HOIST_ALLOC_FAST_H
#define HOIST_ALLOC_FAST_H

#include "alloc/pool-private.h"
#include "base/assert.h"

/* The count in a cache is biased by HOIST__FOLD_BYTES, so that one unsigned compare checks both of
 * its bounds. */
static inline void hoist__count_requested(struct hoist__cache *cache, int64_t bytes)
{
	int64_t sum = atomic_load_explicit(&cache->requested, memory_order_relaxed) + bytes;
	if (HOIST__UNLIKELY((uint64_t)sum > 2 * HOIST__FOLD_BYTES)) {
		hoist__fold_requested(cache->pool, sum - HOIST__FOLD_BYTES);
		sum = HOIST__FOLD_BYTES;
	}
	atomic_store_explicit(&cache->requested, sum, memory_order_relaxed);
}

static inline void hoist__cache_count_alloc(struct hoist__cache *cache, size_t bytes)
{
	hoist__count_own(&cache->n_allocs, 1);
	hoist__count_requested(cache, (int64_t)bytes);
}

static inline void hoist__cache_count_free(struct hoist__cache *cache, size_t bytes)
{
	hoist__count_own(&cache->n_frees, 1);
	hoist__count_requested(cache, -(int64_t)bytes);
}

/* The asm makes gcc compute the address once.  Otherwise gcc folds the fields' offsets into two
 * address computations. */
static inline struct hoist__magazine *hoist__magazine_of(struct hoist__cache *cache, unsigned class)
{
	struct hoist__magazine *magazine = &cache->magazines[class];
	__asm__("" : "+r"(magazine));
	return magazine;
}

/* --- allocating --- */

/* Takes the top block of the class that is looked up at @at, and leaves the cache.  @coarse: the
 * request is larger than HOIST__FINE_BYTES.  These requests count what the cache may take again, as
 * a few large blocks fill a cache. */
static inline bool hoist__pop(struct hoist__place *place, size_t at, bool coarse, size_t bytes,
			      uintptr_t *ret)
{
	struct hoist__cache *cache = hoist__place_cache(place);
	struct hoist__magazine *magazine = hoist__magazine_of(cache, cache->class_of[at]);
	struct hoist__entry *top = hoist__magazine_top(magazine);
	if (HOIST__UNLIKELY(top == magazine->entries)) {
		hoist__place_leave(place);
		return false;
	}
	const uintptr_t address = (--top)->address;
	_Atomic uint32_t *state = top->state;
	HOIST__ASSERT(bytes <= magazine->block_bytes && atomic_load(state) == 0);
	hoist__magazine_set_top(magazine, top);
	if (coarse)
		cache->left += magazine->block_bytes;
	hoist__place_leave(place);
	atomic_store_explicit(state, (uint32_t)bytes, memory_order_relaxed);
	*ret = address;
	if (HOIST__LIKELY(cache->counts))
		hoist__cache_count_alloc(cache, bytes);
	return true;
}

/* Allocates from the cache that is entered at @place, and leaves the cache. */
static inline bool hoist__alloc_at(struct hoist__place *place, size_t bytes, uintptr_t *ret)
{
	/* With bytes - 1, a request of 0 bytes is large in both compares. */
	if (HOIST__LIKELY(bytes - 1 < HOIST__FINE_BYTES))
		return hoist__pop(place, (bytes - 1) >> HOIST__FINE_SHIFT, false, bytes, ret);
	if (HOIST__LIKELY(bytes - 1 < HOIST__CLASS_MOST_BYTES))
		return hoist__pop(place, HOIST__COARSE_FIRST + ((bytes - 1) >> HOIST__COARSE_SHIFT),
				  true, bytes, ret);
	hoist__place_leave(place);
	return false;
}

/* True if every block of @pool has this alignment. */
static inline bool hoist__align_is_plain(const struct hoist__pool *pool, size_t align)
{
	return HOIST__LIKELY(align == 0) ||
	       (align <= hoist__quantum(pool) && (align & (align - 1)) == 0);
}

/* True: did the work of hoist__pool_alloc() without flags. */
static inline bool hoist__pool_alloc_fast(const struct hoist__pool *pool, size_t bytes,
					  size_t align, uintptr_t *ret)
{
	if (!hoist__align_is_plain(pool, align))
		return false;
	struct hoist__place *place = hoist__place_at(pool->place);
	if (HOIST__UNLIKELY(!hoist__place_enter(place, pool))) {
		hoist__place_leave(place);
		return false;
	}
	return hoist__alloc_at(place, bytes, ret);
}

/* --- freeing --- */

/* True if a plain free may end the block: the block is live, and no stream uses it. */
static inline bool hoist__state_is_plain(uint32_t state)
{
	return state - 1 < HOIST__STATE_USED - 1;
}

/* True if the magazine has room for one more block, and the cache for its bytes. */
static inline bool hoist__has_room(const struct hoist__cache *cache,
				   const struct hoist__magazine *magazine)
{
	return hoist__magazine_top(magazine) != magazine->end &&
	       magazine->block_bytes <= cache->left;
}

static inline void hoist__push(struct hoist__cache *cache, struct hoist__magazine *magazine,
			       uintptr_t address, _Atomic uint32_t *state)
{
	struct hoist__entry *top = hoist__magazine_top(magazine);
	HOIST__ASSERT(top < magazine->end && magazine->block_bytes <= cache->left);
	top->address = address;
	top->state = state;
	hoist__magazine_set_top(magazine, top + 1);
	cache->left -= magazine->block_bytes;
}

/* Frees into the cache that is entered at @place, and leaves the cache.  The cache and the
 * magazine's top are read twice, which costs less than registers that must be saved. */
static inline bool hoist__free_at(struct hoist__place *place, uint32_t number, uintptr_t address)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	if (HOIST__UNLIKELY(!hoist__granule_is_of(granule, number)))
		goto leave;
	struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	if (slab == NULL)
		goto leave;
	/* The word behind the last block's state is always 0, so an index just past the end finds
	 * no block. */
	uint32_t index;
	if (HOIST__UNLIKELY(
		    !hoist__is_multiple(address - granule->address, granule->reciprocal, &index)))
		goto leave;
	_Atomic uint32_t *state = &slab->states[index];
	struct hoist__cache *cache = hoist__place_cache(place);
	struct hoist__magazine *magazine = hoist__magazine_of(cache, granule->class_index);
	if (HOIST__UNLIKELY(!hoist__granule_still(granule, slab) ||
			    !hoist__has_room(cache, magazine)))
		goto leave;
	/* Only a block that a plain free may end is exchanged. */
	uint32_t was = atomic_load_explicit(state, memory_order_relaxed);
	if (HOIST__UNLIKELY(!hoist__state_is_plain(was)))
		goto leave;
	was = atomic_exchange_explicit(state, 0, memory_order_acq_rel);
	if (HOIST__UNLIKELY(!hoist__state_is_plain(was) || !hoist__granule_still(granule, slab))) {
		/* A state of 0 is left alone: the block may have been allocated again meanwhile. */
		if (was != 0)
			atomic_store_explicit(state, was, memory_order_release);
		goto leave;
	}
	cache = hoist__place_cache(place);
	hoist__push(cache, magazine, address, state);
	hoist__place_leave(place);
	if (HOIST__LIKELY(cache->counts))
		hoist__cache_count_free(cache, was);
	return true;
leave:
	hoist__place_leave(place);
	return false;
}

/* True: did the work of hoist__pool_free(). */
static inline bool hoist__pool_free_fast(const struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__place *place = hoist__place_at(pool->place);
	if (HOIST__UNLIKELY(!hoist__place_enter(place, pool))) {
		hoist__place_leave(place);
		return false;
	}
	return hoist__free_at(place, pool->number, address);
}

#endif
