/* SPDX-License-Identifier: MIT */
/* Spans over addresses that do not exist: a record of every granule's owner is kept beside, and
 * must agree with what is given out. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/spans.h"
#include "base/checked.h"
#include "tests/support/random.h"

#define BASE ((uintptr_t)0x5000 << 32)
#define LEAF_BYTES (HOIST__LEAF_GRANULES << HOIST__GRANULE_SHIFT)

/* An extent of @n granules, the last of them cut by @cut bytes, with its records. */
static struct hoist__extent *make_extent(struct hoist__spans *spans, uintptr_t base, size_t n,
					 size_t cut)
{
	struct hoist__extent *extent = calloc(1, sizeof *extent + hoist__extent_bits_bytes(n));
	cr_assert_not_null(extent);
	extent->base = base;
	extent->n = n;
	extent->bytes = (n << HOIST__GRANULE_SHIFT) - cut;
	extent->keep = true;
	cr_assert_eq(hoist__granules_take(base, n, extent), 0);
	hoist__spans_add(spans, extent);
	return extent;
}

/* The same at BASE, in new spans. */
static struct hoist__extent *first_extent(struct hoist__spans *spans, size_t n, size_t cut)
{
	memset(spans, 0, sizeof *spans);
	hoist__spans_init(spans);
	return make_extent(spans, BASE, n, cut);
}

static void end_extent(struct hoist__spans *spans, struct hoist__extent *extent)
{
	hoist__spans_check(spans, extent);
	hoist__spans_remove(spans, extent);
	hoist__granules_release(extent->base, extent->n);
	free(extent);
}

/* The same with spans in use. */
static void drop_extent(struct hoist__spans *spans, struct hoist__extent *extent)
{
	hoist__spans_check(spans, extent);
	hoist__granules_release(extent->base, extent->n);
	free(extent);
}

static struct hoist__granule *take(struct hoist__spans *spans, size_t n, size_t align)
{
	const struct hoist__want want = {n, align, HOIST__SPAN_BLOCK, n * HOIST__GRANULE_BYTES};
	return hoist__spans_take(spans, &want, SIZE_MAX);
}

Test(alloc_spans, offers_an_extent_that_is_not_kept_no_more)
{
	struct hoist__spans spans;
	struct hoist__extent *extent = first_extent(&spans, 10, 0);
	hoist__spans_remove(&spans, extent);
	extent->keep = false;
	hoist__spans_add(&spans, extent);
	const struct hoist__want want = {10, 1, HOIST__SPAN_BLOCK, 10 * HOIST__GRANULE_BYTES};
	cr_assert_null(take(&spans, 1, 1));
	struct hoist__granule *span = hoist__spans_take_from(&spans, extent, &want, true);
	cr_assert_not_null(span);
	cr_assert_eq(hoist__spans_release(&spans, span), extent);
	cr_assert_null(take(&spans, 1, 1));
	cr_assert_null(hoist__spans_take_whole(&spans, &want));
	cr_assert_eq(spans.empty_bytes, extent->bytes);
	end_extent(&spans, extent);
	cr_assert_eq(spans.empty_bytes, 0);
}

/* --- the model --- */

#define EXTENTS 3
#define GRANULES_MOST 9000 /* more than two groups of bits */
#define LIVE_MOST 4000

struct model {
	uint64_t random;
	struct hoist__spans spans;
	struct hoist__extent *extents[EXTENTS];
	unsigned char owned[EXTENTS][GRANULES_MOST];
	struct hoist__granule *live[LIVE_MOST];
	size_t n_live;
	size_t n_owned;
	size_t n_refused;
};

static const size_t extent_granules[EXTENTS] = {1000, GRANULES_MOST, 70};

static size_t extent_of(const struct model *model, uintptr_t address)
{
	for (size_t i = 0; i < EXTENTS; i++)
		if (address - model->extents[i]->base < model->extents[i]->n
								<< HOIST__GRANULE_SHIFT)
			return i;
	cr_assert_fail("%#zx lies in no extent", (size_t)address);
	return 0;
}

static void mark(struct model *model, const struct hoist__granule *span, unsigned char to)
{
	size_t i = extent_of(model, span->address);
	size_t first = (span->address - model->extents[i]->base) >> HOIST__GRANULE_SHIFT;
	cr_assert_leq(first + span->n, model->extents[i]->n);
	for (size_t k = first; k < first + span->n; k++) {
		cr_assert_neq(model->owned[i][k], to, "granule %zu of extent %zu", k, i);
		model->owned[i][k] = to;
	}
	model->n_owned += to != 0 ? span->n : -(size_t)span->n;
}

static size_t longest_run(const struct model *model)
{
	size_t longest = 0;
	for (size_t i = 0; i < EXTENTS; i++) {
		size_t run = 0;
		for (size_t k = 0; k < model->extents[i]->n; k++) {
			run = model->owned[i][k] ? 0 : run + 1;
			if (run > longest)
				longest = run;
		}
	}
	return longest;
}

/* The least run that is sure to be found for that want: lists above 32 granules hold a range
 * of sizes. */
static size_t sure(size_t n, size_t align)
{
	size_t all = n + align - 1;
	return all < HOIST__SPAN_LISTS ? all : all + all / 16 + 1;
}

static void model_take(struct model *model)
{
	size_t most = (size_t)1 << random_below(&model->random, 9);
	size_t n = 1 + random_below(&model->random, most);
	size_t align = random_below(&model->random, 4) == 0
			       ? (size_t)1 << random_below(&model->random, 6)
			       : 1;
	size_t bytes =
		n * HOIST__GRANULE_BYTES - random_below(&model->random, HOIST__GRANULE_BYTES);
	const struct hoist__want want = {n, align, HOIST__SPAN_BLOCK, bytes};
	struct hoist__granule *span = hoist__spans_take(&model->spans, &want, SIZE_MAX);
	if (span == NULL) {
		/* One more: a run may end in a granule that is not whole. */
		cr_assert_lt(longest_run(model), sure(n + 1, align), "%zu granules, align %zu", n,
			     align);
		model->n_refused++;
		return;
	}
	cr_assert_eq(span->n, n);
	cr_assert_eq(span->kind, HOIST__SPAN_BLOCK);
	cr_assert_eq(span->address % (align << HOIST__GRANULE_SHIFT), 0);
	cr_assert_geq(hoist__span_bytes(span), bytes);
	mark(model, span, 1);
	model->live[model->n_live++] = span;
}

static void model_release(struct model *model)
{
	size_t k = random_below(&model->random, model->n_live);
	struct hoist__granule *span = model->live[k];
	size_t i = extent_of(model, span->address);
	uintptr_t inside = span->address +
			   random_below(&model->random, (size_t)span->n << HOIST__GRANULE_SHIFT);
	cr_assert_eq(hoist__spans_around(model->extents[i], inside), span);
	mark(model, span, 0);
	struct hoist__extent *empty = hoist__spans_release(&model->spans, span);
	model->live[k] = model->live[--model->n_live];
	bool any = false;
	for (size_t j = 0; j < model->extents[i]->n; j++)
		any |= model->owned[i][j] != 0;
	cr_assert_eq(empty, any ? NULL : model->extents[i]);
}

static void model_check(const struct model *model)
{
	size_t all = 0;
	size_t empty_bytes = 0;
	for (size_t i = 0; i < EXTENTS; i++) {
		hoist__spans_check(&model->spans, model->extents[i]);
		all += model->extents[i]->n;
		empty_bytes += model->extents[i]->empty ? model->extents[i]->bytes : 0;
	}
	cr_assert_eq(model->spans.free_granules, all - model->n_owned);
	cr_assert_eq(model->spans.empty_bytes, empty_bytes);
	cr_assert_eq(hoist__spans_largest(&model->spans), longest_run(model));
}

Test(alloc_spans, agree_with_every_granules_owner)
{
	static struct model model = {.random = 7};
	hoist__spans_init(&model.spans);
	/* The second lies across the end of a leaf of the page map. */
	model.extents[0] = make_extent(&model.spans, BASE, extent_granules[0], 0);
	model.extents[1] = make_extent(&model.spans, BASE + LEAF_BYTES - HOIST__GIB / 4,
				       extent_granules[1], 60000);
	model.extents[2] =
		make_extent(&model.spans, BASE + 3 * HOIST__GIB, extent_granules[2], 4096);
	for (int i = 0; i < 60000; i++) {
		/* Tides: mostly taking until little is left, then mostly giving back. */
		size_t taking = i / 5000 % 2 == 0 ? 70 : 30;
		bool room = model.n_live < LIVE_MOST;
		if (model.n_live == 0 || (room && random_below(&model.random, 100) < taking))
			model_take(&model);
		else
			model_release(&model);
		if (i % 512 == 0)
			model_check(&model);
	}
	cr_assert_gt(model.n_refused, 100, "the extents were never full: too kind");
	while (model.n_live > 0)
		model_release(&model);
	model_check(&model);
	cr_assert_eq(hoist__spans_largest_empty(&model.spans), model.extents[1]);
	for (size_t i = 0; i < EXTENTS; i++)
		end_extent(&model.spans, model.extents[i]);
	cr_assert_eq(model.spans.free_granules, 0);
	cr_assert_eq(model.spans.levels, 0);
}

/* --- single properties --- */

Test(alloc_spans, merge_with_both_neighbours_at_once)
{
	struct hoist__spans spans;
	struct hoist__extent *extent = first_extent(&spans, 40, 0);
	struct hoist__granule *a = take(&spans, 10, 1);
	struct hoist__granule *b = take(&spans, 10, 1);
	struct hoist__granule *c = take(&spans, 10, 1);
	struct hoist__granule *d = take(&spans, 10, 1);
	cr_assert_null(take(&spans, 1, 1));
	cr_assert_null(hoist__spans_release(&spans, a));
	cr_assert_null(hoist__spans_release(&spans, c));
	cr_assert_null(take(&spans, 11, 1));
	cr_assert_null(hoist__spans_release(&spans, b));
	hoist__spans_check(&spans, extent);
	struct hoist__granule *whole = take(&spans, 30, 1);
	cr_assert_eq(whole, a);
	cr_assert_null(hoist__spans_release(&spans, whole));
	cr_assert_eq(hoist__spans_release(&spans, d), extent);
	end_extent(&spans, extent);
}

Test(alloc_spans, prefer_the_gap_of_exactly_that_size)
{
	enum { N = 31 };
	struct hoist__spans spans = {0};
	struct hoist__granule *gaps[N + 1];
	hoist__spans_init(&spans);
	struct hoist__extent *extent = make_extent(&spans, BASE, 1024, 0);
	for (size_t n = 1; n <= N; n++) {
		gaps[n] = take(&spans, n, 1);
		cr_assert_not_null(take(&spans, 1, 1));
	}
	for (size_t n = 1; n <= N; n++)
		cr_assert_null(hoist__spans_release(&spans, gaps[n]));
	for (size_t n = N; n >= 1; n--)
		cr_assert_eq(take(&spans, n, 1), gaps[n], "%zu granules", n);
	drop_extent(&spans, extent);
}

/* Aligned wants of 2 MiB, among gaps of that size that all lie wrong. */
Test(alloc_spans, find_room_behind_any_number_of_misaligned_gaps)
{
	enum { N = 40 };
	struct hoist__spans spans = {0};
	struct hoist__granule *gaps[N];
	hoist__spans_init(&spans);
	struct hoist__extent *extent = make_extent(&spans, BASE, 4096, 0);
	for (size_t i = 0; i < N; i++) {
		cr_assert_not_null(take(&spans, 1, 1));
		gaps[i] = take(&spans, 32, 1);
		cr_assert_neq(gaps[i]->address % (2 * HOIST__MIB), 0, "gap %zu", i);
		if (i % 31 == 29)
			cr_assert_not_null(take(&spans, 2, 1)); /* none lies right by chance */
	}
	cr_assert_not_null(take(&spans, 1, 1));
	for (size_t i = 0; i < N; i++)
		cr_assert_null(hoist__spans_release(&spans, gaps[i]));
	struct hoist__granule *span = take(&spans, 32, 32);
	cr_assert_not_null(span);
	cr_assert_eq(span->address % (2 * HOIST__MIB), 0);
	drop_extent(&spans, extent);
}

Test(alloc_spans, fill_partly_used_extents_first)
{
	struct hoist__spans spans = {0};
	hoist__spans_init(&spans);
	struct hoist__extent *a = make_extent(&spans, BASE, 100, 0);
	struct hoist__granule *first = take(&spans, 10, 1);
	struct hoist__extent *b = make_extent(&spans, BASE + HOIST__GIB, 50, 0);
	struct hoist__granule *second = take(&spans, 10, 1);
	cr_assert_eq(atomic_load(&second->extent), a);
	cr_assert(b->empty);
	/* Among empty extents, the smallest that fits, and none above the given size. */
	const struct hoist__want want = {85, 1, HOIST__SPAN_SLAB, 85 * HOIST__GRANULE_BYTES};
	cr_assert_null(hoist__spans_take(&spans, &want, SIZE_MAX));
	const struct hoist__want half = {50, 1, HOIST__SPAN_SLAB, 50 * HOIST__GRANULE_BYTES};
	cr_assert_eq(hoist__spans_release(&spans, first), NULL);
	cr_assert_eq(hoist__spans_release(&spans, second), a);
	cr_assert_null(hoist__spans_take(&spans, &half, b->bytes - 1));
	struct hoist__granule *third = hoist__spans_take(&spans, &half, SIZE_MAX);
	cr_assert_eq(atomic_load(&third->extent), b);
	cr_assert_eq(third->kind, HOIST__SPAN_SLAB);
	cr_assert_eq(hoist__spans_release(&spans, third), b);
	end_extent(&spans, a);
	end_extent(&spans, b);
}

Test(alloc_spans, give_whole_extents_that_waste_an_eighth_at_most)
{
	struct hoist__spans spans;
	struct hoist__extent *extent = first_extent(&spans, 90, 61440);
	const struct hoist__want wasteful = {79, 1, HOIST__SPAN_BLOCK, 79 * HOIST__GRANULE_BYTES};
	cr_assert_null(hoist__spans_take_whole(&spans, &wasteful));
	const struct hoist__want want = {80, 1, HOIST__SPAN_BLOCK, 80 * HOIST__GRANULE_BYTES};
	struct hoist__granule *span = hoist__spans_take_whole(&spans, &want);
	cr_assert_not_null(span);
	cr_assert_eq(span->n, 90);
	cr_assert_eq(hoist__span_bytes(span), 89 * HOIST__GRANULE_BYTES + 4096);
	cr_assert_eq(hoist__spans_release(&spans, span), extent);
	end_extent(&spans, extent);
}

/* An extent may end within a granule: what is not there is not given out. */
Test(alloc_spans, never_reach_beyond_the_end_of_a_cut_extent)
{
	struct hoist__spans spans;
	struct hoist__extent *extent = first_extent(&spans, 10, 4096);
	struct hoist__want want = {10, 1, HOIST__SPAN_BLOCK, extent->bytes + 1};
	cr_assert_null(hoist__spans_take(&spans, &want, SIZE_MAX));
	cr_assert_null(hoist__spans_take_whole(&spans, &want));
	cr_assert_null(hoist__spans_take_from(&spans, extent, &want, false));
	cr_assert_null(hoist__spans_take_from(&spans, extent, &want, true));
	want.bytes = extent->bytes;
	struct hoist__granule *span = hoist__spans_take(&spans, &want, SIZE_MAX);
	cr_assert_eq(hoist__span_bytes(span), want.bytes);
	cr_assert_eq(hoist__spans_release(&spans, span), extent);
	/* Likewise where only the rest of it is free. */
	struct hoist__granule *first = take(&spans, 8, 1);
	cr_assert_null(take(&spans, 2, 1));
	want = (struct hoist__want){2, 8, HOIST__SPAN_BLOCK, 2 * HOIST__GRANULE_BYTES};
	cr_assert_null(hoist__spans_take(&spans, &want, SIZE_MAX));
	want.bytes -= 4096;
	cr_assert_eq(hoist__spans_take(&spans, &want, SIZE_MAX)->address,
		     BASE + 8 * HOIST__GRANULE_BYTES);
	cr_assert_null(hoist__spans_release(&spans, first));
	drop_extent(&spans, extent);
}

Test(alloc_spans, granules_belong_to_one_extent_only)
{
	struct hoist__extent a = {0}, b = {0};
	uintptr_t end = BASE + LEAF_BYTES;
	cr_assert_eq(hoist__granules_take(end - HOIST__MIB, 32, &a), 0);
	/* The second extent gives back the granules that it had before it met the other's. */
	cr_assert_eq(hoist__granules_take(end - 2 * HOIST__MIB, 32, &b), -EEXIST);
	cr_assert_null(atomic_load(&hoist__granule_of(end - HOIST__MIB - 1)->extent));
	cr_assert_eq(atomic_load(&hoist__granule_of(end - HOIST__MIB)->extent), &a);
	cr_assert_eq(atomic_load(&hoist__granule_of(end + HOIST__MIB - 1)->extent), &a);
	cr_assert_null(atomic_load(&hoist__granule_of(end + HOIST__MIB)->extent));
	hoist__granules_release(end - HOIST__MIB, 32);
	cr_assert_eq(hoist__granules_take(end - 2 * HOIST__MIB, 32, &b), 0);
	hoist__granules_release(end - 2 * HOIST__MIB, 32);
	/* No address is too strange to ask for; 48 bits is what can be taken. */
	cr_assert_null(hoist__granule_of(0));
	cr_assert_null(hoist__granule_of(UINTPTR_MAX));
	cr_assert_null(hoist__granule_of((uintptr_t)1 << 48));
	uintptr_t last = ((uintptr_t)1 << 48) - HOIST__GRANULE_BYTES;
	cr_assert_eq(hoist__granules_take(last, 2, &a), -ENOTSUP);
	cr_assert_eq(hoist__granules_take(last, 1, &a), 0);
	hoist__granules_release(last, 1);
}

/* Pages of the page map in memory, of the @n records at @address and behind it. */
static size_t resident(uintptr_t address, size_t n)
{
	static unsigned char in_core[4096];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)hoist__granule_of(address) & -page;
	size_t bytes = (uintptr_t)(hoist__granule_of(address) + n) - start;
	size_t pages = (bytes + page - 1) / page;
	size_t sum = 0;
	cr_assert_leq(pages, sizeof in_core);
	cr_assert_eq(mincore((void *)start, bytes, in_core), 0);
	for (size_t i = 0; i < pages; i++)
		sum += in_core[i] & 1;
	return sum;
}

/* 0.1 % of 1 GiB is taken for its records, and given back with the last extent that needs it. */
Test(alloc_spans, pages_of_records_are_given_back)
{
	const size_t n = HOIST__GIB / HOIST__GRANULE_BYTES;
	const size_t n_pages = n * sizeof(struct hoist__granule) / (size_t)sysconf(_SC_PAGESIZE);
	const uintptr_t base = BASE + 2 * LEAF_BYTES;
	struct hoist__extent a = {0}, b = {0}, c = {0};
	/* The last of the three shares its pages with neither, the second with the first. */
	cr_assert_eq(hoist__granules_take(base, n / 2 - 1, &a), 0);
	cr_assert_eq(hoist__granules_take(base + HOIST__GIB / 2 - HOIST__GRANULE_BYTES, 1, &b), 0);
	cr_assert_eq(hoist__granules_take(base + HOIST__GIB / 2, n / 2, &c), 0);
	cr_assert_geq(resident(base, n), n_pages);
	hoist__granules_release(base, n / 2 - 1);
	cr_assert_leq(resident(base, n / 2), 1);
	cr_assert_eq(atomic_load(&hoist__granule_of(base + HOIST__GIB / 2 - 1)->extent), &b);
	cr_assert_geq(resident(base + HOIST__GIB / 2, n / 2), n_pages / 2);
	hoist__granules_release(base + HOIST__GIB / 2 - HOIST__GRANULE_BYTES, 1);
	hoist__granules_release(base + HOIST__GIB / 2, n / 2);
	cr_assert_eq(resident(base, n), 0);
	cr_assert_null(atomic_load(&hoist__granule_of(base)->extent));
}

/* Quadratic work would not end within the test's time limit. */
Test(alloc_spans, stay_fast_with_a_hundred_thousand_live_spans)
{
	enum { N = 100000 };
	static struct hoist__granule *live[N];
	struct hoist__spans spans;
	struct hoist__extent *extent = first_extent(&spans, 2 * N, 0);
	for (size_t i = 0; i < N; i++)
		cr_assert_not_null(live[i] = take(&spans, 2, 1));
	for (int round = 0; round < 10; round++) {
		for (size_t i = 0; i < N; i += 2)
			(void)hoist__spans_release(&spans, live[i]);
		for (size_t i = 0; i < N; i += 2)
			cr_assert_not_null(live[i] = take(&spans, 2, 1));
	}
	hoist__spans_check(&spans, extent);
	for (size_t i = 0; i < N; i++)
		(void)hoist__spans_release(&spans, live[i]);
	end_extent(&spans, extent);
}
