/* SPDX-License-Identifier: MIT */
/* Moves the pieces of a staged chunk to host memory or to each device.
 * The contract is in lib/load/pump.h.
 *
 * To host memory, pieces are gathered and converted by the host.  To devices, pieces are converted
 * in the slot, and then copied.
 *
 * Elements that become narrower, or stay as wide, are converted in place.  For wider elements, the
 * chunk was read into the second half of its slot, and all pieces are packed from the slot's
 * beginning on, in their order.  Writing then never reaches bytes that are still to be converted: a
 * piece that begins `at` bytes into the chunk is written at 2 * at or before. */
#include "config.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "lib/load/pump.h"

/* --- in host memory --- */

static size_t elements_of(const struct hoist__plan_piece *piece)
{
	return piece->row_bytes / (hoist_dtype_bits(piece->from) / 8);
}

static void move_row(unsigned char *to, const unsigned char *from,
		     const struct hoist__plan_piece *piece)
{
	if (piece->from == HOIST_DTYPE_INVALID)
		memmove(to, from, piece->row_bytes);
	else
		hoist__convert(to, piece->to, from, piece->from, elements_of(piece));
}

static size_t row_bytes_after(const struct hoist__plan_piece *piece)
{
	if (piece->from == HOIST_DTYPE_INVALID)
		return piece->row_bytes;
	return elements_of(piece) * (hoist_dtype_bits(piece->to) / 8);
}

/* True if all rows of the piece lie in the chunk, and their places in the destination. */
HOIST__CONDITION static bool is_inside(const struct hoist_load *load,
				       const struct hoist__chunk *chunk,
				       const struct hoist__plan_piece *piece)
{
	size_t last = piece->rows - 1;
	return piece->rows != 0 && piece->row_bytes != 0 &&
	       piece->at + last * piece->at_stride + piece->row_bytes <=
		       chunk->bytes * chunk->n_parts &&
	       piece->target + last * piece->target_stride + row_bytes_after(piece) <=
		       load->plan.destination_bytes;
}

static void move_to_host(struct hoist_load *load, struct hoist__flight *flight)
{
	unsigned char *base = (unsigned char *)hoist__storage_address(load->targets[0].storage);
	const unsigned char *bytes = flight->address;
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	while (hoist__plan_piece(&load->plan, &flight->chunk, &cursor, &piece)) {
		HOIST__ASSERT(is_inside(load, &flight->chunk, &piece));
		for (size_t r = 0; r < piece.rows; r++)
			move_row(base + piece.target + r * piece.target_stride,
				 bytes + piece.at + r * piece.at_stride, &piece);
	}
	hoist__slot_release(load->job.staging, flight->slot);
	atomic_fetch_add_explicit(&load->arrived, flight->chunk.useful, memory_order_relaxed);
}

/* --- in the slot --- */

/* Converts the piece's rows in the slot, if need be.  @ret: the rows' place, in the form in which
 * the device gets them. */
static void settle_in_slot(unsigned char *slot, size_t at, bool half,
			   const struct hoist__plan_piece *piece, size_t *packed,
			   struct hoist__slot_box *ret)
{
	size_t bytes = row_bytes_after(piece);
	bool stays = piece->from == HOIST_DTYPE_INVALID;
	ret->slot_offset = half ? *packed : at + piece->at;
	ret->slot_stride = half ? bytes : piece->at_stride;
	/* No byte is written that is still to be converted. */
	HOIST__ASSERT(!half || *packed <= at + piece->at);
	HOIST__ASSERT(half || bytes <= piece->row_bytes);
	for (size_t r = 0; !stays && r < piece->rows; r++)
		move_row(slot + ret->slot_offset + r * ret->slot_stride,
			 slot + at + piece->at + r * piece->at_stride, piece);
	*packed += half ? piece->rows * bytes : 0;
	ret->bytes = bytes;
	ret->rows = piece->rows;
	ret->device_stride = (size_t)piece->target_stride;
}

/* Queues one batch of copies to every device. */
static int copy_batch(struct hoist_load *load, struct hoist__slot *slot, const uint64_t *targets,
		      size_t n)
{
	for (unsigned t = 0; t < load->n_targets; t++) {
		uintptr_t base = hoist__storage_address(load->targets[t].storage);
		for (size_t i = 0; i < n; i++)
			load->boxes[i].device_address = base + (uintptr_t)targets[i];
		int err = hoist__slot_copy(load->job.staging, slot, t, load->boxes, n);
		if (err < 0)
			return err;
		load->report.n_copies += n;
	}
	return 0;
}

static int copy_pieces(struct hoist_load *load, struct hoist__flight *flight)
{
	struct hoist__slot *slot = flight->slot;
	bool half = load->plan.extents[flight->chunk.extent].half;
	size_t at = hoist__pump_slot_offset(load, flight);
	unsigned char *begin = flight->address - at;
	uint64_t targets[HOIST__PUMP_BOXES];
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	size_t packed = 0;
	size_t n = 0;
	int err = 0;
	while (err == 0 && hoist__plan_piece(&load->plan, &flight->chunk, &cursor, &piece)) {
		HOIST__ASSERT(n < HOIST__PUMP_BOXES && is_inside(load, &flight->chunk, &piece));
		settle_in_slot(begin, at, half, &piece, &packed, &load->boxes[n]);
		targets[n++] = piece.target;
		if (n == HOIST__PUMP_BOXES) {
			err = copy_batch(load, slot, targets, n);
			n = 0;
		}
	}
	return err == 0 && n > 0 ? copy_batch(load, slot, targets, n) : err;
}

int hoist__pump_deliver(struct hoist_load *load, struct hoist__flight *flight)
{
	HOIST__ASSERT(flight->n_open == 0);
	if (load->to_host) {
		move_to_host(load, flight);
		return 0;
	}
	struct hoist__slot *slot = flight->slot;
	HOIST__ASSERT(slot->state == HOIST__SLOT_FULL);
	slot->useful = flight->chunk.useful;
	int err = copy_pieces(load, flight);
	if (slot->state != HOIST__SLOT_COPYING)
		hoist__slot_release(load->job.staging, slot);
	return err;
}
