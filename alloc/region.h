/* SPDX-License-Identifier: MIT */
/* alloc/region.h - one mapping, one node, one driver registration.
 *
 * A region is the unit in which memory comes from the system.  Blocks are carved from regions by
 * alloc/pool.h and never straddle two.  Kinds:
 *
 *   HOST    pageable host memory
 *   PINNED  host memory registered with a driver (so that copies are
 *           asynchronous and fast), or mlock'ed where there is no driver
 *   DEVICE  device memory
 *   MANAGED memory that the driver moves between host and device
 *
 * or memory of these kinds that others give: a source (the caller's own resource), which gets the
 * memory back, or the caller itself (`given`), which keeps it.  We do not map, place, populate or
 * advise such memory.  Host memory of others is only sampled (`node`), and registered for PINNED.
 * An mlock of the caller's own does not outlast ours: locks do not nest.
 *
 * The recipe for host kinds is in this order because each step would spoil the next one otherwise.
 * Every step has its fallback, and its outcome and its time are noted in the region:
 *
 *   reserve   PROT_READ|WRITE, private, anonymous, 2 MiB-aligned; MADV_DONTFORK for memory that a
 *             driver will pin: a child of fork does not have such memory at all
 *   huge      hugetlb if asked for and free on the node; else MADV_HUGEPAGE; else 4 KiB.
 *             If huge pages come slower than `thp_floor` while populating (a fragmented machine
 *             that compacts), the rest is populated with 4 KiB pages
 *   place     numa/place.h.  Strictly bound memory is bound for good behind `populate`, so that
 *             a full node is an error
 *   populate  MADV_POPULATE_WRITE in slices, by several threads, on the node's CPUs; touch byte by
 *             byte where the kernel lacks it.  Skipped for UNPOPULATED regions, whose user populates
 *             ahead of its own pace
 *   verify    sample where pages are; strict placement fails if any is elsewhere
 *   pin       register with the driver (or mlock) in pieces of `piece_bytes`, all of them
 *             or nothing.  Where a driver refuses a piece, all pieces are taken back and registered
 *             again at the largest half, quarter, ... that the driver does take there, down to
 *             HOIST__PIECE_LEAST.  If the driver takes none, the size is not the cause.  Nor is
 *             the size the cause of -EPERM (the memlock limit is of all pieces together), -ESTALE
 *             or -ENODEV.
 *             A piece bounds how long the driver holds its global locks, and drivers and
 *             kernels have limits for one call.  A copy must not cross pieces (drivers
 *             refuse it), so no block does: the code that carves the region treats each piece as
 *             an extent of its own, and a region for one block is one piece.  mlock(2) knows
 *             no pieces
 *
 * Release goes the other way: unregister before unmap, always.
 *
 * fork: a child does not have memory that a driver pinned, and destroying the region there does
 * nothing to the parent's.  Pageable and mlock'ed memory is copied on write, without its lock.
 *
 * Threads: create and destroy from any thread; a region has one owner.
 */
#ifndef HOIST_ALLOC_REGION_H
#define HOIST_ALLOC_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/calls.h"
#include "device/device.h"
#include "numa/place.h"

#define HOIST__HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Every region begins at a multiple of this, the granule of the page map.  Regions that do not come
 * from the system also end at one.  The system's regions are exact to the page, and share their
 * last granule with no other mapping (map.h). */
#define HOIST__REGION_ALIGN ((size_t)64 << 10)

enum hoist__memory_kind {
	HOIST__MEMORY_HOST,
	HOIST__MEMORY_PINNED,
	HOIST__MEMORY_DEVICE,
	HOIST__MEMORY_MANAGED
};

/* Pieces are at most this large unless asked otherwise: about half a second in the
 * driver, by the 0.1 s/GiB of reference measurements. */
#define HOIST__PIECE_BYTES ((size_t)4 << 30)
#define HOIST__PIECE_LEAST ((size_t)64 << 20)

/* Bytes per second of one thread, in each of two slices of 16 MiB in a row.  A fragmented machine
 * was seen at some 20 MB/s.  A machine whose host takes idle memory back gives any page, small or
 * huge, at some 450 MB/s, and direct reads into small pages are half as fast.  Time in which the
 * thread was preempted does not count. */
#define HOIST__THP_FLOOR ((uint64_t)100 * 1000 * 1000)

/* The caller's functions, from which regions come instead of the system or a driver.  acquire()
 * returns 0, or a negative errno value with the text set.  Memory that is not aligned to @align is
 * released, and acquired again with @align bytes more.  release() gets the address and bytes of one
 * acquire(). */
struct hoist__source {
	int (*acquire)(void *context, size_t bytes, size_t align, uintptr_t *ret);
	void (*release)(void *context, uintptr_t address, size_t bytes);
	void *context;
};

enum hoist__region_step {
	HOIST__STEP_RESERVE,
	HOIST__STEP_HUGE,
	HOIST__STEP_PLACE,
	HOIST__STEP_POPULATE,
	HOIST__STEP_VERIFY,
	HOIST__STEP_PIN,
	HOIST__N_STEPS
};

enum hoist__page_kind {
	HOIST__PAGES_SMALL,  /* the kernel's base pages */
	HOIST__PAGES_THP,    /* advised; the share achieved is not promised */
	HOIST__PAGES_HUGETLB
};

struct hoist__region_options {
	enum hoist__memory_kind kind;
	size_t bytes;                /* rounded up to base pages, or 2 MiB for hugetlb; the end
	                              * of a THP region that fills no huge page is small pages.
	                              * Not from the system: rounded up to 64 KiB */
	uint64_t spare_bytes;        /* bytes the process's group must also have (group.h);
	                              * host kinds from the system */
	struct hoist__dev *dev;      /* DEVICE: whose memory.  PINNED: registered with it
	                              * (NULL or the CPU: mlock).  HOST: NULL */
	struct hoist__placement placement; /* host kinds */
	bool hugetlb;                /* try the hugetlb pool first */
	bool no_thp;
	enum hoist__prefer prefer;   /* MANAGED: which the driver is told */
	int prefer_node;
	bool unpopulated;                   /* HOST only: do not populate (nor verify) */
	unsigned n_threads;          /* populating; 0: min(16, CPUs of the node, the control group's
	                              * quota of them) */
	size_t piece_bytes;          /* PINNED: 0: HOIST__PIECE_BYTES; SIZE_MAX: one piece, or fail.
	                              * Rounded to 64 KiB */
	uint64_t thp_floor;          /* bytes/s of each thread; 0: HOIST__THP_FLOOR */
	const struct hoist__source *source; /* used until the region is destroyed */
	uintptr_t given;             /* the caller's memory, @bytes of it, both in 64 KiB */
	struct hoist__calls *calls;  /* counted here, until the region is destroyed; may be NULL */
};

struct hoist__region {
	struct hoist__region_options options;
	uintptr_t base;
	size_t bytes; /* the bytes that are really mapped */
	enum hoist__page_kind pages;
	enum hoist__placed placed;
	bool pinned;                 /* registered or mlock'ed */
	size_t piece_bytes;          /* of each registration but the last; `bytes` if there is one,
	                              * or none */
	int node;                    /* the node of all sampled pages whose node the kernel tells;
	                              * -1: several nodes, or unknown */
	/* Parts of transparent huge pages were discarded: */
	atomic_uint n_small;          /* huge pages that were made small one by one */
	_Atomic uintptr_t last_small; /* the last of these; 0: none */
	_Atomic bool all_small;
	uint64_t step_ns[HOIST__N_STEPS];
	/* Why a step took its fallback ("" if it did not): shown by doctor and the debug log. */
	char step_note[HOIST__N_STEPS][96];
};

/* Returns: 0; -EINVAL; -ENOMEM; -ENOSPC (device); -EPERM (memlock limit, with
 *   the remedy); -EREMOTEIO; -ENODEV; -ENOTSUP (managed memory); -ESTALE; the source's error.
 *   Nothing is left behind on failure. */
int hoist__region_create(const struct hoist__region_options *options, struct hoist__region **ret);

/* Returns: the most bytes that hoist__region_create() would map for these options: region->bytes as
 * it will be, or a little more (hugetlb).  The 64 KiB more that an unaligned driver or source costs
 * are not included. */
size_t hoist__region_bound(const struct hoist__region_options *options);

/* Takes NULL.  Pre: nothing uses the memory any more, the device included. */
void hoist__region_destroy(struct hoist__region *region);

/* Called in a child of fork, which may not have the region's memory: the child's own mappings may
 * come there. */
void hoist__region_forked(struct hoist__region *region);

/* Before these bytes of a region of pageable host memory go back: tells the kernel to make no huge page
 * of those that the range's ends divide, which would fill the hole again.  Where the process has many
 * such pages, none in the region.  Thread-safe. */
void hoist__region_keep_small(struct hoist__region *region, uintptr_t address, size_t bytes);

/* Gives whole pages of a region of pageable host memory, which nobody else gave, back to the system.
 * Thread-safe over disjoint ranges.
 * Returns: 0; -EINVAL (hugetlb pages, and a kernel before 5.18), -ENOMEM. */
int hoist__region_discard(struct hoist__region *region, uintptr_t address, size_t bytes);

/* Populates [address, address+bytes) of an unpopulated region, from the calling thread.
 * Populates whole pages of the region's page kind.  Content that was never touched is zero, other
 * content is kept.  Thread-safe over disjoint ranges.
 * Returns: 0; -ENOMEM (also when a hugetlb or cgroup limit is hit: the process
 *   would otherwise be killed on touch). */
int hoist__populate(void *address, size_t bytes);

#endif
