/* SPDX-License-Identifier: MIT */
/* Random layouts and slices, and a plain walk over the items of a layout as the model. */
#include "config.h"

#include "tests/support/base-layout-model.h"

#include <criterion/criterion.h>

#include "base/error.h"
#include "hoist/layout.h"
#include "tests/support/random.h"

static uint64_t state;

void seed(uint64_t from)
{
	state = from;
}

int64_t layout_below(int64_t n)
{
	return (int64_t)random_below(&state, (uint64_t)n);
}

bool next_index(int rank, const int64_t *shape, int64_t *index)
{
	for (int i = rank - 1; i >= 0; i--) {
		if (++index[i] < shape[i])
			return true;
		index[i] = 0;
	}
	return false;
}

int64_t place_of(const hoist_layout *layout, const int64_t *index)
{
	int64_t place = layout->offset;
	for (int i = 0; i < layout->rank; i++)
		place += index[i] * layout->strides[i];
	return place;
}

bool is_empty(const hoist_layout *layout)
{
	for (int i = 0; i < layout->rank; i++)
		if (layout->shape[i] == 0)
			return true;
	return false;
}

void walk(const hoist_layout *layout, struct model *ret)
{
	int64_t index[HOIST_MAX_RANK] = {0};
	ret->n = 0;
	if (is_empty(layout))
		return;
	do {
		cr_assert_lt(ret->n, MOST_PLACES);
		ret->places[ret->n++] = place_of(layout, index);
	} while (next_index(layout->rank, layout->shape, index));
}

const char *words(const hoist_layout *layout)
{
	static char text[2][1000];
	static int turn;
	turn = !turn;
	return write_layout(layout, text[turn], sizeof text[0]);
}

hoist_slice random_slice(int64_t extent)
{
	hoist_slice slice = HOIST_AT(extent > 0 ? layout_below(2 * extent) - extent : 0);
	if (extent > 0 && layout_below(4) == 0)
		return slice;
	slice.is_index = 0;
	slice.start = layout_below(3) == 0 ? HOIST_NONE : layout_below(4 * MOST) - 2 * MOST;
	slice.stop = layout_below(3) == 0 ? HOIST_NONE : layout_below(4 * MOST) - 2 * MOST;
	slice.step = layout_below(3) == 0 ? HOIST_NONE : layout_below(3) + 1;
	if (layout_below(2) == 0)
		slice.step = -layout_below(3) - 1;
	return slice;
}

void shuffle(int n, int *axes)
{
	for (int i = 0; i < n; i++) {
		int other = (int)layout_below(i + 1);
		axes[i] = axes[other];
		axes[other] = i;
	}
}

hoist_layout random_layout(bool wild)
{
	hoist_layout made;
	int64_t shape[MOST];
	int64_t strides[MOST];
	int axes[MOST];
	int rank = (int)layout_below(MOST);
	for (int i = 0; i < rank; i++) {
		shape[i] = layout_below(12) == 0 ? 0 : layout_below(MOST) + 1;
		strides[i] = layout_below(21) - 10;
	}
	shuffle(rank, axes);
	int64_t itemsize = layout_below(16) + 1;
	int err = wild ? hoist_layout_make(rank, shape, strides, itemsize, 0, &made)
		  : layout_below(3) == 0 ? hoist_layout_make(rank, shape, NULL, itemsize, 0, &made)
					 : hoist_layout_dense(rank, shape, itemsize,
							      HOIST_ORDER_AXES, axes, &made);
	cr_assert_eq(err, 0);
	return made;
}

hoist_layout random_part(bool wild)
{
	hoist_layout made = random_layout(wild);
	hoist_slice slices[MOST];
	int axes[MOST];
	for (int64_t turns = layout_below(3); turns > 0; turns--) {
		int n = (int)layout_below(made.rank + 1);
		for (int i = 0; i < n; i++)
			slices[i] = random_slice(made.shape[i]);
		cr_assert_eq(hoist_layout_slice(&made, n, slices, &made), 0, "%s", hoist_error());
		shuffle(made.rank, axes);
		cr_assert_eq(hoist_layout_permute(&made, made.rank, axes, &made), 0);
	}
	return made;
}
