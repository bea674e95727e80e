/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/pool.h"
#include "alloc/spans.h"
#include "base/checked.h"
#include "base/error.h"

static struct hoist__pool *create(size_t region_bytes, size_t limit, size_t keep)
{
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = region_bytes,
		.limit_bytes = limit,
		.keep_bytes = keep,
	};
	struct hoist__pool *pool = NULL;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	return pool;
}

static uintptr_t alloc(struct hoist__pool *pool, size_t bytes, size_t align)
{
	struct hoist__block block;
	int err = hoist__pool_alloc(pool, bytes, align, 0, &block);
	cr_assert_eq(err, 0, "%d: %s", err, hoist__error_text());
	cr_assert_eq(block.bytes, bytes);
	cr_assert_eq(block.address % (align == 0 ? 64 : align), 0);
	return block.address;
}

static void free_all(struct hoist__pool *pool, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(hoist__pool_free(pool, blocks[i]), 0);
}

static struct hoist__pool_stats stats(struct hoist__pool *pool)
{
	struct hoist__pool_stats now;
	hoist__pool_stats(pool, &now);
	cr_assert_leq(now.requested_bytes, now.allocated_bytes);
	cr_assert_leq(now.allocated_bytes, now.reserved_bytes);
	cr_assert_leq(now.reserved_bytes, now.reserved_peak_bytes);
	cr_assert_eq(now.n_allocs - now.n_frees, now.n_blocks);
	return now;
}

Test(alloc_pool, reserves_nothing_before_the_first_block)
{
	struct hoist__pool *pool = create(0, 0, 0);
	cr_assert_eq(stats(pool).reserved_bytes, 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	hoist__pool_unref(pool);
	hoist__pool_unref(NULL);
}

Test(alloc_pool, rounds_to_the_granule_and_no_further)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
	static const size_t sizes[] = {1, 64, 65, 4097, 100000, 524289};
	size_t requested = 0, allocated = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t at = alloc(pool, sizes[i], 0);
		memset((void *)at, 1, sizes[i]);
		requested += sizes[i];
		allocated += (size_t)hoist__round_up(sizes[i], 64);
		cr_assert_eq(stats(pool).requested_bytes, requested);
		cr_assert_eq(stats(pool).allocated_bytes, allocated);
	}
	cr_assert_eq(stats(pool).n_regions, 1);
	cr_assert_eq(stats(pool).reserved_bytes, 2 * HOIST__MIB);
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
	cr_assert_eq(hoist__pool_free(pool, at), 0);
	cr_assert_eq(stats(pool).reserved_bytes, 4 * HOIST__MIB);
	cr_assert_eq(hoist__pool_free(pool, half), 0);
	cr_assert_eq(stats(pool).n_regions, 0);
	cr_assert_eq(stats(pool).reserved_peak_bytes, 24 * HOIST__MIB + 4096);
	hoist__pool_reset_peak(pool);
	cr_assert_eq(stats(pool).reserved_peak_bytes, 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, aligns_up_to_two_mebibytes)
{
	struct hoist__pool *pool = create(8 * HOIST__MIB, 0, 0);
	uintptr_t blocks[64];
	size_t n = 0;
	for (size_t align = 1; align <= 2 * HOIST__MIB; align *= 2) {
		blocks[n++] = alloc(pool, 100, 0);
		blocks[n++] = alloc(pool, 1000, align < 64 ? 0 : align);
	}
	free_all(pool, blocks, n);
	hoist__pool_unref(pool);
	/* Also where regions are smaller than the alignment. */
	pool = create(64 * HOIST__KIB, 0, 0);
	blocks[0] = alloc(pool, 100, 2 * HOIST__MIB);
	blocks[1] = alloc(pool, 100, 2 * HOIST__MIB);
	free_all(pool, blocks, 2);
	hoist__pool_unref(pool);
}

Test(alloc_pool, refuses_senseless_requests)
{
	struct hoist__pool *pool = create(0, 0, 0);
	struct hoist__block block = {.address = 77};
	cr_assert_eq(hoist__pool_alloc(pool, 0, 0, 0, &block), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 3, 0, &block), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 4 * HOIST__MIB, 0, &block), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, 2, &block), -EINVAL);
	cr_assert_eq(hoist__pool_alloc(pool, SIZE_MAX, 0, 0, &block), -ENOMEM);
	cr_assert_eq(hoist__pool_alloc(pool, (size_t)1 << 47, 0, 0, &block), -ENOMEM);
	cr_assert(strstr(hoist__error_text(), "of host memory") != NULL, "%s", hoist__error_text());
	cr_assert_eq(block.address, 77, "untouched on failure");
	hoist__pool_unref(pool);
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_DEVICE};
	pool = NULL;
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options.kind = (enum hoist__memory_kind)9;
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options = (struct hoist__pool_options){.placement = {.policy = HOIST__POLICY_BIND}};
	cr_assert_eq(hoist__pool_create(&options, &pool), -EINVAL);
	options = (struct hoist__pool_options){.kind = HOIST__MEMORY_PINNED};
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, HOIST__ALLOC_LAZY, &block), -EINVAL);
	hoist__pool_unref(pool);
}

Test(alloc_pool, finds_double_frees_interior_and_foreign_pointers)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 2 * HOIST__MIB);
	uintptr_t a = alloc(pool, 1000, 0);
	uintptr_t b = alloc(pool, 1000, 0);
	int local;
	struct hoist__pool_stats before = stats(pool);
	cr_assert_eq(hoist__pool_free(pool, a + 1), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "inside the block") != NULL);
	cr_assert_eq(hoist__pool_free(pool, a + 1023), -EINVAL, "in the rounding");
	cr_assert_eq(hoist__pool_free(pool, b + 1024), -EINVAL, "a free span");
	cr_assert_eq(hoist__pool_free(pool, 0), -EINVAL);
	cr_assert_eq(hoist__pool_free(pool, (uintptr_t)&local), -EINVAL);
	cr_assert(strstr(hoist__error_text(), "another's") != NULL);
	struct hoist__pool_stats after = stats(pool);
	cr_assert_eq(memcmp(&before, &after, sizeof before), 0, "nothing has changed");
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	cr_assert_eq(hoist__pool_free(pool, a), -EINVAL, "twice");
	cr_assert_eq(hoist__pool_free(pool, b), 0);
	cr_assert_eq(hoist__pool_free(pool, b), -EINVAL, "twice");
	hoist__pool_unref(pool);
}

Test(alloc_pool, finds_the_block_around_an_address)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 0);
	uintptr_t a = alloc(pool, 1000, 0);
	struct hoist__block block;
	cr_assert_eq(hoist__pool_find(pool, a, &block), 0);
	cr_assert_eq(hoist__pool_find(pool, a + 999, &block), 0);
	cr_assert_eq(block.address, a);
	cr_assert_eq(block.bytes, 1000);
	cr_assert_eq(hoist__pool_find(pool, a + 1000, &block), -ENOENT);
	cr_assert_eq(hoist__pool_find(pool, a - 1, &block), -ENOENT);
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	cr_assert_eq(hoist__pool_find(pool, a, &block), -ENOENT);
	hoist__pool_unref(pool);
}

Test(alloc_pool, merges_neighbours_so_that_nothing_stays_in_pieces)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 2 * HOIST__MIB, 2 * HOIST__MIB);
	enum { N = 32 };
	uintptr_t blocks[N];
	for (size_t i = 0; i < N; i++)
		blocks[i] = alloc(pool, 64 * HOIST__KIB, 0);
	cr_assert_eq(stats(pool).allocated_bytes, 2 * HOIST__MIB, "full to the last byte");
	for (size_t i = 0; i < N; i += 2)
		cr_assert_eq(hoist__pool_free(pool, blocks[i]), 0);
	struct hoist__block block;
	cr_assert_eq(hoist__pool_alloc(pool, 128 * HOIST__KIB, 0, 0, &block), -EDQUOT);
	for (size_t i = 1; i < N; i += 2)
		cr_assert_eq(hoist__pool_free(pool, blocks[i]), 0);
	uintptr_t most = alloc(pool, 1023 * HOIST__KIB, 0);
	uintptr_t rest = alloc(pool, 1023 * HOIST__KIB, 0);
	cr_assert_eq(stats(pool).n_regions, 1);
	cr_assert_eq(hoist__pool_free(pool, most), 0);
	cr_assert_eq(hoist__pool_free(pool, rest), 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, never_reserves_more_than_its_limit)
{
	struct hoist__pool *pool = create(4 * HOIST__MIB, 10 * HOIST__MIB, 10 * HOIST__MIB);
	struct hoist__block block = {.address = 77};
	cr_assert_eq(hoist__pool_alloc(pool, 11 * HOIST__MIB, 0, 0, &block), -EDQUOT);
	uintptr_t blocks[128];
	size_t n = 0;
	for (; n < 128; n++) {
		if (hoist__pool_alloc(pool, 100 * HOIST__KIB, 0, 0, &block) != 0)
			break;
		blocks[n] = block.address;
		cr_assert_leq(stats(pool).reserved_bytes, 10 * HOIST__MIB);
	}
	cr_assert(strstr(hoist__error_text(), "limit is 10 MiB: 100 KiB asked") != NULL, "%s",
		  hoist__error_text());
	cr_assert_geq(n, 100, "the last 2 MiB became a smaller region");
	free_all(pool, blocks, n);
	/* What lies empty makes room for what needs another shape. */
	cr_assert_eq(stats(pool).reserved_bytes, 10 * HOIST__MIB);
	uintptr_t large = alloc(pool, 9 * HOIST__MIB, 0);
	cr_assert_leq(stats(pool).reserved_peak_bytes, 10 * HOIST__MIB);
	cr_assert_eq(hoist__pool_free(pool, large), 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, keeps_empty_regions_up_to_what_it_was_told)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 2 * HOIST__MIB);
	uintptr_t a = alloc(pool, 900 * HOIST__KIB, 0);
	uintptr_t b = alloc(pool, 900 * HOIST__KIB, 0);
	uintptr_t c = alloc(pool, 900 * HOIST__KIB, 0);
	cr_assert_eq(stats(pool).n_regions, 2);
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	cr_assert_eq(hoist__pool_free(pool, b), 0);
	cr_assert_eq(stats(pool).n_regions, 2, "one is empty and kept");
	cr_assert_eq(hoist__pool_free(pool, c), 0);
	cr_assert_eq(stats(pool).n_regions, 1, "the second is not");
	hoist__pool_trim(pool, 2 * HOIST__MIB);
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
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	cr_assert_eq(alloc(pool, 15 * HOIST__MIB, 0), a);
	cr_assert_eq(stats(pool).n_regions, 1);
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	uintptr_t b = alloc(pool, 8 * HOIST__MIB, 0);
	cr_assert_neq(b, a, "half of it would be wasted");
	cr_assert_eq(hoist__pool_free(pool, b), 0);
	uintptr_t c = alloc(pool, 64, 0);
	cr_assert_eq(stats(pool).n_regions, 3, "a small block does not occupy a large region");
	cr_assert_eq(hoist__pool_free(pool, c), 0);
	hoist__pool_unref(pool);
}

Test(alloc_pool, gives_lazy_blocks_fresh_zero_memory_and_takes_it_back)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 64 * HOIST__MIB);
	struct hoist__block block;
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(hoist__pool_alloc(pool, 5000, 0, HOIST__ALLOC_LAZY, &block), 0);
		char *bytes = (char *)block.address;
		for (size_t k = 0; k < 5000; k++)
			cr_assert_eq(bytes[k], 0);
		cr_assert_eq(block.node, -1);
		memset(bytes, 1, 5000);
		cr_assert_eq(stats(pool).reserved_bytes, 8192);
		cr_assert_eq(hoist__pool_free(pool, block.address), 0);
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
	cr_assert_eq(hoist__pool_free(pool, a), 0);
	hoist__pool_unref(pool);
}

/* --- the model: a random sequence against an array of owners --- */

struct model {
	uint64_t random;
	size_t n_live;
	struct {
		uintptr_t address;
		size_t bytes;
		unsigned char mark;
	} blocks[512];
};

static uint64_t next(struct model *model)
{
	model->random =
		model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return model->random >> 33;
}

/* Mostly small, some of each order of magnitude up to 256 KiB. */
static size_t random_bytes(struct model *model)
{
	return 1 + next(model) % ((size_t)64 << next(model) % 13);
}

static void model_alloc(struct model *model, struct hoist__pool *pool)
{
	size_t bytes = random_bytes(model);
	size_t align = next(model) % 4 == 0 ? (size_t)64 << next(model) % 10 : 0;
	uintptr_t address = alloc(pool, bytes, align);
	unsigned char mark = (unsigned char)next(model);
	/* A mark at each end: an overlap with any live block destroys one. */
	((unsigned char *)address)[0] = mark;
	((unsigned char *)address)[bytes - 1] = mark;
	model->blocks[model->n_live].address = address;
	model->blocks[model->n_live].bytes = bytes;
	model->blocks[model->n_live++].mark = mark;
}

static void model_free(struct model *model, struct hoist__pool *pool)
{
	size_t i = next(model) % model->n_live;
	uintptr_t address = model->blocks[i].address;
	size_t bytes = model->blocks[i].bytes;
	const unsigned char *content = (unsigned char *)address;
	struct hoist__block block;
	cr_assert_eq(content[0], model->blocks[i].mark);
	cr_assert_eq(content[bytes - 1], model->blocks[i].mark);
	cr_assert_eq(hoist__pool_find(pool, address + next(model) % bytes, &block), 0);
	cr_assert_eq(block.address, address);
	cr_assert_eq(block.bytes, bytes);
	cr_assert_eq(hoist__pool_free(pool, address), 0);
	model->blocks[i] = model->blocks[--model->n_live];
}

Test(alloc_pool, agrees_with_a_model_over_random_operations)
{
	struct hoist__pool *pool = create(2 * HOIST__MIB, 0, 4 * HOIST__MIB);
	static struct model model = {.random = 42};
	for (int i = 0; i < 200000; i++) {
		bool grow = model.n_live < 512 && (model.n_live == 0 || next(&model) % 2 == 0);
		if (grow)
			model_alloc(&model, pool);
		else
			model_free(&model, pool);
	}
	size_t requested = 0;
	for (size_t i = 0; i < model.n_live; i++)
		requested += model.blocks[i].bytes;
	cr_assert_eq(stats(pool).requested_bytes, requested);
	cr_assert_eq(stats(pool).n_blocks, model.n_live);
	while (model.n_live > 0)
		model_free(&model, pool);
	cr_assert_eq(stats(pool).allocated_bytes, 0);
	cr_assert_leq(stats(pool).reserved_bytes, 4 * HOIST__MIB);
	hoist__pool_unref(pool);
}

/* --- spans: every granule's owner, over addresses that do not exist --- */

#define GRANULES 1024
#define GRANULE 64
#define BASE ((uintptr_t)0x7000 << 32)

static size_t longest_free_run(const unsigned char *owned)
{
	size_t longest = 0, run = 0;
	for (size_t i = 0; i < GRANULES; i++) {
		run = owned[i] ? 0 : run + 1;
		if (run > longest)
			longest = run;
	}
	return longest;
}

static void mark(unsigned char *owned, uintptr_t address, size_t bytes, unsigned char to)
{
	for (size_t i = (address - BASE) / GRANULE; i < (address - BASE + bytes) / GRANULE; i++) {
		cr_assert_neq(owned[i], to, "granule %zu", i);
		owned[i] = to;
	}
}

Test(alloc_spans, agree_with_a_bitmap_and_fail_only_when_nothing_fits)
{
	struct hoist__spans spans;
	struct hoist__extent extent = {.base = BASE, .bytes = GRANULES * GRANULE, .keep = true};
	struct hoist__span *live[GRANULES];
	unsigned char owned[GRANULES] = {0};
	static struct model model = {.random = 7};
	size_t n_live = 0, n_refused = 0;
	hoist__spans_init(&spans);
	hoist__spans_give(&spans, hoist__span_chunk_create());
	hoist__spans_add(&spans, &extent);
	for (int i = 0; i < 20000; i++) {
		while (spans.n_spares < HOIST__SPANS_NEEDED)
			hoist__spans_give(&spans, hoist__span_chunk_create());
		if (n_live > 0 && next(&model) % 2 == 0) {
			size_t k = next(&model) % n_live;
			mark(owned, live[k]->address, live[k]->bytes, 0);
			struct hoist__extent *empty = hoist__spans_release(&spans, live[k]);
			live[k] = live[--n_live];
			cr_assert_eq(empty != NULL, n_live == 0);
		} else {
			size_t granules = 1 + next(&model) % (1u << next(&model) % 8);
			struct hoist__want want = {granules * GRANULE, granules * GRANULE, GRANULE};
			struct hoist__span *span = hoist__spans_take(&spans, &want, SIZE_MAX);
			cr_assert_eq(span != NULL, longest_free_run(owned) >= granules);
			n_refused += span == NULL;
			if (span == NULL)
				continue;
			mark(owned, span->address, span->bytes, 1);
			live[n_live++] = span;
		}
		if (i % 16 == 0)
			hoist__spans_check(&spans, &extent);
	}
	cr_assert_gt(n_refused, 10, "the extent was never full: the test is too kind");
	while (n_live > 0)
		(void)hoist__spans_release(&spans, live[--n_live]);
	cr_assert_eq(hoist__spans_largest_empty(&spans), &extent);
	cr_assert_eq(spans.empty_bytes, extent.bytes);
	hoist__spans_remove(&spans, &extent);
	cr_assert_eq(spans.empty_bytes, 0);
	hoist__spans_done(&spans);
}

Test(alloc_spans, find_room_behind_any_number_of_misaligned_gaps)
{
	struct hoist__spans spans;
	enum { N = 40 };
	struct hoist__extent extent = {.base = BASE, .bytes = 1 << 20, .keep = true};
	struct hoist__want apart = {64, 64, 64}, gap = {4096, 4096, 64};
	struct hoist__want aligned = {4096, 4096, 4096};
	struct hoist__span *gaps[N];
	hoist__spans_init(&spans);
	hoist__spans_give(&spans, hoist__span_chunk_create());
	hoist__spans_add(&spans, &extent);
	for (size_t i = 0; i < N; i++) {
		cr_assert_not_null(hoist__spans_take(&spans, &apart, SIZE_MAX));
		gaps[i] = hoist__spans_take(&spans, &gap, SIZE_MAX);
		cr_assert_neq(gaps[i]->address % 4096, 0);
	}
	cr_assert_not_null(hoist__spans_take(&spans, &apart, SIZE_MAX));
	for (size_t i = 0; i < N; i++)
		cr_assert_null(hoist__spans_release(&spans, gaps[i]));
	struct hoist__span *span = hoist__spans_take(&spans, &aligned, SIZE_MAX);
	cr_assert_not_null(span);
	cr_assert_eq(span->address % 4096, 0);
	hoist__spans_check(&spans, &extent);
	hoist__spans_done(&spans);
}

Test(alloc_spans, stay_fast_with_a_hundred_thousand_live_blocks)
{
	struct hoist__spans spans;
	enum { N = 100000 };
	static struct hoist__span *live[N];
	struct hoist__extent extent = {.base = BASE, .bytes = (size_t)N * 8192, .keep = true};
	struct hoist__want want = {4096, 4096, 64};
	hoist__spans_init(&spans);
	hoist__spans_give(&spans, hoist__span_chunk_create());
	hoist__spans_add(&spans, &extent);
	for (size_t i = 0; i < N; i++) {
		while (spans.n_spares < HOIST__SPANS_NEEDED)
			hoist__spans_give(&spans, hoist__span_chunk_create());
		live[i] = hoist__spans_take(&spans, &want, SIZE_MAX);
		cr_assert_not_null(live[i]);
	}
	/* Quadratic work would not end within the test's time limit. */
	for (size_t i = 0; i < N; i += 2)
		(void)hoist__spans_release(&spans, live[i]);
	for (size_t i = 0; i < N; i += 2)
		cr_assert_not_null(hoist__spans_take(&spans, &want, SIZE_MAX));
	cr_assert_eq(hoist__spans_at(&spans, live[1]->address), live[1]);
	cr_assert_eq(hoist__spans_around(&spans, live[99999]->address + 5), live[99999]);
	cr_assert_null(hoist__spans_at(&spans, live[99999]->address + 5));
	hoist__spans_done(&spans);
}
