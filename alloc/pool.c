/* SPDX-License-Identifier: MIT */
/* alloc/pool.c - allocates and frees by the slow paths, counts, finds.
 * The contract is in alloc/pool.h and alloc/pool-private.h. */
#include "config.h"

#include "alloc/pool.h"

#include <errno.h>

#include "alloc/fast.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"

#define MAX_ALIGN HOIST__HUGE_PAGE_BYTES
#define MAX_BYTES ((size_t)1 << 47)

/* --- counting --- */

void hoist__count_alloc(struct hoist__pool *pool, size_t bytes)
{
	if (!pool->counts)
		return;
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (cache != NULL) {
		hoist__cache_count_alloc(cache, bytes);
		return;
	}
	atomic_fetch_add_explicit(&pool->n_allocs, 1, memory_order_relaxed);
	hoist__fold_requested(pool, (int64_t)bytes);
}

void hoist__count_free(struct hoist__pool *pool, size_t bytes)
{
	if (!pool->counts)
		return;
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	if (cache != NULL) {
		hoist__cache_count_free(cache, bytes);
		return;
	}
	atomic_fetch_add_explicit(&pool->n_frees, 1, memory_order_relaxed);
	hoist__fold_requested(pool, -(int64_t)bytes);
}

/* --- allocating --- */

void hoist__pool_set_slow(struct hoist__pool *pool, unsigned why, bool slow)
{
	if (slow)
		atomic_fetch_or(&pool->slow, why);
	else
		atomic_fetch_and(&pool->slow, ~why);
}

int hoist__pool_check_request(const struct hoist__pool *pool, size_t bytes, size_t align,
			      unsigned flags)
{
	if (bytes == 0)
		return hoist__fail(-EINVAL, "a block of 0 bytes");
	if (align != 0 && (!hoist__is_power_of_two(align) || align > MAX_ALIGN))
		return hoist__fail(-EINVAL, "alignment %zu is no power of two up to 2 MiB", align);
	if ((flags & ~HOIST__ALLOC_UNPOPULATED) != 0)
		return hoist__fail(-EINVAL, "unknown flags %#x", flags);
	if (flags != 0 && pool->options.kind != HOIST__MEMORY_HOST)
		return hoist__fail(-EINVAL, "only pageable host memory can be unpopulated");
	if (flags != 0 && pool->options.source != NULL)
		return hoist__fail(-EINVAL, "memory from another resource cannot be unpopulated");
	/* A child of fork has the books of the pool, but not the memory. */
	if (pool->options.dev != NULL && hoist__dev_check(pool->options.dev) != 0)
		return -ESTALE;
	if (bytes > MAX_BYTES)
		return hoist__fail(hoist__memory_is_host(pool->options.kind) ? -ENOMEM : -ENOSPC,
				   "a block of %s exceeds every address space",
				   hoist__figure(bytes).text);
	return 0;
}

int hoist__pool_alloc_slow(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			   struct hoist__dev_stream *stream, uintptr_t *ret)
{
	int err = hoist__pool_check_request(pool, bytes, align, flags);
	if (err != 0)
		return err;
	if (atomic_load_explicit(&pool->slow, memory_order_relaxed) & HOIST__SLOW_WATCHED) {
		err = hoist__pool_watched_alloc(pool, bytes, align, flags, stream, ret);
	} else {
		uintptr_t address;
		size_t allocated;
		err = hoist__block_take(pool, bytes, align, flags, &address, &allocated);
		if (err == 0) {
			HOIST__ASSERT(allocated >= bytes && (align == 0 || address % align == 0));
			hoist__block_live(address, bytes, false);
			hoist__count_alloc(pool, bytes);
			*ret = address;
		}
	}
	/* -EFAULT is about other memory, which was overwritten, and not about this request. */
	return err == 0 || err == -EFAULT
		       ? err
		       : hoist__fail_in(err, "allocating %s of %s memory",
					hoist__figure(bytes).text,
					hoist__memory_kind_name(pool->options.kind));
}

/* Enters this thread's cache of @pool.  Returns: NULL if there is none, or the fast path found it
 * open already: then the cache does not have the block or the room. */
static struct hoist__place *reopen(const struct hoist__pool *pool)
{
	struct hoist__cache *cache = hoist__cache_known(pool->index);
	struct hoist__place *place = hoist__place_at(pool->place);
	bool entered = cache != NULL && !hoist__place_is_open(place, pool) &&
		       atomic_load_explicit(&pool->slow, memory_order_relaxed) == 0 &&
		       hoist__cache_enter(cache);
	return entered ? place : NULL;
}

int hoist__pool_alloc_past(struct hoist__pool *pool, size_t bytes, size_t align, uintptr_t *ret)
{
	struct hoist__place *place = bytes <= pool->slab_most && hoist__align_is_plain(pool, align)
					     ? reopen(pool)
					     : NULL;
	if (place != NULL && hoist__alloc_at(place, bytes, ret))
		return 0;
	return hoist__pool_alloc_slow(pool, bytes, align, 0, NULL, ret);
}

int hoist__pool_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret)
{
	if (flags != 0)
		return hoist__pool_alloc_slow(pool, bytes, align, flags, NULL, ret);
	return hoist__pool_alloc_fast(pool, bytes, align, ret)
		       ? 0
		       : hoist__pool_alloc_past(pool, bytes, align, ret);
}

/* --- freeing --- */

int hoist__pool_free_slow(struct hoist__pool *pool, uintptr_t address)
{
	unsigned slow = atomic_load_explicit(&pool->slow, memory_order_relaxed);
	if (slow & HOIST__SLOW_STALE)
		return hoist__dev_check(pool->options.dev);
	if (slow & HOIST__SLOW_WATCHED)
		return hoist__pool_watched_free(pool, address, NULL, false);
	struct hoist__claim claim;
	int err = hoist__block_claim(pool, address, &claim);
	if (err != 0)
		return err;
	if (claim.used)
		return hoist__pool_defer(pool, address, &claim, NULL);
	hoist__count_free(pool, claim.requested - claim.discarded);
	hoist__block_put(pool, address);
	return 0;
}

int hoist__pool_free_past(struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__place *place = reopen(pool);
	return place != NULL && hoist__free_at(place, pool->number, address)
		       ? 0
		       : hoist__pool_free_slow(pool, address);
}

int hoist__pool_free(struct hoist__pool *pool, uintptr_t address)
{
	return hoist__pool_free_fast(pool, address) ? 0 : hoist__pool_free_past(pool, address);
}

/* --- finding --- */

/* Describes the live block around @address.  In a watched pool the user's block starts behind the
 * raw block. */
static int find_in(struct hoist__pool *pool, uintptr_t address, struct hoist__block *ret)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	uintptr_t raw = hoist__block_around(pool, address);
	if (raw == 0)
		return -ENOENT;
	const struct hoist__granule *first = hoist__granule_of(raw);
	const struct hoist__slab *slab = atomic_load_explicit(&granule->slab, memory_order_acquire);
	uint32_t index;
	size_t requested;
	if (slab != NULL) {
		if (!hoist__slab_at(slab, raw, &index))
			return -ENOENT;
		requested = atomic_load(&slab->states[index]) & HOIST__STATE_BYTES_MASK;
	} else {
		requested = atomic_load(&first->state) & HOIST__LARGE_BYTES_MASK;
	}
	uintptr_t start = raw;
	size_t bytes = requested;
	if (requested != 0 && pool->watch != NULL &&
	    hoist__watch_known(pool->watch, raw, raw, &start, &bytes) != 0 && start == 0)
		return -ENOENT;
	if (requested == 0 || address < start || address - start >= bytes)
		return -ENOENT;
	pthread_mutex_lock(&pool->lock);
	const struct hoist__pool_extent *extent = hoist__pool_extent_at(pool, raw);
	if (extent != NULL)
		*ret = (struct hoist__block){
			.address = start,
			.bytes = bytes,
			.allocated = slab != NULL ? slab->block_bytes
						  : hoist__span_bytes_in(&extent->extent, first),
			.node = extent->region->region->node,
			.region = extent->region->region,
		};
	pthread_mutex_unlock(&pool->lock);
	return extent != NULL ? 0 : -ENOENT;
}

int hoist__pool_find(struct hoist__pool *pool, uintptr_t address, struct hoist__block *ret)
{
	if (find_in(pool, address, ret) != 0)
		return hoist__fail(-ENOENT, "%#zx lies in no block of this pool", (size_t)address);
	return 0;
}

int hoist__pools_find(uintptr_t address, struct hoist__pool **pool, struct hoist__block *ret)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	struct hoist__pool *owner =
		granule == NULL ? NULL : hoist__caches_pool(atomic_load(&granule->owner));
	bool found =
		owner != NULL && !hoist__pool_is_stale(owner) && find_in(owner, address, ret) == 0;
	if (found)
		*pool = owner;
	hoist__pool_unref(owner);
	return found ? 0
		     : hoist__fail(-ENOENT, "%#zx lies in no block of any resource",
				   (size_t)address);
}
