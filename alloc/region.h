/* SPDX-License-Identifier: MIT */
/* alloc/region.h - one mapping, one node, one driver registration.
 *
 * A region is the unit in which memory comes from the system; blocks are carved
 * from it by alloc/pool.h and never straddle two.  Kinds:
 *
 *   HOST    pageable host memory
 *   PINNED  host memory registered with a driver (so that copies are
 *           asynchronous and fast), or mlock'ed where there is no driver
 *   DEVICE  device memory
 *
 * The recipe for host kinds, in this order because each step spoils the next one
 * otherwise; every step has its fallback, its outcome and its time in the region:
 *
 *   reserve   PROT_READ|WRITE, private, anonymous, 2 MiB-aligned; MADV_DONTFORK
 *             for what a driver will pin: a child of fork has it not at all
 *   huge      hugetlb if asked for and free on the node; else MADV_HUGEPAGE; else 4 KiB
 *   place     numa/place.h
 *   populate  MADV_POPULATE_WRITE in slices, by several threads, on the node's
 *             CPUs; touch byte by byte where the kernel lacks it.  Skipped for
 *             LAZY regions, whose user populates ahead of his own pace
 *   verify    sample where pages are; strict placement fails if any is elsewhere
 *   pin       register with the driver (or mlock), the whole region or nothing
 *
 * Release goes the other way: unregister before unmap, always.
 *
 * Threads: create and destroy from any thread; a region has one owner.
 */
#ifndef HOIST_ALLOC_REGION_H
#define HOIST_ALLOC_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "numa/place.h"

#define HOIST__HUGE_PAGE_BYTES ((size_t)2 << 20)

enum hoist__memory_kind {
	HOIST__MEMORY_HOST,
	HOIST__MEMORY_PINNED,
	HOIST__MEMORY_DEVICE
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
	                              * of a THP region that fills no huge page is small pages */
	struct hoist__dev *dev;      /* DEVICE: whose memory.  PINNED: registered with it
	                              * (NULL or the CPU: mlock).  HOST: NULL */
	struct hoist__placement placement; /* host kinds */
	bool hugetlb;                /* try the hugetlb pool first */
	bool no_thp;
	bool lazy;                   /* HOST only: do not populate (nor verify) */
	unsigned n_threads;          /* populating; 0: min(4, CPUs of the node) */
};

struct hoist__region {
	struct hoist__region_options options;
	uintptr_t base;
	size_t bytes; /* what is really mapped */
	enum hoist__page_kind pages;
	enum hoist__placed placed;
	bool pinned;                 /* registered or mlock'ed */
	int node;                    /* where every sampled page is; -1: several, or unknown */
	uint64_t step_ns[HOIST__N_STEPS];
	/* Why a step took its fallback ("" if it did not): shown by doctor and the debug log. */
	char step_note[HOIST__N_STEPS][96];
};

/* Returns: 0; -EINVAL; -ENOMEM; -ENOSPC (device); -EPERM (memlock limit, with
 *   the remedy); -EREMOTEIO; -ENODEV.  Nothing is left behind on failure. */
int hoist__region_create(const struct hoist__region_options *options, struct hoist__region **ret);

/* The most that hoist__region_create() would map for these options. */
size_t hoist__region_bound(const struct hoist__region_options *options);

/* Takes NULL.  Nothing may use the memory any more, the device included. */
void hoist__region_destroy(struct hoist__region *region);

/* Populates [address, address+bytes) of a lazy region, from the calling thread.
 * Whole pages are populated (of the region's page kind), content is zero where it
 * was untouched and is kept where it was not.  Thread-safe over disjoint ranges.
 * Returns: 0; -ENOMEM (also when a hugetlb or cgroup limit is hit: the process
 *   would otherwise be killed on touch). */
int hoist__populate(void *address, size_t bytes);

#endif
