/* SPDX-License-Identifier: MIT */
/* alloc/discard.c - gives pages of a live block back to the system.
 * The contract is in alloc/pool.h. */
#include "config.h"

#include "alloc/annotate.h"
#include "alloc/map.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/error.h"

/* True if no other block has, or will have, memory of the region of the live block around
 * @address.  The rest of an unpopulated region never serves another block. */
static bool is_alone(const struct hoist__pool_extent *extent, uintptr_t address)
{
	struct hoist__shard *shard = extent->region->shard;
	hoist__lock(&shard->lock);
	const struct hoist__granule *span = hoist__spans_around(&extent->extent, address);
	bool alone = span->kind == HOIST__SPAN_BLOCK && extent->region->n_extents == 1 &&
		     (span->n == extent->extent.n || extent->region->region->options.unpopulated);
	hoist__unlock(&shard->lock);
	return alone;
}

/* Returns: the region of the block around @address, if the block can give back pages; else NULL.
 * The region stays as long as the block lives. */
static struct hoist__pool_region *find(struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__pool_region *found = NULL;
	if (pool->options.kind != HOIST__MEMORY_HOST || pool->options.source != NULL ||
	    pool->options.debug != 0)
		return NULL;
	pthread_mutex_lock(&pool->lock);
	const struct hoist__pool_extent *extent = hoist__pool_extent_at(pool, address);
	if (extent != NULL && extent->region->region->options.given == 0 &&
	    !extent->region->region->pinned && is_alone(extent, address))
		found = extent->region;
	pthread_mutex_unlock(&pool->lock);
	return found;
}

size_t hoist__pool_page_bytes(struct hoist__pool *pool, uintptr_t address)
{
	const struct hoist__pool_region *holder = find(pool, address);
	if (holder == NULL)
		return 0;
	return holder->region->pages == HOIST__PAGES_HUGETLB ? HOIST__HUGE_PAGE_BYTES
							     : hoist__page_bytes();
}

/* The bytes leave the counts once the pages are gone.  The empty region is not kept: a block that
 * took it would lack pages. */
static void count(struct hoist__pool *pool, struct hoist__pool_region *holder, size_t bytes)
{
	struct hoist__shard *shard = holder->shard;
	pthread_mutex_lock(&pool->lock);
	hoist__lock(&shard->lock);
	HOIST__ASSERT(shard->large_bytes >= bytes);
	shard->large_bytes -= bytes;
	holder->discarded += bytes;
	holder->extents[0]->extent.keep = false;
	hoist__unlock(&shard->lock);
	pool->discarded += bytes;
	size_t charged = hoist__min_u64(bytes, holder->charged);
	holder->charged -= charged;
	pthread_cond_broadcast(&pool->changed); /* a growth may wait for the limit */
	pthread_mutex_unlock(&pool->lock);
	hoist__pool_uncharge(pool, charged);
	if (pool->counts)
		hoist__fold_requested(pool, -(int64_t)bytes);
}

int hoist__pool_discard(struct hoist__pool *pool, uintptr_t address, size_t bytes)
{
	struct hoist__pool_region *holder = find(pool, address);
	HOIST__ASSERT(holder != NULL && bytes != 0);
	hoist__region_keep_small(holder->region, address, bytes);
	int err = hoist__region_discard(holder->region, address, bytes);
	if (err != 0)
		return err;
	if (hoist__watch_annotates())
		hoist__annotate_hidden(address, bytes);
	count(pool, holder, bytes);
	return 0;
}
