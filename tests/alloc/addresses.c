/* SPDX-License-Identifier: MIT */
/* The answers of pools about addresses: blocks found, wrong ones refused, all of them walked over.
 */
#include "config.h"

#include "tests/support/alloc-unit.h"

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
	struct hoist__pool *pool = make_pool(&options);
	struct hoist__pool *other = make_pool(&options);
	uintptr_t a = take(pool, 1000, 0), b = take(pool, 1000, 0), c = take(pool, 1000, 0);
	uintptr_t large = take(pool, 2 * HOIST__MIB + 5, 0);
	uintptr_t gone = take(pool, 3 * HOIST__MIB, 0);
	uintptr_t foreign = take(other, 1000, 0);
	int local;
	give(pool, c);
	give(pool, gone);
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
		/* In the slab, but in no block yet: never given out. */
		(a & ~(HOIST__MIB / 16 - 1)) + 60 * HOIST__KIB,
	};
	expect_refused(pool, wrong, HOIST__ARRAY_SIZE(wrong));
	cr_assert_eq(hoist__pool_free(pool, a + 1), -EINVAL);
	SAYS("lies inside");
	cr_assert_eq(hoist__pool_free(pool, large + HOIST__MIB), -EINVAL);
	SAYS("lies inside");
	cr_assert_eq(hoist__pool_free(pool, foreign), -EINVAL);
	SAYS("another's");
	give(pool, a);
	give(pool, b);
	give(pool, large);
	give(other, foreign);
	const uintptr_t twice[] = {a, b, c, large, foreign};
	expect_refused(pool, twice, HOIST__ARRAY_SIZE(twice));
	hoist__pool_trim(pool, 0);
	expect_refused(pool, twice, HOIST__ARRAY_SIZE(twice));
	hoist__pool_unref(pool);
	hoist__pool_unref(other);
}

Test(alloc_addresses, finds_double_frees_interior_and_foreign_pointers)
{
	expect_wrong_frees_found(NO_CACHE);
	expect_wrong_frees_found(0);
}

static void expect_found(struct hoist__pool *pool, uintptr_t address, size_t bytes)
{
	struct hoist__block block;
	struct hoist__pool *owner;
	const size_t inside[] = {0, bytes / 3, bytes / 2, bytes - 1};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(inside); i++) {
		OK(hoist__pool_find(pool, address + inside[i], &block));
		cr_assert_eq(block.address, address);
		cr_assert_eq(block.bytes, bytes);
		cr_assert_geq(block.allocated, bytes);
		cr_assert_not_null(block.region);
		cr_assert_leq(block.region->base, address);
		cr_assert_leq(address + block.allocated, block.region->base + block.region->bytes);
		OK(hoist__pools_find(address + inside[i], &owner, &block));
		cr_assert_eq(owner, pool);
		cr_assert_eq(block.address, address);
	}
	cr_assert_eq(hoist__pool_find(pool, address + bytes, &block), -ENOENT);
	cr_assert_eq(hoist__pools_find(address + bytes, &owner, &block), -ENOENT);
}

Test(alloc_addresses, finds_the_block_around_an_address)
{
	static const size_t sizes[] = {1000, 1, 70000, 3 * HOIST__MIB + 3, 20 * HOIST__MIB + 7};
	struct hoist__pool *pool = host_pool(16 * HOIST__MIB, 0, 0);
	struct hoist__pool *other = host_pool(16 * HOIST__MIB, 0, 0);
	struct hoist__block block;
	struct hoist__pool *owner;
	cr_assert_eq(hoist__pool_find(pool, 0, &block), -ENOENT);
	cr_assert_eq(hoist__pool_find(pool, UINTPTR_MAX, &block), -ENOENT);
	cr_assert_eq(hoist__pools_find((uintptr_t)&block, &owner, &block), -ENOENT);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t at = take(pool, sizes[i], 0);
		expect_found(pool, at, sizes[i]);
		cr_assert_eq(hoist__pool_find(other, at, &block), -ENOENT);
		give(pool, at);
		cr_assert_eq(hoist__pool_find(pool, at, &block), -ENOENT);
		cr_assert_eq(hoist__pools_find(at, &owner, &block), -ENOENT);
	}
	hoist__pool_unref(pool);
	hoist__pool_unref(other);
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

Test(alloc_addresses, walks_over_all_it_has)
{
	static const struct hoist__pool_visitor visitor = {see_region, see_block};
	const struct hoist__pool_options options = {.region_bytes = 8 * HOIST__MIB,
						    .keep_bytes = 64 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t blocks[300];
	for (size_t i = 0; i < 300; i++)
		blocks[i] = take(pool, 1 + i * 97 % 30000, 0);
	uintptr_t medium = take(pool, 3 * HOIST__MIB, 0), own = take(pool, 5 * HOIST__MIB, 0);
	uintptr_t gone = take(pool, 9 * HOIST__MIB, 0);
	give_all(pool, blocks, 100);
	give(pool, gone);
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
	give_all(pool, blocks + 100, 200);
	give(pool, medium);
	give(pool, own);
	hoist__pool_unref(pool);
}
