/* SPDX-License-Identifier: MIT */
/* Regions of host memory: the pages, the places and the locking that they ask of the kernel, and
 * the fallbacks or errors where the kernel refuses. */
#include "config.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/support/alloc-unit.h"
#include "tests/support/numa-refuse.h"

#define ADVICE_POPULATE_WRITE 23

static void expect_zero(const struct hoist__region *region)
{
	const char *bytes = (const char *)region->base;
	cr_assert_eq(bytes[0], 0);
	cr_assert_eq(memcmp(bytes, bytes + 1, region->bytes - 1), 0, "memory is not zero");
}

Test(alloc_region, is_aligned_populated_and_exact)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 20 * HOIST__MIB + 5000};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->base % HOIST__HUGE_PAGE_BYTES, 0);
	cr_assert_eq(region->bytes, 20 * HOIST__MIB + 8192, "rounded to base pages only");
	cr_assert_eq(region->bytes, hoist__region_bound(&options));
	cr_assert_eq(region->placed, HOIST__PLACED_DEFAULT);
	cr_assert_not(region->pinned);
	cr_assert_gt(region->step_ns[HOIST__STEP_RESERVE], 0);
	cr_assert_gt(region->step_ns[HOIST__STEP_POPULATE], 0);
	cr_assert_str_empty(region->step_note[HOIST__STEP_RESERVE]);
	expect_zero(region);
	cr_assert_eq(absent_pages((void *)region->base, region->bytes), 0);
	hoist__region_destroy(region);
	hoist__region_destroy(NULL);
}

Test(alloc_region, uses_huge_pages_only_where_one_fits)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert_str_empty(region->step_note[HOIST__STEP_HUGE], "by choice, no fallback");
	hoist__region_destroy(region);
	options.bytes = HOIST__HUGE_PAGE_BYTES;
	region = make_region(&options);
	cr_assert(region->pages == HOIST__PAGES_THP ||
		  region->step_note[HOIST__STEP_HUGE][0] != '\0');
	hoist__region_destroy(region);
	options.no_thp = true;
	region = make_region(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	hoist__region_destroy(region);
}

/* Systems may give huge pages to all that do not refuse them. */
Test(alloc_region, refuses_huge_pages_where_small_ones_are_asked_for)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 4 * HOIST__MIB, .no_thp = true};
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
		cr_skip_test("this kernel has no transparent huge pages");
	struct hoist__region *region = make_region(&options);
	cr_assert(has_flag(region->base, " nh"));
	hoist__region_destroy(region);
	options.no_thp = false;
	region = make_region(&options);
	cr_assert_not(has_flag(region->base, " nh"));
	hoist__region_destroy(region);
}

Test(alloc_region, notes_that_huge_pages_cannot_be_advised)
{
	if (refuse_where(__NR_madvise, MADV_HUGEPAGE, EINVAL) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert(strstr(region->step_note[HOIST__STEP_HUGE], "MADV_HUGEPAGE") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, takes_hugetlb_pages_or_says_why_not)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 3 * HOIST__MIB, .hugetlb = true};
	struct hoist__region *region = make_region(&options);
	const char *note = region->step_note[HOIST__STEP_HUGE];
	if (region->pages == HOIST__PAGES_HUGETLB) {
		cr_assert_eq(region->bytes, 4 * HOIST__MIB);
		cr_assert_str_empty(note);
	} else {
		cr_assert_eq(region->bytes, 3 * HOIST__MIB);
		cr_assert(strstr(note, "hugetlb") != NULL, "%s", note);
	}
	cr_assert_eq(hoist__region_bound(&options), 4 * HOIST__MIB);
	expect_zero(region);
	hoist__region_destroy(region);
}

Test(alloc_region, asks_for_no_more_hugetlb_pages_than_the_node_has)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .hugetlb = true};
	/* A node without huge pages, as node 1023 is everywhere. */
	options.placement = on_node(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert(strstr(region->step_note[HOIST__STEP_HUGE], "0 free on the nodes") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, touches_pages_where_the_kernel_cannot_populate)
{
	if (refuse_where(__NR_madvise, ADVICE_POPULATE_WRITE, EINVAL) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 40 * HOIST__MIB, .n_threads = 2};
	struct hoist__region *region = make_region(&options);
	cr_assert(strstr(region->step_note[HOIST__STEP_POPULATE], "touched") != NULL);
	cr_assert_eq(absent_pages((void *)region->base, region->bytes), 0);
	expect_zero(region);
	/* Touching keeps what was written, too. */
	memset((void *)region->base, 0xa5, region->bytes);
	OK(hoist__populate((void *)region->base, region->bytes));
	for (size_t i = 0; i < region->bytes; i += 1024)
		cr_assert_eq(((unsigned char *)region->base)[i], 0xa5);
	hoist__region_destroy(region);
}

Test(alloc_region, never_uses_hugetlb_pages_that_it_cannot_populate)
{
	if (refuse_where(__NR_madvise, ADVICE_POPULATE_WRITE, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .hugetlb = true};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert(strstr(region->step_note[HOIST__STEP_HUGE], "MADV_POPULATE_WRITE") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, leaves_lazy_memory_to_its_user)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 8 * HOIST__MIB,
						.unpopulated = true,
						.no_thp = true};
	struct hoist__region *region = make_region(&options);
	char *base = (char *)region->base;
	size_t n_pages = region->bytes / (size_t)sysconf(_SC_PAGESIZE);
	cr_assert_eq(absent_pages((void *)region->base, region->bytes), n_pages);
	cr_assert_eq(region->node, -1);
	memset(base + 100, 7, 10);
	OK(hoist__populate(base + 1, 2 * HOIST__MIB));
	cr_assert_eq(base[100], 7, "content is kept");
	cr_assert_eq(base[99], 0);
	cr_assert_leq(absent_pages((void *)region->base, region->bytes),
		      n_pages - 2 * HOIST__MIB / 4096);
	OK(hoist__populate(base, region->bytes));
	cr_assert_eq(absent_pages((void *)region->base, region->bytes), 0);
	hoist__region_destroy(region);
}

Test(alloc_region, says_that_memory_to_populate_is_not_there)
{
	void *hole = mmap(NULL, HOIST__MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(hole, MAP_FAILED);
	munmap(hole, HOIST__MIB);
	cr_assert_eq(hoist__populate(hole, 4096), -ENOMEM);
	SAYS("populating 4 KiB");
}

Test(alloc_region, lies_where_it_was_bound)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	options.placement = on_node(HOIST__POLICY_BIND, 0);
	struct hoist__region *region = make_region(&options);
	if (region->placed == HOIST__PLACED_KERNEL &&
	    region->step_note[HOIST__STEP_VERIFY][0] == '\0')
		cr_assert_eq(region->node, 0);
	hoist__region_destroy(region);
}

Test(alloc_region, fails_when_bound_to_a_node_that_is_not_there)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	options.placement = on_node(HOIST__POLICY_BIND, HOIST__MAX_NODES - 1);
	int err = region_error(&options);
	cr_assert(err == -EINVAL || err == -ENOMEM, "%d", err);
	options.placement = on_node(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(region->placed, HOIST__PLACED_FIRST_TOUCH);
	cr_assert_str_not_empty(region->step_note[HOIST__STEP_PLACE]);
	hoist__region_destroy(region);
}

Test(alloc_region, is_placed_by_first_touch_where_mbind_is_refused)
{
	static const enum hoist__policy policies[] = {HOIST__POLICY_BIND, HOIST__POLICY_PREFER,
						      HOIST__POLICY_INTERLEAVE};
	if (refuse(__NR_mbind, EPERM) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__topology *topology = NULL;
	OK(hoist__topology_load("/sys", &topology));
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(policies); i++) {
		struct hoist__region_options options = {
			.kind = HOIST__MEMORY_HOST, .bytes = 40 * HOIST__MIB, .n_threads = 2};
		options.placement = on_node(policies[i], topology->nodes[0].id);
		struct hoist__region *region = make_region(&options);
		cr_assert_eq(region->placed, HOIST__PLACED_FIRST_TOUCH);
		cr_assert_str_not_empty(region->step_note[HOIST__STEP_PLACE]);
		cr_assert_eq(absent_pages((void *)region->base, region->bytes), 0);
		if (region->node >= 0)
			cr_assert_eq(region->node, topology->nodes[0].id);
		hoist__region_destroy(region);
	}
	hoist__topology_destroy(topology);
}

Test(alloc_region, fails_strictly_when_first_touch_went_elsewhere)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	struct hoist__region *probe = make_region(&options);
	bool known = probe->node >= 0;
	hoist__region_destroy(probe);
	if (!known || refuse(__NR_mbind, EPERM) != 0)
		cr_skip_test("no seccomp filters here, or nobody knows where pages are");
	options.placement = on_node(HOIST__POLICY_BIND, HOIST__MAX_NODES - 1);
	cr_assert_eq(region_error(&options), -ENOMEM);
	SAYS("elsewhere");
	/* A preference is content with that, and says so. */
	options.placement = on_node(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	struct hoist__region *region = make_region(&options);
	cr_assert(strstr(region->step_note[HOIST__STEP_VERIFY], "on other nodes") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, fails_when_a_node_has_less_memory_than_is_bound_to_it)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = (size_t)1 << 46};
	options.placement = on_node(HOIST__POLICY_BIND, 0);
	cr_assert_eq(region_error(&options), -ENOMEM);
}

Test(alloc_region, pins_with_mlock_where_there_is_no_driver)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED, .bytes = 40000};
	struct hoist__region *region = make_region(&options);
	cr_assert(region->pinned);
	cr_assert_eq(region->bytes, 40960);
	pid_t child = fork();
	if (child == 0) {
		/* Locked memory is memory like any other to a child. */
		memset((void *)region->base, 1, region->bytes);
		_exit(0);
	}
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	hoist__region_destroy(region);
}

#if defined(__SANITIZE_ADDRESS__)
#define MLOCK_DOES_NOTHING true /* as the sanitizer's own mlock() */
#else
#define MLOCK_DOES_NOTHING false
#endif

Test(alloc_region, says_how_to_raise_the_memlock_limit)
{
	if (MLOCK_DOES_NOTHING)
		cr_skip_test("AddressSanitizer makes mlock do nothing");
	struct rlimit limit = {65536, 65536};
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
		cr_skip_test("cannot drop the capability that lifts the limit");
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED, .bytes = HOIST__MIB};
	cr_assert_eq(region_error(&options), -EPERM);
	const char *text = hoist__error_text();
	cr_assert(strstr(text, "page-locking 1 MiB: RLIMIT_MEMLOCK is 64 KiB; raise the limit") ==
			  text,
		  "%s", text);
	cr_assert(strstr(text, "LimitMEMLOCK=") != NULL);
}

/* --- what is slow, what is counted --- */

Test(alloc_region, says_that_huge_pages_came_slowly)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 48 * HOIST__MIB,
						.n_threads = 1,
						.thp_floor = UINT64_MAX};
	struct hoist__region *region = make_region(&options);
	if (region->pages == HOIST__PAGES_SMALL)
		cr_skip_test("this kernel has no transparent huge pages");
	cr_assert_eq(region->pages, HOIST__PAGES_THP);
	const char *note = region->step_note[HOIST__STEP_HUGE];
	cr_assert(strstr(note, "/s a thread") != NULL && strstr(note, "16 MiB") != NULL, "%s",
		  note);
	expect_zero(region);
	hoist__region_destroy(region);
	/* Small pages are not measured. */
	options.no_thp = true;
	region = make_region(&options);
	cr_assert_str_empty(region->step_note[HOIST__STEP_HUGE]);
	hoist__region_destroy(region);
}

Test(alloc_region, counts_its_calls)
{
	struct hoist__calls calls = {0};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .calls = &calls};
	struct hoist__region *region = make_region(&options);
	const struct hoist__call_counter *map = &calls.of[HOIST__CALL_MAP];
	cr_assert_eq(atomic_load(&map->n), 2, "reserved and populated");
	hoist__region_destroy(region);
	cr_assert_eq(atomic_load(&map->n), 3);
	cr_assert_gt(atomic_load(&map->longest_ns), 0);
	cr_assert_geq(atomic_load(&map->ns), atomic_load(&map->longest_ns));
	cr_assert_eq(atomic_load(&calls.of[HOIST__CALL_REGISTER].n), 0);
	options.kind = HOIST__MEMORY_PINNED;
	options.placement = on_node(HOIST__POLICY_PREFER, 0);
	hoist__region_destroy(make_region(&options));
	cr_assert_eq(atomic_load(&map->n), 3 + 4, "placed, too");
	cr_assert_eq(atomic_load(&calls.of[HOIST__CALL_REGISTER].n), 2);
	cr_assert_eq(atomic_load(&calls.of[HOIST__CALL_ALLOC].n), 0);
}

/* No other mapping lies in the last 64 KiB that a region has a part of. */
Test(alloc_region, has_its_last_granule_for_itself)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 4096, .no_thp = true};
	struct hoist__region *regions[64];
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(regions); i++) {
		regions[i] = make_region(&options);
		uintptr_t end = regions[i]->base + HOIST__REGION_ALIGN;
		for (uintptr_t page = regions[i]->base + 4096; page < end; page += 4096) {
			void *at = mmap((void *)page, 4096, PROT_READ,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			cr_assert_eq(at, MAP_FAILED, "free address space in a region's granule");
			cr_assert_eq(errno, EEXIST);
		}
	}
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(regions); i++)
		hoist__region_destroy(regions[i]);
}
