/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-heap.c - HEAP: takes host memory from a jemalloc arena over a pool of our own.
 * The contract is in lib/memory/memory.h.
 *
 * The pool is registered with the device's driver, unless the device is the CPU. */
#include "config.h"

#include "alloc/heap.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/memory/memory.h"
#include "lib/memory/snapshot.h"

struct heap_memory {
	hoist_memory memory;
	struct hoist__pool *pool; /* not the resource's xpool, as its blocks are not the caller's */
	struct hoist__heap *heap;
};

static struct heap_memory *heap_of(hoist_memory *memory)
{
	return (struct heap_memory *)memory;
}

static int heap_init(hoist_memory *memory)
{
	struct heap_memory *heap = heap_of(memory);
	int err = hoist__memory_make_pool(memory, &heap->pool);
	if (err < 0)
		return err;
	err = hoist__heap_create(heap->pool, &heap->heap);
	if (err < 0)
		hoist__pool_unref(heap->pool);
	return err;
}

static bool heap_done(hoist_memory *memory)
{
	struct heap_memory *heap = heap_of(memory);
	hoist__heap_destroy(heap->heap);
	hoist__pool_unref(heap->pool);
	return true;
}

/* No stream uses a new block, so @stream need not be known. */
static int heap_alloc(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		      uintptr_t *ret)
{
	(void)stream;
	return hoist__heap_alloc(heap_of(memory)->heap, bytes, align, ret);
}

/* jemalloc knows no streams, so @stream is waited for. */
static int heap_free(hoist_memory *memory, uintptr_t address, hoist_stream *stream)
{
	int err = stream != NULL ? hoist_stream_synchronize(stream) : 0;
	return err < 0 ? err : hoist__heap_free(heap_of(memory)->heap, address);
}

/* Gives the start of the extent around @address.  That serves as well as the block, as the extent
 * is registered as a whole. */
static int heap_block_of(hoist_memory *memory, uintptr_t address, uintptr_t *ret)
{
	struct hoist__block block;
	if (hoist__pool_find(heap_of(memory)->pool, address, &block) < 0)
		return -EINVAL; /* the text is set */
	*ret = block.address;
	return 0;
}

static int heap_trim(hoist_memory *memory, size_t keep_bytes)
{
	hoist__heap_trim(heap_of(memory)->heap, keep_bytes);
	return 0;
}

/* The pool's blocks are jemalloc's extents.  Only jemalloc knows how much of them is in use. */
static int heap_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	struct heap_memory *heap = heap_of(memory);
	struct hoist__heap_stats stats;
	hoist__memory_pool_statistics(heap->pool, ret);
	hoist__heap_stats(heap->heap, &stats);
	uint64_t extents = ret->allocated_bytes;
	ret->requested_bytes = 0;
	ret->requested_peak = 0;
	ret->allocated_bytes = hoist__min_u64(stats.allocated_bytes, extents);
	ret->cached_bytes += extents - ret->allocated_bytes;
	ret->n_allocs = stats.n_allocs;
	ret->n_frees = stats.n_frees;
	ret->n_blocks = stats.n_allocs - hoist__min_u64(stats.n_allocs, stats.n_frees);
	return 0;
}

static int heap_reset_peaks(hoist_memory *memory)
{
	hoist__pool_reset_peak(heap_of(memory)->pool);
	return 0;
}

static int heap_collect(hoist_memory *memory, struct hoist__snapshot *snapshot)
{
	return hoist__snapshot_pool(snapshot, heap_of(memory)->pool);
}

const struct hoist__memory_ops hoist__memory_heap_ops = {
	.bytes = sizeof(struct heap_memory),
	.asks_again = true,
	.init = heap_init,
	.done = heap_done,
	.alloc = heap_alloc,
	.free = heap_free,
	.block_of = heap_block_of,
	.trim = heap_trim,
	.statistics = heap_statistics,
	.reset_peaks = heap_reset_peaks,
	.collect = heap_collect,
};
