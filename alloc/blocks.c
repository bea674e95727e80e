/* SPDX-License-Identifier: MIT */
/* alloc/blocks.c - takes one block, begins and ends its life, gives it back.
 * The contract is in alloc/pool-private.h. */
#include "config.h"

#include <errno.h>

#include "alloc/pool-private.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

/* Returns: the smallest class whose blocks all lie at multiples of @align; n_classes if there is
 * none. */
static unsigned aligned_class(const struct hoist__pool *pool, size_t bytes, size_t align)
{
	if (bytes > pool->slab_most || align > HOIST__GRANULE_BYTES)
		return pool->n_classes;
	unsigned class = hoist__class_of(bytes < align ? align : bytes, pool->quantum_shift);
	/* Slabs begin at granules, so blocks of a multiple of @align are all aligned. */
	while (class < pool->n_classes && pool->shards[0].classes[class].block_bytes % align != 0)
		class ++;
	return class;
}

/* A thread has no cache if memory is exhausted or the thread is ending; the refill then serves the
 * one block.  The cache is left before the refill, which takes the locks of slabs. */
static int take_small(struct hoist__pool *pool, unsigned class, uintptr_t *ret)
{
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (cache == NULL)
		cache = hoist__cache_create(pool);
	struct hoist__entry entry;
	while (cache != NULL && !hoist__cache_enter(cache))
		hoist__cache_wait(pool);
	struct hoist__magazine *magazine = cache == NULL ? NULL : &cache->magazines[class];
	bool any = magazine != NULL && !hoist__magazine_empty(magazine);
	if (any) {
		struct hoist__entry *top = hoist__magazine_top(magazine) - 1;
		entry = *top;
		hoist__magazine_set_top(magazine, top);
	}
	if (cache != NULL)
		hoist__cache_leave(cache);
	int err = any ? 0 : hoist__small_refill(pool, cache, class, &entry);
	if (err == 0)
		*ret = entry.address;
	HOIST__ASSERT(err != 0 || atomic_load_explicit(entry.state, memory_order_relaxed) == 0);
	return err;
}

static size_t granules_for(size_t bytes)
{
	return (bytes + HOIST__GRANULE_BYTES - 1) >> HOIST__GRANULE_SHIFT;
}

static int take_large(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret)
{
	const struct hoist__want want = {
		.n = granules_for(bytes),
		.align = align <= HOIST__GRANULE_BYTES ? 1 : align >> HOIST__GRANULE_SHIFT,
		.kind = HOIST__SPAN_BLOCK,
		.bytes = bytes,
	};
	struct hoist__granule *span;
	int err = hoist__pool_span(pool, hoist__shard_here(pool), &want, flags, &span);
	HOIST__ASSERT(err != 0 || (span->kind == HOIST__SPAN_BLOCK && span->n >= want.n));
	if (err == 0)
		*ret = span->address;
	return err;
}

size_t hoist__block_rounded(const struct hoist__pool *pool, size_t bytes, size_t align)
{
	if (align < hoist__quantum(pool))
		align = hoist__quantum(pool);
	unsigned class = aligned_class(pool, bytes, align);
	if (class < pool->n_classes)
		return pool->shards[0].classes[class].block_bytes;
	return granules_for(bytes) << HOIST__GRANULE_SHIFT;
}

int hoist__block_take(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret, size_t *allocated)
{
	if (align < hoist__quantum(pool))
		align = hoist__quantum(pool);
	unsigned class = flags & HOIST__ALLOC_UNPOPULATED ? pool->n_classes
							  : aligned_class(pool, bytes, align);
	if (class < pool->n_classes) {
		*allocated = pool->shards[0].classes[class].block_bytes;
		HOIST__ASSERT(*allocated >= bytes && *allocated % align == 0);
		return take_small(pool, class, ret);
	}
	int err = take_large(pool, bytes, align, flags, ret);
	if (err == 0) {
		const struct hoist__granule *span = hoist__granule_of(*ret);
		*allocated = hoist__span_bytes(span);
		HOIST__ASSERT(*allocated >= bytes && *ret % align == 0);
		HOIST__ASSERT(hoist__granule_is_of(span, pool->number));
	}
	return err;
}

/* The state word of the block that starts at @address.  Exactly one of the two is not NULL. */
struct state {
	_Atomic uint32_t *small;
	_Atomic uint64_t *large;
};

static struct state state_of(uintptr_t address, struct hoist__slab **slab, uint32_t *index)
{
	struct hoist__granule *granule = hoist__granule_of(address);
	*slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	if (*slab == NULL)
		return (struct state){NULL, &granule->state};
	*index = hoist__slab_index(*slab, address);
	HOIST__ASSERT(*index <= (*slab)->n_blocks);
	return (struct state){&(*slab)->states[*index], NULL};
}

static bool is_live(uintptr_t address)
{
	struct hoist__slab *slab;
	uint32_t index;
	struct state state = state_of(address, &slab, &index);
	return state.small != NULL ? atomic_load(state.small) != 0 : atomic_load(state.large) != 0;
}

void hoist__block_live(uintptr_t address, size_t requested, bool used)
{
	struct hoist__slab *slab;
	uint32_t index;
	struct state state = state_of(address, &slab, &index);
	HOIST__ASSERT(requested != 0 && !is_live(address));
	HOIST__ASSERT(state.small == NULL || requested <= slab->block_bytes);
	HOIST__ASSERT(state.small == NULL || hoist__slab_block(slab, index) == address);
	if (state.small != NULL)
		atomic_store_explicit(state.small,
				      (uint32_t)requested | (used ? HOIST__STATE_USED : 0),
				      memory_order_release);
	else
		atomic_store_explicit(state.large, requested | (used ? HOIST__LARGE_USED : 0),
				      memory_order_release);
}

/* True if a block of @pool would start at @address, if there is one. */
static bool may_start(const struct hoist__pool *pool, uintptr_t address)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	if (!hoist__granule_is_of(granule, pool->number))
		return false;
	const struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	uint32_t index;
	return slab != NULL ? hoist__slab_at(slab, address, &index)
			    : address % HOIST__GRANULE_BYTES == 0;
}

static int not_live(struct hoist__pool *pool, uintptr_t address)
{
	uintptr_t around = hoist__block_around(pool, address);
	if (around != 0 && around != address && is_live(around))
		return hoist__fail(-EINVAL,
				   "%#zx lies inside the block that starts at %#zx; only the start "
				   "of a block can be freed",
				   (size_t)address, (size_t)around);
	return hoist__fail(-EINVAL, "%#zx: not a block of this pool (freed already, or another's)",
			   (size_t)address);
}

/* The exchange decides between threads that free one block at the same time: one gets the word, the
 * others get 0, which is no live block. */
int hoist__block_claim(struct hoist__pool *pool, uintptr_t address, struct hoist__claim *ret)
{
	if (!may_start(pool, address))
		return not_live(pool, address);
	struct state state = state_of(address, &ret->slab, &ret->index);
	if (state.small != NULL) {
		uint32_t was = atomic_exchange_explicit(state.small, 0, memory_order_acq_rel);
		if (was == 0)
			return not_live(pool, address);
		ret->used = (was & HOIST__STATE_USED) != 0;
		ret->requested = was & HOIST__STATE_BYTES_MASK;
		ret->discarded = 0;
		ret->allocated = ret->slab->block_bytes;
		HOIST__ASSERT(ret->slab->pool == pool && ret->requested <= ret->allocated);
		return 0;
	}
	uint64_t was = atomic_exchange_explicit(state.large, 0, memory_order_acq_rel);
	if (was == 0)
		return not_live(pool, address);
	const struct hoist__granule *span = hoist__granule_of(address);
	ret->used = (was & HOIST__LARGE_USED) != 0;
	ret->requested = was & HOIST__LARGE_BYTES_MASK;
	/* Only the holder of a live block gives its pages back, so this is the last value. */
	struct hoist__extent *extent = atomic_load_explicit(&span->extent, memory_order_relaxed);
	ret->discarded = hoist__pool_extent_of(extent)->region->discarded;
	ret->allocated = hoist__span_bytes(span) - ret->discarded;
	HOIST__ASSERT(span->kind == HOIST__SPAN_BLOCK && span->address == address);
	HOIST__ASSERT(ret->requested != 0 && ret->requested <= ret->allocated + ret->discarded);
	return 0;
}

void hoist__block_put(struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__granule *granule = hoist__granule_of(address);
	struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	HOIST__ASSERT(hoist__granule_is_of(granule, pool->number) && !is_live(address));
	if (slab == NULL) {
		HOIST__ASSERT(granule->kind == HOIST__SPAN_BLOCK && granule->address == address);
		struct hoist__doomed doomed;
		hoist__doomed_init(&doomed);
		hoist__pool_span_release(pool, granule, &doomed);
		hoist__pool_destroy_doomed(pool, &doomed);
		return;
	}
	HOIST__ASSERT(slab->pool == pool);
	const struct hoist__entry entry = {address,
					   &slab->states[hoist__slab_index(slab, address)]};
	/* A thread that only frees blocks of others has use for a cache, too. */
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (cache == NULL)
		cache = hoist__cache_create(pool);
	hoist__small_flush(pool, cache, slab->class_index, &entry);
}

/* Pre: the pool's lock is held. */
static uintptr_t large_around(const struct hoist__pool_extent *extent, uintptr_t address)
{
	HOIST__ASSERT(extent == NULL || hoist__mutex_held(&extent->pool->lock));
	struct hoist__shard *shard = extent == NULL ? NULL : extent->region->shard;
	if (shard == NULL) /* the pool does not have the extent's region yet */
		return 0;
	hoist__lock(&shard->lock);
	const struct hoist__granule *span = hoist__spans_around(&extent->extent, address);
	uintptr_t start = span->kind == HOIST__SPAN_BLOCK ? span->address : 0;
	HOIST__ASSERT(start == 0 || address - start < (size_t)span->n << HOIST__GRANULE_SHIFT);
	hoist__unlock(&shard->lock);
	return start;
}

uintptr_t hoist__block_around(struct hoist__pool *pool, uintptr_t address)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	if (!hoist__granule_is_of(granule, pool->number))
		return 0;
	const struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	if (slab != NULL) {
		uint32_t index = hoist__slab_index(slab, address);
		return index < slab->n_blocks ? hoist__slab_block(slab, index) : 0;
	}
	pthread_mutex_lock(&pool->lock);
	uintptr_t start = large_around(hoist__pool_extent_at(pool, address), address);
	pthread_mutex_unlock(&pool->lock);
	return start;
}

int hoist__block_use(struct hoist__pool *pool, uintptr_t address)
{
	if (!may_start(pool, address))
		return not_live(pool, address);
	struct hoist__slab *slab;
	uint32_t index;
	struct state state = state_of(address, &slab, &index);
	/* A block that is not live is never flagged: the flag alone would look like a live
	 * block. */
	if (state.small != NULL) {
		uint32_t was = atomic_load(state.small);
		while (was != 0)
			if (atomic_compare_exchange_weak(state.small, &was,
							 was | HOIST__STATE_USED))
				return 0;
	} else {
		uint64_t was = atomic_load(state.large);
		while (was != 0)
			if (atomic_compare_exchange_weak(state.large, &was,
							 was | HOIST__LARGE_USED))
				return 0;
	}
	return not_live(pool, address);
}
