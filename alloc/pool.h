/* SPDX-License-Identifier: MIT */
/* alloc/pool.h - blocks of one kind of memory, carved exactly from regions.
 *
 * A pool owns regions of one kind, on one device and placement, and hands out
 * blocks of them.  Sizes are exact up to the granule (64 B for host kinds, 256 B for
 * device memory); never a power of two.  A request of half a region or more
 * gets a region of its own.  Metadata lies outside the memory, which is never
 * touched by the pool (device memory cannot be, fresh memory should not be).
 *
 * Equation: requested <= allocated <= reserved; allocated + cached == reserved,
 * where `cached` is what regions hold that no block uses.
 *
 * Threads: any function from any thread.  No system or driver call is made under
 * the pool's lock; growing blocks only the threads that need the growth.
 * Reference counted: every Buffer's storage holds one.
 */
#ifndef HOIST_ALLOC_POOL_H
#define HOIST_ALLOC_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"

struct hoist__pool;

struct hoist__pool_options {
	enum hoist__memory_kind kind;
	struct hoist__dev *dev;            /* as in hoist__region_options */
	struct hoist__placement placement; /* host kinds */
	bool hugetlb;
	size_t limit_bytes;  /* reserved bytes never exceed it; 0: no limit */
	size_t region_bytes; /* size of shared regions; 0: 32 MiB */
	size_t keep_bytes;   /* empty regions kept for reuse, in bytes; more are released at once */
};

struct hoist__block {
	uintptr_t address;
	size_t bytes; /* as requested */
	int node;     /* NUMA node, where one is known; else -1 */
};

#define HOIST__ALLOC_LAZY 1u /* HOST: a region of its own, not populated; see hoist__populate() */

/* Returns: 0; -EINVAL; -ENOMEM. Reserves nothing yet. */
int hoist__pool_create(const struct hoist__pool_options *options, struct hoist__pool **ret);
struct hoist__pool *hoist__pool_ref(struct hoist__pool *pool);
/* Takes NULL.  The last reference releases all regions; blocks must be free. */
void hoist__pool_unref(struct hoist__pool *pool);

/* @bytes 1 and up; @align a power of two up to 2 MiB (0: the granule).
 * Content is undefined, except that LAZY blocks are zero.
 * Returns: 0; -EINVAL; -EDQUOT (the pool's limit; text has the figures);
 *   -ENOMEM; -ENOSPC (device); -EPERM (pinning); -ESTALE (a driver's memory in a
 *   child of fork). */
int hoist__pool_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      struct hoist__block *ret);

/* @address is the start of a live block of this pool.
 * Returns: 0; -EINVAL for any other address (double free, interior, foreign),
 *   with nothing changed. */
int hoist__pool_free(struct hoist__pool *pool, uintptr_t address);

/* The live block that contains @address; -ENOENT if none does. */
int hoist__pool_find(struct hoist__pool *pool, uintptr_t address, struct hoist__block *ret);

/* Releases empty regions until at most @keep_bytes of empty regions are left. */
void hoist__pool_trim(struct hoist__pool *pool, size_t keep_bytes);

struct hoist__pool_stats {
	size_t requested_bytes;  /* by live blocks */
	size_t allocated_bytes;  /* these, with rounding */
	size_t reserved_bytes;   /* in regions */
	size_t reserved_peak_bytes; /* since creation or the last peak reset */
	size_t n_blocks;
	size_t n_regions;
	uint64_t n_allocs; /* ever */
	uint64_t n_frees;
	uint64_t step_ns[HOIST__N_STEPS]; /* summed over regions ever created */
};

void hoist__pool_stats(struct hoist__pool *pool, struct hoist__pool_stats *ret);
void hoist__pool_reset_peak(struct hoist__pool *pool);

#endif
