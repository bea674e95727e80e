/* SPDX-License-Identifier: MIT */
/* Strided copies against a model that moves one element after the other, and the canonical
 * form of a nest against what its header says. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/strided.h"
#include "tests/support/random.h"

enum { MAX_AXES = 6, GUARD = 96 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	return random_below(&state, below);
}

/* A tensor's shape and how it lies on both sides, in elements. */
struct copy {
	int rank;
	size_t bytes;
	int64_t shape[MAX_AXES];
	int64_t dst[MAX_AXES];
	int64_t src[MAX_AXES];
};

/* One side: axes in a random order, gaps between them, some backwards, some 0. */
static void lay_out(const struct copy *copy, int64_t *strides, unsigned zeros)
{
	int order[MAX_AXES];
	for (int i = 0; i < copy->rank; i++)
		order[i] = i;
	for (int i = copy->rank - 1; i > 0 && draw(3) > 0; i--) {
		int other = (int)draw((uint64_t)i + 1);
		int held = order[i];
		order[i] = order[other];
		order[other] = held;
	}
	int64_t step = draw(4) == 0 ? 1 + (int64_t)draw(3) : 1;
	for (int i = copy->rank - 1; i >= 0; i--) {
		int axis = order[i];
		strides[axis] = draw(5) == 0 ? -step : step;
		if (zeros > 0 && draw(zeros) == 0)
			strides[axis] = 0;
		else if (copy->shape[axis] > 0)
			step *= copy->shape[axis];
		if (draw(4) == 0)
			step += (int64_t)draw(3);
	}
}

static int64_t elements(const struct copy *copy)
{
	int64_t n = 1;
	for (int i = 0; i < copy->rank; i++)
		n *= copy->shape[i];
	return n;
}

/* Memory for one side: all bytes between the first and the last that are used, and @guard
 * on both ends.  *first is where the first element lies. */
struct side {
	char *memory;
	size_t bytes;
	size_t first;
};

static struct side make_side(const struct copy *copy, const int64_t *strides, size_t guard)
{
	int64_t low = 0;
	int64_t high = 1;
	for (int i = 0; i < copy->rank; i++) {
		int64_t reach = copy->shape[i] > 0 ? (copy->shape[i] - 1) * strides[i] : 0;
		*(reach < 0 ? &low : &high) += reach;
	}
	struct side side = {.bytes = (size_t)(high - low) * copy->bytes + 2 * guard,
			    .first = (size_t)-low * copy->bytes + guard};
	side.memory = malloc(side.bytes);
	cr_assert_not_null(side.memory);
	uint32_t seed = (uint32_t)draw(UINT32_MAX);
	for (size_t i = 0; i < side.bytes; i++)
		side.memory[i] = (char)((seed + (uint32_t)i * UINT32_C(0x9e3779b1)) >> 24);
	return side;
}

static void move_one_by_one(const struct copy *copy, char *dst, const char *src)
{
	int64_t n = elements(copy);
	for (int64_t e = 0; e < n; e++) {
		int64_t to = 0;
		int64_t from = 0;
		int64_t rest = e;
		for (int i = copy->rank - 1; i >= 0; i--) {
			int64_t index = rest % copy->shape[i];
			rest /= copy->shape[i];
			to += index * copy->dst[i];
			from += index * copy->src[i];
		}
		memcpy(dst + to * (int64_t)copy->bytes, src + from * (int64_t)copy->bytes,
		       copy->bytes);
	}
}

static void check_form(const struct copy *copy, const struct hoist__nest *nest)
{
	int64_t volume = (int64_t)nest->item;
	int64_t expected = (int64_t)copy->bytes;
	for (int i = 0; i < copy->rank; i++)
		expected *= copy->dst[i] != 0 ? copy->shape[i] : 1;
	for (int i = 0; i < nest->rank; i++) {
		int64_t n = nest->extents[i];
		volume *= n;
		cr_assert_gt(n, 1);
		cr_assert_gt(nest->dst_strides[i], 0);
		if (i == 0)
			continue;
		cr_assert_geq(nest->dst_strides[i - 1], nest->dst_strides[i]);
		cr_assert(nest->dst_strides[i - 1] != n * nest->dst_strides[i] ||
			  nest->src_strides[i - 1] != n * nest->src_strides[i]);
	}
	cr_assert_eq(volume, expected, "%lld bytes, not %lld", (long long)volume,
		     (long long)expected);
	cr_assert_eq(nest->item % copy->bytes, 0);
	if (nest->rank > 0)
		cr_assert(nest->dst_strides[nest->rank - 1] != (int64_t)nest->item ||
			  nest->src_strides[nest->rank - 1] != (int64_t)nest->item);
}

/* Copies by the nest and by the model.  Returns: the nest's rank; -1 without elements. */
static int compare(const struct copy *copy, size_t guard)
{
	struct hoist__nest nest = {.rank = 77};
	bool any =
		hoist__nest_make(copy->rank, copy->shape, copy->dst, copy->src, copy->bytes, &nest);
	cr_assert_eq(any, elements(copy) > 0);
	if (!any) {
		cr_assert_eq(nest.rank, 77);
		return -1;
	}
	check_form(copy, &nest);
	struct side dst = make_side(copy, copy->dst, guard);
	struct side src = make_side(copy, copy->src, 0);
	char *expected = malloc(dst.bytes);
	cr_assert_not_null(expected);
	memcpy(expected, dst.memory, dst.bytes);
	move_one_by_one(copy, expected + dst.first, src.memory + src.first);
	hoist__nest_copy(&nest, dst.memory + dst.first, src.memory + src.first);
	for (size_t i = 0; memcmp(dst.memory, expected, dst.bytes) != 0; i++)
		cr_assert_eq(dst.memory[i], expected[i],
			     "rank %d, elements of %zu bytes, nest of rank %d, item %zu: byte %zu "
			     "of %zu",
			     copy->rank, copy->bytes, nest.rank, nest.item, i, dst.bytes);
	free(expected);
	free(src.memory);
	free(dst.memory);
	return nest.rank;
}

static const size_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 1, 2, 4, 8, 5, 7, 6, 24, 33, 64, 65, 100};

Test(base_strided, copies_the_same_bytes_as_a_walk_over_all_elements)
{
	int seen[MAX_AXES + 1] = {0};
	int empty = 0;
	state = 1;
	for (int round = 0; round < 12000; round++) {
		struct copy copy = {.rank = (int)draw(MAX_AXES + 1),
				    .bytes = sizes[(size_t)round % HOIST__ARRAY_SIZE(sizes)]};
		for (int i = 0; i < copy.rank; i++)
			copy.shape[i] = draw(40) == 0 ? 0 : 1 + (int64_t)draw(5);
		lay_out(&copy, copy.dst, round % 7 == 0 ? 4 : 0);
		lay_out(&copy, copy.src, round % 3 == 0 ? 4 : 0);
		int rank = compare(&copy, round % 2 == 0 ? GUARD : 0);
		if (rank < 0)
			empty++;
		else
			seen[rank]++;
	}
	cr_expect_gt(empty, 100);
	for (int i = 0; i <= MAX_AXES; i++)
		cr_expect_gt(seen[i], 20, "nests of rank %d: %d", i, seen[i]);
}

/* Extents that reach whole and broken squares and blocks, and all ways to lie. */
Test(base_strided, long_rows_and_columns_are_copied_in_blocks)
{
	state = 2;
	for (int round = 0; round < 800; round++) {
		struct copy copy = {.rank = 2 + (int)draw(2),
				    .bytes = sizes[(size_t)round % HOIST__ARRAY_SIZE(sizes)]};
		for (int i = 0; i < copy.rank; i++)
			copy.shape[i] = 1 + (int64_t)draw(i == 2 ? 3 : 150);
		lay_out(&copy, copy.dst, 0);
		lay_out(&copy, copy.src, round % 5 == 0 ? 3 : 0);
		(void)compare(&copy, GUARD);
	}
}

Test(base_strided, transposes_of_every_item_size_and_edge)
{
	state = 3;
	for (size_t s = 0; s < HOIST__ARRAY_SIZE(sizes); s++)
		for (int64_t rows = 1; rows < 150; rows += 1 + rows / 4)
			for (int64_t columns = 1; columns < 150; columns += 1 + columns / 3) {
				struct copy copy = {.rank = 2,
						    .bytes = sizes[s],
						    .shape = {rows, columns},
						    .dst = {columns + (rows & 1), 1},
						    .src = {1, rows + (columns & 1)}};
				(void)compare(&copy, GUARD);
			}
}

Test(base_strided, runs_of_every_length)
{
	state = 4;
	for (int64_t run = 1; run < 1400; run += 1 + run / 40) {
		struct copy copy = {.rank = 2,
				    .bytes = 1,
				    .shape = {5, run},
				    .dst = {run + 3, 1},
				    .src = {run + 9, 1}};
		cr_assert_eq(compare(&copy, GUARD), 1);
	}
}

Test(base_strided, one_item_over_and_over_fills)
{
	state = 5;
	for (size_t s = 0; s < HOIST__ARRAY_SIZE(sizes); s++)
		for (int64_t n = 1; n < 20000; n += 1 + n / 2) {
			struct copy copy = {
				.rank = 2, .bytes = sizes[s], .shape = {3, n}, .dst = {n + 2, 1}};
			(void)compare(&copy, GUARD);
			copy.dst[0] = n;
			cr_assert_eq(compare(&copy, GUARD), 1);
		}
}

Test(base_strided, repeats_items_of_thousands_of_bytes)
{
	state = 6;
	for (size_t bytes = 4000; bytes < 9000; bytes += 999) {
		struct copy copy = {.rank = 1, .bytes = bytes, .shape = {9}, .dst = {1}};
		cr_assert_eq(compare(&copy, GUARD), 1);
	}
}

/* The forms that a reader of a nest counts on. */
Test(base_strided, nests_take_their_simplest_form)
{
	static const struct {
		const char *what;
		struct copy copy;
		int rank;
		size_t item;
	} cases[] = {
		{"a scalar", {.rank = 0, .bytes = 4}, 0, 4},
		{"C order on both sides",
		 {.rank = 3, .bytes = 2, .shape = {2, 3, 4}, .dst = {12, 4, 1}, .src = {12, 4, 1}},
		 0,
		 48},
		{"the same permutation on both sides",
		 {.rank = 3, .bytes = 2, .shape = {2, 3, 4}, .dst = {1, 8, 2}, .src = {1, 8, 2}},
		 0,
		 48},
		{"both sides backwards",
		 {.rank = 2, .bytes = 2, .shape = {3, 4}, .dst = {-4, -1}, .src = {-4, -1}},
		 0,
		 24},
		{"axes of extent 1",
		 {.rank = 3,
		  .bytes = 2,
		  .shape = {1, 3, 1},
		  .dst = {INT64_MAX, 1, INT64_MIN},
		  .src = {INT64_MIN, 1, 0}},
		 0,
		 6},
		{"a block of rows",
		 {.rank = 3, .bytes = 4, .shape = {2, 5, 8}, .dst = {40, 8, 1}, .src = {80, 16, 1}},
		 1,
		 32},
		{"a transpose",
		 {.rank = 2, .bytes = 4, .shape = {5, 8}, .dst = {8, 1}, .src = {1, 5}},
		 2,
		 4},
		{"a fill", {.rank = 3, .bytes = 4, .shape = {2, 5, 8}, .dst = {40, 8, 1}}, 1, 4},
		{"elements that are overwritten",
		 {.rank = 2, .bytes = 4, .shape = {5, 8}, .dst = {0, 1}, .src = {8, 1}},
		 0,
		 32},
	};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(cases); i++) {
		const struct copy *copy = &cases[i].copy;
		struct hoist__nest nest;
		cr_assert(hoist__nest_make(copy->rank, copy->shape, copy->dst, copy->src,
					   copy->bytes, &nest));
		cr_expect_eq(nest.rank, cases[i].rank, "%s: rank %d", cases[i].what, nest.rank);
		cr_expect_eq(nest.item, cases[i].item, "%s: item %zu", cases[i].what, nest.item);
		state = i;
		(void)compare(copy, GUARD);
	}
}

Test(base_strided, ranks_up_to_the_largest)
{
	int64_t shape[HOIST__MAX_RANK];
	int64_t dst[HOIST__MAX_RANK];
	int64_t src[HOIST__MAX_RANK];
	uint16_t from[1 << 12];
	uint16_t to[1 << 12];
	/* 12 axes of 2 in between axes of 1, last axis first in src. */
	for (int i = 0; i < HOIST__MAX_RANK; i++) {
		int bit = i / 5;
		bool real = i % 5 == 0 && bit < 12;
		shape[i] = real ? 2 : 1;
		dst[i] = real ? INT64_C(1) << (11 - bit) : 12345;
		src[i] = real ? INT64_C(1) << bit : -54321;
	}
	for (unsigned i = 0; i < 1 << 12; i++)
		from[i] = (uint16_t)i;
	struct hoist__nest nest;
	cr_assert(hoist__nest_make(HOIST__MAX_RANK, shape, dst, src, sizeof to[0], &nest));
	cr_expect_eq(nest.rank, 12);
	hoist__nest_copy(&nest, to, from);
	for (unsigned i = 0; i < 1 << 12; i++) {
		unsigned reversed = 0;
		for (unsigned b = 0; b < 12; b++)
			reversed |= (i >> b & 1) << (11 - b);
		cr_assert_eq(to[i], reversed);
	}
}
