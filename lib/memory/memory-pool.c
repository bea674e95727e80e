/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-pool.c - HOST, PINNED, DEVICE and MANAGED: takes memory from a pool of our own.
 * The contract is in lib/memory/memory.h. */
#include "config.h"

#include "base/error.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/memory/device-memory.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"

/* --- the pool --- */

/* Takes a region as a block of another resource. */
static int source_acquire(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	return hoist_memory_alloc(context, bytes, align, ret);
}

static void source_release(void *context, uintptr_t address, size_t bytes)
{
	(void)bytes;
	(void)hoist_memory_free(context, address); /* the region is a live block of that resource */
}

static enum hoist__memory_kind pool_kind(const hoist_memory *memory)
{
	switch (memory->options.kind) {
	case HOIST_MEMORY_PINNED:
		return HOIST__MEMORY_PINNED;
	case HOIST_MEMORY_MANAGED:
		return HOIST__MEMORY_MANAGED;
	case HOIST_MEMORY_HEAP:
		return hoist__device_is_cpu(memory->device) ? HOIST__MEMORY_HOST
							    : HOIST__MEMORY_PINNED;
	case HOIST_MEMORY_DEVICE:
		return hoist__device_is_cpu(memory->device) ? HOIST__MEMORY_HOST
							    : HOIST__MEMORY_DEVICE;
	default:
		return HOIST__MEMORY_HOST;
	}
}

_Static_assert((int)HOIST__PREFER_NODE == (int)HOIST_PREFER_HOST_NODE,
	       "both lists of locations have one order");

int hoist__memory_make_pool(hoist_memory *memory, struct hoist__pool **ret)
{
	const hoist_memory_options *o = &memory->options;
	const struct hoist__source source = {source_acquire, source_release, memory->upstream};
	enum hoist__memory_kind kind = pool_kind(memory);
	struct hoist__pool_options options = {
		.kind = kind,
		.dev = kind == HOIST__MEMORY_HOST ? NULL : memory->dev,
		.placement = memory->placement,
		.hugetlb = o->pages == HOIST_PAGES_HUGETLB,
		.no_thp = o->pages == HOIST_PAGES_SMALL,
		.prefer = (enum hoist__prefer)o->preferred_location,
		.prefer_node = o->preferred_node,
		.no_stats = (o->flags & HOIST_MEMORY_NO_STATISTICS) != 0,
		.debug = o->debug,
		.region_bytes = o->region_bytes,
		.keep_bytes = o->keep_bytes,
		.cache_bytes = o->cache_bytes,
		.limit_bytes = o->limit_bytes,
		.soft_bytes = o->soft_limit_bytes,
		.budget = memory->budget,
		.budget_wait_ns = o->budget_wait_ns,
		.exhausted = hoist__memory_exhausted,
		.exhausted_context = memory,
		.exhausted_retries = hoist__memory_retries(memory),
		.source = memory->upstream != NULL ? &source : NULL,
	};
	int err = 0;
	/* Memory from another resource is charged by that resource. */
	if (kind == HOIST__MEMORY_DEVICE && memory->upstream == NULL)
		err = hoist__device_budget(memory->device, &options.device_budget);
	return err < 0 ? err : hoist__pool_create(&options, ret);
}

/* Threads may make a pool at the same time; the first one stays. */
int hoist__memory_pool(hoist_memory *memory, struct hoist__pool **ret)
{
	struct hoist__pool *known = atomic_load(&memory->xpool);
	if (known == NULL) {
		struct hoist__pool *made;
		int err = hoist__memory_make_pool(memory, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&memory->xpool, &known, made))
			known = made;
		else
			hoist__pool_unref(made);
	}
	*ret = known;
	return 0;
}

static bool pool_done(hoist_memory *memory)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	if (pool == NULL)
		return true;
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	if (stats.allocated_bytes != 0)
		return false;
	hoist__pool_unref(pool);
	return true;
}

/* --- blocks --- */

static int pool_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		      uintptr_t *ret)
{
	struct hoist__pool *pool;
	int err = hoist__memory_pool(memory, &pool);
	if (err < 0)
		return err;
	return stream == NULL ? hoist__pool_alloc(pool, bytes, align, 0, ret)
			      : hoist__pool_alloc_on(pool, bytes, align,
						     hoist__stream_dev_stream(stream), ret);
}

/* Gives the pool, if there is one yet.  Without a pool there are no blocks. */
static int known_pool(hoist_memory *memory, uintptr_t address, struct hoist__pool **ret)
{
	*ret = atomic_load(&memory->xpool);
	return *ret != NULL
		       ? 0
		       : hoist__fail(-EINVAL, "%#zx: this resource has never given out a block",
				     (size_t)address);
}

static int pool_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct hoist__pool *pool;
	int err = known_pool(memory, address, &pool);
	if (err < 0)
		return err;
	return stream == NULL
		       ? hoist__pool_free(pool, address)
		       : hoist__pool_free_on(pool, address, hoist__stream_dev_stream(stream));
}

static int pool_use(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	struct hoist__pool *pool;
	int err = known_pool(memory, address, &pool);
	return err < 0 ? err : hoist__pool_use(pool, address, hoist__stream_dev_stream(stream));
}

static int pool_release_captured(hoist_memory *memory)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	return pool == NULL ? 0 : hoist__pool_release_captured(pool);
}

static int pool_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	struct hoist__pool *pool;
	struct hoist__block block;
	int err = known_pool(memory, address, &pool);
	if (err == 0 && hoist__pool_find(pool, address, &block) < 0)
		err = -EINVAL; /* the text is set */
	if (err == 0)
		*ret = block.address;
	return err;
}

static int pool_add_region(hoist_memory *memory, uintptr_t address, size_t bytes)
{
	if (memory->options.kind == HOIST_MEMORY_MANAGED)
		return hoist__fail(-ENOTSUP,
				   "managed memory is the driver's; there is none to add");
	struct hoist__pool *pool;
	int err = hoist__memory_pool(memory, &pool);
	return err < 0 ? err : hoist__pool_add_region(pool, address, bytes);
}

static int pool_trim(hoist_memory *memory, size_t keep_bytes)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	if (pool != NULL)
		hoist__pool_trim(pool, keep_bytes);
	return 0;
}

/* --- watching --- */

_Static_assert((int)HOIST__N_CALLS == (int)HOIST_N_CALLS, "both lists of calls have one order");

void hoist__memory_pool_statistics(struct hoist__pool *pool, hoist_memory_statistics *ret)
{
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	ret->requested_bytes = stats.requested_bytes;
	ret->requested_peak = stats.requested_peak_bytes;
	ret->allocated_bytes = stats.allocated_bytes;
	ret->cached_bytes = stats.cached_bytes;
	ret->pending_bytes = stats.pending_bytes;
	ret->reserved_bytes = stats.reserved_bytes;
	ret->reserved_peak = stats.reserved_peak_bytes;
	ret->largest_free_bytes = stats.largest_free_bytes;
	if (stats.free_bytes != 0)
		ret->fragmentation =
			1.0 - (double)stats.largest_free_bytes / (double)stats.free_bytes;
	ret->n_blocks = stats.n_blocks;
	ret->n_regions = stats.n_regions;
	ret->n_allocs = stats.n_allocs;
	ret->n_frees = stats.n_frees;
	ret->n_growths = stats.n_growths;
	ret->n_events = atomic_load(&stats.calls.of[HOIST__CALL_EVENT].n);
	for (int i = 0; i < HOIST_N_CALLS; i++) {
		ret->calls[i].n = atomic_load(&stats.calls.of[i].n);
		ret->calls[i].ns = atomic_load(&stats.calls.of[i].ns);
		ret->calls[i].longest_ns = atomic_load(&stats.calls.of[i].longest_ns);
	}
}

static int pool_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	if (pool != NULL)
		hoist__memory_pool_statistics(pool, ret);
	return 0;
}

static int pool_reset_peaks(hoist_memory *memory)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	if (pool != NULL)
		hoist__pool_reset_peak(pool);
	return 0;
}

static int pool_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	return pool == NULL ? 0 : hoist__snapshot_pool(snapshot, pool);
}

static int pool_trace(hoist_memory *memory, const char *path)
{
	struct hoist__pool *pool;
	int err = hoist__memory_pool(memory, &pool);
	return err < 0 ? err : hoist__pool_trace(pool, path);
}

const struct hoist__memory_ops hoist__memory_pool_ops = {
	.bytes = sizeof(hoist_memory),
	.asks_again = true,
	.done = pool_done,
	.alloc = pool_alloc,
	.free = pool_free,
	.use = pool_use,
	.release_captured = pool_release_captured,
	.block_of = pool_block_of,
	.add_region = pool_add_region,
	.trim = pool_trim,
	.statistics = pool_statistics,
	.reset_peaks = pool_reset_peaks,
	.collect = pool_collect,
	.trace = pool_trace,
};
