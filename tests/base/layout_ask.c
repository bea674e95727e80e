/* SPDX-License-Identifier: MIT */
/* Answers about random layouts, and their items in other sizes, beside the places of the items. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/base-layout-model.h"
#include "base/error.h"
#include "hoist/layout.h"

static int compare(const void *a, const void *b)
{
	const int64_t *x = a;
	const int64_t *y = b;
	return (*x > *y) - (*x < *y);
}

/* The places one after the other: from @first on, without gaps. */
static bool is_run(const struct model *model, int64_t first)
{
	for (int64_t i = 0; i < model->n; i++)
		if (model->places[i] != first + i)
			return false;
	return true;
}

static bool all_differ(const struct model *sorted)
{
	for (int64_t i = 1; i < sorted->n; i++)
		if (sorted->places[i] == sorted->places[i - 1])
			return false;
	return true;
}

static hoist_layout reversed(const hoist_layout *layout)
{
	hoist_layout made;
	int axes[HOIST_MAX_RANK];
	for (int i = 0; i < layout->rank; i++)
		axes[i] = layout->rank - 1 - i;
	cr_assert_eq(hoist_layout_permute(layout, layout->rank, axes, &made), 0);
	return made;
}

static void expect_order(const hoist_layout *layout)
{
	int axes[HOIST_MAX_RANK];
	hoist_layout_stride_order(layout, axes);
	for (int i = 1; i < layout->rank; i++) {
		int64_t high = llabs(layout->strides[axes[i - 1]]);
		int64_t low = llabs(layout->strides[axes[i]]);
		int64_t extents[2] = {layout->shape[axes[i - 1]], layout->shape[axes[i]]};
		if (layout->implicit)
			cr_assert_eq(axes[i], i);
		else
			cr_assert(high > low || (high == low && extents[0] > extents[1]) ||
					  (high == low && extents[0] == extents[1] &&
					   axes[i - 1] < axes[i]),
				  "%s", words(layout));
	}
}

/* proves: S3.24 S3.25 S3.26 S3.27 S3.28 S3.29 */
Test(base_layout_ask, answers_are_those_of_the_places)
{
	static struct model places;
	static struct model mirrored;
	int found[4] = {0};
	seed(11);
	for (int round = 0; round < 5 * ROUNDS; round++) {
		bool wild = round % 2 == 0;
		hoist_layout layout = random_part(wild);
		hoist_layout back = reversed(&layout);
		int64_t min = 77;
		int64_t max = 77;
		int64_t bytes = 77;
		walk(&layout, &places);
		walk(&back, &mirrored);
		bool c = is_run(&places, layout.offset);
		bool f = is_run(&mirrored, layout.offset);
		qsort(places.places, (size_t)places.n, sizeof places.places[0], compare);
		bool differ = all_differ(&places);
		bool any = is_run(&places, layout.offset);
		int64_t low = places.n > 0 ? places.places[0] : 0;
		int64_t high = places.n > 0 ? places.places[places.n - 1] : -1;

		cr_assert_eq(hoist_layout_volume(&layout), places.n);
		cr_assert_eq(hoist_layout_is_contiguous_c(&layout), c, "%s", words(&layout));
		cr_assert_eq(hoist_layout_is_contiguous_f(&layout), f, "%s", words(&layout));
		cr_assert_eq(hoist_layout_is_contiguous_any(&layout), any, "%s", words(&layout));
		cr_assert_eq(hoist_layout_is_dense(&layout), any && layout.offset == 0);
		/* Exact for parts of dense layouts; never a wrong yes. */
		int unique = hoist_layout_is_unique(&layout);
		cr_assert(wild ? differ || !unique : differ == unique, "%s", words(&layout));
		cr_assert_eq(hoist_layout_bounds(&layout, &min, &max), 0);
		cr_assert(min == low && max == high, "%s", words(&layout));
		int err = hoist_layout_required_bytes(&layout, &bytes);
		cr_assert_eq(err, low < 0 ? -EINVAL : 0);
		cr_assert_eq(bytes, low < 0 ? 77 : (high + 1) * layout.itemsize);
		expect_order(&layout);
		found[0] += c;
		found[1] += f;
		found[2] += any;
		found[3] += unique;
	}
	for (int i = 0; i < 4; i++)
		cr_expect(found[i] > ROUNDS && found[i] < 5 * ROUNDS, "%d: %d", i, found[i]);
}

/* proves: S3.27 S3.36 */
Test(base_layout_ask, broadcast_layouts_are_not_unique)
{
	seed(12);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout layout = random_part(false);
		hoist_layout wide;
		int64_t shape[MOST + 1] = {layout_below(3) + 1};
		memcpy(shape + 1, layout.shape, (size_t)layout.rank * sizeof *shape);
		cr_assert_eq(hoist_layout_broadcast(&layout, layout.rank + 1, shape, &wide), 0);
		cr_assert_eq(hoist_layout_is_unique(&wide), shape[0] == 1 || is_empty(&wide));
	}
}

/* proves: S3.22 S3.24 */
Test(base_layout_ask, dense_ones_have_the_order_that_was_asked_for)
{
	seed(13);
	for (int round = 0; round < ROUNDS; round++) {
		hoist_layout layout = random_part(round % 2 == 0);
		hoist_layout made;
		int64_t bytes[MOST];
		int axes[MOST];
		static const hoist_order orders[] = {HOIST_ORDER_C, HOIST_ORDER_F, HOIST_ORDER_K,
						     HOIST_ORDER_AXES};
		hoist_order order = orders[round % 4];
		shuffle(layout.rank, axes);
		int same = hoist_layout_to_dense(&layout, order, axes, &made);
		cr_assert(same == 0 || (same == 1 && hoist_layout_equal(&made, &layout)));
		cr_assert_eq(made.rank, layout.rank);
		cr_assert_eq(made.itemsize, layout.itemsize);
		cr_assert(hoist_layout_is_dense(&made));
		cr_assert(order != HOIST_ORDER_C || hoist_layout_is_contiguous_c(&made));
		cr_assert(order != HOIST_ORDER_F || hoist_layout_is_contiguous_f(&made));
		if (order == HOIST_ORDER_K)
			hoist_layout_stride_order(&layout, axes);
		for (int i = 0; i < made.rank; i++)
			cr_assert_eq(made.shape[i], layout.shape[i]);
		for (int i = 1; i < made.rank && order >= HOIST_ORDER_K && same == 0; i++)
			cr_assert_eq(made.strides[axes[i - 1]],
				     made.strides[axes[i]] * made.shape[axes[i]]);
		cr_assert_eq(hoist_layout_byte_strides(&made, bytes), 0);
		for (int i = 0; i < made.rank; i++)
			cr_assert_eq(bytes[i], made.strides[i] * made.itemsize);
	}
}

/* The bytes of all items, in the order of the items. */
static void walk_bytes(const hoist_layout *layout, struct model *ret)
{
	static struct model items;
	walk(layout, &items);
	cr_assert_leq(items.n * layout->itemsize, MOST_PLACES);
	ret->n = 0;
	for (int64_t i = 0; i < items.n; i++)
		for (int64_t k = 0; k < layout->itemsize; k++)
			ret->places[ret->n++] = items.places[i] * layout->itemsize + k;
}

/* A layout that can often be repacked along @axis. */
static hoist_layout random_rows(int *axis)
{
	hoist_layout made;
	int64_t shape[3];
	int axes[3];
	int rank = (int)layout_below(3) + 1;
	for (int i = 0; i < rank; i++)
		shape[i] = layout_below(2) == 0 ? 4 * (layout_below(2) + 1) : layout_below(6) + 1;
	shuffle(rank, axes);
	cr_assert_eq(hoist_layout_dense(rank, shape,
					layout_below(2) == 0 ? 1 << layout_below(4)
							     : layout_below(6) + 1,
					HOIST_ORDER_AXES, axes, &made),
		     0);
	hoist_slice first = random_slice(shape[0]);
	if (!first.is_index && layout_below(3) == 0)
		cr_assert_eq(hoist_layout_slice(&made, 1, &first, &made), 0);
	*axis = axes[rank - 1];
	return made;
}

/* proves: S3.37 */
Test(base_layout_ask, repacked_items_are_the_same_bytes)
{
	static struct model before;
	static struct model after;
	int found = 0;
	seed(14);
	for (int round = 0; round < ROUNDS; round++) {
		int axis;
		hoist_layout layout = random_rows(&axis);
		hoist_layout made;
		int64_t itemsize =
			layout_below(2) == 0 ? 1 << layout_below(5) : layout_below(12) + 1;
		int keep = (int)layout_below(2);
		if (hoist_layout_repack(&layout, itemsize, 0, axis, keep, &made) < 0)
			continue;
		found += itemsize != layout.itemsize;
		cr_assert_eq(made.itemsize, itemsize);
		cr_assert(made.rank == layout.rank || (!keep && made.rank == layout.rank - 1));
		walk_bytes(&layout, &before);
		walk_bytes(&made, &after);
		if (axis != layout.rank - 1) {
			qsort(before.places, (size_t)before.n, sizeof before.places[0], compare);
			qsort(after.places, (size_t)after.n, sizeof after.places[0], compare);
		}
		cr_assert_eq(before.n, after.n, "%s: %s", words(&layout), words(&made));
		cr_assert_eq(
			memcmp(before.places, after.places, (size_t)before.n * sizeof(int64_t)), 0,
			"%s: %s", words(&layout), words(&made));
	}
	cr_expect_gt(found, ROUNDS / 5);
}

/* proves: S3.38 */
Test(base_layout_ask, the_largest_itemsize_can_be_had_and_no_larger_one)
{
	int larger = 0;
	seed(15);
	for (int round = 0; round < ROUNDS; round++) {
		int axis;
		hoist_layout layout = random_rows(&axis);
		hoist_layout made;
		int64_t most = layout.itemsize + layout_below(40);
		uintptr_t data = (uintptr_t)layout_below(9) * 4;
		int64_t found = 77;
		cr_assert_eq(hoist_layout_max_itemsize(&layout, most, data, axis, &found), 0);
		if (layout.strides[axis] != 1 || layout.shape[axis] == 0) {
			cr_assert_eq(found, layout.itemsize);
			continue;
		}
		larger += found > layout.itemsize;
		for (int64_t size = layout.itemsize + 1; size <= most; size++) {
			bool can = most % size == 0 && size % layout.itemsize == 0 &&
				   hoist_layout_repack(&layout, size, data, axis, 1, &made) == 0;
			cr_assert(!can || size <= found, "%s", words(&layout));
			cr_assert(can || size != found || found % layout.itemsize != 0, "%s",
				  words(&layout));
		}
	}
	cr_expect_gt(larger, ROUNDS / 20);
}
