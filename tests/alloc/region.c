/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "tests/support/numa-refuse.h"

#define ADVICE_POPULATE_WRITE 23

static struct hoist__region *create(const struct hoist__region_options *options)
{
	struct hoist__region *region = NULL;
	int err = hoist__region_create(options, &region);
	cr_assert_eq(err, 0, "%d: %s", err, hoist__error_text());
	return region;
}

static int create_error(const struct hoist__region_options *options)
{
	struct hoist__region *untouched = (struct hoist__region *)(uintptr_t)1;
	struct hoist__region *region = untouched;
	int err = hoist__region_create(options, &region);
	cr_assert_neq(err, 0);
	cr_assert_eq(region, untouched, "a result on failure");
	return err;
}

static struct hoist__placement on_node(enum hoist__policy policy, int node)
{
	struct hoist__placement placement = {.policy = policy};
	hoist__nodeset_add(&placement.nodes, node);
	return placement;
}

static size_t absent_pages(const struct hoist__region *region)
{
	struct hoist__whereabouts where;
	if (hoist__whereabouts((void *)region->base, region->bytes, SIZE_MAX / 64, &where) != 0)
		cr_skip_test("the kernel does not say where pages are");
	return where.n_absent;
}

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
	struct hoist__region *region = create(&options);
	cr_assert_eq(region->base % HOIST__HUGE_PAGE_BYTES, 0);
	cr_assert_eq(region->bytes, 20 * HOIST__MIB + 8192, "rounded to base pages only");
	cr_assert_eq(region->bytes, hoist__region_bound(&options));
	cr_assert_eq(region->placed, HOIST__PLACED_DEFAULT);
	cr_assert_not(region->pinned);
	cr_assert_gt(region->step_ns[HOIST__STEP_RESERVE], 0);
	cr_assert_gt(region->step_ns[HOIST__STEP_POPULATE], 0);
	cr_assert_str_empty(region->step_note[HOIST__STEP_RESERVE]);
	expect_zero(region);
	cr_assert_eq(absent_pages(region), 0);
	hoist__region_destroy(region);
	hoist__region_destroy(NULL);
}

Test(alloc_region, uses_huge_pages_only_where_one_fits)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB};
	struct hoist__region *region = create(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert_str_empty(region->step_note[HOIST__STEP_HUGE], "by choice, no fallback");
	hoist__region_destroy(region);
	options.bytes = HOIST__HUGE_PAGE_BYTES;
	region = create(&options);
	cr_assert(region->pages == HOIST__PAGES_THP ||
		  region->step_note[HOIST__STEP_HUGE][0] != '\0');
	hoist__region_destroy(region);
	options.no_thp = true;
	region = create(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	hoist__region_destroy(region);
}

/* The flags of the mapping at @address, as /proc/self/smaps has them. */
static bool has_flag(uintptr_t address, const char *flag)
{
	char line[512];
	bool within = false;
	bool found = false;
	FILE *smaps = fopen("/proc/self/smaps", "re");
	cr_assert_not_null(smaps);
	while (fgets(line, sizeof line, smaps) != NULL) {
		uintptr_t from, to;
		if (sscanf(line, "%zx-%zx ", &from, &to) == 2)
			within = from <= address && address < to;
		else if (within && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, flag) != NULL;
	}
	(void)fclose(smaps);
	return found;
}

/* Systems may give huge pages to all that do not refuse them. */
Test(alloc_region, refuses_huge_pages_where_small_ones_are_asked_for)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 4 * HOIST__MIB, .no_thp = true};
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
		cr_skip_test("this kernel has no transparent huge pages");
	struct hoist__region *region = create(&options);
	cr_assert(has_flag(region->base, " nh"));
	hoist__region_destroy(region);
	options.no_thp = false;
	region = create(&options);
	cr_assert_not(has_flag(region->base, " nh"));
	hoist__region_destroy(region);
}

Test(alloc_region, notes_that_huge_pages_cannot_be_advised)
{
	if (refuse_where(__NR_madvise, MADV_HUGEPAGE, EINVAL) != 0)
		cr_skip_test("no seccomp filters here");
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	struct hoist__region *region = create(&options);
	cr_assert_eq(region->pages, HOIST__PAGES_SMALL);
	cr_assert(strstr(region->step_note[HOIST__STEP_HUGE], "MADV_HUGEPAGE") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, takes_hugetlb_pages_or_says_why_not)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 3 * HOIST__MIB, .hugetlb = true};
	struct hoist__region *region = create(&options);
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
	struct hoist__region *region = create(&options);
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
	struct hoist__region *region = create(&options);
	cr_assert(strstr(region->step_note[HOIST__STEP_POPULATE], "touched") != NULL);
	cr_assert_eq(absent_pages(region), 0);
	expect_zero(region);
	/* Touching keeps what was written, too. */
	memset((void *)region->base, 0xa5, region->bytes);
	cr_assert_eq(hoist__populate((void *)region->base, region->bytes), 0);
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
	struct hoist__region *region = create(&options);
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
	struct hoist__region *region = create(&options);
	char *base = (char *)region->base;
	size_t n_pages = region->bytes / (size_t)sysconf(_SC_PAGESIZE);
	cr_assert_eq(absent_pages(region), n_pages);
	cr_assert_eq(region->node, -1);
	memset(base + 100, 7, 10);
	cr_assert_eq(hoist__populate(base + 1, 2 * HOIST__MIB), 0);
	cr_assert_eq(base[100], 7, "content is kept");
	cr_assert_eq(base[99], 0);
	cr_assert_leq(absent_pages(region), n_pages - 2 * HOIST__MIB / 4096);
	cr_assert_eq(hoist__populate(base, region->bytes), 0);
	cr_assert_eq(absent_pages(region), 0);
	hoist__region_destroy(region);
}

Test(alloc_region, says_that_memory_to_populate_is_not_there)
{
	void *hole = mmap(NULL, HOIST__MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(hole, MAP_FAILED);
	munmap(hole, HOIST__MIB);
	cr_assert_eq(hoist__populate(hole, 4096), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "populating 4 KiB") != NULL);
}

Test(alloc_region, lies_where_it_was_bound)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 4 * HOIST__MIB};
	options.placement = on_node(HOIST__POLICY_BIND, 0);
	struct hoist__region *region = create(&options);
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
	int err = create_error(&options);
	cr_assert(err == -EINVAL || err == -ENOMEM, "%d", err);
	options.placement = on_node(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	struct hoist__region *region = create(&options);
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
	cr_assert_eq(hoist__topology_load("/sys", &topology), 0);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(policies); i++) {
		struct hoist__region_options options = {
			.kind = HOIST__MEMORY_HOST, .bytes = 40 * HOIST__MIB, .n_threads = 2};
		options.placement = on_node(policies[i], topology->nodes[0].id);
		struct hoist__region *region = create(&options);
		cr_assert_eq(region->placed, HOIST__PLACED_FIRST_TOUCH);
		cr_assert_str_not_empty(region->step_note[HOIST__STEP_PLACE]);
		cr_assert_eq(absent_pages(region), 0);
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
	struct hoist__region *probe = create(&options);
	bool known = probe->node >= 0;
	hoist__region_destroy(probe);
	if (!known || refuse(__NR_mbind, EPERM) != 0)
		cr_skip_test("no seccomp filters here, or nobody knows where pages are");
	options.placement = on_node(HOIST__POLICY_BIND, HOIST__MAX_NODES - 1);
	cr_assert_eq(create_error(&options), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "elsewhere") != NULL, "%s", hoist__error_text());
	/* A preference is content with that, and says so. */
	options.placement = on_node(HOIST__POLICY_PREFER, HOIST__MAX_NODES - 1);
	struct hoist__region *region = create(&options);
	cr_assert(strstr(region->step_note[HOIST__STEP_VERIFY], "on other nodes") != NULL);
	hoist__region_destroy(region);
}

Test(alloc_region, fails_when_a_node_has_less_memory_than_is_bound_to_it)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = (size_t)1 << 46};
	options.placement = on_node(HOIST__POLICY_BIND, 0);
	cr_assert_eq(create_error(&options), -ENOMEM);
}

Test(alloc_region, pins_with_mlock_where_there_is_no_driver)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED, .bytes = 40000};
	struct hoist__region *region = create(&options);
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
	cr_assert_eq(create_error(&options), -EPERM);
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
	struct hoist__region *region = create(&options);
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
	region = create(&options);
	cr_assert_str_empty(region->step_note[HOIST__STEP_HUGE]);
	hoist__region_destroy(region);
}

Test(alloc_region, counts_its_calls)
{
	struct hoist__calls calls = {0};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .calls = &calls};
	struct hoist__region *region = create(&options);
	const struct hoist__call_counter *map = &calls.of[HOIST__CALL_MAP];
	cr_assert_eq(atomic_load(&map->n), 2, "reserved and populated");
	hoist__region_destroy(region);
	cr_assert_eq(atomic_load(&map->n), 3);
	cr_assert_gt(atomic_load(&map->longest_ns), 0);
	cr_assert_geq(atomic_load(&map->ns), atomic_load(&map->longest_ns));
	cr_assert_eq(atomic_load(&calls.of[HOIST__CALL_REGISTER].n), 0);
	options.kind = HOIST__MEMORY_PINNED;
	options.placement = on_node(HOIST__POLICY_PREFER, 0);
	hoist__region_destroy(create(&options));
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
		regions[i] = create(&options);
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

/* --- memory of others --- */

struct lender {
	size_t offset;	  /* what it gives lies so far from where it should */
	int err;	  /* what it says instead */
	unsigned n_asked; /* ever */
	unsigned n_lent;  /* now */
	size_t bytes;	  /* of the last */
};

static int lend(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	struct lender *lender = context;
	lender->n_asked++;
	lender->bytes = bytes;
	cr_assert_eq(align, HOIST__REGION_ALIGN);
	if (lender->err != 0)
		return hoist__fail(lender->err, "the lender has none");
	char *memory = aligned_alloc(align, bytes + align);
	cr_assert_not_null(memory);
	lender->n_lent++;
	*ret = (uintptr_t)memory + lender->offset;
	return 0;
}

static void take_back(void *context, uintptr_t address, size_t bytes)
{
	struct lender *lender = context;
	cr_assert_eq(bytes, lender->bytes);
	lender->n_lent--;
	free((void *)(address - lender->offset));
}

Test(alloc_region, comes_from_a_source)
{
	struct lender lender = {0};
	struct hoist__source source = {lend, take_back, &lender};
	struct hoist__calls calls = {0};
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = HOIST__MIB + 1,
						.source = &source,
						.calls = &calls};
	/* Where it lies is the source's affair. */
	options.placement = on_node(HOIST__POLICY_BIND, HOIST__MAX_NODES - 1);
	struct hoist__region *region = create(&options);
	cr_assert_eq(lender.n_lent, 1);
	cr_assert_eq(region->bytes, HOIST__MIB + HOIST__REGION_ALIGN);
	cr_assert_eq(region->bytes, hoist__region_bound(&options));
	cr_assert_eq(region->bytes, lender.bytes);
	cr_assert_eq(region->placed, HOIST__PLACED_DEFAULT);
	cr_assert_not(region->pinned);
	cr_assert_eq(region->piece_bytes, region->bytes);
	memset((void *)region->base, 1, region->bytes);
	hoist__region_destroy(region);
	cr_assert_eq(lender.n_lent, 0);
	cr_assert_eq(atomic_load(&calls.of[HOIST__CALL_ALLOC].n), 2);
	lender.err = -EDQUOT;
	cr_assert_eq(create_error(&options), -EDQUOT);
	cr_assert_str_eq(hoist__error_text(), "the lender has none");
}

Test(alloc_region, uses_the_aligned_part_of_what_a_source_gives)
{
	struct lender lender = {.offset = 4096};
	struct hoist__source source = {lend, take_back, &lender};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .source = &source};
	struct hoist__region *region = create(&options);
	cr_assert_eq(lender.n_asked, 2);
	cr_assert_eq(lender.n_lent, 1);
	cr_assert_eq(region->base % HOIST__REGION_ALIGN, 0);
	cr_assert_eq(region->bytes, HOIST__MIB);
	memset((void *)region->base, 1, region->bytes);
	hoist__region_destroy(region);
	cr_assert_eq(lender.n_lent, 0);
}

Test(alloc_region, may_be_the_callers_who_keeps_it)
{
	size_t bytes = 2 * HOIST__REGION_ALIGN;
	unsigned char *own = aligned_alloc(HOIST__REGION_ALIGN, bytes);
	cr_assert_not_null(own);
	memset(own, 9, bytes);
	static const enum hoist__memory_kind kinds[] = {HOIST__MEMORY_HOST, HOIST__MEMORY_PINNED};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(kinds); i++) {
		struct hoist__region_options options = {
			.kind = kinds[i], .bytes = bytes, .given = (uintptr_t)own};
		struct hoist__region *region = create(&options);
		cr_assert_eq(region->base, (uintptr_t)own);
		cr_assert_eq(region->bytes, bytes);
		cr_assert_eq(hoist__region_bound(&options), bytes);
		cr_assert_eq(region->pinned, kinds[i] == HOIST__MEMORY_PINNED);
		hoist__region_destroy(region);
		for (size_t at = 0; at < bytes; at++)
			cr_assert_eq(own[at], 9);
	}
	free(own);
}

Test(alloc_region, looks_where_the_callers_memory_is)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB};
	struct hoist__region *ours = create(&options);
	options.given = ours->base;
	struct hoist__region *given = create(&options);
	cr_assert_eq(given->node, ours->node);
	hoist__region_destroy(given);
	hoist__region_destroy(ours);
	/* Untouched memory is nowhere, and looking does not change that. */
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_HOST,
						 .bytes = HOIST__MIB,
						 .unpopulated = true,
						 .no_thp = true};
	ours = create(&options);
	options.unpopulated = false;
	options.given = ours->base;
	given = create(&options);
	cr_assert_eq(given->node, -1);
	cr_assert_str_empty(given->step_note[HOIST__STEP_VERIFY]);
	cr_assert_eq(absent_pages(given), HOIST__MIB / 4096);
	hoist__region_destroy(given);
	hoist__region_destroy(ours);
}

Test(alloc_region, refuses_senseless_options)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST};
	cr_assert_eq(create_error(&options), -EINVAL, "0 bytes");
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_DEVICE, .bytes = 1};
	cr_assert_eq(create_error(&options), -EINVAL, "no device");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_PINNED, .bytes = 1, .unpopulated = true};
	cr_assert_eq(create_error(&options), -EINVAL, "lazy and pinned");
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_HOST, .bytes = SIZE_MAX};
	cr_assert_eq(create_error(&options), -ENOMEM);
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_HOST, .bytes = 1};
	options.placement.policy = HOIST__POLICY_BIND;
	cr_assert_eq(create_error(&options), -EINVAL, "an empty set");
	struct hoist__source source = {lend, take_back, NULL};
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_MANAGED, .bytes = 1};
	cr_assert_eq(create_error(&options), -EINVAL, "no device");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_HOST, .bytes = 1, .unpopulated = true, .source = &source};
	cr_assert_eq(create_error(&options), -EINVAL, "lazy, but not ours");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_HOST, .bytes = 65536, .given = 4096};
	cr_assert_eq(create_error(&options), -EINVAL, "not aligned");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_HOST, .bytes = 4096, .given = 65536};
	cr_assert_eq(create_error(&options), -EINVAL, "not whole");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_HOST, .bytes = 131072, .given = UINTPTR_MAX - 65535};
	cr_assert_eq(create_error(&options), -EINVAL, "beyond the end");
	options = (struct hoist__region_options){
		.kind = HOIST__MEMORY_HOST, .bytes = 65536, .given = 65536, .source = &source};
	cr_assert_eq(create_error(&options), -EINVAL, "from two");
}
