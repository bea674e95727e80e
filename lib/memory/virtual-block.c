/* SPDX-License-Identifier: MIT */
/* lib/memory/virtual-block.c - reserves, maps, grows and moves a block of virtual memory.
 * The contract is in lib/memory/virtual-block.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "hoist/memory-driver.h"
#include "lib/device/device.h"
#include "lib/memory/virtual-block.h"

/* --- pieces and ranges --- */

/* Memory that cannot be given back is lost.  No caller can be told, so it is logged. */
static void note(int err)
{
	if (err < 0)
		hoist__log(alloc, "virtual memory is not given back: %s", hoist__error_text());
}

static int room_for(void **array, size_t n, size_t bytes)
{
	void *larger = realloc(*array, (n + 1) * bytes);
	if (larger == NULL)
		return hoist__fail_nomem("what a block is made of", (n + 1) * bytes);
	*array = larger;
	return 0;
}

static int add_range(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t bytes,
		     size_t align, uintptr_t hint)
{
	struct hoist__virtual_range range = {.bytes = bytes};
	int err = room_for((void **)&b->ranges, b->n_ranges, sizeof b->ranges[0]);
	if (err == 0)
		err = hoist__vmm_reserve(v->memory.dev, bytes, align, hint, &range.address);
	if (err == 0)
		b->ranges[b->n_ranges++] = range;
	return err;
}

static void drop_range(struct hoist__virtual *v, struct hoist__virtual_block *b)
{
	HOIST__ASSERT(b->n_ranges != 0);
	const struct hoist__virtual_range *last = &b->ranges[--b->n_ranges];
	note(hoist__vmm_unreserve(v->memory.dev, last->address, last->bytes));
}

static enum hoist__vmm_access access_of(int access)
{
	return access == HOIST_ACCESS_READ_WRITE ? HOIST__VMM_READ_WRITE
	       : access == HOIST_ACCESS_READ	 ? HOIST__VMM_READ
						 : HOIST__VMM_NONE;
}

/* Grants access to new mappings, which no device has at first. */
static int grant(struct hoist__virtual *v, uintptr_t address, size_t bytes)
{
	struct hoist__dev *dev = v->memory.dev;
	enum hoist__vmm_access own = access_of(v->options.self_access);
	enum hoist__vmm_access others = access_of(v->options.peer_access);
	int err = 0;
	if (own != HOIST__VMM_NONE)
		err = hoist__vmm_set_access(dev, address, bytes, dev, own);
	for (size_t i = 0; err == 0 && others != HOIST__VMM_NONE && i < v->options.n_peers; i++)
		err = hoist__vmm_set_access(dev, address, bytes, hoist__device_dev(v->peers[i]),
					    others);
	return err;
}

/* True if the ranges lie one behind the other from the block's start, and have room for the
 * pieces. */
HOIST__CONDITION static bool adds_up(const struct hoist__virtual_block *b)
{
	uintptr_t end = b->book.raw;
	size_t bytes = 0;
	for (size_t i = 0; i < b->n_ranges; i++) {
		if (b->ranges[i].address != end)
			return false;
		end += b->ranges[i].bytes;
	}
	for (size_t i = 0; i < b->n_pieces; i++)
		bytes += b->pieces[i].bytes;
	return bytes == b->book.allocated && bytes <= end - b->book.raw;
}

/* Maps @piece behind the others of @b, and counts its bytes.  On failure the handle stays the
 * caller's. */
static int show(struct hoist__virtual *v, struct hoist__virtual_block *b,
		const struct hoist__virtual_piece *piece)
{
	struct hoist__failure cause;
	uintptr_t address = b->book.raw + b->book.allocated;
	int err = room_for((void **)&b->pieces, b->n_pieces, sizeof b->pieces[0]);
	if (err == 0)
		err = hoist__vmm_map(v->memory.dev, address, piece->bytes, piece->handle);
	if (err < 0)
		return err;
	err = grant(v, address, piece->bytes);
	if (err < 0) {
		hoist__failure_keep(&cause);
		note(hoist__vmm_unmap(v->memory.dev, address, piece->bytes));
		return hoist__fail_again(err, &cause);
	}
	b->pieces[b->n_pieces++] = *piece;
	b->book.allocated += piece->bytes;
	HOIST__ASSERT(piece->bytes != 0 && adds_up(b));
	return 0;
}

static int add_piece(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t bytes)
{
	struct hoist__failure cause;
	struct hoist__virtual_piece piece = {.bytes = bytes};
	int err = hoist__vmm_create(v->memory.dev, &v->props, bytes, &piece.handle);
	if (err < 0)
		return err;
	err = show(v, b, &piece);
	if (err < 0) {
		hoist__failure_keep(&cause);
		note(hoist__vmm_release(v->memory.dev, piece.handle));
		return hoist__fail_again(err, &cause);
	}
	return 0;
}

/* Drops the last piece, and its memory, unless that is @shown elsewhere. */
static void drop_piece(struct hoist__virtual *v, struct hoist__virtual_block *b, bool shown)
{
	const struct hoist__virtual_piece *last = &b->pieces[--b->n_pieces];
	HOIST__ASSERT(b->book.allocated >= last->bytes);
	b->book.allocated -= last->bytes;
	note(hoist__vmm_unmap(v->memory.dev, b->book.raw + b->book.allocated, last->bytes));
	if (!shown)
		note(hoist__vmm_release(v->memory.dev, last->handle));
}

void hoist__virtual_shrink(struct hoist__virtual *v, struct hoist__virtual_block *b,
			   size_t n_pieces, size_t n_ranges, size_t n_shown)
{
	HOIST__ASSERT(n_ranges != 0 || n_pieces == 0);
	while (b->n_pieces > n_pieces)
		drop_piece(v, b, b->n_pieces <= n_shown);
	while (b->n_ranges > n_ranges)
		drop_range(v, b);
}

void hoist__virtual_drop_arrays(struct hoist__virtual_block *b)
{
	free(b->pieces);
	free(b->ranges);
}

/* --- growing --- */

/* Reserves the addresses behind the last range.  Returns: -EEXIST, without a text, if they are
 * taken. */
static int reserve_behind(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t bytes,
			  size_t align)
{
	const struct hoist__virtual_range *last = &b->ranges[b->n_ranges - 1];
	uintptr_t end = last->address + last->bytes;
	int err = add_range(v, b, bytes, align, end);
	if (err < 0 || b->ranges[b->n_ranges - 1].address == end)
		return err == -ENOSPC ? -EEXIST : err;
	drop_range(v, b);
	return -EEXIST;
}

/* Fills the last range first, and reserves addresses behind when it is full. */
int hoist__virtual_extend(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			  size_t granularity)
{
	struct hoist__failure cause;
	size_t n_pieces = b->n_pieces;
	size_t n_ranges = b->n_ranges;
	int err = 0;
	while (err == 0 && b->book.allocated < total) {
		const struct hoist__virtual_range *last = &b->ranges[b->n_ranges - 1];
		size_t missing = total - b->book.allocated;
		size_t room = last->address + last->bytes - (b->book.raw + b->book.allocated);
		err = room == 0 ? reserve_behind(v, b, missing, granularity)
				: add_piece(v, b, room < missing ? room : missing);
	}
	if (err < 0) {
		hoist__failure_keep(&cause);
		hoist__virtual_shrink(v, b, n_pieces, n_ranges, 0);
		return err == -EEXIST ? err : hoist__fail_again(err, &cause);
	}
	HOIST__ASSERT(adds_up(b) && b->book.allocated >= total);
	return 0;
}

int hoist__virtual_build(struct hoist__virtual *v, struct hoist__virtual_block *b,
			 const struct hoist__virtual_block *from, size_t total, size_t align,
			 uintptr_t hint)
{
	size_t granularity = atomic_load(&v->xgranularity);
	size_t n_shown = from != NULL ? from->n_pieces : 0;
	size_t reserved = (size_t)hoist__round_up(v->options.reserve_bytes, granularity);
	int err = add_range(v, b, reserved > total ? reserved : total, align, hint);
	if (err < 0)
		return err;
	b->book.raw = b->ranges[0].address;
	for (size_t i = 0; err == 0 && i < n_shown; i++)
		err = show(v, b, &from->pieces[i]);
	if (err == 0)
		err = hoist__virtual_extend(v, b, total, granularity);
	if (err < 0) {
		struct hoist__failure cause;
		hoist__failure_keep(&cause);
		hoist__virtual_shrink(v, b, 0, 0, n_shown);
		return hoist__fail_again(err, &cause);
	}
	return 0;
}

int hoist__virtual_move(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			size_t align)
{
	struct hoist__virtual_block there = {.book = {.raw = 0}};
	int err = hoist__virtual_build(v, &there, b, total, align, 0);
	if (err < 0) {
		hoist__virtual_drop_arrays(&there);
		return err;
	}
	HOIST__ASSERT(there.n_pieces >= b->n_pieces && there.book.allocated >= b->book.allocated);
	hoist__virtual_shrink(v, b, 0, 0, b->n_pieces);
	hoist__virtual_drop_arrays(b);
	b->ranges = there.ranges;
	b->n_ranges = there.n_ranges;
	b->pieces = there.pieces;
	b->n_pieces = there.n_pieces;
	b->book.raw = there.book.raw;
	b->book.allocated = there.book.allocated;
	b->book.node.key = b->book.raw;
	return 0;
}
