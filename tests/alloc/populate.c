/* SPDX-License-Identifier: MIT */
/* Populating: which threads, where they run, and when huge pages are given up. */
#include "config.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "alloc/map.h"
#include "alloc/populate.h"
#include "alloc/shared.h"
#include "tests/support/alloc-unit.h"
#include "tests/support/numa-refuse.h"

static struct hoist__map map_huge(size_t bytes)
{
	struct hoist__map map;
	OK(hoist__map_anonymous(bytes, &map));
	if (madvise(map.base, bytes, MADV_HUGEPAGE) != 0)
		cr_skip_test("this kernel has no transparent huge pages");
	return map;
}

/* --- where threads run --- */

static int first_cpu(void)
{
	cpu_set_t set;
	unsigned cpu = 0;
	cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return (int)cpu;
}

/* Two nodes of one CPU each, 4 threads. */
static struct hoist__populate_report populate_on(int cpu_of_0, int cpu_of_1)
{
	const struct hoist__node nodes[] = {{.id = 0, .n_cpus = 1, .cpus = &cpu_of_0},
					    {.id = 1, .n_cpus = 1, .cpus = &cpu_of_1}};
	const struct hoist__topology topology = {.n_nodes = 2, .nodes = nodes};
	struct hoist__nodeset both = {0};
	struct hoist__map map;
	struct hoist__populate_report report = {0};
	hoist__nodeset_add(&both, 0);
	hoist__nodeset_add(&both, 1);
	OK(hoist__map_anonymous(8 * HOIST__MIB, &map));
	struct hoist__populate_job job = {.base = map.base,
					  .bytes = map.bytes,
					  .slice_bytes = HOIST__HUGE_PAGE_BYTES,
					  .n_threads = 4,
					  .topology = &topology,
					  .nodes = &both};
	OK(hoist__populate_parallel(&job, &report));
	cr_assert_eq(absent_pages(map.base, map.bytes), 0);
	hoist__map_release(&map);
	return report;
}

Test(alloc_populate, runs_on_the_cpus_of_nodes)
{
	cpu_set_t before, after;
	cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
	struct hoist__populate_report report = populate_on(first_cpu(), first_cpu());
	cr_assert_not(report.unpinned);
	cr_assert_not(report.no_threads);
	cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
	cr_assert(CPU_EQUAL(&before, &after), "the caller stays where the program put it");
}

Test(alloc_populate, says_that_it_cannot_run_there)
{
	cr_assert(populate_on(first_cpu(), CPU_SETSIZE - 1).unpinned);
}

/* --- huge pages --- */

static struct hoist__populate_report populate_above(const struct hoist__map *map, uint64_t floor)
{
	struct hoist__populate_report report = {0};
	struct hoist__populate_job job = {
		.base = map->base, .bytes = map->bytes, .n_threads = 1, .thp_floor = floor};
	OK(hoist__populate_parallel(&job, &report));
	return report;
}

Test(alloc_populate, asks_for_no_more_huge_pages_where_they_come_slowly)
{
	struct hoist__map map = map_huge(64 * HOIST__MIB);
	struct hoist__populate_report report = populate_above(&map, UINT64_MAX);
	cr_assert(report.slow);
	cr_assert_gt(report.rate, 0);
	cr_assert_eq(report.small_at, 2 * HOIST__SLICE_BYTES);
	const char *base = map.base;
	cr_assert(has_flag((uintptr_t)base + report.small_at - 1, " hg"));
	cr_assert(has_flag((uintptr_t)base + report.small_at, " nh"));
	cr_assert(has_flag((uintptr_t)base + map.bytes - 1, " nh"));
	cr_assert_eq(absent_pages(map.base, map.bytes), 0);
	hoist__map_release(&map);
}

Test(alloc_populate, keeps_huge_pages_that_come_fast_enough)
{
	struct hoist__map map = map_huge(64 * HOIST__MIB);
	struct hoist__populate_report report = populate_above(&map, 1);
	cr_assert_not(report.slow);
	cr_assert(has_flag((uintptr_t)map.base + map.bytes - 1, " hg"));
	hoist__map_release(&map);
}

Test(alloc_populate, does_not_judge_by_one_slice)
{
	struct hoist__map map = map_huge(HOIST__SLICE_BYTES);
	cr_assert_not(populate_above(&map, UINT64_MAX).slow);
	hoist__map_release(&map);
	/* Two in a row, and nothing is left. */
	map = map_huge(2 * HOIST__SLICE_BYTES);
	struct hoist__populate_report report = populate_above(&map, UINT64_MAX);
	cr_assert(report.slow);
	cr_assert_eq(report.small_at, map.bytes);
	hoist__map_release(&map);
}

Test(alloc_populate, goes_on_where_huge_pages_cannot_be_given_up)
{
	struct hoist__map map = map_huge(64 * HOIST__MIB);
	if (refuse_where(__NR_madvise, MADV_NOHUGEPAGE, EINVAL) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__populate_report report = populate_above(&map, UINT64_MAX);
	cr_assert(report.slow);
	cr_assert_eq(report.small_at, map.bytes);
	cr_assert_eq(absent_pages(map.base, map.bytes), 0);
	hoist__map_release(&map);
}

/* --- huge pages of shared memory --- */

#define SHARED_BYTES ((size_t)5 << 20) /* two huge pages, and half of one */

static struct hoist__populate_report collapse_shared(void)
{
	struct hoist__populate_report report = {0};
	struct hoist__shared *shared = NULL;
	OK(hoist__shared_create(SHARED_BYTES, &shared));
	unsigned char *base = (unsigned char *)hoist__shared_address(shared);
	cr_assert_eq((uintptr_t)base % HOIST__HUGE_PAGE_BYTES, 0);
	const struct hoist__populate_job job = {
		.base = base,
		.bytes = SHARED_BYTES,
		.slice_bytes = (size_t)2 << 20,
		.n_threads = 3,
		.collapse = true,
	};
	OK(hoist__populate_parallel(&job, &report));
	cr_assert_eq(absent_pages(base, SHARED_BYTES), 0);
	for (size_t i = 0; i < SHARED_BYTES; i++)
		cr_assert_eq(base[i], 0);
	hoist__shared_close(shared);
	return report;
}

Test(alloc_populate, shared_memory_has_huge_pages)
{
	struct hoist__populate_report report = collapse_shared();
	cr_log_info("%zu bytes in huge pages, %d", report.collapsed, report.collapse_err);
	if (report.collapse_err == 0)
		cr_assert_eq(report.collapsed, (size_t)4 << 20);
	else /* an older kernel, or one that is short of them */
		cr_assert_lt(report.collapsed, (size_t)4 << 20);
}

Test(alloc_populate, where_it_may_have_none_it_says_so)
{
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
		cr_skip_test("huge pages cannot be forbidden here");
	struct hoist__populate_report report = collapse_shared();
	cr_assert_eq(report.collapsed, 0);
	cr_assert_eq(report.collapse_err, -EINVAL);
}

/* --- kernels that cannot populate --- */

/* There, pages are touched; a page that cannot be had is an error, too, and no signal.  Bytes that
 * another thread has written meanwhile stay. */
Test(alloc_populate, touches_without_a_signal)
{
	struct hoist__map map;
	struct hoist__populate_report report = {0};
	OK(hoist__map_anonymous(8 * HOIST__MIB, &map));
	char *bytes = map.base;
	if (refuse_where(__NR_madvise, 23, EINVAL) != 0) /* MADV_POPULATE_WRITE */
		cr_skip_test("no seccomp filters here");
	cr_assert_not(hoist__populate_supported());
	memset(bytes + 4096, 0xA5, 4096);
	const struct hoist__populate_job job = {
		.base = map.base, .bytes = map.bytes, .n_threads = 2, .slice_bytes = HOIST__MIB};
	OK(hoist__populate_parallel(&job, &report));
	cr_assert(report.touched);
	cr_assert_eq(absent_pages(map.base, map.bytes), 0);
	for (size_t i = 0; i < 8192; i++)
		cr_assert_eq((unsigned char)bytes[i], i < 4096 ? 0 : 0xA5);
	cr_assert_eq(munmap(bytes + 5 * HOIST__MIB, 4096), 0);
	cr_assert_eq(hoist__populate_parallel(&job, &report), -ENOMEM);
	cr_assert_eq(mprotect(bytes + 4096, 4096, PROT_READ), 0);
	cr_assert_eq(hoist__populate(bytes, 8192), -ENOMEM);
	hoist__map_release(&map);
}
