/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-chunk.c - divides a copy through slots into chunks that fit into one slot.
 * The contract is in lib/copy/copy-stage.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "lib/copy/copy-stage.h"

static const int64_t *device_strides(const struct hoist__stage *stage,
				     const struct hoist__nest *nest)
{
	return stage->to_device ? nest->dst_strides : nest->src_strides;
}

/* Returns: the bytes in a slot of @n iterations of a loop with that stride, each of @inner
 * bytes. */
static size_t grown(const struct hoist__stage *stage, size_t inner, int64_t n, int64_t stride)
{
	if (stride == 0)
		return inner;
	if (stage->range)
		return inner + (size_t)((n - 1) * llabs(stride));
	return inner * (size_t)n;
}

static int64_t iterations_that_fit(const struct hoist__stage *stage, size_t inner, int64_t stride)
{
	if (stage->range)
		return (int64_t)(HOIST__SLOT_BYTES - inner) / llabs(stride) + 1;
	return (int64_t)(HOIST__SLOT_BYTES / inner);
}

/* Takes as many inner loops whole as fit into a slot, and cuts the next loop outwards.  If not even
 * one run fits, the runs are cut. */
void hoist__stage_divide(struct hoist__stage *stage)
{
	const struct hoist__nest *nest = &stage->nest;
	const int64_t *strides = device_strides(stage, nest);
	size_t inner = nest->item;
	int at = nest->rank;
	while (inner <= HOIST__SLOT_BYTES && at > 0) {
		size_t more = grown(stage, inner, nest->extents[at - 1], strides[at - 1]);
		if (more > HOIST__SLOT_BYTES)
			break;
		inner = more;
		at--;
	}
	uint64_t n = (uint64_t)(at > 0 ? nest->extents[at - 1] : 1);
	stage->cut = at - 1;
	stage->step = 1;
	if (inner > HOIST__SLOT_BYTES) {
		stage->cut = nest->rank;
		stage->step = HOIST__SLOT_BYTES;
		n = nest->item;
	} else if (at > 0) {
		stage->step = iterations_that_fit(stage, inner, strides[at - 1]);
	}
	stage->n_chunks = (n + (uint64_t)stage->step - 1) / (uint64_t)stage->step;
	for (int i = 0; i < stage->cut; i++)
		stage->n_chunks *= (uint64_t)nest->extents[i];
	stage->chunk_bytes = stage->cut == nest->rank ? HOIST__SLOT_BYTES
			     : stage->cut < 0
				     ? inner
				     : grown(stage, inner, stage->step, strides[stage->cut]);
}

/* Gives the part of the nest that is chunk @number of the stage. */
static void take_part(const struct hoist__stage *stage, uint64_t number, struct hoist__nest *ret)
{
	const struct hoist__nest *nest = &stage->nest;
	int cut = stage->cut;
	int first = cut < 0 ? 0 : cut;
	ret->rank = nest->rank - first;
	ret->item = nest->item;
	ret->dst_offset = nest->dst_offset;
	ret->src_offset = nest->src_offset;
	for (int i = 0; i < ret->rank; i++) {
		ret->extents[i] = nest->extents[first + i];
		ret->dst_strides[i] = nest->dst_strides[first + i];
		ret->src_strides[i] = nest->src_strides[first + i];
	}
	if (cut < 0)
		return;
	bool run = cut == nest->rank;
	int64_t n = run ? (int64_t)nest->item : nest->extents[cut];
	uint64_t steps = (uint64_t)((n + stage->step - 1) / stage->step);
	int64_t at = (int64_t)(number % steps) * stage->step;
	int64_t length = n - at < stage->step ? n - at : stage->step;
	ret->dst_offset += at * (run ? 1 : nest->dst_strides[cut]);
	ret->src_offset += at * (run ? 1 : nest->src_strides[cut]);
	if (run)
		ret->item = (size_t)length;
	else
		ret->extents[0] = length;
	number /= steps;
	for (int i = cut - 1; i >= 0; i--) {
		int64_t index = (int64_t)(number % (uint64_t)nest->extents[i]);
		number /= (uint64_t)nest->extents[i];
		ret->dst_offset += index * nest->dst_strides[i];
		ret->src_offset += index * nest->src_strides[i];
	}
}

/* With a range, the slot has the device's bytes as they lie there, gaps included.  Else the
 * elements are packed.  The strides keep their signs, so that bytes ascend in the slot as on the
 * device, and an element that a stride of 0 repeats is in the slot once. */
void hoist__stage_lay_out(const struct hoist__stage *stage, struct hoist__stage_chunk *chunk)
{
	const struct hoist__nest *nest = &chunk->nest;
	const int64_t *strides = device_strides(stage, nest);
	chunk->first = 0;
	if (stage->range) {
		int64_t low;
		int64_t high;
		hoist__nest_bounds(nest, 0, strides, &low, &high);
		memcpy(chunk->strides, strides, (size_t)nest->rank * sizeof strides[0]);
		chunk->first = -low;
		chunk->bytes = (size_t)(high - low);
		return;
	}
	int64_t packed = (int64_t)nest->item;
	for (int i = nest->rank - 1; i >= 0; i--) {
		chunk->strides[i] = strides[i] == 0 ? 0 : strides[i] < 0 ? -packed : packed;
		if (strides[i] < 0)
			chunk->first += (nest->extents[i] - 1) * packed;
		packed *= strides[i] == 0 ? 1 : nest->extents[i];
	}
	chunk->bytes = (size_t)packed;
}

void hoist__stage_take_chunk(const struct hoist__stage *stage, uint64_t number,
			     struct hoist__stage_chunk *ret)
{
	take_part(stage, number, &ret->nest);
	hoist__stage_lay_out(stage, ret);
}
