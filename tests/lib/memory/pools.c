/* SPDX-License-Identifier: MIT */
/* The resources that a device keeps for itself, and budgets. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "hoist/hoist.h"
#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"
#include "tests/support/lib-support.h"

Test(device_pools, pools_are_made_once_and_of_their_kinds)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory[2], *pinned[2];
		struct hoist__pool *staging[2];
		for (int k = 0; k < 2; k++) {
			cr_assert_eq(hoist__device_buffers(devices[i], false, &memory[k]), 0);
			cr_assert_eq(hoist__device_buffers(devices[i], true, &pinned[k]), 0);
			cr_assert_eq(hoist__device_staging_pool(devices[i], &staging[k]), 0);
		}
		cr_assert_eq(memory[0], memory[1]);
		cr_assert_eq(pinned[0], pinned[1]);
		cr_assert_eq(staging[0], staging[1]);
		hoist_memory_info info = {.size = sizeof info};
		cr_assert_eq(hoist_memory_get_info(memory[0], &info), 0);
		cr_expect_eq(info.is_host_accessible, i == 0);
		cr_assert_eq(hoist_memory_get_info(pinned[0], &info), 0);
		cr_expect_eq(info.kind, HOIST_MEMORY_PINNED);
		/* The CPU's: no driver copies from it. */
		cr_expect_eq(hoist__pool_options_of(staging[0])->kind,
			     i == 0 ? HOIST__MEMORY_HOST : HOIST__MEMORY_PINNED);
	}
}

Test(device_pools, staging_regions_are_exact_and_kept)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	hoist_device *device;
	struct hoist__pool *pool;
	cr_assert_eq(hoist_device_open("cuda:0", &device), 0, "%s", hoist_error());
	cr_assert_eq(hoist__device_staging_pool(device, &pool), 0);
	const size_t bytes = (size_t)128 << 10;
	uintptr_t block;
	struct hoist__pool_stats stats;
	for (int round = 0; round < 2; round++) {
		cr_assert_eq(hoist__pool_alloc(pool, bytes, 4096, 0, &block), 0, "%s",
			     hoist_error());
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, bytes);
		cr_assert_eq(hoist__pool_free(pool, block), 0);
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
	cr_assert_eq(hoist_budget_create(100, &budget), 0);
	cr_assert_eq(hoist_budget_ref(budget), budget);
	cr_assert_eq(hoist__budget_limit(hoist__budget_of(budget)), 100);
	cr_assert_eq(hoist__budget_acquire(hoist__budget_of(budget), 60), 0);
	cr_assert_eq(hoist_budget_used(budget), 60);
	hoist__budget_release(hoist__budget_of(budget), 60);
	hoist_budget_unref(budget);
	cr_assert_eq(hoist_budget_used(budget), 0);
	cr_assert_eq(hoist_budget_peak(budget), 60);
	hoist_budget_unref(budget);
	hoist_budget_unref(NULL);
}
