/* SPDX-License-Identifier: MIT */
/* alloc/pool-regions.c - describes a pool's regions by extents, and ends regions.
 * The contract is in alloc/pool-private.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc/pin.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

/* --- a region and its extents --- */

/* Pre: no lock held. */
static void free_extents(struct hoist__pool *pool, struct hoist__pool_region *holder)
{
	for (size_t i = 0; i < holder->n_extents; i++)
		hoist__granules_release(holder->extents[i]->extent.base,
					holder->extents[i]->extent.n);
	/* A thread that came here by a wrong address and the page map reads extents under the lock.
	 * Taking the lock once waits for such threads. */
	pthread_mutex_lock(&pool->lock);
	pthread_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < holder->n_extents; i++)
		free(holder->extents[i]);
	free(holder->extents);
}

static int add_extent(struct hoist__pool *pool, struct hoist__pool_region *holder, uintptr_t base,
		      size_t bytes)
{
	size_t n = (bytes + HOIST__GRANULE_BYTES - 1) >> HOIST__GRANULE_SHIFT;
	size_t size = sizeof(struct hoist__pool_extent) + hoist__extent_bits_bytes(n);
	struct hoist__pool_extent *made = calloc(1, size);
	if (made == NULL)
		return hoist__fail_nomem("the description of a region", size);
	HOIST__ASSERT(base % HOIST__GRANULE_BYTES == 0 && bytes != 0);
	made->pool = pool;
	made->region = holder;
	made->extent.base = base;
	made->extent.n = n;
	made->extent.bytes = bytes;
	made->extent.owner = pool->number;
	made->extent.keep = !holder->region->options.unpopulated;
	made->extent.process = hoist__fork_now();
	/* Last: any thread may find the extent by an address in it from here on. */
	int err = hoist__granules_take(base, n, &made->extent);
	if (err != 0) {
		free(made);
		return err;
	}
	holder->extents[holder->n_extents++] = made;
	return 0;
}

/* One extent per registered piece. */
int hoist__pool_extents_make(struct hoist__pool *pool, struct hoist__pool_region *holder)
{
	const struct hoist__region *region = holder->region;
	size_t piece = region->pinned ? region->piece_bytes : region->bytes;
	size_t n = (region->bytes + piece - 1) / piece;
	HOIST__ASSERT(region->base % HOIST__GRANULE_BYTES == 0 && holder->shard == NULL);
	HOIST__ASSERT(n == 1 || piece % HOIST__GRANULE_BYTES == 0);
	holder->extents = calloc(n, sizeof *holder->extents);
	if (holder->extents == NULL)
		return hoist__fail_nomem("the description of a region",
					 n * sizeof *holder->extents);
	int err = 0;
	for (size_t at = 0; err == 0 && at < region->bytes; at += piece)
		err = add_extent(pool, holder, region->base + at,
				 hoist__min_u64(piece, region->bytes - at));
	HOIST__ASSERT(err != 0 || holder->n_extents == n);
	if (err != 0)
		free_extents(pool, holder);
	return err;
}

/* An extent is one registered piece, which the driver maps as a whole: one address serves the whole
 * of it. */
int hoist__pool_device_address(struct hoist__dev *dev, uintptr_t address, uintptr_t *ret)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	struct hoist__extent *extent =
		granule == NULL ? NULL
				: atomic_load_explicit(&granule->extent, memory_order_acquire);
	if (extent == NULL)
		return hoist__dev_host_address(dev, (void *)address, ret);
	struct hoist__pool_extent *piece = hoist__pool_extent_of(extent);
	HOIST__ASSERT(address >= extent->base && address - extent->base < extent->bytes);
	uintptr_t seen = atomic_load_explicit(&piece->seen, memory_order_relaxed);
	int err = seen != 0 ? hoist__dev_check(dev)
			    : hoist__dev_host_address(dev, (void *)extent->base, &seen);
	if (err != 0)
		return err;
	atomic_store_explicit(&piece->seen, seen, memory_order_relaxed);
	*ret = seen + (address - extent->base);
	return 0;
}

void hoist__pool_region_listed(struct hoist__pool *pool, struct hoist__pool_region *holder,
			       bool listed)
{
	HOIST__ASSERT(hoist__mutex_held(&pool->lock));
	holder->listed = listed;
	unsigned process =
		listed && !hoist__pinned_by_driver(pool->options.dev) ? 0 : hoist__fork_now();
	for (size_t i = 0; i < holder->n_extents; i++)
		atomic_store(&holder->extents[i]->extent.process, process);
}

void hoist__pool_unlist(struct hoist__pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	for (struct hoist__list *link = pool->regions.next; link != &pool->regions;
	     link = link->next)
		hoist__pool_region_listed(
			pool, HOIST__CONTAINER_OF(link, struct hoist__pool_region, link), false);
	pthread_mutex_unlock(&pool->lock);
}

void hoist__pool_uncharge(struct hoist__pool *pool, size_t bytes)
{
	if (bytes != 0 && pool->options.budget != NULL)
		hoist__budget_release(pool->options.budget, bytes);
	if (bytes != 0 && pool->options.device_budget != NULL)
		hoist__budget_release(pool->options.device_budget, bytes);
}

void hoist__pool_region_destroy(struct hoist__pool *pool, struct hoist__pool_region *holder)
{
	HOIST__ASSERT(!holder->listed && hoist__list_empty(&holder->link));
	if (pool->watch != NULL)
		hoist__watch_region_ends(pool->watch, holder->region->base, holder->region->bytes);
	/* The page map goes first: another owner may get the addresses as soon as they are free. */
	free_extents(pool, holder);
	hoist__region_destroy(holder->region);
	hoist__pool_uncharge(pool, holder->charged);
	free(holder);
}

/* --- dooming --- */

void hoist__doomed_init(struct hoist__doomed *doomed)
{
	hoist__list_init(&doomed->regions);
	doomed->bytes = 0;
}

/* True if the region is empty, and ours to give back.  Pre: the pool's lock, which keeps the
 * region, and the shard's are held. */
static bool releasable(const struct hoist__pool_region *holder)
{
	HOIST__ASSERT(hoist__lock_held(&holder->shard->lock));
	for (size_t i = 0; i < holder->n_extents; i++)
		if (!holder->extents[i]->extent.empty)
			return false;
	return holder->listed && holder->region->options.given == 0;
}

/* Pre: both locks are held, and the region is releasable. */
static void doom_one(struct hoist__pool *pool, struct hoist__pool_region *holder,
		     struct hoist__doomed *doomed)
{
	HOIST__ASSERT(hoist__mutex_held(&pool->lock) && releasable(holder));
	HOIST__ASSERT(atomic_load(&pool->empty_bytes) >= holder->region->bytes);
	for (size_t i = 0; i < holder->n_extents; i++)
		hoist__spans_remove(&holder->shard->spans, &holder->extents[i]->extent);
	atomic_fetch_sub(&pool->empty_bytes, holder->region->bytes);
	hoist__list_remove(&holder->link);
	hoist__pool_region_listed(pool, holder, false);
	hoist__list_push_back(&doomed->regions, &holder->link);
	HOIST__ASSERT(holder->discarded < holder->region->bytes);
	pool->discarded -= holder->discarded;
	pool->reserved -= holder->discarded;
	doomed->bytes += holder->region->bytes - holder->discarded;
	pool->releasing += holder->region->bytes - holder->discarded;
	HOIST__ASSERT(pool->releasing <= pool->reserved && pool->n_regions != 0);
	pool->n_regions--;
}

static unsigned magnitude(const struct hoist__pool_region *holder)
{
	return 63 - (unsigned)__builtin_clzll(holder->region->bytes);
}

static struct hoist__pool_region *region_of(struct hoist__list *link)
{
	struct hoist__extent *extent = HOIST__CONTAINER_OF(link, struct hoist__extent, link);
	HOIST__ASSERT(extent->empty && extent->keep);
	return hoist__pool_extent_of(extent)->region;
}

/* The magnitudes of the shard's regions that have an empty extent, a bit for each. */
static uint64_t magnitudes_in(struct hoist__shard *shard)
{
	uint64_t all = 0;
	hoist__lock(&shard->lock);
	for (struct hoist__list *link = shard->spans.empty.next; link != &shard->spans.empty;
	     link = link->next)
		all |= UINT64_C(1) << magnitude(region_of(link));
	hoist__unlock(&shard->lock);
	return all;
}

static void doom_in(struct hoist__pool *pool, struct hoist__shard *shard, unsigned of_magnitude,
		    size_t keep_bytes, struct hoist__doomed *doomed)
{
	struct hoist__list *const end = &shard->spans.empty;
	hoist__lock(&shard->lock);
	struct hoist__list *link = end->next;
	while (link != end && atomic_load(&pool->empty_bytes) > keep_bytes) {
		struct hoist__pool_region *holder = region_of(link);
		link = link->next;
		if (magnitude(holder) != of_magnitude || !releasable(holder))
			continue;
		doom_one(pool, holder, doomed);
		/* The next extent may have been one of the same region. */
		if (holder->n_extents > 1)
			link = end->next;
	}
	hoist__unlock(&shard->lock);
}

void hoist__pool_doom(struct hoist__pool *pool, size_t keep_bytes, struct hoist__doomed *doomed)
{
	uint64_t all = 0;
	HOIST__ASSERT(hoist__mutex_held(&pool->lock));
	if (atomic_load(&pool->empty_bytes) <= keep_bytes)
		return;
	for (unsigned i = 0; i < pool->n_shards; i++)
		all |= magnitudes_in(&pool->shards[i]);
	for (; all != 0 && atomic_load(&pool->empty_bytes) > keep_bytes;) {
		unsigned largest = 63 - (unsigned)__builtin_clzll(all);
		for (unsigned i = 0; i < pool->n_shards; i++)
			doom_in(pool, &pool->shards[i], largest, keep_bytes, doomed);
		all &= ~(UINT64_C(1) << largest);
	}
}

/* A region that was made unpopulated never serves again, as its memory would no longer be zero; nor
 * does one that lacks pages. */
static bool is_surplus(const struct hoist__pool *pool, const struct hoist__pool_region *holder)
{
	return holder->region->options.unpopulated || holder->discarded != 0 ||
	       atomic_load(&pool->empty_bytes) > pool->options.keep_bytes;
}

void hoist__pool_emptied(struct hoist__pool *pool, uintptr_t address, bool keep,
			 struct hoist__doomed *doomed)
{
	if (keep && atomic_load(&pool->empty_bytes) <= pool->options.keep_bytes)
		return;
	pthread_mutex_lock(&pool->lock);
	const struct hoist__pool_extent *extent = hoist__pool_extent_at(pool, address);
	struct hoist__pool_region *holder = extent == NULL ? NULL : extent->region;
	HOIST__ASSERT(extent == NULL || extent->pool == pool);
	if (holder != NULL && holder->listed && is_surplus(pool, holder)) {
		hoist__lock(&holder->shard->lock);
		if (releasable(holder))
			doom_one(pool, holder, doomed);
		hoist__unlock(&holder->shard->lock);
	}
	pthread_mutex_unlock(&pool->lock);
}

void hoist__pool_destroy_doomed(struct hoist__pool *pool, struct hoist__doomed *doomed)
{
	HOIST__ASSERT((doomed->bytes == 0) == hoist__list_empty(&doomed->regions));
	if (doomed->bytes == 0)
		return;
	struct hoist__list *link;
	while ((link = hoist__list_pop(&doomed->regions)) != NULL)
		hoist__pool_region_destroy(
			pool, HOIST__CONTAINER_OF(link, struct hoist__pool_region, link));
	pthread_mutex_lock(&pool->lock);
	HOIST__ASSERT(doomed->bytes <= pool->releasing && pool->releasing <= pool->reserved);
	pool->releasing -= doomed->bytes;
	pool->reserved -= doomed->bytes;
	doomed->bytes = 0;
	pthread_cond_broadcast(&pool->changed);
	pthread_mutex_unlock(&pool->lock);
}
