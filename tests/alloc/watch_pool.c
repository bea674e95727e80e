/* SPDX-License-Identifier: MIT */
/* Debug levels of pools: wrong frees, writes after a free and around a block, late streams. */
#include "config.h"

#include "tests/support/alloc-watch.h"
#include "tests/support/patience.h"

static struct hoist__pool *pool_of(enum hoist__memory_kind kind, unsigned debug)
{
	const struct hoist__pool_options options = {
		.kind = kind, .dev = dev, .debug = debug, .region_bytes = 4 * HOIST__MIB};
	return make_pool(&options);
}

/* Frees of what is no block, at every level. */
static void wrong_frees(enum hoist__memory_kind kind, unsigned debug)
{
	const size_t sizes[] = {1, 100, 64 * HOIST__KIB, 3 * HOIST__MIB};
	struct hoist__pool *pool = pool_of(kind, debug);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t address = take(pool, sizes[i], 0);
		struct hoist__block block;
		OK(hoist__pool_find(pool, address + sizes[i] - 1, &block));
		cr_assert_eq(block.address, address);
		cr_assert_eq(block.bytes, sizes[i]);
		cr_assert_eq(hoist__pool_free(pool, address + 1), -EINVAL);
		if (debug >= 2) {
			cr_assert_eq(hoist__pool_find(pool, address + sizes[i], &block), -ENOENT);
			cr_assert_eq(hoist__pool_find(pool, address - 1, &block), -ENOENT);
			cr_assert_eq(hoist__pool_free(pool, address - HOIST__REDZONE_BYTES),
				     -EINVAL);
		}
		give(pool, address);
		cr_assert_eq(hoist__pool_free(pool, address), -EINVAL);
		SAYS("freed already");
		cr_assert_eq(hoist__pool_find(pool, address, &block), -ENOENT);
	}
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.n_allocs, HOIST__ARRAY_SIZE(sizes));
	cr_assert_eq(stats.n_frees, HOIST__ARRAY_SIZE(sizes));
	cr_assert_eq(stats.requested_bytes, 0);
	cr_assert_eq(stats.allocated_bytes, 0);
	cr_assert_eq(stats.pending_bytes > 0, debug >= 2);
	hoist__pool_check(pool);
	hoist__pool_trim(pool, 0);
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.pending_bytes, 0);
	cr_assert_eq(stats.reserved_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_watch_pool, a_pool_refuses_wrong_frees_at_every_level)
{
	for (unsigned debug = 0; debug <= 2; debug++)
		wrong_frees(HOIST__MEMORY_HOST, debug);
	open_device(HOIST__API_CUDA);
	for (unsigned debug = 0; debug <= 2; debug++)
		wrong_frees(HOIST__MEMORY_DEVICE, debug);
	expect_nothing_left();
}

Test(alloc_watch_pool, a_pool_reports_a_write_after_free_and_goes_on)
{
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, 1);
	uintptr_t address = take(pool, 100, 0);
	uintptr_t other = 0;
	give(pool, address);
	poke(address, 1);
	int err = 0;
	for (int i = 0; err == 0 && i < 10000; i++)
		err = hoist__pool_alloc(pool, 100, 0, 0, &other);
	cr_assert_eq(err, -EFAULT);
	SAYS("overwritten after it was freed, the first at offset 0");
	OK(hoist__pool_alloc(pool, 100, 0, 0, &other));
	hoist__pool_unref(pool);
}

Test(alloc_watch_pool, a_pool_reports_writes_around_a_block)
{
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, 2);
	for (size_t align = 1; align <= 2 * HOIST__MIB; align *= 8) {
		uintptr_t address = take(pool, 100, align);
		poke(address + 100, 1);
		cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
		SAYS("1 byte behind it overwritten, the first at offset 100");
		cr_assert_eq(hoist__pool_free(pool, address), -EINVAL);
	}
	/* The next free finds the write when the block leaves the quarantine. */
	uintptr_t address = take(pool, 100, 0);
	give(pool, address);
	poke(address, 1);
	int err = 0;
	for (int i = 0; err == 0 && i < 100; i++) {
		uintptr_t other = take(pool, HOIST__MIB, 0);
		err = hoist__pool_free(pool, other);
	}
	cr_assert_eq(err, -EFAULT);
	SAYS("the block of 100 bytes");
	/* Or when it is taken out: the next free tells. */
	address = take(pool, 100, 0);
	give(pool, address);
	poke(address + 1, 1);
	hoist__pool_trim(pool, 0);
	address = take(pool, 200, 0);
	cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
	SAYS("the first at offset 1");
	hoist__pool_unref(pool);
}

Test(alloc_watch_pool, lazy_blocks_are_zero_at_every_level)
{
	for (unsigned debug = 0; debug <= 2; debug++) {
		struct hoist__pool *pool = pool_of(HOIST__MEMORY_HOST, debug);
		uintptr_t address = 0;
		for (int i = 0; i < 3; i++) {
			cr_assert_eq(hoist__pool_alloc(pool, 100000, 0, HOIST__ALLOC_UNPOPULATED,
						       &address),
				     0);
			cr_assert(all_are(address, 100000, 0));
			memset((void *)address, 1, 100000);
			give(pool, address);
		}
		hoist__pool_unref(pool);
	}
}

/* An event is recorded by the first trim, and has passed by a later one. */
static void trim_until_none_is_pending(struct hoist__pool *pool)
{
	struct hoist__pool_stats stats;
	uint64_t until = 0;
	do {
		hoist__pool_trim(pool, 0);
		hoist__pool_stats(pool, &stats);
	} while (stats.pending_bytes != 0 && patience(&until));
	cr_assert_eq(stats.pending_bytes, 0);
}

/* The stream is behind, the host frees: checked when the stream has passed. */
Test(alloc_watch_pool, blocks_freed_on_a_stream_are_checked_when_it_has_passed)
{
	open_device(HOIST__API_CUDA);
	struct hoist__pool *pool = pool_of(HOIST__MEMORY_DEVICE, 2);
	uintptr_t address = 0;
	cr_assert_eq(hoist__pool_alloc_on(pool, 0, 0, own_stream, &address), -EINVAL);
	cr_assert_eq(hoist__pool_alloc_on(pool, 1000, 3, own_stream, &address), -EINVAL);
	OK(hoist__pool_alloc_on(pool, 1000, 0, own_stream, &address));
	OK(hoist__fill_async(own_stream, address, 1, 1, 1001));
	OK(hoist__pool_free_on(pool, address, own_stream));
	cr_assert_eq(hoist__pool_free_on(pool, address, own_stream), -EINVAL);
	trim_until_none_is_pending(pool);
	address = take(pool, 1, 0);
	cr_assert_eq(hoist__pool_free(pool, address), -EFAULT);
	SAYS("the block of 1000 bytes");
	SAYS("1 byte behind it overwritten, the first at offset 1000: found 01 ");
	hoist__pool_unref(pool);
	expect_nothing_left();
}
