/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/figure.h"
#include "alloc/pool-private.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

int hoist__pool_need_spares(struct hoist__pool *pool)
{
	while (pool->spans.n_spares < HOIST__SPANS_NEEDED) {
		pthread_mutex_unlock(&pool->lock);
		struct hoist__span_chunk *chunk = hoist__span_chunk_create();
		pthread_mutex_lock(&pool->lock);
		if (chunk == NULL)
			return -ENOMEM;
		hoist__spans_give(&pool->spans, chunk);
	}
	return 0;
}

bool hoist__pool_wants_own(const struct hoist__pool *pool, const struct hoist__want *want)
{
	return want->bytes >= pool->options.region_bytes / 2;
}

void hoist__pool_doom_one(struct hoist__pool *pool, struct hoist__extent *extent,
			  struct hoist__doomed *doomed)
{
	struct hoist__pool_region *holder =
		HOIST__CONTAINER_OF(extent, struct hoist__pool_region, extent);
	hoist__spans_remove(&pool->spans, extent);
	hoist__list_remove(&holder->link);
	hoist__list_push_back(&doomed->regions, &holder->link);
	doomed->bytes += extent->bytes;
	pool->releasing += extent->bytes;
	pool->stats.n_regions--;
}

void hoist__pool_doom(struct hoist__pool *pool, size_t keep_bytes, struct hoist__doomed *doomed)
{
	while (pool->spans.empty_bytes > keep_bytes)
		hoist__pool_doom_one(pool, hoist__spans_largest_empty(&pool->spans), doomed);
}

void hoist__pool_destroy_doomed(struct hoist__pool *pool, struct hoist__doomed *doomed)
{
	if (doomed->bytes == 0)
		return;
	pthread_mutex_unlock(&pool->lock);
	struct hoist__list *link;
	while ((link = hoist__list_pop(&doomed->regions)) != NULL) {
		struct hoist__pool_region *holder =
			HOIST__CONTAINER_OF(link, struct hoist__pool_region, link);
		hoist__region_destroy(holder->region);
		free(holder);
	}
	pthread_mutex_lock(&pool->lock);
	pool->releasing -= doomed->bytes;
	pool->stats.reserved_bytes -= doomed->bytes;
	doomed->bytes = 0;
	pthread_cond_broadcast(&pool->changed);
}

/* One growth on its way. */
struct growth {
	struct hoist__pool *pool;
	const struct hoist__want *want;
	struct hoist__region_options options;
	size_t bound; /* what the region may take of the limit */
	bool whole;   /* the block gets all of the region */
	bool shared;  /* others wait for it */
};

/* The bytes of a region that fits @want and no more.  Host regions are aligned
 * to all that a want may ask for, device memory to the granule. */
static size_t exact_bytes(const struct hoist__pool *pool, const struct hoist__want *want)
{
	bool device = pool->options.kind == HOIST__MEMORY_DEVICE;
	size_t slack = device && want->align > pool->granule ? want->align - pool->granule : 0;
	return want->bytes + slack;
}

static void set_bytes(struct growth *growth, size_t bytes)
{
	growth->options.bytes = bytes;
	growth->bound = hoist__region_bound(&growth->options);
}

static size_t room(const struct hoist__pool *pool)
{
	size_t limit = pool->options.limit_bytes;
	return limit == 0 ? SIZE_MAX : limit - pool->stats.reserved_bytes - pool->pending;
}

/* Chooses the region's size: that of shared regions, or as much of it as the
 * limit leaves, or exactly what is wanted. */
static void plan(struct growth *growth, unsigned flags)
{
	struct hoist__pool *pool = growth->pool;
	growth->options = (struct hoist__region_options){
		.kind = pool->options.kind,
		.dev = pool->options.dev,
		.placement = pool->options.placement,
		.hugetlb = pool->options.hugetlb,
		.lazy = (flags & HOIST__ALLOC_LAZY) != 0,
	};
	size_t exact = exact_bytes(pool, growth->want);
	growth->shared = !growth->options.lazy && !hoist__pool_wants_own(pool, growth->want);
	growth->whole = !growth->shared && exact == growth->want->bytes;
	if (growth->shared) {
		size_t unit = pool->options.hugetlb ? HOIST__HUGE_PAGE_BYTES : HOIST__KIB * 64;
		size_t most = hoist__round_down(room(pool), unit);
		size_t bytes = (size_t)hoist__min_u64(pool->options.region_bytes, most);
		set_bytes(growth, (size_t)hoist__max_u64(bytes, exact));
	} else {
		set_bytes(growth, exact);
	}
}

static int over_limit(const struct growth *growth)
{
	const struct hoist__pool *pool = growth->pool;
	return hoist__fail(-EDQUOT, "the pool's limit is %s: %s asked, %s reserved, %s in use",
			   hoist__figure(pool->options.limit_bytes).text,
			   hoist__figure(growth->want->requested).text,
			   hoist__figure(pool->stats.reserved_bytes).text,
			   hoist__figure(pool->stats.allocated_bytes).text);
}

/* Gives back what is empty.  Returns true if there was anything. */
static bool release_empty(struct hoist__pool *pool)
{
	struct hoist__doomed doomed;
	hoist__list_init(&doomed.regions);
	doomed.bytes = 0;
	hoist__pool_doom(pool, 0, &doomed);
	bool any = doomed.bytes != 0;
	hoist__pool_destroy_doomed(pool, &doomed);
	return any;
}

/* Finds room below the limit.  Returns: 0; 1 try again; -EDQUOT. */
static int make_room(const struct growth *growth)
{
	struct hoist__pool *pool = growth->pool;
	if (growth->bound <= room(pool))
		return 0;
	size_t limit = pool->options.limit_bytes;
	if (growth->bound <= limit) {
		if (release_empty(pool))
			return 1;
		if (pool->releasing > 0 || pool->pending > 0) {
			pthread_cond_wait(&pool->changed, &pool->lock);
			return 1;
		}
	}
	return over_limit(growth);
}

/* Creates the region without the lock; what it may take of the limit is pending
 * meanwhile. */
static int create_region(struct growth *growth, struct hoist__pool_region **ret)
{
	struct hoist__pool *pool = growth->pool;
	pool->pending += growth->bound;
	pool->growing = pool->growing || growth->shared;
	pthread_mutex_unlock(&pool->lock);
	struct hoist__pool_region *holder = calloc(1, sizeof *holder);
	int err = holder != NULL ? hoist__region_create(&growth->options, &holder->region)
				 : hoist__fail_nomem("pool region", sizeof *holder);
	pthread_mutex_lock(&pool->lock);
	pool->pending -= growth->bound;
	if (growth->shared)
		pool->growing = false;
	pthread_cond_broadcast(&pool->changed);
	if (err != 0) {
		free(holder);
		return err;
	}
	*ret = holder;
	return 0;
}

static void add_region(struct growth *growth, struct hoist__pool_region *holder)
{
	struct hoist__pool *pool = growth->pool;
	const struct hoist__region *region = holder->region;
	holder->extent = (struct hoist__extent){
		.base = region->base,
		.bytes = region->bytes,
		.keep = !region->options.lazy,
	};
	hoist__list_push_back(&pool->regions, &holder->link);
	hoist__spans_add(&pool->spans, &holder->extent);
	struct hoist__pool_stats *stats = &pool->stats;
	stats->n_regions++;
	stats->reserved_bytes += region->bytes;
	if (stats->reserved_bytes > stats->reserved_peak_bytes)
		stats->reserved_peak_bytes = stats->reserved_bytes;
	for (int step = 0; step < HOIST__N_STEPS; step++)
		stats->step_ns[step] += region->step_ns[step];
}

/* Creates the region; where memory is short, gives back what lies empty, and
 * then makes do with an exact one. */
static int create_or_less(struct growth *growth, struct hoist__pool_region **ret)
{
	struct hoist__pool *pool = growth->pool;
	int err = create_region(growth, ret);
	if (err != -ENOMEM && err != -ENOSPC)
		return err;
	/* What the first failure said is the cause, whatever follows. */
	int first_err = err;
	char cause[HOIST__ERROR_BYTES];
	hoist__error_copy(cause, sizeof cause);
	size_t exact = exact_bytes(pool, growth->want);
	bool less = growth->shared && growth->options.bytes > exact;
	if (release_empty(pool) && growth->bound <= room(pool))
		err = create_region(growth, ret);
	if (err != 0 && less) {
		set_bytes(growth, exact);
		if (growth->bound <= room(pool))
			err = create_region(growth, ret);
	}
	return err == 0 ? 0 : hoist__fail(first_err, "%s", cause);
}

int hoist__pool_grow(struct hoist__pool *pool, const struct hoist__want *want, unsigned flags,
		     struct hoist__span **ret)
{
	struct growth growth = {.pool = pool, .want = want};
	plan(&growth, flags);
	if (growth.shared && pool->growing) {
		pthread_cond_wait(&pool->changed, &pool->lock);
		return 1;
	}
	int err = make_room(&growth);
	if (err != 0)
		return err;
	struct hoist__pool_region *holder;
	err = create_or_less(&growth, &holder);
	if (err != 0)
		return err;
	/* Others may have used the spares up meanwhile; ask anew. */
	pool->pending += growth.bound;
	err = hoist__pool_need_spares(pool);
	if (err != 0) {
		pthread_mutex_unlock(&pool->lock);
		hoist__region_destroy(holder->region);
		free(holder);
		pthread_mutex_lock(&pool->lock);
	}
	pool->pending -= growth.bound;
	pthread_cond_broadcast(&pool->changed);
	if (err != 0)
		return err;
	add_region(&growth, holder);
	*ret = hoist__spans_take_from(&pool->spans, &holder->extent, want, growth.whole);
	assert(*ret != NULL); /* the plan made it large and aligned enough */
	return 0;
}
