/* SPDX-License-Identifier: MIT */
/* Helpers of the tests of heaps over pools. */
#ifndef HOIST_TESTS_ALLOC_HEAP_H
#define HOIST_TESTS_ALLOC_HEAP_H

#include "alloc/heap.h"
#include "tests/support/alloc-support.h"

static inline struct hoist__pool *new_pool(enum hoist__memory_kind kind, size_t limit)
{
	struct hoist__pool_options options = {
		.kind = kind,
		.region_bytes = 2 * HOIST__MIB,
		.limit_bytes = limit,
	};
	return make_pool(&options);
}

static inline struct hoist__heap *new_heap(struct hoist__pool *pool)
{
	struct hoist__heap *heap;
	CHECK(hoist__heap_create(pool, &heap) == 0);
	return heap;
}

static inline size_t mapped_by(struct hoist__heap *heap)
{
	struct hoist__heap_stats stats;
	hoist__heap_stats(heap, &stats);
	return stats.mapped_bytes;
}

/* The heap has ended: the pool has everything back. */
static inline void end_pool(struct hoist__pool *pool)
{
	hoist__pool_trim(pool, 0);
	struct hoist__pool_stats stats = pool_stats(pool);
	CHECK(stats.n_blocks == 0 && stats.requested_bytes == 0);
	CHECK(stats.n_regions == 0 && stats.reserved_bytes == 0);
	hoist__pool_unref(pool);
}

static inline void end_both(struct hoist__heap *heap, struct hoist__pool *pool)
{
	hoist__heap_destroy(heap);
	end_pool(pool);
}

static inline void free_all(struct hoist__heap *heap, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(hoist__heap_free(heap, blocks[i]) == 0);
}

#endif
