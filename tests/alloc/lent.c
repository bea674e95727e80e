/* SPDX-License-Identifier: MIT */
/* Regions of memory that a source lends or the caller gives, and options that are refused. */
#include "config.h"

#include "tests/support/alloc-unit.h"

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

Test(alloc_lent, comes_from_a_source)
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
	struct hoist__region *region = make_region(&options);
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
	cr_assert_eq(region_error(&options), -EDQUOT);
	cr_assert_str_eq(hoist__error_text(), "the lender has none");
}

Test(alloc_lent, uses_the_aligned_part_of_a_sources_memory)
{
	struct lender lender = {.offset = 4096};
	struct hoist__source source = {lend, take_back, &lender};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .source = &source};
	struct hoist__region *region = make_region(&options);
	cr_assert_eq(lender.n_asked, 2);
	cr_assert_eq(lender.n_lent, 1);
	cr_assert_eq(region->base % HOIST__REGION_ALIGN, 0);
	cr_assert_eq(region->bytes, HOIST__MIB);
	memset((void *)region->base, 1, region->bytes);
	hoist__region_destroy(region);
	cr_assert_eq(lender.n_lent, 0);
}

Test(alloc_lent, may_be_the_callers_memory_which_stays_the_callers)
{
	size_t bytes = 2 * HOIST__REGION_ALIGN;
	unsigned char *own = aligned_alloc(HOIST__REGION_ALIGN, bytes);
	cr_assert_not_null(own);
	memset(own, 9, bytes);
	static const enum hoist__memory_kind kinds[] = {HOIST__MEMORY_HOST, HOIST__MEMORY_PINNED};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(kinds); i++) {
		struct hoist__region_options options = {
			.kind = kinds[i], .bytes = bytes, .given = (uintptr_t)own};
		struct hoist__region *region = make_region(&options);
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

Test(alloc_lent, looks_where_the_callers_memory_is)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB};
	struct hoist__region *ours = make_region(&options);
	options.given = ours->base;
	struct hoist__region *given = make_region(&options);
	cr_assert_eq(given->node, ours->node);
	hoist__region_destroy(given);
	hoist__region_destroy(ours);
	/* Untouched memory is nowhere, and looking does not change that. */
	options = (struct hoist__region_options){.kind = HOIST__MEMORY_HOST,
						 .bytes = HOIST__MIB,
						 .unpopulated = true,
						 .no_thp = true};
	ours = make_region(&options);
	options.unpopulated = false;
	options.given = ours->base;
	given = make_region(&options);
	cr_assert_eq(given->node, -1);
	cr_assert_str_empty(given->step_note[HOIST__STEP_VERIFY]);
	cr_assert_eq(absent_pages((void *)given->base, given->bytes), HOIST__MIB / 4096);
	hoist__region_destroy(given);
	hoist__region_destroy(ours);
}

Test(alloc_lent, refuses_senseless_options)
{
	static const struct hoist__source source = {lend, take_back, NULL};
	const struct {
		struct hoist__region_options options;
		int err;
		const char *why;
	} cases[] = {
		{{.kind = HOIST__MEMORY_HOST}, -EINVAL, "0 bytes"},
		{{.kind = HOIST__MEMORY_DEVICE, .bytes = 1}, -EINVAL, "no device"},
		{{.kind = HOIST__MEMORY_PINNED, .bytes = 1, .unpopulated = true},
		 -EINVAL,
		 "lazy and pinned"},
		{{.kind = HOIST__MEMORY_HOST, .bytes = SIZE_MAX}, -ENOMEM, "too much"},
		{{.bytes = 1, .placement.policy = HOIST__POLICY_BIND}, -EINVAL, "an empty set"},
		{{.kind = HOIST__MEMORY_MANAGED, .bytes = 1}, -EINVAL, "no device"},
		{{.bytes = 1, .unpopulated = true, .source = &source}, -EINVAL, "lazy, not ours"},
		{{.bytes = 65536, .given = 4096}, -EINVAL, "not aligned"},
		{{.bytes = 4096, .given = 65536}, -EINVAL, "not whole"},
		{{.bytes = 131072, .given = UINTPTR_MAX - 65535}, -EINVAL, "beyond the end"},
		{{.bytes = 65536, .given = 65536, .source = &source}, -EINVAL, "from two"},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++)
		cr_assert_eq(region_error(&cases[i].options), cases[i].err, "%s", cases[i].why);
}
