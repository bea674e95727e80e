/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc/classes.h"
#include "alloc/magazine.h"
#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"

#define NO_CACHE 1 /* less than the quantum: what is freed is in its slab at once */

static struct hoist__pool *create_with(const struct hoist__pool_options *options)
{
	struct hoist__pool *pool = NULL;
	cr_assert_eq(hoist__pool_create(options, &pool), 0, "%s", hoist__error_text());
	return pool;
}

static struct hoist__pool *create(size_t region_bytes, size_t limit, size_t keep)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = region_bytes,
		.limit_bytes = limit,
		.keep_bytes = keep,
		.cache_bytes = NO_CACHE,
	};
	return create_with(&options);
}

static uintptr_t alloc(struct hoist__pool *pool, size_t bytes, size_t align)
{
	uintptr_t address = 0;
	int err = hoist__pool_alloc(pool, bytes, align, 0, &address);
	cr_assert_eq(err, 0, "%d: %s", err, hoist__error_text());
	cr_assert_eq(address % (align < 64 ? 64 : align), 0);
	return address;
}

static void free_one(struct hoist__pool *pool, uintptr_t address)
{
	int err = hoist__pool_free(pool, address);
	cr_assert_eq(err, 0, "%d: %s", err, hoist__error_text());
}

static void free_all(struct hoist__pool *pool, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free_one(pool, blocks[i]);
}

static struct hoist__pool_stats stats(struct hoist__pool *pool)
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

/* What a block from a slab really takes. */
static size_t rounded(size_t bytes)
{
	return hoist__class_bytes(hoist__class_of(bytes, 6), 6);
}

Test(alloc_pool, reserves_nothing_before_the_first_block)
{
	struct hoist__pool *pool = create(0, 0, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_trim(pool, 0);
	hoist__pool_unref(pool);
	hoist__pool_unref(NULL);
}

Test(alloc_pool, rounds_to_the_class_and_counts_exactly)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
	static const size_t sizes[] = {1, 64, 65, 512, 513, 4097, 100000, 524289, 40, 1000};
	uintptr_t blocks[HOIST__ARRAY_SIZE(sizes)];
	size_t requested = 0, allocated = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		blocks[i] = alloc(pool, sizes[i], 0);
		memset((void *)blocks[i], 1, sizes[i]);
		requested += sizes[i];
		allocated += rounded(sizes[i]);
		cr_assert_eq(stats(pool).requested_bytes, requested);
		cr_assert_eq(stats(pool).allocated_bytes, allocated);
		cr_assert_eq(stats(pool).n_blocks, i + 1);
		struct hoist__block block;
		cr_assert_eq(hoist__pool_find(pool, blocks[i], &block), 0);
		cr_assert_eq(block.allocated, rounded(sizes[i]));
	}
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		free_one(pool, blocks[i]);
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
	struct hoist__pool *pool = create(8 * HOIST__MIB, 0, 0);
	size_t bytes = 20 * HOIST__MIB + 100;
	uintptr_t at = alloc(pool, bytes, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 20 * HOIST__MIB + 4096);
	cr_assert_eq(stats(pool).allocated_bytes, stats(pool).reserved_bytes);
	cr_assert_eq(at % HOIST__HUGE_PAGE_BYTES, 0);
	memset((void *)at, 1, bytes);
	/* Half a region is large. */
	uintptr_t half = alloc(pool, 4 * HOIST__MIB, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 24 * HOIST__MIB + 4096);
	/* Nothing is kept: both go back at once. */
	free_one(pool, at);
	cr_assert_eq(stats(pool).reserved_bytes, 4 * HOIST__MIB);
	free_one(pool, half);
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
	struct hoist__pool *pool = create(16 * HOIST__MIB, 0, 0);
	size_t bytes = 3 * HOIST__MIB + 1;
	uintptr_t a = alloc(pool, bytes, 0);
	uintptr_t b = alloc(pool, bytes, 2 * HOIST__MIB);
	cr_assert_eq(stats(pool).n_regions, 1);
	cr_assert_eq(stats(pool).allocated_bytes, 2 * (3 * HOIST__MIB + 64 * HOIST__KIB));
	memset((void *)a, 1, bytes);
	memset((void *)b, 2, bytes);
	cr_assert_eq(((char *)a)[bytes - 1], 1);
	free_one(pool, a);
	cr_assert_eq(stats(pool).n_regions, 1);
	free_one(pool, b);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, aligns_up_to_two_mebibytes)
{
	static const size_t sizes[] = {100, 1000, 5000, 100000, 1500000};
	struct hoist__pool *pool = create(8 * HOIST__MIB, 0, 0);
	uintptr_t blocks[256];
	size_t n = 0;
	for (size_t align = 1; align <= 2 * HOIST__MIB; align *= 2)
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
			blocks[n++] = alloc(pool, 100, 0);
			blocks[n++] = alloc(pool, sizes[i], align);
			memset((void *)blocks[n - 1], 1, sizes[i]);
		}
	hoist__pool_check(pool);
	free_all(pool, blocks, n);
	hoist__pool_unref(pool);
	/* Also where regions are smaller than the alignment, or than any class. */
	pool = create(64 * HOIST__KIB, 0, 0);
	blocks[0] = alloc(pool, 100, 2 * HOIST__MIB);
	blocks[1] = alloc(pool, 100, 2 * HOIST__MIB);
	blocks[2] = alloc(pool, 100, 0);
	blocks[3] = alloc(pool, 100000, 128);
	free_all(pool, blocks, 4);
	cr_assert_eq(stats(pool).allocated_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, refuses_senseless_requests)
{
	struct hoist__pool *pool = create(0, 0, 0);
	uintptr_t at = 77;
	cr_assert_eq(hoist__pool_alloc(pool, 0, 0, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 3, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 48, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 4 * HOIST__MIB, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, 2, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, SIZE_MAX, 0, 0, &at), -ENOMEM);
	cr_assert_eq(hoist__pool_alloc(pool, (size_t)1 << 47, 0, 0, &at), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "of host memory") != NULL, "%s", hoist__error_text());
	cr_assert_eq(at, 77, "untouched on failure");
	/* The same once there is a magazine to take from. */
	uintptr_t block = alloc(pool, 1, 0);
	cr_assert_eq(hoist__pool_alloc(pool, 0, 0, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 3, 0, &at), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 48, 0, &at), -EINVAL);
	free_one(pool, block);
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
	pool = create_with(&options);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, HOIST__ALLOC_UNPOPULATED, &at), -EINVAL);
	hoist__pool_unref(pool);
}

/* Nothing about @pool may change by any of these. */
static void expect_refused(struct hoist__pool *pool, const uintptr_t *wrong, size_t n)
{
	struct hoist__pool_stats before = stats(pool);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(hoist__pool_free(pool, wrong[i]), -EINVAL, "%zu: %#zx", i,
			     (size_t)wrong[i]);
	struct hoist__pool_stats after = stats(pool);
	cr_assert_eq(memcmp(&before, &after, sizeof before), 0, "nothing has changed");
}

static void expect_wrong_frees_found(size_t cache_bytes)
{
	struct hoist__pool_options options = {.region_bytes = 16 * HOIST__MIB,
					      .keep_bytes = 16 * HOIST__MIB,
					      .cache_bytes = cache_bytes};
	struct hoist__pool *pool = create_with(&options);
	struct hoist__pool *other = create_with(&options);
	uintptr_t a = alloc(pool, 1000, 0), b = alloc(pool, 1000, 0), c = alloc(pool, 1000, 0);
	uintptr_t large = alloc(pool, 2 * HOIST__MIB + 5, 0);
	uintptr_t gone = alloc(pool, 3 * HOIST__MIB, 0);
	uintptr_t foreign = alloc(other, 1000, 0);
	int local;
	free_one(pool, c);
	free_one(pool, gone);
	const uintptr_t wrong[] = {
		a + 1,
		a + 64,
		b + 999,
		b + 1023,
		large + 1,
		large + 64 * HOIST__KIB,
		large + 2 * HOIST__MIB + 4,
		c,
		gone,
		gone + 64 * HOIST__KIB,
		0,
		1,
		UINTPTR_MAX,
		(uintptr_t)&local,
		(uintptr_t)pool,
		foreign,
		/* Of the slab, but of no block yet: never given out. */
		(a & ~(HOIST__MIB / 16 - 1)) + 60 * HOIST__KIB,
	};
	expect_refused(pool, wrong, HOIST__ARRAY_SIZE(wrong));
	cr_assert_eq(hoist__pool_free(pool, a + 1), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "lies inside") != NULL);
	cr_assert_eq(hoist__pool_free(pool, large + HOIST__MIB), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "lies inside") != NULL);
	cr_assert_eq(hoist__pool_free(pool, foreign), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "another's") != NULL);
	free_one(pool, a);
	free_one(pool, b);
	free_one(pool, large);
	free_one(other, foreign);
	const uintptr_t twice[] = {a, b, c, large, foreign};
	expect_refused(pool, twice, HOIST__ARRAY_SIZE(twice));
	hoist__pool_trim(pool, 0);
	expect_refused(pool, twice, HOIST__ARRAY_SIZE(twice));
	hoist__pool_unref(pool);
	hoist__pool_unref(other);
}

Test(alloc_pool, finds_double_frees_interior_and_foreign_pointers)
{
	expect_wrong_frees_found(NO_CACHE);
	expect_wrong_frees_found(0);
}

/* More pools than a thread's lookaside has places: each has its own blocks all the same. */
Test(alloc_pool, of_many_used_in_turn_are_not_mixed_up)
{
	enum { N_POOLS = 3 * HOIST__PLACES + 1, N_ROUNDS = 50 };
	struct hoist__pool *pools[N_POOLS];
	uintptr_t kept[N_POOLS];
	for (size_t i = 0; i < N_POOLS; i++) {
		/* Every third has no fast path. */
		const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB,
							    .debug = i % 3 == 0};
		pools[i] = create_with(&options);
		kept[i] = alloc(pools[i], 1000, 0);
	}
	for (size_t round = 0; round < N_ROUNDS; round++)
		for (size_t i = 0; i < N_POOLS; i++) {
			/* One that shares the place with it, or another. */
			size_t next = (i + (round % 2 == 0 ? HOIST__PLACES : 1)) % N_POOLS;
			uintptr_t block = alloc(pools[i], 500, 0);
			struct hoist__block found;
			cr_assert_eq(hoist__pool_find(pools[i], block, &found), 0);
			cr_assert_eq(hoist__pool_free(pools[next], block), -EINVAL);
			free_one(pools[next], kept[next]);
			cr_assert_eq(hoist__pool_free(pools[next], kept[next]), -EINVAL);
			kept[next] = alloc(pools[next], 1000, 0);
			free_one(pools[i], block);
			cr_assert_eq(hoist__pool_free(pools[i], block), -EINVAL);
		}
	for (size_t i = 0; i < N_POOLS; i++) {
		cr_assert_eq(stats(pools[i]).n_blocks, 1);
		free_one(pools[i], kept[i]);
		hoist__pool_trim(pools[i], 0);
		cr_assert_eq(stats(pools[i]).reserved_bytes, 0);
		hoist__pool_unref(pools[i]);
	}
}

static void expect_found(struct hoist__pool *pool, uintptr_t address, size_t bytes)
{
	struct hoist__block block;
	struct hoist__pool *owner;
	const size_t inside[] = {0, bytes / 3, bytes / 2, bytes - 1};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(inside); i++) {
		cr_assert_eq(hoist__pool_find(pool, address + inside[i], &block), 0);
		cr_assert_eq(block.address, address);
		cr_assert_eq(block.bytes, bytes);
		cr_assert_geq(block.allocated, bytes);
		cr_assert_not_null(block.region);
		cr_assert_leq(block.region->base, address);
		cr_assert_leq(address + block.allocated, block.region->base + block.region->bytes);
		cr_assert_eq(hoist__pools_find(address + inside[i], &owner, &block), 0);
		cr_assert_eq(owner, pool);
		cr_assert_eq(block.address, address);
	}
	cr_assert_eq(hoist__pool_find(pool, address + bytes, &block), -ENOENT);
	cr_assert_eq(hoist__pools_find(address + bytes, &owner, &block), -ENOENT);
}

Test(alloc_pool, finds_the_block_around_an_address)
{
	static const size_t sizes[] = {1000, 1, 70000, 3 * HOIST__MIB + 3, 20 * HOIST__MIB + 7};
	struct hoist__pool *pool = create(16 * HOIST__MIB, 0, 0);
	struct hoist__pool *other = create(16 * HOIST__MIB, 0, 0);
	struct hoist__block block;
	struct hoist__pool *owner;
	cr_assert_eq(hoist__pool_find(pool, 0, &block), -ENOENT);
	cr_assert_eq(hoist__pool_find(pool, UINTPTR_MAX, &block), -ENOENT);
	cr_assert_eq(hoist__pools_find((uintptr_t)&block, &owner, &block), -ENOENT);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t at = alloc(pool, sizes[i], 0);
		expect_found(pool, at, sizes[i]);
		cr_assert_eq(hoist__pool_find(other, at, &block), -ENOENT);
		free_one(pool, at);
		cr_assert_eq(hoist__pool_find(pool, at, &block), -ENOENT);
		cr_assert_eq(hoist__pools_find(at, &owner, &block), -ENOENT);
	}
	hoist__pool_unref(pool);
	hoist__pool_unref(other);
}

Test(alloc_pool, merges_neighbours_so_that_nothing_stays_in_pieces)
{
	struct hoist__pool *pool = create(32 * HOIST__MIB, 32 * HOIST__MIB, 32 * HOIST__MIB);
	enum { N = 16 };
	uintptr_t blocks[N];
	for (size_t i = 0; i < N; i++)
		blocks[i] = alloc(pool, 2 * HOIST__MIB, 0);
	cr_assert_eq(stats(pool).allocated_bytes, 32 * HOIST__MIB, "full to the last byte");
	cr_assert_eq(stats(pool).free_bytes, 0);
	for (size_t i = 0; i < N; i += 2)
		free_one(pool, blocks[i]);
	cr_assert_eq(stats(pool).free_bytes, 16 * HOIST__MIB);
	cr_assert_eq(stats(pool).largest_free_bytes, 2 * HOIST__MIB);
	uintptr_t at;
	cr_assert_eq(hoist__pool_alloc(pool, 3 * HOIST__MIB, 0, 0, &at), -EDQUOT);
	for (size_t i = 1; i < N; i += 2)
		free_one(pool, blocks[i]);
	cr_assert_eq(stats(pool).largest_free_bytes, 32 * HOIST__MIB);
	uintptr_t most = alloc(pool, 16 * HOIST__MIB - 1, 0);
	uintptr_t rest = alloc(pool, 16 * HOIST__MIB - 1, 0);
	cr_assert_eq(stats(pool).n_regions, 1);
	free_one(pool, most);
	free_one(pool, rest);
	hoist__pool_unref(pool);
}

Test(alloc_pool, never_reserves_more_than_its_limit)
{
	struct hoist__pool *pool = create(4 * HOIST__MIB, 10 * HOIST__MIB, 10 * HOIST__MIB);
	uintptr_t blocks[128];
	uintptr_t at;
	cr_assert_eq(hoist__pool_alloc(pool, 11 * HOIST__MIB, 0, 0, &at), -EDQUOT);
	size_t n = 0;
	for (; n < 128; n++) {
		if (hoist__pool_alloc(pool, 96 * HOIST__KIB, 0, 0, &blocks[n]) != 0)
			break;
		cr_assert_leq(stats(pool).reserved_bytes, 10 * HOIST__MIB);
	}
	cr_assert(strstr(hoist__error_text(), "limit is 10 MiB") != NULL, "%s",
		  hoist__error_text());
	cr_assert_geq(n, 92, "%zu: a tenth of the memory is not used", n);
	free_all(pool, blocks, n);
	/* What lies empty makes room for what needs another shape. */
	cr_assert_gt(stats(pool).reserved_bytes, 8 * HOIST__MIB);
	uintptr_t large = alloc(pool, 9 * HOIST__MIB, 0);
	cr_assert_leq(stats(pool).reserved_peak_bytes, 10 * HOIST__MIB);
	free_one(pool, large);
	hoist__pool_unref(pool);
}

Test(alloc_pool, keeps_empty_regions_up_to_what_it_was_told)
{
	struct hoist__pool *pool = create(8 * HOIST__MIB, 0, 8 * HOIST__MIB);
	uintptr_t a = alloc(pool, 3500 * HOIST__KIB, 0);
	uintptr_t b = alloc(pool, 3500 * HOIST__KIB, 0);
	uintptr_t c = alloc(pool, 3500 * HOIST__KIB, 0);
	cr_assert_eq(stats(pool).n_regions, 2);
	free_one(pool, a);
	free_one(pool, b);
	cr_assert_eq(stats(pool).n_regions, 2, "one is empty and kept");
	free_one(pool, c);
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
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 64 * HOIST__MIB);
	uintptr_t a = alloc(pool, 16 * HOIST__MIB, 0);
	free_one(pool, a);
	cr_assert_eq(alloc(pool, 15 * HOIST__MIB, 0), a);
	cr_assert_eq(stats(pool).n_regions, 1);
	free_one(pool, a);
	uintptr_t b = alloc(pool, 8 * HOIST__MIB, 0);
	cr_assert_neq(b, a, "half of it would be wasted");
	free_one(pool, b);
	uintptr_t c = alloc(pool, 64, 0);
	cr_assert_eq(stats(pool).n_regions, 3, "a small block does not occupy a large region");
	free_one(pool, c);
	hoist__pool_unref(pool);
}

Test(alloc_pool, caches_what_is_freed_and_empties_that_when_told)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB};
	struct hoist__pool *pool = create_with(&options);
	uintptr_t blocks[100];
	for (size_t i = 0; i < 100; i++)
		blocks[i] = alloc(pool, 1000, 0);
	free_all(pool, blocks, 100);
	cr_assert_gt(stats(pool).cached_bytes, 0);
	cr_assert_leq(stats(pool).cached_bytes, HOIST__MIB);
	cr_assert_eq(stats(pool).n_regions, 1);
	/* The latest one freed is the next one given out: it is in the CPU's caches. */
	cr_assert_eq(alloc(pool, 1000, 0), blocks[99]);
	free_one(pool, blocks[99]);
	hoist__pool_trim(pool, 0);
	cr_assert_eq(stats(pool).cached_bytes, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, gives_lazy_blocks_fresh_zero_memory_and_takes_it_back)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 64 * HOIST__MIB);
	for (int i = 0; i < 3; i++) {
		uintptr_t at;
		struct hoist__block block;
		cr_assert_eq(hoist__pool_alloc(pool, 5000, 0, HOIST__ALLOC_UNPOPULATED, &at), 0);
		char *bytes = (char *)at;
		for (size_t k = 0; k < 5000; k++)
			cr_assert_eq(bytes[k], 0);
		cr_assert_eq(hoist__pool_find(pool, at, &block), 0);
		cr_assert_eq(block.bytes, 5000);
		cr_assert_eq(block.allocated, 8192);
		memset(bytes, 1, 5000);
		cr_assert_eq(stats(pool).reserved_bytes, 8192);
		free_one(pool, at);
		cr_assert_eq(stats(pool).n_regions, 0, "used lazy memory is never kept");
	}
	hoist__pool_unref(pool);
}

Test(alloc_pool, lives_until_its_last_reference)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
	cr_assert_eq(hoist__pool_ref(pool), pool);
	hoist__pool_unref(pool);
	uintptr_t a = alloc(pool, 100, 0);
	memset((void *)a, 1, 100);
	free_one(pool, a);
	hoist__pool_unref(pool);
}

/* The books of a pool must not outlive it: the next one may get the same addresses. */
Test(alloc_pool, ends_with_blocks_in_use_and_leaves_no_trace)
{
	for (int i = 0; i < 20; i++) {
		struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
		struct hoist__pool *owner;
		struct hoist__block block;
		uintptr_t small = alloc(pool, 100, 0), large = alloc(pool, 3 * HOIST__MIB, 0);
		hoist__pool_unref(pool);
		cr_assert_eq(hoist__pools_find(small, &owner, &block), -ENOENT);
		cr_assert_eq(hoist__pools_find(large, &owner, &block), -ENOENT);
		pool = create(2 * HOIST__MIB, 0, 0); /* which may have its number */
		cr_assert_eq(hoist__pool_free(pool, small), -EINVAL);
		cr_assert_eq(hoist__pool_free(pool, large), -EINVAL);
		hoist__pool_unref(pool);
	}
}

Test(alloc_pool, counts_nothing_if_told_so)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .no_stats = true};
	struct hoist__pool *pool = create_with(&options);
	uintptr_t a = alloc(pool, 100, 0), b = alloc(pool, 3 * HOIST__MIB, 0);
	struct hoist__pool_stats now;
	hoist__pool_stats(pool, &now);
	cr_assert_eq(now.requested_bytes, 0);
	cr_assert_eq(now.n_allocs, 0);
	cr_assert_eq(now.allocated_bytes, 128 + 3 * HOIST__MIB);
	cr_assert_eq(now.reserved_bytes, 5 * HOIST__MIB);
	free_one(pool, a);
	free_one(pool, b);
	hoist__pool_unref(pool);
}

Test(alloc_pool, says_what_growth_cost)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
	uintptr_t a = alloc(pool, 100, 0);
	struct hoist__pool_stats now = stats(pool);
	cr_assert_eq(now.n_growths, 1);
	cr_assert_gt(now.step_ns[HOIST__STEP_RESERVE], 0);
	cr_assert_gt(now.step_ns[HOIST__STEP_POPULATE], 0);
	free_one(pool, a);
	hoist__pool_unref(pool);
}

/* --- walking --- */

struct seen {
	size_t n_regions;
	size_t n[4];
	size_t bytes[4];
	size_t requested;
	uintptr_t end;
	bool disorder;
};

static void see_region(void *arg, const struct hoist__region *region)
{
	struct seen *seen = arg;
	seen->n_regions++;
	seen->end = region->base;
}

static void see_block(void *arg, uintptr_t address, size_t bytes, size_t requested,
		      enum hoist__block_state state)
{
	struct seen *seen = arg;
	seen->n[state]++;
	seen->bytes[state] += bytes;
	seen->requested += requested;
	seen->disorder |= address < seen->end || (requested != 0) != (state == HOIST__BLOCK_LIVE) ||
			  requested > bytes;
	seen->end = address + bytes;
}

Test(alloc_pool, walks_over_all_it_has)
{
	static const struct hoist__pool_visitor visitor = {see_region, see_block};
	const struct hoist__pool_options options = {.region_bytes = 8 * HOIST__MIB,
						    .keep_bytes = 64 * HOIST__MIB};
	struct hoist__pool *pool = create_with(&options);
	uintptr_t blocks[300];
	for (size_t i = 0; i < 300; i++)
		blocks[i] = alloc(pool, 1 + i * 97 % 30000, 0);
	uintptr_t medium = alloc(pool, 3 * HOIST__MIB, 0), own = alloc(pool, 5 * HOIST__MIB, 0);
	uintptr_t gone = alloc(pool, 9 * HOIST__MIB, 0);
	free_all(pool, blocks, 100);
	free_one(pool, gone);
	struct seen seen = {0};
	hoist__pool_walk(pool, &visitor, &seen);
	struct hoist__pool_stats now = stats(pool);
	cr_assert_not(seen.disorder);
	cr_assert_eq(seen.n_regions, now.n_regions);
	cr_assert_eq(seen.n[HOIST__BLOCK_LIVE], 202);
	cr_assert_eq(seen.n[HOIST__BLOCK_LIVE], now.n_blocks);
	cr_assert_eq(seen.bytes[HOIST__BLOCK_LIVE], now.allocated_bytes);
	cr_assert_eq(seen.requested, now.requested_bytes);
	cr_assert_eq(seen.bytes[HOIST__BLOCK_PENDING], 0);
	cr_assert_geq(seen.bytes[HOIST__BLOCK_CACHED], now.cached_bytes);
	cr_assert_eq(seen.bytes[HOIST__BLOCK_FREE], now.free_bytes);
	free_all(pool, blocks + 100, 200);
	free_one(pool, medium);
	free_one(pool, own);
	hoist__pool_unref(pool);
}
