/* SPDX-License-Identifier: MIT */
/* Pools of host memory: rounding, shared and own regions, alignment, the limit, and the memory that
 * a pool keeps or gives back. */
#include "config.h"

#include "alloc/classes.h"
#include "alloc/magazine.h"
#include "tests/support/alloc-unit.h"

/* The bytes that a block from a slab really takes. */
static size_t rounded(size_t bytes)
{
	return hoist__class_bytes(hoist__class_of(bytes, 6), 6);
}

Test(alloc_pool, reserves_nothing_before_the_first_block)
{
	struct hoist__pool *pool = host_pool(0, 0, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_trim(pool, 0);
	hoist__pool_unref(pool);
	hoist__pool_unref(NULL);
}

Test(alloc_pool, rounds_to_the_class_and_counts_exactly)
{
	struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 0);
	static const size_t sizes[] = {1, 64, 65, 512, 513, 4097, 100000, 524289, 40, 1000};
	uintptr_t blocks[HOIST__ARRAY_SIZE(sizes)];
	size_t requested = 0, allocated = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		blocks[i] = take(pool, sizes[i], 0);
		memset((void *)blocks[i], 1, sizes[i]);
		requested += sizes[i];
		allocated += rounded(sizes[i]);
		cr_assert_eq(stats(pool).requested_bytes, requested);
		cr_assert_eq(stats(pool).allocated_bytes, allocated);
		cr_assert_eq(stats(pool).n_blocks, i + 1);
		struct hoist__block block;
		OK(hoist__pool_find(pool, blocks[i], &block));
		cr_assert_eq(block.allocated, rounded(sizes[i]));
	}
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		give(pool, blocks[i]);
		requested -= sizes[i];
		allocated -= rounded(sizes[i]);
		cr_assert_eq(stats(pool).requested_bytes, requested);
		cr_assert_eq(stats(pool).allocated_bytes, allocated);
	}
	cr_assert_eq(stats(pool).cached_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, gives_large_requests_an_exact_region_of_their_own)
{
	struct hoist__pool *pool = host_pool(8 * HOIST__MIB, 0, 0);
	size_t bytes = 20 * HOIST__MIB + 100;
	uintptr_t at = take(pool, bytes, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 20 * HOIST__MIB + 4096);
	cr_assert_eq(stats(pool).allocated_bytes, stats(pool).reserved_bytes);
	cr_assert_eq(at % HOIST__HUGE_PAGE_BYTES, 0);
	memset((void *)at, 1, bytes);
	/* Half a region is large. */
	uintptr_t half = take(pool, 4 * HOIST__MIB, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 24 * HOIST__MIB + 4096);
	/* Nothing is kept: both go back at once. */
	give(pool, at);
	cr_assert_eq(stats(pool).reserved_bytes, 4 * HOIST__MIB);
	give(pool, half);
	cr_assert_eq(stats(pool).n_regions, 0);
	cr_assert_eq(stats(pool).n_growths, 2);
	cr_assert_eq(stats(pool).reserved_peak_bytes, 24 * HOIST__MIB + 4096);
	hoist__pool_reset_peak(pool);
	cr_assert_eq(stats(pool).reserved_peak_bytes, 0);
	cr_assert_eq(stats(pool).requested_peak_bytes, 0);
	hoist__pool_unref(pool);
}

/* Blocks between the largest class and half a region are spans of a shared one. */
Test(alloc_pool, places_medium_blocks_in_shared_regions_by_granules)
{
	struct hoist__pool *pool = host_pool(16 * HOIST__MIB, 0, 0);
	size_t bytes = 3 * HOIST__MIB + 1;
	uintptr_t a = take(pool, bytes, 0);
	uintptr_t b = take(pool, bytes, 2 * HOIST__MIB);
	cr_assert_eq(stats(pool).n_regions, 1);
	cr_assert_eq(stats(pool).allocated_bytes, 2 * (3 * HOIST__MIB + 64 * HOIST__KIB));
	memset((void *)a, 1, bytes);
	memset((void *)b, 2, bytes);
	cr_assert_eq(((char *)a)[bytes - 1], 1);
	give(pool, a);
	cr_assert_eq(stats(pool).n_regions, 1);
	give(pool, b);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, aligns_up_to_two_mebibytes)
{
	static const size_t sizes[] = {100, 1000, 5000, 100000, 1500000};
	struct hoist__pool *pool = host_pool(8 * HOIST__MIB, 0, 0);
	uintptr_t blocks[256];
	size_t n = 0;
	for (size_t align = 1; align <= 2 * HOIST__MIB; align *= 2)
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
			blocks[n++] = take(pool, 100, 0);
			blocks[n++] = take(pool, sizes[i], align);
			memset((void *)blocks[n - 1], 1, sizes[i]);
		}
	hoist__pool_check(pool);
	give_all(pool, blocks, n);
	hoist__pool_unref(pool);
	/* Also where regions are smaller than the alignment, or than any class. */
	pool = host_pool(64 * HOIST__KIB, 0, 0);
	blocks[0] = take(pool, 100, 2 * HOIST__MIB);
	blocks[1] = take(pool, 100, 2 * HOIST__MIB);
	blocks[2] = take(pool, 100, 0);
	blocks[3] = take(pool, 100000, 128);
	give_all(pool, blocks, 4);
	cr_assert_eq(stats(pool).allocated_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, refuses_senseless_requests)
{
	struct hoist__pool *pool = host_pool(0, 0, 0);
	uintptr_t at = 77;
	cr_assert_eq(hoist__pool_alloc(pool, 0, 0, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 3, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 48, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 4 * HOIST__MIB, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, 2, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, SIZE_MAX, 0, 0, &at), -ENOMEM);
	cr_assert_eq(hoist__pool_alloc(pool, (size_t)1 << 47, 0, 0, &at), -ENOMEM);
	SAYS("of host memory");
	cr_assert_eq(at, 77, "untouched on failure");
	/* The same once there is a magazine to take from. */
	uintptr_t block = take(pool, 1, 0);
	cr_assert_eq(hoist__pool_alloc(pool, 0, 0, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 3, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 48, 0, &at), -EINVAL);
	give(pool, block);
	hoist__pool_unref(pool);
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_DEVICE};
	pool = NULL;
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options.kind = HOIST__MEMORY_MANAGED;
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options.kind = (enum hoist__memory_kind)9;
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options = (struct hoist__pool_options){.placement = {.policy = HOIST__POLICY_BIND}};
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	cr_assert_null(pool);
	options = (struct hoist__pool_options){.kind = HOIST__MEMORY_PINNED};
	pool = make_pool(&options);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, HOIST__ALLOC_UNPOPULATED, &at), -EINVAL);
	hoist__pool_unref(pool);
}

/* More pools than a thread's lookaside has places: each has its own blocks all the same. */
Test(alloc_pool, keeps_its_blocks_apart_from_many_other_pools)
{
	enum { N_POOLS = 3 * HOIST__PLACES + 1, N_ROUNDS = 50 };
	struct hoist__pool *pools[N_POOLS];
	uintptr_t kept[N_POOLS];
	for (size_t i = 0; i < N_POOLS; i++) {
		/* Every third has no fast path. */
		const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB,
							    .debug = i % 3 == 0};
		pools[i] = make_pool(&options);
		kept[i] = take(pools[i], 1000, 0);
	}
	for (size_t round = 0; round < N_ROUNDS; round++)
		for (size_t i = 0; i < N_POOLS; i++) {
			/* One that shares the place with it, or another. */
			size_t next = (i + (round % 2 == 0 ? HOIST__PLACES : 1)) % N_POOLS;
			uintptr_t block = take(pools[i], 500, 0);
			struct hoist__block found;
			OK(hoist__pool_find(pools[i], block, &found));
			cr_assert_eq(hoist__pool_free(pools[next], block), -EINVAL);
			give(pools[next], kept[next]);
			cr_assert_eq(hoist__pool_free(pools[next], kept[next]), -EINVAL);
			kept[next] = take(pools[next], 1000, 0);
			give(pools[i], block);
			cr_assert_eq(hoist__pool_free(pools[i], block), -EINVAL);
		}
	for (size_t i = 0; i < N_POOLS; i++) {
		cr_assert_eq(stats(pools[i]).n_blocks, 1);
		give(pools[i], kept[i]);
		hoist__pool_trim(pools[i], 0);
		cr_assert_eq(stats(pools[i]).reserved_bytes, 0);
		hoist__pool_unref(pools[i]);
	}
}

Test(alloc_pool, merges_neighbours_so_that_nothing_stays_in_pieces)
{
	struct hoist__pool *pool = host_pool(32 * HOIST__MIB, 32 * HOIST__MIB, 32 * HOIST__MIB);
	enum { N = 16 };
	uintptr_t blocks[N];
	for (size_t i = 0; i < N; i++)
		blocks[i] = take(pool, 2 * HOIST__MIB, 0);
	cr_assert_eq(stats(pool).allocated_bytes, 32 * HOIST__MIB, "full to the last byte");
	cr_assert_eq(stats(pool).free_bytes, 0);
	for (size_t i = 0; i < N; i += 2)
		give(pool, blocks[i]);
	cr_assert_eq(stats(pool).free_bytes, 16 * HOIST__MIB);
	cr_assert_eq(stats(pool).largest_free_bytes, 2 * HOIST__MIB);
	uintptr_t at;
	cr_assert_eq(hoist__pool_alloc(pool, 3 * HOIST__MIB, 0, 0, &at), -EDQUOT);
	for (size_t i = 1; i < N; i += 2)
		give(pool, blocks[i]);
	cr_assert_eq(stats(pool).largest_free_bytes, 32 * HOIST__MIB);
	uintptr_t most = take(pool, 16 * HOIST__MIB - 1, 0);
	uintptr_t rest = take(pool, 16 * HOIST__MIB - 1, 0);
	cr_assert_eq(stats(pool).n_regions, 1);
	give(pool, most);
	give(pool, rest);
	hoist__pool_unref(pool);
}

Test(alloc_pool, never_reserves_more_than_its_limit)
{
	struct hoist__pool *pool = host_pool(4 * HOIST__MIB, 10 * HOIST__MIB, 10 * HOIST__MIB);
	uintptr_t blocks[128];
	uintptr_t at;
	cr_assert_eq(hoist__pool_alloc(pool, 11 * HOIST__MIB, 0, 0, &at), -EDQUOT);
	size_t n = 0;
	for (; n < 128; n++) {
		if (hoist__pool_alloc(pool, 96 * HOIST__KIB, 0, 0, &blocks[n]) != 0)
			break;
		cr_assert_leq(stats(pool).reserved_bytes, 10 * HOIST__MIB);
	}
	SAYS("limit is 10 MiB");
	cr_assert_geq(n, 92, "%zu: a tenth of the memory is not used", n);
	give_all(pool, blocks, n);
	/* Empty regions make room for a block of another shape. */
	cr_assert_gt(stats(pool).reserved_bytes, 8 * HOIST__MIB);
	uintptr_t large = take(pool, 9 * HOIST__MIB, 0);
	cr_assert_leq(stats(pool).reserved_peak_bytes, 10 * HOIST__MIB);
	give(pool, large);
	hoist__pool_unref(pool);
}

Test(alloc_pool, keeps_empty_regions_up_to_keep_bytes)
{
	struct hoist__pool *pool = host_pool(8 * HOIST__MIB, 0, 8 * HOIST__MIB);
	uintptr_t a = take(pool, 3500 * HOIST__KIB, 0);
	uintptr_t b = take(pool, 3500 * HOIST__KIB, 0);
	uintptr_t c = take(pool, 3500 * HOIST__KIB, 0);
	cr_assert_eq(stats(pool).n_regions, 2);
	give(pool, a);
	give(pool, b);
	cr_assert_eq(stats(pool).n_regions, 2, "one is empty and kept");
	give(pool, c);
	cr_assert_eq(stats(pool).n_regions, 1, "the second is not");
	hoist__pool_trim(pool, 8 * HOIST__MIB);
	cr_assert_eq(stats(pool).n_regions, 1);
	hoist__pool_trim(pool, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, reuses_a_kept_region_for_a_like_request)
{
	struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 64 * HOIST__MIB);
	uintptr_t a = take(pool, 16 * HOIST__MIB, 0);
	give(pool, a);
	cr_assert_eq(take(pool, 15 * HOIST__MIB, 0), a);
	cr_assert_eq(stats(pool).n_regions, 1);
	give(pool, a);
	uintptr_t b = take(pool, 8 * HOIST__MIB, 0);
	cr_assert_neq(b, a, "half of it would be wasted");
	give(pool, b);
	uintptr_t c = take(pool, 64, 0);
	cr_assert_eq(stats(pool).n_regions, 3, "a small block does not occupy a large region");
	give(pool, c);
	hoist__pool_unref(pool);
}

Test(alloc_pool, caches_freed_blocks_until_it_is_trimmed)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t blocks[100];
	for (size_t i = 0; i < 100; i++)
		blocks[i] = take(pool, 1000, 0);
	give_all(pool, blocks, 100);
	cr_assert_gt(stats(pool).cached_bytes, 0);
	cr_assert_leq(stats(pool).cached_bytes, HOIST__MIB);
	cr_assert_eq(stats(pool).n_regions, 1);
	/* The latest one freed is the next one given out: it is in the CPU's caches. */
	cr_assert_eq(take(pool, 1000, 0), blocks[99]);
	give(pool, blocks[99]);
	hoist__pool_trim(pool, 0);
	cr_assert_eq(stats(pool).cached_bytes, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, gives_lazy_blocks_fresh_zero_memory_and_takes_it_back)
{
	struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 64 * HOIST__MIB);
	for (int i = 0; i < 3; i++) {
		uintptr_t at;
		struct hoist__block block;
		OK(hoist__pool_alloc(pool, 5000, 0, HOIST__ALLOC_UNPOPULATED, &at));
		char *bytes = (char *)at;
		for (size_t k = 0; k < 5000; k++)
			cr_assert_eq(bytes[k], 0);
		OK(hoist__pool_find(pool, at, &block));
		cr_assert_eq(block.bytes, 5000);
		cr_assert_eq(block.allocated, 8192);
		memset(bytes, 1, 5000);
		cr_assert_eq(stats(pool).reserved_bytes, 8192);
		give(pool, at);
		cr_assert_eq(stats(pool).n_regions, 0, "used lazy memory is never kept");
	}
	hoist__pool_unref(pool);
}

Test(alloc_pool, lives_until_its_last_reference)
{
	struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 0);
	cr_assert_eq(hoist__pool_ref(pool), pool);
	hoist__pool_unref(pool);
	uintptr_t a = take(pool, 100, 0);
	memset((void *)a, 1, 100);
	give(pool, a);
	hoist__pool_unref(pool);
}

/* The books of a pool must not outlive it: the next one may get the same addresses. */
Test(alloc_pool, ends_with_blocks_in_use_and_leaves_no_trace)
{
	for (int i = 0; i < 20; i++) {
		struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 0);
		struct hoist__pool *owner;
		struct hoist__block block;
		uintptr_t small = take(pool, 100, 0), large = take(pool, 3 * HOIST__MIB, 0);
		hoist__pool_unref(pool);
		cr_assert_eq(hoist__pools_find(small, &owner, &block), -ENOENT);
		cr_assert_eq(hoist__pools_find(large, &owner, &block), -ENOENT);
		pool = host_pool(2 * HOIST__MIB, 0, 0); /* which may have its number */
		cr_assert_eq(hoist__pool_free(pool, small), -EINVAL);
		cr_assert_eq(hoist__pool_free(pool, large), -EINVAL);
		hoist__pool_unref(pool);
	}
}

Test(alloc_pool, counts_nothing_if_told_so)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .no_stats = true};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t a = take(pool, 100, 0), b = take(pool, 3 * HOIST__MIB, 0);
	struct hoist__pool_stats now;
	hoist__pool_stats(pool, &now);
	cr_assert_eq(now.requested_bytes, 0);
	cr_assert_eq(now.n_allocs, 0);
	cr_assert_eq(now.allocated_bytes, 128 + 3 * HOIST__MIB);
	cr_assert_eq(now.reserved_bytes, 5 * HOIST__MIB);
	give(pool, a);
	give(pool, b);
	hoist__pool_unref(pool);
}

Test(alloc_pool, tells_the_cost_of_growth)
{
	struct hoist__pool *pool = host_pool(2 * HOIST__MIB, 0, 0);
	uintptr_t a = take(pool, 100, 0);
	struct hoist__pool_stats now = stats(pool);
	cr_assert_eq(now.n_growths, 1);
	cr_assert_gt(now.step_ns[HOIST__STEP_RESERVE], 0);
	cr_assert_gt(now.step_ns[HOIST__STEP_POPULATE], 0);
	give(pool, a);
	hoist__pool_unref(pool);
}
