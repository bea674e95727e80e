/* SPDX-License-Identifier: MIT */
/* Random layouts beside a model that lists where every item lies. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/base-layout-model.h"
#include "base/error.h"
#include "hoist/layout.h"

static void expect_places(const struct model *wanted, const hoist_layout *before,
			  const hoist_layout *after, const char *what)
{
	static struct model found;
	walk(after, &found);
	cr_assert_eq(found.n, wanted->n, "%s: %s -> %s", what, words(before), words(after));
	cr_assert_eq(memcmp(found.places, wanted->places, (size_t)found.n * sizeof(int64_t)), 0,
		     "%s: %s -> %s", what, words(before), words(after));
	cr_assert_eq(after->implicit, 0);
	cr_assert_eq(after->itemsize, before->itemsize);
}

/* The indices that a slice takes of an axis, counted out one by one. */
static int64_t indices_of(const hoist_slice *slice, int64_t extent, int64_t *ret)
{
	int64_t n = 0;
	int64_t step = slice->step == HOIST_NONE ? 1 : slice->step;
	int64_t start = slice->start < 0 ? slice->start + extent : slice->start;
	int64_t stop = slice->stop < 0 ? slice->stop + extent : slice->stop;
	if (slice->is_index) {
		ret[0] = start;
		return 1;
	}
	if (slice->start == HOIST_NONE)
		start = step > 0 ? 0 : extent - 1;
	if (slice->stop == HOIST_NONE)
		stop = step > 0 ? extent : -1;
	/* A start outside is the nearest one inside: it does not go on counting from there. */
	if (step > 0 && start < 0)
		start = 0;
	if (step < 0 && start >= extent)
		start = extent - 1;
	for (int64_t i = start; step > 0 ? i < stop && i < extent : i > stop && i >= 0; i += step)
		ret[n++] = i;
	return n;
}

/* proves: S3.30 */
Test(base_layout_model, slices_take_the_items_that_counting_takes)
{
	static struct model wanted;
	seed(1);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout before = random_part(round % 2 == 0);
		hoist_layout after;
		hoist_slice slices[MOST];
		int64_t taken[MOST][MOST] = {{0}};
		int64_t counts[MOST];
		int64_t index[MOST] = {0};
		int n = (int)layout_below(before.rank + 1);
		bool any = true;
		for (int i = 0; i < before.rank; i++) {
			slices[i] = i < n ? random_slice(before.shape[i]) : HOIST_ALL;
			counts[i] = indices_of(&slices[i], before.shape[i], taken[i]);
			any = any && counts[i] > 0;
		}
		wanted.n = 0;
		if (any)
			do {
				int64_t at[MOST];
				for (int i = 0; i < before.rank; i++)
					at[i] = taken[i][index[i]];
				wanted.places[wanted.n++] = place_of(&before, at);
			} while (next_index(before.rank, counts, index));
		cr_assert_eq(hoist_layout_slice(&before, n, slices, &after), 0);
		expect_places(&wanted, &before, &after, "slice");
		for (int i = 0, k = 0; i < before.rank; i++)
			if (!slices[i].is_index)
				cr_assert_eq(after.shape[k++], counts[i]);
	}
}

/* proves: S3.31 */
Test(base_layout_model, permuting_moves_indices)
{
	static struct model wanted;
	seed(2);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout before = random_part(round % 2 == 0);
		hoist_layout after;
		int axes[MOST];
		int64_t shape[MOST];
		int64_t index[MOST] = {0};
		shuffle(before.rank, axes);
		for (int i = 0; i < before.rank; i++)
			shape[i] = before.shape[axes[i]];
		wanted.n = 0;
		if (!is_empty(&before))
			do {
				int64_t at[MOST];
				for (int i = 0; i < before.rank; i++)
					at[axes[i]] = index[i];
				wanted.places[wanted.n++] = place_of(&before, at);
			} while (next_index(before.rank, shape, index));
		for (int i = 0; i < before.rank; i++)
			axes[i] -= layout_below(2) == 0 ? before.rank : 0;
		cr_assert_eq(hoist_layout_permute(&before, before.rank, axes, &after), 0);
		expect_places(&wanted, &before, &after, "permute");
	}
}

/* Any shape with @n items. */
static int random_shape(int64_t n, int64_t *shape)
{
	int rank = 0;
	if (n == 0) {
		for (rank = 0; rank < 3; rank++)
			shape[rank] = layout_below(MOST);
		shape[layout_below(3)] = 0;
		return rank;
	}
	while (n != 1 || layout_below(3) == 0) {
		int64_t extent = rank == MOST - 1 ? n : layout_below(7) + 1;
		if (n % extent != 0)
			continue;
		shape[rank++] = extent;
		n /= extent;
		if (rank == MOST)
			break;
	}
	return rank;
}

/* Whether there are strides, found from the items next to the first one. */
static bool has_strides(const struct model *model, int rank, const int64_t *shape)
{
	hoist_layout found = {.rank = rank, .itemsize = 1, .offset = model->places[0]};
	int64_t index[MOST] = {0};
	int64_t inner = 1;
	for (int i = rank - 1; i >= 0; i--) {
		found.shape[i] = shape[i];
		found.strides[i] = shape[i] > 1 ? model->places[inner] - model->places[0] : 0;
		inner *= shape[i];
	}
	for (int64_t i = 0; i < model->n; i++) {
		if (place_of(&found, index) != model->places[i])
			return false;
		next_index(rank, shape, index);
	}
	return true;
}

/* proves: S3.32 */
Test(base_layout_model, reshaping_finds_strides_where_there_are_any)
{
	static struct model wanted;
	int found[2] = {0};
	seed(3);
	for (int round = 0; round < 5 * ROUNDS; round++) {
		hoist_layout before = random_part(round % 4 == 0);
		hoist_layout after;
		int64_t shape[MOST];
		walk(&before, &wanted);
		int rank = random_shape(wanted.n, shape);
		bool possible = wanted.n == 0 || has_strides(&wanted, rank, shape);
		int open = rank > 0 && wanted.n > 0 ? (int)layout_below(2 * rank) : rank;
		int64_t kept = open < rank ? shape[open] : 0;
		if (open < rank)
			shape[open] = -1;
		int err = hoist_layout_reshape(&before, rank, shape, &after);
		cr_assert_eq(err, possible ? 0 : -EINVAL, "%s to rank %d: %s", words(&before), rank,
			     err < 0 ? hoist_error() : "done");
		found[possible]++;
		if (!possible)
			continue;
		if (open < rank)
			shape[open] = kept;
		expect_places(&wanted, &before, &after, "reshape");
		cr_assert_eq(after.rank, rank);
		cr_assert_eq(memcmp(after.shape, shape, (size_t)rank * sizeof *shape), 0);
	}
	cr_expect_gt(found[0], ROUNDS / 4);
	cr_expect_gt(found[1], ROUNDS);
}

/* proves: S3.33 */
Test(base_layout_model, flattening_keeps_the_places_and_leaves_nothing_to_merge)
{
	static struct model wanted;
	seed(4);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout before = random_part(round % 2 == 0);
		hoist_layout after;
		uint64_t mask = hoist_layout_flatten_mask(&before);
		int merged = 0;
		walk(&before, &wanted);
		cr_assert_eq(hoist_layout_flatten(&before, 0, -1, HOIST_MERGE_ALL, &after), 0);
		expect_places(&wanted, &before, &after, "flatten");
		if (before.rank > 0)
			cr_assert_eq(after.rank, before.rank - __builtin_popcountll(mask));
		for (int i = 1; i < after.rank; i++)
			merged += after.strides[i - 1] == after.shape[i] * after.strides[i];
		cr_assert_eq(merged, 0, "%s", words(&after));
		/* Whatever the mask and the range, the places stay. */
		mask = (uint64_t)layout_below(1 << MOST);
		int first = before.rank > 0 ? (int)layout_below(before.rank) : 0;
		int last = before.rank > 0 ? first + (int)layout_below(before.rank - first) : -1;
		cr_assert_eq(hoist_layout_flatten(&before, first, last, mask, &after), 0);
		expect_places(&wanted, &before, &after, "flatten");
	}
}

/* proves: S3.34 S3.35 */
Test(base_layout_model, axes_of_extent_one_change_no_place)
{
	static struct model wanted;
	seed(5);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout before = random_part(round % 2 == 0);
		hoist_layout after;
		int all[2 * MOST];
		int n = (int)layout_below(MOST) + 1;
		walk(&before, &wanted);
		shuffle(before.rank + n, all);
		cr_assert_eq(hoist_layout_unsqueeze(&before, n, all, &after), 0);
		expect_places(&wanted, &before, &after, "unsqueeze");
		for (int i = 0; i < n; i++)
			cr_assert_eq(after.shape[all[i]], 1);
		cr_assert_eq(after.rank, before.rank + n);
		/* The new strides are such that what could be merged still can. */
		if (hoist_layout_is_contiguous_c(&before)) {
			hoist_layout line;
			cr_assert_eq(hoist_layout_reshape(&after, 1, (int64_t[]){-1}, &line), 0);
		}
		cr_assert_eq(hoist_layout_squeeze(&after, &after), 0);
		expect_places(&wanted, &before, &after, "squeeze");
		for (int i = 0; i < after.rank; i++)
			cr_assert_neq(after.shape[i], 1);
	}
}

/* proves: S3.36 */
Test(base_layout_model, broadcasting_repeats)
{
	static struct model wanted;
	seed(6);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout before = random_part(round % 2 == 0);
		hoist_layout after;
		int64_t shape[MOST + 2];
		int64_t index[MOST + 2] = {0};
		int added = (int)layout_below(3);
		int rank = before.rank + added;
		bool any = true;
		for (int i = 0; i < rank; i++) {
			bool free = i < added || before.shape[i - added] == 1;
			shape[i] = free ? layout_below(4) : before.shape[i - added];
			any = any && shape[i] > 0;
		}
		wanted.n = 0;
		if (any)
			do {
				int64_t at[MOST];
				for (int i = 0; i < before.rank; i++)
					at[i] = before.shape[i] == 1 ? 0 : index[added + i];
				wanted.places[wanted.n++] = place_of(&before, at);
			} while (next_index(rank, shape, index));
		cr_assert_eq(hoist_layout_broadcast(&before, rank, shape, &after), 0);
		expect_places(&wanted, &before, &after, "broadcast");
		cr_assert_eq(after.rank, rank);
		cr_assert_eq(memcmp(after.shape, shape, (size_t)rank * sizeof *shape), 0);
	}
}
