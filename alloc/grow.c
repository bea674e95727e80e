/* SPDX-License-Identifier: MIT */
/* alloc/grow.c - grows a pool by a region, within limits and budgets.
 * The contract is in alloc/pool-private.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"

bool hoist__pool_wants_own(const struct hoist__pool *pool, size_t bytes)
{
	return bytes >= pool->options.region_bytes / 2 || bytes > pool->piece_most;
}

/* --- growing --- */

/* The state of one growth. */
struct growth {
	struct hoist__pool *pool;
	struct hoist__shard *shard;
	const struct hoist__want *want;
	struct hoist__region_options options;
	size_t bound;  /* the bytes that the region may take of the limit */
	bool whole;    /* the block gets all of the region */
	bool shared;   /* other threads wait for the region */
	bool may_wait; /* for the budget */
	bool wait;     /* wait for the budget now, as nothing else helped */
};

/* Returns: the bytes of a region that fits the want and no more.  Host regions have any alignment
 * that a want may ask for, and are exact to the page.  Other regions have the alignment of the
 * granule. */
static size_t exact_bytes(const struct growth *growth)
{
	const struct hoist__pool *pool = growth->pool;
	if (hoist__memory_is_host(pool->options.kind) && pool->options.source == NULL)
		return growth->want->bytes;
	return (growth->want->n + growth->want->align - 1) << HOIST__GRANULE_SHIFT;
}

static void set_bytes(struct growth *growth, size_t bytes)
{
	growth->options.bytes = bytes;
	growth->bound = hoist__region_bound(&growth->options);
	HOIST__ASSERT(growth->bound >= bytes);
}

/* Never below 0: a growth is begun only if its bound fits into the room. */
static size_t room(const struct hoist__pool *pool)
{
	size_t limit = pool->options.limit_bytes;
	HOIST__ASSERT(hoist__mutex_held(&pool->lock) && pool->releasing <= pool->reserved);
	HOIST__ASSERT(limit == 0 || hoist__pool_held(pool) + pool->growing <= limit);
	return limit == 0 ? SIZE_MAX : limit - hoist__pool_held(pool) - pool->growing;
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
		.no_thp = pool->options.no_thp,
		.prefer = pool->options.prefer,
		.prefer_node = pool->options.prefer_node,
		.unpopulated = (flags & HOIST__ALLOC_UNPOPULATED) != 0,
		.source = pool->options.source,
		.calls = &pool->calls,
	};
	growth->may_wait = pool->options.budget != NULL && pool->options.budget_wait_ns != 0 &&
			   (flags & HOIST__GROW_AT_ONCE) == 0;
	size_t exact = exact_bytes(growth);
	bool slab = growth->want->kind == HOIST__SPAN_SLAB;
	growth->shared = slab || (!growth->options.unpopulated &&
				  !hoist__pool_wants_own(pool, growth->want->bytes));
	growth->whole = !growth->shared && growth->want->align == 1;
	if (growth->shared) {
		size_t unit = pool->options.hugetlb ? HOIST__HUGE_PAGE_BYTES : HOIST__GRANULE_BYTES;
		size_t most = hoist__round_down(room(pool), unit);
		size_t bytes =
			hoist__min_u64(hoist__round_up(pool->options.region_bytes, unit), most);
		set_bytes(growth, hoist__max_u64(bytes, exact));
	} else {
		growth->options.piece_bytes = SIZE_MAX;
		set_bytes(growth, exact);
	}
	/* Bytes beyond the request must not take the last memory that others could have had. */
	if (growth->options.bytes > exact)
		growth->options.spare_bytes = growth->options.bytes;
	HOIST__ASSERT(growth->options.bytes >= growth->want->bytes);
}

static int over_limit(const struct growth *growth)
{
	const struct hoist__pool *pool = growth->pool;
	return hoist__fail(-EDQUOT, "the pool's limit is %s: %s asked, %s reserved, %s of it empty",
			   hoist__figure(pool->options.limit_bytes).text,
			   hoist__figure(growth->want->bytes).text,
			   hoist__figure(hoist__pool_held(pool)).text,
			   hoist__figure(atomic_load(&pool->empty_bytes)).text);
}

/* Releases empty regions, dropping the lock.  Returns: true if there was one. */
static bool release_empty(struct hoist__pool *pool)
{
	struct hoist__doomed doomed;
	hoist__doomed_init(&doomed);
	hoist__pool_doom(pool, 0, &doomed);
	if (doomed.bytes == 0)
		return false;
	pthread_mutex_unlock(&pool->lock);
	hoist__pool_destroy_doomed(pool, &doomed);
	pthread_mutex_lock(&pool->lock);
	return true;
}

/* Finds room below the limit.  Returns: 0; 1: try again; -EDQUOT. */
static int make_room(const struct growth *growth)
{
	struct hoist__pool *pool = growth->pool;
	if (growth->bound <= room(pool))
		return 0;
	size_t limit = pool->options.limit_bytes;
	if (growth->bound <= limit) {
		if (release_empty(pool))
			return 1;
		if (pool->releasing > 0 || pool->growing > 0) {
			pthread_cond_wait(&pool->changed, &pool->lock);
			return 1;
		}
	}
	return over_limit(growth);
}

/* --- budgets --- */

static int charge_device(const struct growth *growth)
{
	struct hoist__budget *budget = growth->pool->options.device_budget;
	if (budget == NULL || hoist__budget_acquire(budget, growth->bound) == 0)
		return 0;
	size_t limit = hoist__budget_limit(budget);
	size_t used = hoist__budget_used(budget);
	return hoist__fail(-ENOSPC,
			   "the device's memory limit is %s: %s asked, %s in use, %s left; free "
			   "memory of the device, or choose a device with more",
			   hoist__figure(limit).text, hoist__figure(growth->bound).text,
			   hoist__figure(used).text,
			   hoist__figure(used < limit ? limit - used : 0).text);
}

static int charge_budget(const struct growth *growth, bool wait)
{
	struct hoist__pool *pool = growth->pool;
	struct hoist__budget *budget = pool->options.budget;
	if (budget == NULL)
		return 0;
	/* No caller waits for memory that other pools only keep. */
	if (wait)
		hoist__pools_yield(budget);
	int err = hoist__budget_acquire(budget, growth->bound);
	if (err == -EAGAIN && wait) {
		uint64_t start = hoist__now_ns();
		err = hoist__budget_acquire_wait(budget, growth->bound,
						 pool->options.budget_wait_ns);
		hoist__calls_add(&pool->calls, HOIST__CALL_WAIT, hoist__now_ns() - start);
	}
	if (err == 0)
		return 0;
	return hoist__fail(-EDQUOT,
			   "the budget's limit is %s: %s asked, %s in use; free memory of the "
			   "budget, or raise the budget",
			   hoist__figure(hoist__budget_limit(budget)).text,
			   hoist__figure(growth->bound).text,
			   hoist__figure(hoist__budget_used(budget)).text);
}

/* A growth that waits for the budget holds nothing of the device's budget meanwhile. */
static int charge(const struct growth *growth)
{
	struct hoist__budget *device = growth->pool->options.device_budget;
	int err = charge_device(growth);
	if (err != 0)
		return err;
	err = charge_budget(growth, false);
	if (err != 0 && device != NULL)
		hoist__budget_release(device, growth->bound);
	if (err == 0 || !growth->wait)
		return err;
	err = charge_budget(growth, true);
	if (err == 0 && (err = charge_device(growth)) != 0)
		hoist__budget_release(growth->pool->options.budget, growth->bound);
	return err;
}

/* --- creating --- */

/* Pre: no lock is held. */
static int make_region(const struct growth *growth, struct hoist__pool_region **ret)
{
	struct hoist__pool *pool = growth->pool;
	struct hoist__pool_region *holder = calloc(1, sizeof *holder);
	if (holder == NULL)
		return hoist__fail_nomem("pool region", sizeof *holder);
	bool ours = growth->options.given == 0;
	int err = ours ? charge(growth) : 0;
	if (err != 0) {
		free(holder);
		return err;
	}
	holder->charged = ours ? growth->bound : 0;
	err = hoist__region_create(&growth->options, &holder->region);
	if (err == 0 && (err = hoist__pool_extents_make(pool, holder)) != 0)
		hoist__region_destroy(holder->region);
	if (err != 0) {
		hoist__pool_uncharge(pool, holder->charged);
		free(holder);
		return err;
	}
	HOIST__ASSERT(holder->region->bytes <= growth->bound && !holder->listed);
	/* The bound was the most that the region might take. */
	if (holder->charged > holder->region->bytes) {
		hoist__pool_uncharge(pool, holder->charged - holder->region->bytes);
		holder->charged = holder->region->bytes;
	}
	if (pool->watch != NULL)
		hoist__watch_region(pool->watch, holder->region->base, holder->region->bytes);
	*ret = holder;
	return 0;
}

/* The lock is dropped meanwhile.  The bytes that the region may take of the limit are accounted
 * for. */
static int create_region(const struct growth *growth, struct hoist__pool_region **ret)
{
	struct hoist__pool *pool = growth->pool;
	HOIST__ASSERT(growth->bound <= room(pool));
	pool->growing += growth->bound;
	pool->one_grows = pool->one_grows || growth->shared;
	pthread_mutex_unlock(&pool->lock);
	int err = make_region(growth, ret);
	pthread_mutex_lock(&pool->lock);
	HOIST__ASSERT(pool->growing >= growth->bound);
	pool->growing -= growth->bound;
	if (growth->shared)
		pool->one_grows = false;
	pthread_cond_broadcast(&pool->changed);
	return err;
}

/* Adds the region to the pool, and takes @want from it, if that is not NULL.
 * Returns: the span; NULL also if the region was registered in pieces too small for the span. */
static struct hoist__granule *add_region(struct hoist__pool *pool, struct hoist__shard *shard,
					 struct hoist__pool_region *holder,
					 const struct hoist__want *want, bool whole)
{
	const struct hoist__region *region = holder->region;
	struct hoist__granule *span = NULL;
	HOIST__ASSERT(hoist__mutex_held(&pool->lock) && !holder->listed && holder->shard == NULL);
	HOIST__ASSERT(region->bytes <= room(pool));
	hoist__list_push_back(&pool->regions, &holder->link);
	hoist__pool_region_listed(pool, holder, true);
	holder->shard = shard;
	hoist__lock(&shard->lock);
	HOIST__ASSERT(holder->n_extents != 0);
	size_t before = shard->spans.empty_bytes;
	for (size_t i = 0; i < holder->n_extents; i++)
		hoist__spans_add(&shard->spans, &holder->extents[i]->extent);
	for (size_t i = 0; want != NULL && span == NULL && i < holder->n_extents; i++)
		span = hoist__spans_take_from(&shard->spans, &holder->extents[i]->extent, want,
					      whole);
	HOIST__ASSERT(span == NULL || (span->n >= want->n && span->kind == want->kind));
	if (span != NULL && want->kind == HOIST__SPAN_BLOCK)
		shard->large_bytes += hoist__span_bytes(span);
	HOIST__ASSERT(shard->spans.empty_bytes - before <= region->bytes);
	atomic_fetch_add(&pool->empty_bytes, shard->spans.empty_bytes - before);
	hoist__unlock(&shard->lock);
	atomic_store(&shard->n_borrows, 0);
	pool->n_regions++;
	pool->n_growths++;
	pool->reserved += region->bytes;
	HOIST__ASSERT(atomic_load(&pool->empty_bytes) <= pool->reserved);
	if (hoist__pool_held(pool) > pool->reserved_peak)
		pool->reserved_peak = hoist__pool_held(pool);
	for (int step = 0; step < HOIST__N_STEPS; step++)
		pool->step_ns[step] += region->step_ns[step];
	if (holder->n_extents > 1 && region->piece_bytes < atomic_load(&pool->piece_most))
		atomic_store(&pool->piece_most, region->piece_bytes);
	return span;
}

/* Creates the region.  If memory is short, releases empty regions, then tries a region of the exact
 * size, and at last waits for the budget. */
static int create_or_less(struct growth *growth, struct hoist__pool_region **ret)
{
	struct hoist__pool *pool = growth->pool;
	int err = create_region(growth, ret);
	if (!hoist__is_exhaustion(err))
		return err;
	/* The first failure is the cause that is reported, whatever follows.  But if the first
	 * failed with -ENOMEM, the failure of the exact region is reported: there may only have
	 * been nothing to spare. */
	int first_err = err;
	struct hoist__failure cause;
	hoist__failure_keep(&cause);
	size_t exact = exact_bytes(growth);
	HOIST__ASSERT(growth->options.bytes >= exact && !growth->wait);
	bool less = growth->shared && growth->options.bytes > exact;
	if (release_empty(pool) && growth->bound <= room(pool))
		err = create_region(growth, ret);
	if (err != 0 && less) {
		growth->options.spare_bytes = 0;
		set_bytes(growth, exact);
		if (growth->bound <= room(pool))
			err = create_region(growth, ret);
		if (err != 0 && first_err == -ENOMEM) {
			first_err = err;
			hoist__failure_keep(&cause);
		}
	}
	HOIST__ASSERT(hoist__mutex_held(&pool->lock) && err <= 0);
	growth->wait = growth->may_wait;
	if (err == -EDQUOT && growth->wait && growth->bound <= room(pool))
		err = create_region(growth, ret);
	return err == 0 ? 0 : hoist__fail_again(first_err, &cause);
}

/* Pre: the lock is held. */
static int grow(struct growth *growth, unsigned flags, struct hoist__granule **ret)
{
	struct hoist__pool *pool = growth->pool;
	plan(growth, flags);
	HOIST__ASSERT(growth->shared != growth->whole || growth->want->align > 1);
	if (growth->shared && pool->one_grows) {
		/* Another thread is making a shared region, which may have room for this want. */
		pthread_cond_wait(&pool->changed, &pool->lock);
		return 1;
	}
	/* Above the soft limit empty regions go first; that limit refuses no growth. */
	size_t soft = pool->options.soft_bytes;
	if (soft != 0 && hoist__pool_held(pool) + pool->growing + growth->bound > soft &&
	    release_empty(pool))
		return 1;
	int err = make_room(growth);
	if (err != 0)
		return err;
	struct hoist__pool_region *holder;
	err = create_or_less(growth, &holder);
	if (err != 0)
		return err;
	HOIST__ASSERT(holder->charged == holder->region->bytes);
	*ret = add_region(pool, growth->shard, holder, growth->want, growth->whole);
	/* The pieces are too small: the next try gets a region of its own. */
	return *ret != NULL ? 0 : 1;
}

int hoist__pool_grow(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret)
{
	struct growth growth = {.pool = pool, .shard = shard, .want = want};
	pthread_mutex_lock(&pool->lock);
	int err = grow(&growth, flags, ret);
	pthread_mutex_unlock(&pool->lock);
	return err;
}

/* The memory is not charged to budgets, and goes to the first shard. */
int hoist__pool_add_region(struct hoist__pool *pool, uintptr_t address, size_t bytes)
{
	uintptr_t base = hoist__round_up(address, HOIST__GRANULE_BYTES);
	uintptr_t end = hoist__round_down(address + bytes, HOIST__GRANULE_BYTES);
	if (address == 0 || address + bytes < address || base < address || base >= end)
		return hoist__fail(-EINVAL,
				   "adding %zu bytes at %#zx: no 64 KiB-aligned 64 KiB lie in them",
				   bytes, (size_t)address);
	if (pool->options.limit_bytes != 0)
		return hoist__fail(-EINVAL, "a resource with a limit takes no regions of others");
	struct growth growth = {.pool = pool};
	growth.options = (struct hoist__region_options){
		.kind = pool->options.kind,
		.dev = pool->options.dev,
		.given = base,
		.calls = &pool->calls,
	};
	set_bytes(&growth, end - base);
	struct hoist__pool_region *holder;
	int err = make_region(&growth, &holder);
	if (err != 0)
		return hoist__fail_in(err == -EEXIST ? -EINVAL : err, "adding %s at %#zx",
				      hoist__figure(end - base).text, (size_t)base);
	pthread_mutex_lock(&pool->lock);
	(void)add_region(pool, &pool->shards[0], holder, NULL, false);
	atomic_fetch_add(&pool->n_given, 1);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}
