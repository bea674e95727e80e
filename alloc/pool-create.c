/* SPDX-License-Identifier: MIT */
/* alloc/pool-create.c - makes a pool, and ends it.
 * The contract is in alloc/pool.h and alloc/pool-private.h. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/deferred.h"
#include "alloc/pool-private.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define HOST_QUANTUM_SHIFT 6
#define DEVICE_QUANTUM_SHIFT 8
#define DEFAULT_REGION_BYTES (32 * HOIST__MIB)
#define SHARDS_MOST 128 /* of some 18 KiB each */

const char *hoist__memory_kind_name(enum hoist__memory_kind kind)
{
	switch (kind) {
	case HOIST__MEMORY_PINNED:
		return "pinned";
	case HOIST__MEMORY_DEVICE:
		return "device";
	case HOIST__MEMORY_MANAGED:
		return "managed";
	case HOIST__MEMORY_HOST:
		break;
	}
	return "host";
}

static int check_pool_options(const struct hoist__pool_options *options)
{
	const struct hoist__placement *placement = &options->placement;
	if ((unsigned)options->kind > HOIST__MEMORY_MANAGED)
		return hoist__fail(-EINVAL, "memory kind %d", (int)options->kind);
	if (!hoist__memory_is_host(options->kind) && options->dev == NULL)
		return hoist__fail(-EINVAL, "a pool of %s memory needs a device",
				   hoist__memory_kind_name(options->kind));
	if (hoist__memory_is_host(options->kind) && placement->policy != HOIST__POLICY_LOCAL &&
	    hoist__nodeset_first(&placement->nodes) < 0)
		return hoist__fail(-EINVAL, "placing memory: the set of nodes is empty");
	return 0;
}

static void fill_in(struct hoist__pool *pool, const struct hoist__pool_options *options)
{
	pool->options = *options;
	if (pool->options.region_bytes == 0)
		pool->options.region_bytes = DEFAULT_REGION_BYTES;
	if (pool->options.exhausted_retries == 0)
		pool->options.exhausted_retries = 1;
	if (options->source != NULL) {
		pool->source = *options->source;
		pool->options.source = &pool->source;
	}
	if (options->budget != NULL)
		hoist__budget_ref(options->budget);
	if (options->device_budget != NULL)
		hoist__budget_ref(options->device_budget);
	pool->quantum_shift =
		hoist__memory_is_host(options->kind) ? HOST_QUANTUM_SHIFT : DEVICE_QUANTUM_SHIFT;
	pool->cache_bytes = options->cache_bytes == 0 ? HOIST__CACHE_BYTES : options->cache_bytes;
	pool->counts = !options->no_stats;
	pool->piece_most = SIZE_MAX;
	atomic_init(&pool->n_refs, 1);
	hoist__list_init(&pool->regions);
}

/* A slab takes at most half a region, or half of a limit that is less: a block below the limit must
 * not fail because its slab exceeds the limit. */
static size_t slab_granules(const struct hoist__pool *pool)
{
	size_t most = pool->options.region_bytes / 2 / HOIST__GRANULE_BYTES;
	size_t limit = pool->options.limit_bytes / 2 / HOIST__GRANULE_BYTES;
	if (pool->options.limit_bytes == 0)
		return most;
	return hoist__min_u64(most, hoist__max_u64(limit, 1));
}

/* Blocks take less than a slab: the classes end before the first size that does not fit. */
static void choose_classes(struct hoist__pool *pool)
{
	size_t most = slab_granules(pool);
	for (unsigned i = 0; i < HOIST__CLASSES_MOST; i++) {
		size_t bytes = hoist__class_bytes(i, pool->quantum_shift);
		if (bytes > HOIST__CLASS_MOST_BYTES || hoist__pool_wants_own(pool, bytes) ||
		    !hoist__class_possible(bytes, most))
			break;
		HOIST__ASSERT(bytes > pool->slab_most && bytes % hoist__quantum(pool) == 0);
		HOIST__ASSERT(hoist__class_of(bytes, pool->quantum_shift) == i);
		pool->slab_most = bytes;
		pool->n_classes = i + 1;
	}
}

static void done_classes(struct hoist__pool *pool)
{
	for (unsigned i = 0; i < pool->n_shards * pool->n_classes; i++)
		hoist__class_done(&pool->shards[i / pool->n_classes].classes[i % pool->n_classes]);
}

static void init_shards(struct hoist__pool *pool)
{
	size_t most = slab_granules(pool);
	for (unsigned i = 0; i < pool->n_shards; i++) {
		hoist__spans_init(&pool->shards[i].spans);
		for (unsigned j = 0; j < pool->n_classes; j++)
			hoist__class_init(&pool->shards[i].classes[j], j,
					  hoist__class_bytes(j, pool->quantum_shift), most);
	}
}

static int init_locks(struct hoist__pool *pool)
{
	pthread_mutex_t *locks[] = {&pool->lock, &pool->trace_lock, &pool->caches_lock};
	size_t n = 0;
	int err = pthread_cond_init(&pool->changed, NULL);
	if (err != 0)
		return hoist__fail_errno(-err, "creating a pool");
	while (n < 3 && (err = pthread_mutex_init(locks[n], NULL)) == 0)
		n++;
	if (err == 0)
		return 0;
	while (n-- > 0)
		pthread_mutex_destroy(locks[n]);
	pthread_cond_destroy(&pool->changed);
	return hoist__fail_errno(-err, "creating a pool");
}

static void done_locks(struct hoist__pool *pool)
{
	pthread_mutex_destroy(&pool->caches_lock);
	pthread_mutex_destroy(&pool->trace_lock);
	pthread_cond_destroy(&pool->changed);
	pthread_mutex_destroy(&pool->lock);
}

static void free_pool(struct hoist__pool *pool)
{
	hoist__budget_unref(pool->options.budget);
	hoist__budget_unref(pool->options.device_budget);
	free(pool);
}

/* Returns: one shard for each CPU that the program may run on, at most SHARDS_MOST.  The calling
 * thread may have fewer CPUs, so the main thread is asked. */
static unsigned count_shards(void)
{
	cpu_set_t set;
	if (sched_getaffinity(getpid(), sizeof set, &set) != 0)
		return SHARDS_MOST;
	unsigned n = (unsigned)CPU_COUNT(&set);
	return n < SHARDS_MOST ? n : SHARDS_MOST;
}

static int init_watch(struct hoist__pool *pool)
{
	bool host = hoist__memory_is_host(pool->options.kind);
	if (pool->options.debug == 0 && !(host && hoist__watch_annotates()))
		return 0;
	const struct hoist__watch_options options = {
		.kind = pool->options.kind,
		.dev = pool->options.dev,
		.debug = pool->options.debug,
	};
	hoist__pool_set_slow(pool, HOIST__SLOW_WATCHED, true);
	return hoist__watch_create(&options, &pool->watch);
}

/* Joining the list of pools is last: from then on a fork or a yield may find the pool. */
int hoist__pool_create(const struct hoist__pool_options *options, struct hoist__pool **ret)
{
	int err = check_pool_options(options);
	if (err != 0)
		return err;
	unsigned n_shards = count_shards();
	size_t size = sizeof(struct hoist__pool) + n_shards * sizeof(struct hoist__shard);
	struct hoist__pool *pool = aligned_alloc(64, hoist__round_up(size, 64));
	if (pool == NULL)
		return hoist__fail_nomem("pool", size);
	memset(pool, 0, size);
	fill_in(pool, options);
	pool->n_shards = n_shards;
	choose_classes(pool);
	err = init_locks(pool);
	if (err != 0) {
		free_pool(pool);
		return err;
	}
	init_shards(pool);
	err = hoist__caches_join(pool);
	if (err == 0 && (err = init_watch(pool)) != 0)
		hoist__caches_leave(pool);
	if (err == 0 && (err = hoist__pools_join(pool)) != 0)
		hoist__caches_leave(pool);
	if (err != 0) {
		hoist__watch_destroy(pool->watch);
		done_classes(pool);
		done_locks(pool);
		free_pool(pool);
		return err;
	}
	HOIST__ASSERT(pool->number == pool->index + 1 && pool->n_shards != 0);
	*ret = pool;
	return 0;
}

struct hoist__pool *hoist__pool_ref(struct hoist__pool *pool)
{
	HOIST__ASSERT(atomic_load(&pool->n_refs) != 0);
	atomic_fetch_add_explicit(&pool->n_refs, 1, memory_order_relaxed);
	return pool;
}

bool hoist__pool_try_ref(struct hoist__pool *pool)
{
	size_t refs = atomic_load(&pool->n_refs);
	while (refs != 0)
		if (atomic_compare_exchange_weak(&pool->n_refs, &refs, refs + 1))
			return true;
	return false;
}

const struct hoist__pool_options *hoist__pool_options_of(const struct hoist__pool *pool)
{
	return &pool->options;
}

uint32_t hoist__pool_number(const struct hoist__pool *pool)
{
	return pool->number;
}

/* Slabs with blocks that were never freed still have their descriptors. */
static void end_slabs(const struct hoist__extent *extent)
{
	for (size_t i = 0; i < extent->n; i++) {
		struct hoist__granule *granule = hoist__granule_at(extent->base, i);
		struct hoist__slab *slab = atomic_load(&granule->slab);
		HOIST__ASSERT(slab == NULL || slab->class_index < slab->pool->n_classes);
		if (slab != NULL && slab->base == extent->base + (i << HOIST__GRANULE_SHIFT))
			hoist__class_return_spare(slab->class, slab);
		atomic_store(&granule->slab, NULL);
		atomic_store(&granule->state, 0);
	}
}

static void end_regions(struct hoist__pool *pool)
{
	struct hoist__list *link;
	while ((link = hoist__list_pop(&pool->regions)) != NULL) {
		struct hoist__pool_region *holder =
			HOIST__CONTAINER_OF(link, struct hoist__pool_region, link);
		for (size_t i = 0; i < holder->n_extents; i++)
			if (!holder->extents[i]->extent.empty)
				end_slabs(&holder->extents[i]->extent);
		hoist__pool_region_destroy(pool, holder);
	}
}

/* The order matters: streams and the quarantine give blocks back to slabs, slabs give spans back to
 * regions, and only then do the regions end. */
void hoist__pool_unref(struct hoist__pool *pool)
{
	HOIST__ASSERT(pool == NULL || atomic_load(&pool->n_refs) != 0);
	if (pool == NULL || atomic_fetch_sub(&pool->n_refs, 1) != 1)
		return;
	/* The memory and the driver's objects are the parent's, so the pool is left as it is. */
	if (hoist__pool_is_stale(pool))
		return;
	hoist__pool_drain_streams(pool);
	/* The lock keeps this from happening while a fork holds the locks. */
	pthread_mutex_lock(&pool->lock);
	struct hoist__deferred *deferred = atomic_exchange(&pool->deferred, NULL);
	pthread_mutex_unlock(&pool->lock);
	hoist__deferred_destroy(deferred);
	(void)hoist__pool_trace(pool, NULL);
	while (pool->watch != NULL && hoist__pool_watched_empty(pool))
		;
	/* The trim also gives the slabs' descriptors back to their classes. */
	hoist__pool_trim(pool, 0);
	/* As long as the forking thread has a cache, a child of fork must find the pool. */
	hoist__caches_part(pool);
	hoist__pool_unlist(pool);
	hoist__pools_part(pool);
	HOIST__ASSERT(pool->growing == 0 && pool->releasing == 0 && !pool->one_grows);
	HOIST__ASSERT(hoist__list_empty(&pool->caches) && pool->trace == NULL);
	HOIST__ASSERT(atomic_load(&pool->empty_bytes) <= pool->reserved);
	if (atomic_load(&pool->empty_bytes) != pool->reserved)
		hoist__log(alloc, "a pool ends with blocks in use");
	end_regions(pool);
	hoist__caches_leave(pool);
	hoist__watch_destroy(pool->watch);
	done_classes(pool);
	done_locks(pool);
	free_pool(pool);
}
