/* SPDX-License-Identifier: MIT */
/* Tells whether two buffers share bytes.
 * The contract is in lib/copy/copy.h.
 *
 * Buffers whose first and last bytes lie apart share none.  Two others, as columns of one matrix,
 * share none if this can be seen by a stride S of one of them: both repeat every S bytes, and
 * within S bytes each has a range of its own.
 *
 *     S        |         |         |
 *     first     aaaa      aaaa          no byte of the second, whatever the rows are
 *     second        bbb       bbb
 */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/layout.h"
#include "lib/copy/copy.h"

/* The units that the buffer's elements are in.  Elements that are no whole bytes: the whole range,
 * as one unit. */
static void find_units(const hoist_buffer *buffer, struct hoist__units *units, uint64_t *low,
		       uint64_t *high)
{
	uint64_t first = hoist__storage_address(buffer->storage) + buffer->offset;
	int64_t before = 0;
	int64_t behind = 0;
	int err = 0;
	hoist__units_of(buffer, units);
	if (units->bytes == 0)
		err = hoist__layout_bounds(buffer->dtype, buffer->rank, buffer->dims,
					   buffer->strides, &before, &behind);
	else
		err = hoist__layout_furthest(units->rank, units->shape, units->strides, &before,
					     &behind);
	HOIST__ASSERT(err == 0); /* the buffer could be made */
	(void)err;
	if (units->bytes == 0) {
		units->rank = 0;
		units->bytes = (size_t)(behind - before);
	} else {
		before *= (int64_t)units->bytes;
		behind = (behind + 1) * (int64_t)units->bytes;
	}
	*low = first + (uint64_t)before;
	*high = first + (uint64_t)behind;
}

void hoist__buffer_reach(const hoist_buffer *buffer, uint64_t *low, uint64_t *high)
{
	struct hoist__units units;
	find_units(buffer, &units, low, high);
}

static uint64_t stride_of(const struct hoist__units *units, int axis)
{
	return (uint64_t)llabs(units->strides[axis]) * units->bytes;
}

/* The bytes that the elements reach within a period of @stride bytes; 0: they do not repeat so. */
static uint64_t reach_within(const struct hoist__units *units, uint64_t stride)
{
	uint64_t reach = units->bytes;
	for (int a = 0; a < units->rank; a++)
		if (units->shape[a] > 1 && stride_of(units, a) % stride != 0)
			reach += (uint64_t)(units->shape[a] - 1) * stride_of(units, a);
	return reach <= stride ? reach : 0;
}

bool hoist__buffers_may_overlap(const hoist_buffer *a, const hoist_buffer *b)
{
	struct hoist__units units[2];
	uint64_t low[2];
	uint64_t high[2];
	find_units(a, &units[0], &low[0], &high[0]);
	find_units(b, &units[1], &low[1], &high[1]);
	bool apart = high[0] <= low[1] || high[1] <= low[0];
	for (int i = 0; i < 2; i++)
		for (int axis = 0; axis < units[i].rank && !apart; axis++) {
			uint64_t stride = stride_of(&units[i], axis);
			if (units[i].shape[axis] <= 1 || stride == 0)
				continue;
			uint64_t first = reach_within(&units[0], stride);
			uint64_t second = reach_within(&units[1], stride);
			uint64_t between = (low[1] % stride + stride - low[0] % stride) % stride;
			apart = first > 0 && second > 0 && between >= first &&
				stride - between >= second;
		}
	return !apart;
}
