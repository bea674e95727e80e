/* SPDX-License-Identifier: MIT */
/* alloc/pool.h - blocks of one kind of memory, at the speed of a thread-local array.
 *
 * A pool owns regions of one kind, on one device and placement, and hands out blocks of them.  From
 * the caller down:
 *
 *   magazine  per thread and size class: an array of free blocks.  Allocating pops,
 *             freeing pushes; no lock, no read-modify-write that others see   magazine.h
 *   slab      blocks of one class (8 a doubling, up to 256 KiB) in a span, with a
 *             bitmap beside; refills and takes back magazines in batches      slab.h
 *   span      64 KiB granules of a region; two-level bitmap index, merged at
 *             once when free; larger blocks are spans                         spans.h
 *   region    memory from the system, a driver, or the caller                 region.h
 *
 * and beside these: granule.h (address -> what lies there), deferred.h (frees in stream order),
 * watch.h (debug levels, sanitizers), trace.h (traces).
 *
 * Files: these are one module, which shares the struct in pool-private.h and changes together:
 *
 *   pool-private.h, fast.h, magazine.[ch], pool.c, small.c, blocks.c, grow.c, reclaim.c,
 *   pool-create.c, pool-regions.c, pool-stats.c, pool-stream.c, pool-watched.c, pools.c,
 *   discard.c
 *
 * All others are leaves around the module, each behind a header of its own and without
 * pool-private.h.  The module calls these:
 *
 *   spans, slab, classes, granule     which memory is free, and what lies at an address
 *   deferred[-private,-table,-sweep,-end]
 *                                     blocks that streams still use
 *   watch, pattern, annotate; trace   debugging
 *   region, recipe[-populate], map, populate, pin
 *                                     memory from the system, a driver, or the caller
 *   budget, calls                     limits and counters
 *
 * heap[-private,-hooks,-cache] and jemalloc[-abi] stand on top of the pool, outside of the module.
 * The module calls none of them.
 * lib/memory/memory.c includes fast.h, to inline the fast paths.  books and shared serve lib/
 * alone, and do not know the pool.
 *
 * Invariants: requested <= allocated, allocated + cached + pending <= reserved.
 *
 * The state of a block is one word outside of the block: 0, or the bytes asked for with flags
 * (slab.h).  A free exchanges the word for 0.  A free that gets 0 back has freed nothing.  So a
 * double free is an error even when two threads race.
 *
 * Threads: any function from any thread.  No system or driver call is made under a lock.  Growth
 * blocks only the threads that need it.  Locks, in order: the pools' list, the threads', a
 * pool's caches, its trace, the pool, its classes, the spans; then deferred frees, watched blocks and the
 * page map.
 * fork: locks are held across it, so that a child's pools work.  Blocks that other threads had in
 * their magazines at that moment stay cached there.
 * Reference counted: every Buffer's storage holds a reference.
 */
#ifndef HOIST_ALLOC_POOL_H
#define HOIST_ALLOC_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/budget.h"
#include "alloc/calls.h"
#include "alloc/region.h"

struct hoist__pool;

/* Called without locks; see hoist_memory_exhausted in hoist/memory.h. */
typedef int hoist__exhausted(void *context, size_t bytes, unsigned attempt);

/* With less, threads that use many sizes at once keep going back to the slabs: 10,000 slots of
 * 64..4096 B take 2 ns more with 1 MiB. */
#define HOIST__CACHE_BYTES ((size_t)4 << 20)

struct hoist__pool_options {
	enum hoist__memory_kind kind;
	struct hoist__dev *dev;		   /* as in hoist__region_options */
	struct hoist__placement placement; /* host kinds */
	bool hugetlb;
	bool no_thp;
	enum hoist__prefer prefer; /* managed memory */
	int prefer_node;
	bool no_stats;	     /* blocks and requested bytes are not counted */
	unsigned debug;	     /* 0, 1 poison, 2 redzones and quarantine */
	size_t region_bytes; /* size of shared regions; 0: 32 MiB */
	size_t keep_bytes;   /* empty regions kept for reuse, in bytes; more are released at once */
	size_t cache_bytes;  /* in one thread's magazines; 0: HOIST__CACHE_BYTES; less than the
			      * quantum: none */
	size_t limit_bytes;  /* reserved bytes never exceed it; 0: no limit */
	size_t soft_bytes;   /* above it, growth first takes back pending, cached and empty
			      * memory */
	struct hoist__budget *budget; /* regions are charged to it; the pool takes a reference */
	uint64_t budget_wait_ns;
	struct hoist__budget *device_budget; /* the same, without waiting: the device's limit */
	hoist__exhausted *exhausted;
	void *exhausted_context;
	unsigned exhausted_retries;
	const struct hoist__source *source; /* where regions come from, instead of the system
					     * or driver; the pool takes a copy */
};

struct hoist__block {
	uintptr_t address;
	size_t bytes;	  /* as requested */
	size_t allocated; /* with rounding */
	int node;	  /* NUMA node of its region, where one is known; else -1 */
	const struct hoist__region *region;
};

#define HOIST__ALLOC_UNPOPULATED 1u /* HOST: a region of its own, not populated; see hoist__populate() */

/* Returns: 0; -EINVAL; -ENOMEM. Reserves nothing yet. */
int hoist__pool_create(const struct hoist__pool_options *options, struct hoist__pool **ret);
struct hoist__pool *hoist__pool_ref(struct hoist__pool *pool);
/* Takes NULL.  The last reference waits for the streams of pending blocks, then releases all
 * regions.  Pre: all blocks are free, and no other thread is in a call. */
void hoist__pool_unref(struct hoist__pool *pool);

const struct hoist__pool_options *hoist__pool_options_of(const struct hoist__pool *pool);

/* "device", "pinned", "host", "managed". */
const char *hoist__memory_kind_name(enum hoist__memory_kind kind);

/* The owner in the records of the pool's granules (granule.h).  Constant. */
uint32_t hoist__pool_number(const struct hoist__pool *pool);

/* @bytes 1 and up; @align a power of two up to 2 MiB (0: the quantum, 64 B for host
 * kinds, 256 B for device memory).  Content is undefined, except that UNPOPULATED blocks are
 * zero.
 * Returns: 0; -EINVAL; -EDQUOT (the pool's limit, the budget's; the text has the figures); -ENOMEM;
 *   -ENOSPC (device, or its limit); -EPERM (pinning); -ESTALE (a driver's memory in a child of
 *   fork); -EFAULT (debug) if free memory was written to: the next call works again. */
int hoist__pool_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret);

/* Frees the live block of this pool that starts at @address.
 * Returns: 0; -EINVAL for any other address (double free, interior, foreign), with nothing
 *   changed; -EFAULT (debug) if memory beside the block was overwritten; the block is free then. */
int hoist__pool_free(struct hoist__pool *pool, uintptr_t address);

/* The same in stream order; see deferred.h.  @stream, which is not NULL, belongs to the pool's
 * device, or to the CPU. */
int hoist__pool_alloc_on(struct hoist__pool *pool, size_t bytes, size_t align,
			 struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__pool_free_on(struct hoist__pool *pool, uintptr_t address,
			struct hoist__dev_stream *stream);
int hoist__pool_use(struct hoist__pool *pool, uintptr_t address, struct hoist__dev_stream *stream);
int hoist__pool_release_captured(struct hoist__pool *pool);

/* Tells all pools that @stream is about to be destroyed. */
void hoist__pools_forget_stream(struct hoist__dev_stream *stream);

/* The size of a page that the live block around @address can give back while the block lives; 0:
 * the block cannot.  Only a block that has a region to itself can, if the pool mapped the region
 * and nobody pinned it.  At debug levels above 0 no block can: a free fills the block. */
size_t hoist__pool_page_bytes(struct hoist__pool *pool, uintptr_t address);

/* Gives whole pages of a live block that can do so back to the system.  @address and @bytes are
 * multiples of hoist__pool_page_bytes(), and no page goes back twice.  The bytes are nobody's from
 * now on: ASan and Valgrind report who touches them.  Requested, allocated and reserved bytes, the
 * limit and the budgets no longer count them.
 * The free of the block ends the whole region, which never serves another block.
 * Returns: 0; the failure of madvise(), and nothing has changed. */
int hoist__pool_discard(struct hoist__pool *pool, uintptr_t address, size_t bytes);

/* Finds the live block that contains @address; -ENOENT if none does. */
int hoist__pool_find(struct hoist__pool *pool, uintptr_t address, struct hoist__block *ret);

/* The same among the blocks of all pools.  *pool is borrowed, and valid only while the block
 * lives. */
int hoist__pools_find(uintptr_t address, struct hoist__pool **pool, struct hoist__block *ret);

/* Gives the address by which @dev sees @address of pinned memory.  In a live block of a pool of the
 * device, the driver is asked once for each registered piece.
 * Returns: 0; -ESTALE in a child of fork; the driver's error. */
int hoist__pool_device_address(struct hoist__dev *dev, uintptr_t address, uintptr_t *ret);

/* Adds the caller's memory as a region; see hoist_memory_add_region(). */
int hoist__pool_add_region(struct hoist__pool *pool, uintptr_t address, size_t bytes);

/* Empties the magazines of all threads, takes back blocks that streams have passed, and releases
 * empty regions until at most @keep_bytes of empty regions are left. */
void hoist__pool_trim(struct hoist__pool *pool, size_t keep_bytes);

/* hoist__group_check() of @bytes of host memory; if the group has less, pools of host memory first
 * release the memory that they only keep. */
int hoist__pools_make_room(uint64_t bytes, const char *what);

struct hoist__pool_stats {
	size_t requested_bytes; /* by live blocks */
	size_t requested_peak_bytes;
	size_t allocated_bytes;	    /* by live blocks, with rounding */
	size_t cached_bytes;	    /* in magazines */
	size_t pending_bytes;	    /* in stream order, in quarantine */
	size_t reserved_bytes;	    /* in regions, less what live blocks gave back */
	size_t reserved_peak_bytes; /* since creation or the last peak reset */
	size_t free_bytes;	    /* in free spans */
	size_t largest_free_bytes;
	size_t n_blocks;
	size_t n_regions;
	uint64_t n_allocs; /* ever */
	uint64_t n_frees;
	uint64_t n_growths;
	uint64_t n_exhausted;
	uint64_t step_ns[HOIST__N_STEPS]; /* summed over regions ever created */
	struct hoist__calls calls;
};

void hoist__pool_stats(struct hoist__pool *pool, struct hoist__pool_stats *ret);
void hoist__pool_reset_peak(struct hoist__pool *pool);

enum hoist__block_state {
	HOIST__BLOCK_LIVE,
	HOIST__BLOCK_CACHED,  /* in a slab or a magazine */
	HOIST__BLOCK_PENDING, /* in stream order, or in quarantine */
	HOIST__BLOCK_FREE     /* a free span */
};

/* The callbacks of a walk, which goes region by region, and by address within a region.  They are
 * called under the pool's locks: they must not call the pool, and must not wait. */
struct hoist__pool_visitor {
	void (*region)(void *arg, const struct hoist__region *region);
	/* @bytes with rounding, @requested 0 unless LIVE. */
	void (*block)(void *arg, uintptr_t address, size_t bytes, size_t requested,
		      enum hoist__block_state state);
};
void hoist__pool_walk(struct hoist__pool *pool, const struct hoist__pool_visitor *visitor,
		      void *arg);

/* Asserts every invariant that holds between calls, in O(everything); for tests. */
void hoist__pool_check(struct hoist__pool *pool);

/* Begins a trace in CSV, as hoist_memory_trace() says.  @path NULL ends the trace. */
int hoist__pool_trace(struct hoist__pool *pool, const char *path);

#endif
