/* SPDX-License-Identifier: MIT */
/* tests/support/alloc-unit.h - regions and pools in tests on Criterion: a call that must succeed,
 * or must name its cause. */
#ifndef HOIST_TESTS_ALLOC_UNIT_H
#define HOIST_TESTS_ALLOC_UNIT_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/pool.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "tests/support/smaps.h"

#define NO_CACHE 1 /* bytes, less than a quantum: a freed block is in its slab at once */

#define OK(call) cr_assert_eq(call, 0, "%s", hoist__error_text())
#define SAYS(part) cr_assert_not_null(strstr(hoist__error_text(), part), "%s", hoist__error_text())

/* --- regions --- */

static inline struct hoist__region *make_region(const struct hoist__region_options *options)
{
	struct hoist__region *region = NULL;
	OK(hoist__region_create(options, &region));
	return region;
}

static inline struct hoist__placement on_node(enum hoist__policy policy, int node)
{
	struct hoist__placement placement = {.policy = policy};
	hoist__nodeset_add(&placement.nodes, node);
	return placement;
}

/* The error of a region that cannot be made. */
static inline int region_error(const struct hoist__region_options *options)
{
	struct hoist__region *untouched = (struct hoist__region *)(uintptr_t)1;
	struct hoist__region *region = untouched;
	int err = hoist__region_create(options, &region);
	cr_assert_neq(err, 0);
	cr_assert_eq(region, untouched, "a result on failure");
	return err;
}

/* --- the kernel's view of memory --- */

static inline size_t absent_pages(const void *base, size_t bytes)
{
	struct hoist__whereabouts where;
	if (hoist__whereabouts((void *)(uintptr_t)base, bytes, SIZE_MAX / 64, &where) != 0)
		cr_skip_test("the kernel does not say where pages are");
	return where.n_absent;
}

/* Whether smaps has @flag for the mapping of @address: " hg" huge pages wanted, " nh" unwanted. */
static inline bool has_flag(uintptr_t address, const char *flag)
{
	struct smaps smaps = {0};
	bool found = false;
	while (smaps_next(&smaps))
		if (smaps.from <= address && address < smaps.to &&
		    strncmp(smaps.line, "VmFlags:", 8) == 0)
			found = strstr(smaps.line, flag) != NULL;
	return found;
}

/* --- pools --- */

static inline struct hoist__pool *make_pool(const struct hoist__pool_options *options)
{
	struct hoist__pool *pool = NULL;
	OK(hoist__pool_create(options, &pool));
	return pool;
}

/* A pool of host memory. */
static inline struct hoist__pool *host_pool(size_t region_bytes, size_t limit, size_t keep)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = region_bytes,
		.limit_bytes = limit,
		.keep_bytes = keep,
		.cache_bytes = NO_CACHE,
	};
	return make_pool(&options);
}

static inline uintptr_t take(struct hoist__pool *pool, size_t bytes, size_t align)
{
	uintptr_t address = 0;
	OK(hoist__pool_alloc(pool, bytes, align, 0, &address));
	cr_assert_eq(address % (align < 64 ? 64 : align), 0);
	return address;
}

static inline void give(struct hoist__pool *pool, uintptr_t address)
{
	OK(hoist__pool_free(pool, address));
}

static inline void give_all(struct hoist__pool *pool, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		give(pool, blocks[i]);
}

/* The figures of a pool whose books are whole. */
static inline struct hoist__pool_stats stats(struct hoist__pool *pool)
{
	struct hoist__pool_stats now;
	hoist__pool_check(pool);
	hoist__pool_stats(pool, &now);
	cr_assert_leq(now.requested_bytes, now.allocated_bytes);
	cr_assert_leq(now.allocated_bytes + now.cached_bytes + now.pending_bytes,
		      now.reserved_bytes);
	cr_assert_leq(now.requested_bytes, now.requested_peak_bytes);
	cr_assert_leq(now.reserved_bytes, now.reserved_peak_bytes);
	cr_assert_leq(now.largest_free_bytes, now.free_bytes);
	cr_assert_eq(now.n_allocs - now.n_frees, now.n_blocks);
	return now;
}

#endif
