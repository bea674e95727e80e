/* SPDX-License-Identifier: MIT */
/* Pages that live blocks give back: which blocks can, and what is counted from then on. */
#include "config.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/support/alloc-unit.h"
#include "tests/support/numa-refuse.h"

#define PAGE ((size_t)4096)
#define BLOCK (4 * HOIST__MIB)

static uintptr_t take_flagged(struct hoist__pool *pool, size_t bytes, unsigned flags)
{
	uintptr_t address = 0;
	OK(hoist__pool_alloc(pool, bytes, 0, flags, &address));
	return address;
}

/* --- which blocks --- */

static int acquire(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	(void)context;
	*ret = (uintptr_t)aligned_alloc(align, hoist__round_up(bytes, align));
	return *ret != 0 ? 0 : -ENOMEM;
}

static void release(void *context, uintptr_t address, size_t bytes)
{
	(void)context;
	(void)bytes;
	free((void *)address);
}

static const struct hoist__source source = {acquire, release, NULL};

#define ROW(...)                                                                                   \
	{                                                                                          \
		.cache_bytes = NO_CACHE, .region_bytes = 4 * HOIST__MIB, __VA_ARGS__               \
	}

static const struct {
	const char *what;
	struct hoist__pool_options options;
	size_t bytes;
	unsigned flags;
	bool can;
} rows[] = {
	{"a region of its own", ROW(.kind = HOIST__MEMORY_HOST), BLOCK, 0, true},
	{"half a region", ROW(.kind = HOIST__MEMORY_HOST), BLOCK / 2, 0, true},
	{"an unpopulated region", ROW(.kind = HOIST__MEMORY_HOST), PAGE, HOIST__ALLOC_UNPOPULATED,
	 true},
	{"small pages", ROW(.kind = HOIST__MEMORY_HOST, .no_thp = true), BLOCK, 0, true},
	{"a part of a shared region", ROW(.kind = HOIST__MEMORY_HOST), HOIST__MIB, 0, false},
	{"a slab", ROW(.kind = HOIST__MEMORY_HOST), PAGE, 0, false},
	{"locked memory", ROW(.kind = HOIST__MEMORY_PINNED), BLOCK, 0, false},
	{"memory of others", ROW(.kind = HOIST__MEMORY_HOST, .source = &source), BLOCK, 0, false},
	{"a fill at the end", ROW(.kind = HOIST__MEMORY_HOST, .debug = 1), BLOCK, 0, false},
};

Test(alloc_discard, needs_a_region_of_its_own_that_nobody_pinned)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(rows); i++) {
		struct hoist__pool *pool = make_pool(&rows[i].options);
		uintptr_t block = 0;
		int err = hoist__pool_alloc(pool, rows[i].bytes, 0, rows[i].flags, &block);
		if (err == -EPERM && rows[i].options.kind == HOIST__MEMORY_PINNED) {
			hoist__pool_unref(pool); /* the limit of locked memory */
			continue;
		}
		cr_assert_eq(err, 0, "%s: %s", rows[i].what, hoist__error_text());
		cr_assert_eq(hoist__pool_page_bytes(pool, block + 100), rows[i].can ? PAGE : 0,
			     "%s", rows[i].what);
		give(pool, block);
		cr_assert_eq(hoist__pool_page_bytes(pool, block), 0, "%s", rows[i].what);
		hoist__pool_unref(pool);
	}
}

/* --- huge pages --- */

/* The rest of a load's destination gets huge pages, whatever went back before. */
Test(alloc_discard, leaves_other_huge_pages_alone)
{
	const size_t huge = HOIST__HUGE_PAGE_BYTES;
	const struct hoist__pool_options options = ROW(.kind = HOIST__MEMORY_HOST);
	struct hoist__pool *pool = make_pool(&options);
	struct hoist__block found;
	uintptr_t block = take_flagged(pool, 16 * huge, HOIST__ALLOC_UNPOPULATED);
	OK(hoist__pool_find(pool, block, &found));
	if (found.region->pages != HOIST__PAGES_THP) {
		give(pool, block);
		hoist__pool_unref(pool);
		cr_skip_test("no transparent huge pages here");
	}
	cr_assert_eq(block % huge, 0);
	OK(hoist__pool_discard(pool, block, 2 * huge));
	cr_assert(has_flag(block, " hg") && has_flag(block + 2 * huge, " hg"));
	OK(hoist__pool_discard(pool, block + 4 * huge, huge + PAGE));
	cr_assert(has_flag(block + 4 * huge, " hg") && has_flag(block + 5 * huge, " nh") &&
			  has_flag(block + 6 * huge, " hg"),
		  "the edge alone has small pages");
	give(pool, block);
	hoist__pool_unref(pool);
}

/* A process may have 65,530 mappings. */
Test(alloc_discard, makes_no_mapping_for_each_of_many_edges)
{
	const size_t huge = HOIST__HUGE_PAGE_BYTES;
	const struct hoist__pool_options options = ROW(.kind = HOIST__MEMORY_HOST);
	struct hoist__pool *pool = make_pool(&options);
	struct hoist__block found = {0};
	uintptr_t block;
	int err = hoist__pool_alloc(pool, 2100 * huge, 0, HOIST__ALLOC_UNPOPULATED, &block);
	if (err == 0)
		OK(hoist__pool_find(pool, block, &found));
	if (err != 0 || found.region->pages != HOIST__PAGES_THP) {
		if (err == 0)
			give(pool, block);
		hoist__pool_unref(pool);
		cr_skip_test("no transparent huge pages, or no 4 GiB of addresses");
	}
	for (size_t i = 0; i < 2050; i++)
		OK(hoist__pool_discard(pool, block + i * huge, PAGE));
	cr_assert(has_flag(block, " nh") && has_flag(block + 2099 * huge, " nh"));
	give(pool, block);
	hoist__pool_unref(pool);
}

/* --- what is counted --- */

Test(alloc_discard, gives_pages_back_and_counts_them_no_more)
{
	static const unsigned flags[] = {0, HOIST__ALLOC_UNPOPULATED};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(flags); i++) {
		struct hoist__budget *budget;
		OK(hoist__budget_create(8 * HOIST__MIB, &budget));
		const struct hoist__pool_options options =
			ROW(.kind = HOIST__MEMORY_HOST, .keep_bytes = 64 * HOIST__MIB,
			    .limit_bytes = 6 * HOIST__MIB, .budget = budget);
		struct hoist__pool *pool = make_pool(&options);
		uintptr_t block = take_flagged(pool, BLOCK, flags[i]);
		struct hoist__block found;
		uintptr_t other;
		memset((void *)block, 7, BLOCK);
		cr_assert_eq(hoist__pool_alloc(pool, BLOCK, 0, 0, &other), -EDQUOT);
		OK(hoist__pool_discard(pool, block + PAGE, PAGE));
		OK(hoist__pool_discard(pool, block + 2 * HOIST__MIB, 2 * HOIST__MIB));
		cr_assert_eq(absent_pages((void *)block, BLOCK), 1 + 2 * HOIST__MIB / PAGE);
		size_t left = 2 * HOIST__MIB - PAGE;
		cr_assert_eq(stats(pool).requested_bytes, left);
		cr_assert_eq(stats(pool).allocated_bytes, left);
		cr_assert_eq(stats(pool).reserved_bytes, left);
		cr_assert_eq(stats(pool).n_blocks, 1);
		cr_assert_eq(hoist__budget_used(budget), left);
		OK(hoist__pool_find(pool, block + 3 * HOIST__MIB, &found));
		cr_assert(found.address == block && found.bytes == BLOCK, "the block is whole");
		for (size_t at = 0; at < 2 * HOIST__MIB; at += PAGE / 2)
			cr_assert(at / PAGE == 1 || *(char *)(block + at) == 7);
		cr_assert_not(has_flag(block, " hg"), "holes are not filled again");
		cr_assert_eq(has_flag(block + 2 * HOIST__MIB, " hg"),
			     found.region->pages == HOIST__PAGES_THP,
			     "a huge page that went back whole has no hole");
		/* The limit has room for what went back. */
		other = take(pool, BLOCK, 0);
		cr_assert_eq(absent_pages((void *)other, BLOCK), 0, "a region of its own again");
		give(pool, block);
		cr_assert_eq(stats(pool).reserved_bytes, BLOCK, "its region is not kept");
		cr_assert_eq(stats(pool).requested_bytes, BLOCK);
		give(pool, other);
		hoist__pool_trim(pool, 0);
		cr_assert_eq(stats(pool).reserved_bytes, 0);
		cr_assert_eq(stats(pool).requested_bytes, 0);
		cr_assert_eq(hoist__budget_used(budget), 0);
		hoist__pool_unref(pool);
		hoist__budget_unref(budget);
	}
}

/* A block that waits for a stream lacks the pages, too. */
Test(alloc_discard, counts_less_while_a_stream_uses_the_block)
{
	struct hoist__dev *cpu;
	struct hoist__dev_stream *stream;
	struct hoist__pool *pool = host_pool(BLOCK, 0, 0);
	uintptr_t block = take(pool, BLOCK, 0);
	OK(hoist__dev_get(HOIST__API_CPU, 0, &cpu));
	OK(hoist__dev_stream_create(cpu, &stream));
	OK(hoist__pool_use(pool, block, stream));
	OK(hoist__pool_discard(pool, block, HOIST__MIB));
	OK(hoist__pool_free_on(pool, block, stream));
	cr_assert_eq(stats(pool).pending_bytes, 3 * HOIST__MIB);
	cr_assert_eq(stats(pool).allocated_bytes, 0);
	cr_assert_eq(stats(pool).requested_bytes, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 3 * HOIST__MIB);
	while (stats(pool).pending_bytes != 0) {
		OK(hoist__dev_stream_synchronize(stream));
		hoist__pool_trim(pool, 0); /* records the event first, then asks for it */
	}
	cr_assert_eq(stats(pool).reserved_bytes, 0);
	hoist__pools_forget_stream(stream);
	hoist__dev_stream_destroy(stream);
	hoist__pool_unref(pool);
}

Test(alloc_discard, changes_nothing_where_the_kernel_refuses)
{
	struct hoist__pool *pool = host_pool(BLOCK, 0, 0);
	uintptr_t block = take(pool, BLOCK, 0);
	memset((void *)block, 7, BLOCK);
	if (refuse_where(__NR_madvise, MADV_DONTNEED, ENOMEM) != 0)
		cr_skip_test("no seccomp filters here");
	cr_assert_eq(hoist__pool_discard(pool, block, HOIST__MIB), -ENOMEM);
	SAYS("giving 1 MiB of a region back");
	cr_assert_eq(absent_pages((void *)block, BLOCK), 0);
	cr_assert_eq(stats(pool).requested_bytes, BLOCK);
	cr_assert_eq(stats(pool).reserved_bytes, BLOCK);
	for (size_t at = 0; at < BLOCK; at += PAGE)
		cr_assert_eq(*(char *)(block + at), 7);
	give(pool, block);
	hoist__pool_unref(pool);
}
