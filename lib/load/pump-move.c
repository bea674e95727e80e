/* SPDX-License-Identifier: MIT */
/* The pieces of a staged chunk, to where they belong: gathered and converted by the host, or
 * copied to each device, after conversion in the slot itself.
 *
 * Narrower or as wide, elements are converted where they are.  Wider ones: the chunk was read into
 * the second half of its slot, and all pieces are packed towards the slot's beginning in their
 * order.  What is written then never reaches what is still to be read:
 * a piece that begins `at` bytes into the chunk is written from 2 * at at most. */
#include "config.h"

#include <string.h>

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

static void move_to_host(struct hoist_load *load, struct hoist__flight *flight)
{
	unsigned char *base = (unsigned char *)hoist__storage_address(load->targets[0].storage);
	const unsigned char *bytes = flight->address;
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	while (hoist__plan_piece(&load->plan, &flight->chunk, &cursor, &piece))
		for (size_t r = 0; r < piece.rows; r++)
			move_row(base + piece.target + r * piece.target_stride,
				 bytes + piece.at + r * piece.at_stride, &piece);
	hoist__slot_release(load->ring, flight->slot);
	atomic_fetch_add_explicit(&load->arrived, flight->chunk.useful, memory_order_relaxed);
}

/* --- in the slot --- */

/* Where rows of a piece are in the slot once they are what the device gets. */
static void settle_in_slot(unsigned char *slot, size_t at, bool half,
			   const struct hoist__plan_piece *piece, size_t *packed,
			   struct hoist__piece *ret)
{
	size_t bytes = row_bytes_after(piece);
	bool stays = piece->from == HOIST_DTYPE_INVALID;
	ret->slot_offset = half ? *packed : at + piece->at;
	ret->slot_stride = half ? bytes : piece->at_stride;
	for (size_t r = 0; !stays && r < piece->rows; r++)
		move_row(slot + ret->slot_offset + r * ret->slot_stride,
			 slot + at + piece->at + r * piece->at_stride, piece);
	*packed += half ? piece->rows * bytes : 0;
	ret->bytes = bytes;
	ret->rows = piece->rows;
	ret->device_stride = (size_t)piece->target_stride;
}

/* One batch to every device. */
static int copy_batch(struct hoist_load *load, struct hoist__slot *slot, const uint64_t *targets,
		      size_t n)
{
	for (unsigned t = 0; t < load->n_targets; t++) {
		uintptr_t base = hoist__storage_address(load->targets[t].storage);
		for (size_t i = 0; i < n; i++)
			load->pieces[i].device_address = base + (uintptr_t)targets[i];
		int err = hoist__slot_copy(load->ring, slot, t, load->pieces, n);
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
	uint64_t targets[HOIST__PUMP_PIECES];
	struct hoist__piece_cursor cursor = {0};
	struct hoist__plan_piece piece;
	size_t packed = 0;
	size_t n = 0;
	int err = 0;
	while (err == 0 && hoist__plan_piece(&load->plan, &flight->chunk, &cursor, &piece)) {
		settle_in_slot(begin, at, half, &piece, &packed, &load->pieces[n]);
		targets[n++] = piece.target;
		if (n == HOIST__PUMP_PIECES) {
			err = copy_batch(load, slot, targets, n);
			n = 0;
		}
	}
	return err == 0 && n > 0 ? copy_batch(load, slot, targets, n) : err;
}

int hoist__pump_move(struct hoist_load *load, struct hoist__flight *flight)
{
	if (load->to_host) {
		move_to_host(load, flight);
		return 0;
	}
	struct hoist__slot *slot = flight->slot;
	unsigned n_slots = hoist__staging_n_slots(load->ring);
	unsigned n_copying = hoist__staging_n_copying(load->ring);
	int err = copy_pieces(load, flight);
	if (slot->state == HOIST__SLOT_COPYING)
		load->copying[(load->copying_first + n_copying) % n_slots] = flight->chunk.useful;
	else
		hoist__slot_release(load->ring, slot);
	return err;
}
