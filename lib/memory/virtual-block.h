/* SPDX-License-Identifier: MIT */
/* lib/memory/virtual-block.h - a block of the driver's virtual memory: its ranges and pieces.
 *
 * A block is a chain of pieces, mapped one behind the other from its start.  The pieces lie in one
 * or more reservations of addresses, each of which begins where the one before ends:
 *
 *   ranges   |------------- reserved -------------|---- reserved ----|
 *   pieces   |-- memory --|----- memory -----|     no piece lies in two ranges
 *
 * Growing adds pieces to the last range, and adds a range when that is full.  If the addresses
 * behind are taken, the block moves: all its memory is mapped a second time, at new addresses.  The
 * old mappings go only when nothing can fail any more.  So a failure leaves the block as it was.
 *
 * Threads: the caller has the block to itself. */
#ifndef HOIST_LIB_VIRTUAL_BLOCK_H
#define HOIST_LIB_VIRTUAL_BLOCK_H

#include "alloc/books.h"
#include "device/vmm.h"
#include "hoist/memory-driver.h"
#include "lib/memory/memory.h"

struct hoist__virtual {
	hoist_memory memory;
	struct hoist__books books;
	hoist_virtual_options options;
	hoist_device **peers; /* the array that options.peers points to */
	struct hoist__vmm_props props;
	_Atomic size_t xgranularity; /* 0: not asked for yet */
};

struct hoist__virtual_range {
	uintptr_t address;
	size_t bytes;
};

struct hoist__virtual_piece {
	uint64_t handle;
	size_t bytes;
};

/* book.raw is the start of the block, book.allocated the sum of its pieces. */
struct hoist__virtual_block {
	struct hoist__book book; /* first: the books free it */
	struct hoist__virtual_range *ranges;
	size_t n_ranges;
	struct hoist__virtual_piece *pieces;
	size_t n_pieces;
};

/* Reserves addresses for @total bytes, at @hint if that is possible.  Maps pieces that show the
 * memory of @from, unless NULL, and then new pieces. */
int hoist__virtual_build(struct hoist__virtual *v, struct hoist__virtual_block *b,
			 const struct hoist__virtual_block *from, size_t total, size_t align,
			 uintptr_t hint);

/* Adds pieces until there are @total bytes.  A failure leaves the block as it was.
 * Returns: 0; -EEXIST, without a text: the addresses behind are taken; the driver's error. */
int hoist__virtual_extend(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			  size_t granularity);

/* Moves the block to new addresses, with the same memory and new pieces up to @total bytes.  Pre:
 * no stream uses the block. */
int hoist__virtual_move(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			size_t align);

/* Drops pieces and ranges until @n_pieces and @n_ranges are left.  The memory of the first @n_shown
 * pieces is shown elsewhere, and stays. */
void hoist__virtual_shrink(struct hoist__virtual *v, struct hoist__virtual_block *b,
			   size_t n_pieces, size_t n_ranges, size_t n_shown);

void hoist__virtual_drop_arrays(struct hoist__virtual_block *b);

#endif
