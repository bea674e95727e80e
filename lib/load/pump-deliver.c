/* SPDX-License-Identifier: MIT */
/* Moves the pieces of a staged chunk to host memory or to each device.
 * The contract is in lib/load/pump.h.
 *
 * A chunk is settled first: pieces are gathered and converted to host memory, and pieces for
 * devices are converted in the slot, once for all of them.  Settling touches nothing but the
 * flight's slot and the places of its pieces, so threads may settle several flights at once.  Then
 * the slot is copied to the devices.
 *
 * Elements that become narrower, or stay as wide, are converted in place.  For wider elements, the
 * chunk was read to the slot's end, and all pieces are packed from the slot's beginning on, in
 * their order.  Writing then never reaches bytes that are still to be converted: of a chunk of half
 * a slot, whose pieces follow each other, a piece that begins `at` bytes into the chunk is written
 * at 2 * at or before; and a chunk of a third is not reached at all.
 *
 * Small tensors (chunk.laid) are laid out in front of the chunk, once for each want, with zeros for
 * the padding between them: no old bytes of a slot reach a device. */
#include "config.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/load/give.h"
#include "lib/load/pump.h"

/* --- in host memory --- */

/* True if all rows of the piece lie in the chunk, and their places in its lots. */
HOIST__CONDITION static bool is_inside(const struct hoist_load *load,
				       const struct hoist__chunk *chunk,
				       const struct hoist__plan_piece *piece)
{
	size_t last = piece->rows - 1;
	bool inside = piece->rows != 0 && piece->row_bytes != 0 && piece->n_places != 0 &&
		      piece->at + last * piece->at_stride + piece->row_bytes <=
			      chunk->bytes * chunk->n_parts;
	for (size_t p = 0; p < piece->n_places && inside; p++) {
		const struct hoist__plan_tensor *place = hoist__plan_place(&load->plan, piece, p);
		int64_t first = (int64_t)place->target + piece->within;
		int64_t end = first + (int64_t)last * piece->target_stride;
		if (load->plan.lots[place->lot].in_place)
			continue;
		inside = first >= 0 && end >= 0 &&
			 (uint64_t)(first > end ? first : end) + hoist__plan_row_after(piece) <=
				 load->plan.lots[place->lot].bytes;
	}
	return inside;
}

/* The tensor to which the piece goes on the target; NULL: the piece does not go there. */
static const struct hoist__plan_tensor *place_on(const struct hoist_load *load,
						 const struct hoist__target *target,
						 const struct hoist__plan_piece *piece)
{
	const struct hoist__plan_tensor *ret = NULL;
	for (size_t p = 0; p < piece->n_places && ret == NULL; p++) {
		const struct hoist__plan_tensor *place = hoist__plan_place(&load->plan, piece, p);
		if (target->storages[place->lot] != NULL)
			ret = place;
	}
	return ret;
}

uintptr_t hoist__pump_address_on(const struct hoist_load *load, const struct hoist__target *target,
				 const struct hoist__plan_piece *piece)
{
	const struct hoist__plan_tensor *place = place_on(load, target, piece);
	return place == NULL ? 0
			     : hoist__load_lot_address(target, place->lot) +
				       (uintptr_t)place->target + (uintptr_t)piece->within;
}

static void move_to_host(const struct hoist_load *load, const struct hoist__flight *flight,
			 const struct hoist__target *target)
{
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_stack stack;
	while (hoist__plan_stack(&load->plan, &flight->chunk, &cursor, &stack)) {
		uintptr_t to = hoist__pump_address_on(load, target, &stack.piece);
		HOIST__ASSERT(is_inside(load, &flight->chunk, &stack.piece));
		if (to != 0)
			hoist__plan_move(&stack, (unsigned char *)to,
					 flight->address + stack.piece.at);
	}
}

static bool goes_to_device(const struct hoist_load *load, const struct hoist__plan_piece *piece)
{
	bool any = false;
	for (size_t p = 0; p < piece->n_places && !any; p++) {
		unsigned want = hoist__plan_place(&load->plan, piece, p)->want;
		any = load->plan.wants[want].kind == HOIST__PLAN_DEVICE;
	}
	return any;
}

/* --- in the slot --- */

/* One pass over the pieces of a slot that go to devices. */
struct pass {
	struct hoist__piece_cursor cursor;
	struct hoist__plan_piece piece;
	size_t packed; /* where the next packed piece lies */
};

/* The next such piece; @ret: its rows' place in the slot, in the form in which the devices get
 * them.  Pieces are packed where some may become wider, and where they are hot rows.  False at the
 * end. */
static bool next_box(const struct hoist_load *load, const struct hoist__flight *flight,
		     struct pass *pass, struct hoist__slot_box *ret)
{
	const struct hoist__plan_piece *piece = &pass->piece;
	size_t at = hoist__pump_slot_offset(load, flight);
	do {
		if (!hoist__plan_piece(&load->plan, &flight->chunk, &pass->cursor, &pass->piece))
			return false;
		HOIST__ASSERT(is_inside(load, &flight->chunk, piece));
	} while (!goes_to_device(load, piece));
	size_t bytes = hoist__plan_row_after(piece);
	bool packs = load->plan.extents[flight->chunk.extent].share > 1 || flight->straight;
	HOIST__ASSERT(packs || bytes <= piece->row_bytes);
	*ret = (struct hoist__slot_box){
		.slot_offset = packs ? pass->packed : at + piece->at,
		.slot_stride = packs ? bytes : piece->at_stride,
		.bytes = bytes,
		.rows = piece->rows,
		.device_stride = (size_t)piece->target_stride,
	};
	pass->packed += packs ? piece->rows * bytes : 0;
	return true;
}

/* Pieces move towards the slot's beginning, so none is written where another is still to move. */
static void convert_in_slot(const struct hoist_load *load, const struct hoist__flight *flight)
{
	unsigned char *slot = flight->address - hoist__pump_slot_offset(load, flight);
	struct hoist__slot_box box;
	struct pass pass = {0};
	while (next_box(load, flight, &pass, &box)) {
		struct hoist__plan_stack stack = {.piece = pass.piece, .planes = 1};
		unsigned char *to = slot + box.slot_offset;
		const unsigned char *from = flight->address + stack.piece.at;
		HOIST__ASSERT(to <= from);
		stack.piece.target_stride = (int64_t)box.slot_stride;
		if (stack.piece.to != HOIST_DTYPE_INVALID)
			hoist__plan_move(&stack, to, from);
		else
			for (size_t r = 0; r < box.rows && to != from; r++)
				memmove(to + r * box.slot_stride, from + r * stack.piece.at_stride,
					box.bytes);
	}
}

static void lay_in_slot(const struct hoist_load *load, const struct hoist__flight *flight,
			unsigned want)
{
	unsigned char *slot = flight->address - hoist__pump_slot_offset(load, flight);
	struct hoist__lay_cursor cursor = {0};
	struct hoist__laid laid;
	while (hoist__plan_lay(&load->plan, &flight->chunk, want, &cursor, &laid)) {
		unsigned char *to = slot + laid.at;
		memset(to - laid.gap, 0, laid.gap);
		hoist__plan_move(&laid.stack, to, flight->address + laid.stack.piece.at);
	}
}

/* --- to devices --- */

/* Boxes of one slot that go to one stream, of any of its targets: load->boxes[0 .. n). */
struct batch {
	struct hoist__slot *slot;
	unsigned stream;
	size_t n;
	uintptr_t memory; /* in place: of the last box */
};

static int flush(struct hoist_load *load, struct batch *batch)
{
	size_t n = batch->n;
	batch->n = 0;
	if (n == 0)
		return 0;
	int err = hoist__slot_copy(load->job.staging, batch->slot, batch->stream, load->boxes, n);
	load->report.n_copies += err == 0 ? n : 0;
	return err;
}

/* Adds the copies of all pieces that go to the target.  In place, tensors have copies of their own,
 * unless they join. */
static int copy_to(struct hoist_load *load, const struct hoist__flight *flight,
		   const struct hoist__target *target, struct batch *batch)
{
	struct pass pass = {0};
	struct hoist__slot_box box;
	int err = 0;
	while (err == 0 && next_box(load, flight, &pass, &box)) {
		const struct hoist__plan_tensor *place = place_on(load, target, &pass.piece);
		if (place == NULL)
			continue;
		bool in_place = load->plan.lots[place->lot].in_place;
		uintptr_t memory = in_place ? hoist__into_memory(load->into, place) : 0;
		bool same = batch->n > 0 && in_place && memory == batch->memory;
		box.device_address = hoist__pump_address_on(load, target, &pass.piece);
		batch->memory = memory;
		if (same && hoist__slot_box_join(&load->boxes[batch->n - 1], &box))
			continue;
		if (batch->n == HOIST__PUMP_BOXES)
			err = flush(load, batch);
		load->boxes[batch->n++] = box;
	}
	return err;
}

/* Adds the copies of what was laid out for the target's want.  A piece that joins the one before is
 * never the target's first. */
static int copy_laid_to(struct hoist_load *load, const struct hoist__flight *flight,
			const struct hoist__target *target, struct batch *batch)
{
	struct hoist__lay_cursor cursor = {0};
	struct hoist__laid laid;
	int err = 0;
	while (err == 0 &&
	       hoist__plan_lay(&load->plan, &flight->chunk, target->want, &cursor, &laid)) {
		size_t bytes = laid.stack.planes * laid.stack.piece.rows * laid.row_bytes;
		if (laid.joins) {
			load->boxes[batch->n - 1].bytes += laid.gap + bytes;
			continue;
		}
		if (batch->n == HOIST__PUMP_BOXES)
			err = flush(load, batch);
		load->boxes[batch->n++] = (struct hoist__slot_box){
			.slot_offset = laid.at,
			.device_address =
				hoist__load_lot_address(target, laid.lot) + (uintptr_t)laid.target,
			.bytes = bytes / laid.rows,
			.rows = laid.rows,
			.slot_stride = bytes / laid.rows,
			.device_stride = laid.stride,
		};
	}
	return err;
}

/* Queues the copies to all targets, stream by stream. */
static int copy_to_devices(struct hoist_load *load, const struct hoist__flight *flight)
{
	int err = 0;
	for (unsigned stream = 0; err == 0 && stream < load->n_streams; stream++) {
		struct batch batch = {.slot = flight->slot, .stream = stream};
		for (size_t t = 0; err == 0 && t < load->n_targets; t++) {
			const struct hoist__target *target = &load->targets[t];
			if (target->to_host || target->number != stream)
				continue;
			err = flight->chunk.laid > 0 ? copy_laid_to(load, flight, target, &batch)
						     : copy_to(load, flight, target, &batch);
		}
		if (err == 0)
			err = flush(load, &batch);
	}
	return err;
}

static void count_in(struct hoist_load *load, size_t lot, uint64_t bytes)
{
	HOIST__ASSERT(bytes <= load->lots[lot].left);
	load->lots[lot].left -= bytes;
	if (load->lots[lot].left == 0)
		hoist__give_lot(load, lot);
}

void hoist__pump_count(struct hoist_load *load, const struct hoist__chunk *chunk)
{
	const struct hoist__plan_extent *extent = &load->plan.extents[chunk->extent];
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	hoist__into_count(load->into, chunk);
	if (!extent->staged || load->plan.n_lots == 1) {
		count_in(load, extent->lot, chunk->useful);
		return;
	}
	while (hoist__plan_piece(&load->plan, chunk, &cursor, &piece))
		for (size_t p = 0; p < piece.n_places; p++)
			count_in(load, hoist__plan_place(&load->plan, &piece, p)->lot,
				 piece.rows * piece.row_bytes);
}

/* --- settling --- */

/* Chunks with less are settled by the pump's thread: a wake-up costs as much. */
#define LEAST_WORK_BYTES ((size_t)64 << 10)

bool hoist__pump_has_work(const struct hoist_load *load, const struct hoist__flight *flight)
{
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	bool work = load->to_host || flight->chunk.laid > 0;
	for (size_t t = 0; t < load->n_targets && !work; t++)
		work = load->targets[t].to_host;
	while (!work && load->plan.has_conversion &&
	       hoist__plan_piece(&load->plan, &flight->chunk, &cursor, &piece))
		work = piece.to != HOIST_DTYPE_INVALID;
	size_t most = flight->chunk.useful > flight->chunk.laid ? flight->chunk.useful
								: flight->chunk.laid;
	return work && most >= LEAST_WORK_BYTES;
}

/* The host gathers first, from the bytes as they are in the file. */
int hoist__pump_settle(void *owner)
{
	const struct hoist__flight *flight = owner;
	const struct hoist_load *load = flight->load;
	HOIST__ASSERT(flight->slot != NULL && flight->slot->state == HOIST__SLOT_FULL);
	for (size_t t = 0; t < load->n_targets; t++)
		if (load->targets[t].to_host)
			move_to_host(load, flight, &load->targets[t]);
	for (unsigned w = 0; flight->chunk.laid > 0 && w < load->plan.n_wants; w++)
		if (load->plan.wants[w].kind == HOIST__PLAN_DEVICE)
			lay_in_slot(load, flight, w);
	/* No row of a straight chunk is converted, and none lies there as in the file. */
	bool may_convert = load->plan.has_conversion && !flight->straight;
	if (!load->to_host && may_convert && flight->chunk.laid == 0)
		convert_in_slot(load, flight);
	return 0;
}

int hoist__pump_deliver(struct hoist_load *load, struct hoist__flight *flight)
{
	struct hoist__slot *slot = flight->slot;
	HOIST__ASSERT(flight->n_open == 0 && slot->state == HOIST__SLOT_FULL);
	slot->useful = flight->chunk.useful;
	int err = copy_to_devices(load, flight);
	if (flight->reached)
		hoist__pump_reached(load, flight);
	if (slot->state == HOIST__SLOT_COPYING)
		hoist__give_queued(load);
	if (err == 0)
		hoist__pump_count(load, &flight->chunk);
	if (slot->state == HOIST__SLOT_COPYING)
		return err;
	/* Nothing went to a device. */
	hoist__slot_release(load->job.staging, slot);
	hoist__pump_land_reached(load);
	if (err == 0)
		atomic_fetch_add_explicit(&load->arrived, flight->chunk.useful,
					  memory_order_relaxed);
	return err;
}
