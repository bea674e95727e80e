/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-stage.c - copies loops between host memory and a device through pinned slots.
 * The contract is in lib/copy/copy.h.
 *
 * The device's side sets the order: it is copied in the order of its memory, so that as much as
 * possible is one call and one run.  The CPU does the rest, between slot and host memory.  The
 * bytes in a slot are packed, in the order of the device's strides.  If a source on a device has
 * small elements near each other, the bytes lie in the slot as on the device, with the bytes
 * between them.
 *
 *   slot 0   CPU packs      device copies    CPU packs ...
 *   slot 1                  CPU packs        device copies ...
 */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "lib/copy/copy-stage.h"

/* Costs in nanoseconds: orders of magnitude for PCIe 4 and 5, used only to choose a way. */
#define CALL_NS 4000u	 /* a driver call */
#define ROW_NS 30u	 /* a row of a 2-D copy */
#define BUS_BYTES_NS 25u /* bytes a nanosecond */
#define TURN_NS 2u	 /* an item that the CPU copies */
#define PACK_BYTES_NS 8u
#define SLOT_NS 10000u

static const int64_t *host_strides(const struct hoist__stage *stage, const struct hoist__nest *nest)
{
	return stage->to_device ? nest->src_strides : nest->dst_strides;
}

/* Orders the loops by the strides of the source.  Nests come in the order of dst. */
static void order_by_source(struct hoist__nest *nest)
{
	for (int i = 1; i < nest->rank; i++)
		for (int k = i; k > 0; k--) {
			int64_t *n = &nest->extents[k];
			int64_t *d = &nest->dst_strides[k];
			int64_t *s = &nest->src_strides[k];
			if (llabs(s[-1]) >= llabs(s[0]))
				break;
			const int64_t keep[3] = {n[0], d[0], s[0]};
			n[0] = n[-1];
			d[0] = d[-1];
			s[0] = s[-1];
			n[-1] = keep[0];
			d[-1] = keep[1];
			s[-1] = keep[2];
		}
}

/* --- choosing --- */

uint64_t hoist__boxes_cost(const struct hoist__nest *nest, const struct hoist__boxes *boxes)
{
	return boxes->n_calls * CALL_NS + boxes->n_rows * ROW_NS +
	       boxes->n_rows * nest->item / BUS_BYTES_NS;
}

/* Estimates the cost between the device and a packed slot, as if everything fitted into one
 * slot. */
static uint64_t packed_cost(const struct hoist__stage *stage)
{
	struct hoist__stage_chunk all = {.nest = stage->nest};
	struct hoist__nest nest;
	struct hoist__boxes boxes;
	hoist__stage_lay_out(stage, &all);
	hoist__nest_of(all.nest.rank, all.nest.extents, all.nest.item,
		       stage->to_device ? all.nest.dst_strides : all.strides,
		       stage->to_device ? all.strides : all.nest.src_strides, &nest);
	hoist__boxes_plan(&nest, &boxes);
	return hoist__boxes_cost(&nest, &boxes) + stage->n_chunks * SLOT_NS;
}

/* Returns: the cost on the device's side. */
static uint64_t init(struct hoist__stage *stage, const struct hoist__move *move)
{
	stage->move = move;
	stage->to_device = !hoist__span_on_host(&move->dst);
	stage->range = false;
	stage->nest = move->nest;
	if (!stage->to_device)
		order_by_source(&stage->nest);
	hoist__stage_divide(stage);
	uint64_t cost = packed_cost(stage);
	if (stage->to_device)
		return cost;
	struct hoist__stage range = *stage;
	range.range = true;
	hoist__stage_divide(&range);
	uint64_t other = range.n_chunks * (CALL_NS + SLOT_NS + range.chunk_bytes / BUS_BYTES_NS);
	if (other >= cost)
		return cost;
	*stage = range;
	return other;
}

uint64_t hoist__stage_cost(const struct hoist__move *move)
{
	struct hoist__stage stage;
	uint64_t cost = init(&stage, move);
	uint64_t items = 1;
	for (int i = 0; i < move->nest.rank; i++)
		items *= (uint64_t)move->nest.extents[i];
	return cost + items * TURN_NS + items * move->nest.item / PACK_BYTES_NS;
}

/* --- the two halves of a chunk --- */

/* Copies between host memory and the slot. */
static void pack(const struct hoist__stage *stage, const struct hoist__stage_chunk *chunk,
		 uintptr_t slot)
{
	const struct hoist__nest *part = &chunk->nest;
	HOIST__ASSERT(chunk->first >= 0 && (size_t)chunk->first < chunk->bytes);
	uintptr_t inside = slot + (uintptr_t)chunk->first;
	struct hoist__nest nest;
	if (stage->to_device) {
		uintptr_t host = stage->move->src.address + (uintptr_t)part->src_offset;
		hoist__nest_of(part->rank, part->extents, part->item, chunk->strides,
			       host_strides(stage, part), &nest);
		hoist__nest_copy(&nest, (void *)inside, (const void *)host);
	} else {
		uintptr_t host = stage->move->dst.address + (uintptr_t)part->dst_offset;
		hoist__nest_of(part->rank, part->extents, part->item, host_strides(stage, part),
			       chunk->strides, &nest);
		hoist__nest_copy(&nest, (void *)host, (const void *)inside);
	}
}

static int queue_range(const struct hoist__stage *stage, const struct hoist__stage_chunk *chunk,
		       struct hoist__dev_stream *stream, uintptr_t slot)
{
	uintptr_t low =
		stage->move->src.address + (uintptr_t)(chunk->nest.src_offset - chunk->first);
	return hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, slot, low, chunk->bytes);
}

/* Copies between the slot and the device. */
static int queue(const struct hoist__stage *stage, const struct hoist__stage_chunk *chunk,
		 struct hoist__dev_stream *stream, uintptr_t slot)
{
	const struct hoist__nest *part = &chunk->nest;
	uintptr_t inside = slot + (uintptr_t)chunk->first;
	struct hoist__nest nest;
	struct hoist__boxes boxes;
	if (stage->range)
		return queue_range(stage, chunk, stream, slot);
	if (stage->to_device)
		hoist__nest_of(part->rank, part->extents, part->item, part->dst_strides,
			       chunk->strides, &nest);
	else
		hoist__nest_of(part->rank, part->extents, part->item, chunk->strides,
			       part->src_strides, &nest);
	hoist__boxes_plan(&nest, &boxes);
	if (stage->to_device)
		return hoist__boxes_queue(stream, HOIST__COPY_HOST_TO_DEVICE, &nest, &boxes,
					  stage->move->dst.address + (uintptr_t)part->dst_offset,
					  inside);
	return hoist__boxes_queue(stream, HOIST__COPY_DEVICE_TO_HOST, &nest, &boxes, inside,
				  stage->move->src.address + (uintptr_t)part->src_offset);
}

/* --- running --- */

static int run_in(const struct hoist__stage *stage, struct hoist__lane *lane, uintptr_t slots)
{
	struct hoist__stage_chunk chunk;
	int err = 0;
	for (uint64_t i = 0; err == 0 && i < stage->n_chunks; i++) {
		unsigned slot = i % HOIST__N_SLOTS;
		uintptr_t at = slots + slot * HOIST__SLOT_BYTES;
		if (i >= HOIST__N_SLOTS)
			err = hoist__dev_event_synchronize(lane->done[slot]);
		if (err < 0)
			break;
		hoist__stage_take_chunk(stage, i, &chunk);
		HOIST__ASSERT(chunk.bytes <= HOIST__SLOT_BYTES &&
			      chunk.bytes <= stage->chunk_bytes);
		pack(stage, &chunk, at);
		err = queue(stage, &chunk, lane->stream, at);
		if (err == 0)
			err = hoist__dev_event_record(lane->done[slot], lane->stream);
	}
	return err;
}

/* The device is one slot ahead of the CPU. */
static int run_out(const struct hoist__stage *stage, struct hoist__lane *lane, uintptr_t slots)
{
	struct hoist__stage_chunk chunks[HOIST__N_SLOTS];
	int err = 0;
	for (uint64_t i = 0; err == 0 && i <= stage->n_chunks; i++) {
		unsigned slot = i % HOIST__N_SLOTS;
		unsigned before = (slot + HOIST__N_SLOTS - 1) % HOIST__N_SLOTS;
		if (i < stage->n_chunks) {
			hoist__stage_take_chunk(stage, i, &chunks[slot]);
			HOIST__ASSERT(chunks[slot].bytes <= HOIST__SLOT_BYTES);
			err = queue(stage, &chunks[slot], lane->stream,
				    slots + slot * HOIST__SLOT_BYTES);
			if (err == 0)
				err = hoist__dev_event_record(lane->done[slot], lane->stream);
		}
		if (err < 0 || i == 0)
			continue;
		err = hoist__dev_event_synchronize(lane->done[before]);
		if (err == 0)
			pack(stage, &chunks[before], slots + before * HOIST__SLOT_BYTES);
	}
	return err;
}

int hoist__stage_run(const struct hoist__move *move)
{
	struct hoist__stage stage;
	(void)init(&stage, move);
	hoist_device *device = stage.to_device ? move->dst.device : move->src.device;
	struct hoist__slots slots;
	int err = hoist__slots_acquire(device, move->through, &slots);
	if (err < 0)
		return err;
	struct hoist__lane *lane;
	err = hoist__lane_acquire(device, &lane);
	if (err == 0) {
		err = stage.to_device ? run_in(&stage, lane, slots.address)
				      : run_out(&stage, lane, slots.address);
		err = hoist__lane_release(device, lane, err);
	}
	hoist__slots_release(&slots);
	return err;
}

/* Copies each part to host memory of the source's driver, packed in the order that the destination
 * needs, and from there to the destination. */
static int pass_on(const struct hoist__stage *stage, const struct hoist__stage_chunk *chunk,
		   const struct hoist__span *middle)
{
	const struct hoist__nest *part = &chunk->nest;
	struct hoist__move in = {.dst = *middle, .src = stage->move->src};
	struct hoist__move out = {.dst = stage->move->dst, .src = *middle};
	in.src.address += (uintptr_t)part->src_offset;
	hoist__nest_of(part->rank, part->extents, part->item, chunk->strides, part->src_strides,
		       &in.nest);
	out.dst.address += (uintptr_t)part->dst_offset;
	hoist__nest_of(part->rank, part->extents, part->item, part->dst_strides, chunk->strides,
		       &out.nest);
	int err = hoist__move_run(&in);
	return err < 0 ? err : hoist__move_run(&out);
}

int hoist__stage_between(const struct hoist__move *move)
{
	struct hoist__stage stage = {.move = move, .to_device = true, .nest = move->nest};
	struct hoist__stage_chunk chunk;
	struct hoist__slots slots;
	int err = hoist__slots_acquire(move->src.device, move->through, &slots);
	if (err < 0)
		return err;
	hoist__stage_divide(&stage);
	const struct hoist__span middle = {move->src.device, HOIST__MEMORY_PINNED, slots.address};
	for (uint64_t i = 0; err == 0 && i < stage.n_chunks; i++) {
		hoist__stage_take_chunk(&stage, i, &chunk);
		HOIST__ASSERT(chunk.bytes <= HOIST__N_SLOTS * HOIST__SLOT_BYTES);
		err = pass_on(&stage, &chunk, &middle);
	}
	hoist__slots_release(&slots);
	return err;
}
