/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "base/figure.h"
#include "alloc/pool-private.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define HOST_GRANULE ((size_t)64)
#define DEVICE_GRANULE ((size_t)256)
#define DEFAULT_REGION_BYTES (32 * HOIST__MIB)
#define MAX_ALIGN HOIST__HUGE_PAGE_BYTES
#define MAX_BYTES ((size_t)1 << 47)

const char *hoist__memory_kind_name(enum hoist__memory_kind kind)
{
	switch (kind) {
	case HOIST__MEMORY_PINNED:
		return "pinned";
	case HOIST__MEMORY_MANAGED:
	case HOIST__MEMORY_DEVICE:
		return "device";
	case HOIST__MEMORY_HOST:
		break;
	}
	return "host";
}

static int check_pool_options(const struct hoist__pool_options *options)
{
	const struct hoist__placement *placement = &options->placement;
	if ((unsigned)options->kind > HOIST__MEMORY_DEVICE)
		return hoist__fail(-EINVAL, "memory kind %d", (int)options->kind);
	if (options->kind == HOIST__MEMORY_DEVICE && options->dev == NULL)
		return hoist__fail(-EINVAL, "a pool of device memory needs a device");
	if (options->kind != HOIST__MEMORY_DEVICE && placement->policy != HOIST__POLICY_LOCAL &&
	    hoist__nodeset_first(&placement->nodes) < 0)
		return hoist__fail(-EINVAL, "placing memory: the set of nodes is empty");
	return 0;
}

int hoist__pool_create(const struct hoist__pool_options *options, struct hoist__pool **ret)
{
	int err = check_pool_options(options);
	if (err != 0)
		return err;
	struct hoist__pool *pool = calloc(1, sizeof *pool);
	if (pool == NULL)
		return hoist__fail_nomem("pool", sizeof *pool);
	pool->options = *options;
	if (pool->options.region_bytes == 0)
		pool->options.region_bytes = DEFAULT_REGION_BYTES;
	pool->granule = options->kind == HOIST__MEMORY_DEVICE ? DEVICE_GRANULE : HOST_GRANULE;
	atomic_init(&pool->n_refs, 1);
	hoist__spans_init(&pool->spans);
	hoist__list_init(&pool->regions);
	err = pthread_mutex_init(&pool->lock, NULL);
	if (err == 0) {
		err = pthread_cond_init(&pool->changed, NULL);
		if (err != 0)
			pthread_mutex_destroy(&pool->lock);
	}
	if (err != 0) {
		free(pool);
		return hoist__fail_errno(-err, "creating a pool");
	}
	*ret = pool;
	return 0;
}

struct hoist__pool *hoist__pool_ref(struct hoist__pool *pool)
{
	atomic_fetch_add_explicit(&pool->n_refs, 1, memory_order_relaxed);
	return pool;
}

void hoist__pool_unref(struct hoist__pool *pool)
{
	if (pool == NULL || atomic_fetch_sub(&pool->n_refs, 1) != 1)
		return;
	if (pool->stats.n_blocks != 0)
		hoist__log(alloc, "a pool ends with %zu blocks in use", pool->stats.n_blocks);
	struct hoist__list *link;
	while ((link = hoist__list_pop(&pool->regions)) != NULL) {
		struct hoist__pool_region *holder =
			HOIST__CONTAINER_OF(link, struct hoist__pool_region, link);
		hoist__region_destroy(holder->region);
		free(holder);
	}
	hoist__spans_done(&pool->spans);
	pthread_cond_destroy(&pool->changed);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static int check_request(const struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags)
{
	bool device = pool->options.kind == HOIST__MEMORY_DEVICE;
	if (bytes == 0)
		return hoist__fail(-EINVAL, "a block of 0 bytes");
	if (align != 0 && (!hoist__is_power_of_two(align) || align > MAX_ALIGN))
		return hoist__fail(-EINVAL, "alignment %zu is no power of two up to 2 MiB", align);
	if ((flags & ~HOIST__ALLOC_LAZY) != 0)
		return hoist__fail(-EINVAL, "unknown flags %#x", flags);
	if (flags != 0 && pool->options.kind != HOIST__MEMORY_HOST)
		return hoist__fail(-EINVAL, "only pageable host memory can be lazy");
	/* A child of fork has the books, but not the memory. */
	if (pool->options.dev != NULL && hoist__dev_check(pool->options.dev) != 0)
		return -ESTALE;
	if (bytes > MAX_BYTES)
		return hoist__fail(device ? -ENOSPC : -ENOMEM,
				   "a block of %s exceeds every address space",
				   hoist__figure(bytes).text);
	return 0;
}

/* From what the pool has; NULL if it must grow. */
static struct hoist__span *take(struct hoist__pool *pool, const struct hoist__want *want,
				unsigned flags)
{
	if (flags & HOIST__ALLOC_LAZY)
		return NULL;
	if (hoist__pool_wants_own(pool, want))
		return hoist__spans_take_whole(&pool->spans, want);
	return hoist__spans_take(&pool->spans, want, pool->options.region_bytes);
}

/* With the lock held. */
static int take_or_grow(struct hoist__pool *pool, const struct hoist__want *want, unsigned flags,
			struct hoist__span **ret)
{
	for (;;) {
		int err = hoist__pool_need_spares(pool);
		if (err != 0)
			return err;
		*ret = take(pool, want, flags);
		if (*ret != NULL)
			return 0;
		err = hoist__pool_grow(pool, want, flags, ret);
		if (err <= 0)
			return err;
	}
}

static struct hoist__block block_of(const struct hoist__span *span)
{
	const struct hoist__pool_region *holder =
		HOIST__CONTAINER_OF(span->extent, struct hoist__pool_region, extent);
	return (struct hoist__block){
		.address = span->address,
		.bytes = span->requested,
		.node = holder->region->node,
	};
}

int hoist__pool_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      struct hoist__block *ret)
{
	int err = check_request(pool, bytes, align, flags);
	if (err != 0)
		return err;
	struct hoist__want want = {
		.requested = bytes,
		.bytes = hoist__round_up(bytes, pool->granule),
		.align = align > pool->granule ? align : pool->granule,
	};
	struct hoist__span *span = NULL;
	pthread_mutex_lock(&pool->lock);
	err = take_or_grow(pool, &want, flags, &span);
	if (err == 0) {
		pool->stats.requested_bytes += span->requested;
		pool->stats.allocated_bytes += span->bytes;
		pool->stats.n_blocks++;
		pool->stats.n_allocs++;
		*ret = block_of(span);
	}
	pthread_mutex_unlock(&pool->lock);
	return err == 0 ? 0
			: hoist__fail_in(err, "allocating %s of %s memory",
					 hoist__figure(bytes).text,
					 hoist__memory_kind_name(pool->options.kind));
}

static int no_block(uintptr_t address, uintptr_t around)
{
	if (around != 0)
		return hoist__fail(-EINVAL,
				   "freeing %#zx: it lies inside the block that starts at %#zx",
				   (size_t)address, (size_t)around);
	return hoist__fail(-EINVAL,
			   "freeing %#zx: not a block of this pool (freed already, or another's)",
			   (size_t)address);
}

int hoist__pool_free(struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__doomed doomed;
	hoist__list_init(&doomed.regions);
	doomed.bytes = 0;
	pthread_mutex_lock(&pool->lock);
	struct hoist__span *span = hoist__spans_around(&pool->spans, address);
	if (span == NULL || span->address != address) {
		uintptr_t around = span == NULL ? 0 : span->address;
		pthread_mutex_unlock(&pool->lock);
		return no_block(address, around);
	}
	pool->stats.requested_bytes -= span->requested;
	pool->stats.allocated_bytes -= span->bytes;
	pool->stats.n_blocks--;
	pool->stats.n_frees++;
	struct hoist__extent *empty = hoist__spans_release(&pool->spans, span);
	/* Memory that was lazy would no longer be zero: it never serves again. */
	if (empty != NULL && (!empty->keep || pool->spans.empty_bytes > pool->options.keep_bytes))
		hoist__pool_doom_one(pool, empty, &doomed);
	hoist__pool_destroy_doomed(pool, &doomed);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

int hoist__pool_find(struct hoist__pool *pool, uintptr_t address, struct hoist__block *ret)
{
	int err = -ENOENT;
	pthread_mutex_lock(&pool->lock);
	const struct hoist__span *span = hoist__spans_around(&pool->spans, address);
	if (span != NULL && address - span->address < span->requested) {
		*ret = block_of(span);
		err = 0;
	}
	pthread_mutex_unlock(&pool->lock);
	return err == 0 ? 0
			: hoist__fail(err, "%#zx lies in no block of this pool", (size_t)address);
}

void hoist__pool_trim(struct hoist__pool *pool, size_t keep_bytes)
{
	struct hoist__doomed doomed;
	hoist__list_init(&doomed.regions);
	doomed.bytes = 0;
	pthread_mutex_lock(&pool->lock);
	hoist__pool_doom(pool, keep_bytes, &doomed);
	hoist__pool_destroy_doomed(pool, &doomed);
	pthread_mutex_unlock(&pool->lock);
}

void hoist__pool_stats(struct hoist__pool *pool, struct hoist__pool_stats *ret)
{
	pthread_mutex_lock(&pool->lock);
	*ret = pool->stats;
	pthread_mutex_unlock(&pool->lock);
}

void hoist__pool_reset_peak(struct hoist__pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->stats.reserved_peak_bytes = pool->stats.reserved_bytes;
	pthread_mutex_unlock(&pool->lock);
}
