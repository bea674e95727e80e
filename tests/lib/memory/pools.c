/* SPDX-License-Identifier: MIT */
/* The resources that a device keeps for itself, and budgets. */
#include "config.h"

#include <errno.h>

#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"
#include "tests/support/lib-unit.h"

Test(device_pools, pools_are_made_once_and_of_their_kinds, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory[2], *pinned[2];
		struct hoist__pool *staging[2];
		for (int k = 0; k < 2; k++) {
			OK(hoist__device_buffers(devices[i], false, &memory[k]));
			OK(hoist__device_buffers(devices[i], true, &pinned[k]));
			OK(hoist__device_staging_pool(devices[i], &staging[k]));
		}
		cr_assert_eq(memory[0], memory[1]);
		cr_assert_eq(pinned[0], pinned[1]);
		cr_assert_eq(staging[0], staging[1]);
		hoist_memory_info info = memory_info_of(memory[0]);
		cr_expect_eq(info.is_host_accessible, i == 0);
		OK(hoist_memory_get_info(pinned[0], &info));
		cr_expect_eq(info.kind, HOIST_MEMORY_PINNED);
		/* The CPU's: no driver copies from it. */
		cr_expect_eq(hoist__pool_options_of(staging[0])->kind,
			     i == 0 ? HOIST__MEMORY_HOST : HOIST__MEMORY_PINNED);
	}
}

Test(device_pools, staging_regions_are_exact_and_kept, .init = open_all)
{
	struct hoist__pool *pool;
	OK(hoist__device_staging_pool(devices[1], &pool));
	const size_t bytes = (size_t)128 << 10;
	uintptr_t block;
	struct hoist__pool_stats stats;
	for (int round = 0; round < 2; round++) {
		OK(hoist__pool_alloc(pool, bytes, 4096, 0, &block));
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, bytes);
		OK(hoist__pool_free(pool, block));
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, bytes);
	}
	cr_expect_eq(lib_counters("cuda").live_registered_bytes, bytes);
}

Test(budget, wraps_the_one_below)
{
	hoist_budget *budget = NULL;
	cr_assert_eq(hoist_budget_create(0, &budget), -EINVAL);
	cr_assert_null(budget);
	OK(hoist_budget_create(100, &budget));
	cr_assert_eq(hoist_budget_ref(budget), budget);
	cr_assert_eq(hoist__budget_limit(hoist__budget_of(budget)), 100);
	OK(hoist__budget_acquire(hoist__budget_of(budget), 60));
	cr_assert_eq(hoist_budget_used(budget), 60);
	hoist__budget_release(hoist__budget_of(budget), 60);
	hoist_budget_unref(budget);
	cr_assert_eq(hoist_budget_used(budget), 0);
	cr_assert_eq(hoist_budget_peak(budget), 60);
	hoist_budget_unref(budget);
	hoist_budget_unref(NULL);
}
