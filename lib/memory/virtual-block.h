/* SPDX-License-Identifier: MIT */
/* lib/memory/virtual-block.h - what a block of the driver's virtual memory is made of.
 *
 * A block is a chain of pieces, mapped one behind the other from its start; the pieces lie in one
 * or more reservations of addresses, of which each begins where the one before ends:
 *
 *   ranges   |------------- reserved -------------|---- reserved ----|
 *   pieces   |-- memory --|----- memory -----|     no piece lies in two ranges
 *
 * Growing adds pieces to the last range, and a range where that is full.  Where the addresses
 * behind are another's, the block moves: all its memory is mapped a second time, at the new
 * addresses, and only when nothing can fail any more the old mappings go.  So a failure leaves the
 * block as it was.
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
	hoist_device **peers; /* what options.peers points to */
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

/* book.raw is where it starts, book.allocated what its pieces are in all. */
struct hoist__virtual_block {
	struct hoist__book book; /* first: the books free it */
	struct hoist__virtual_range *ranges;
	size_t n_ranges;
	struct hoist__virtual_piece *pieces;
	size_t n_pieces;
};

/* Addresses for @total bytes from @hint on, if that is possible, and pieces that show the memory of
 * @from, unless NULL, then new ones. */
int hoist__virtual_build(struct hoist__virtual *v, struct hoist__virtual_block *b,
			 const struct hoist__virtual_block *from, size_t total, size_t align,
			 uintptr_t hint);

/* Adds pieces until there are @total bytes.  A failure leaves the block as it was.
 * Returns: 0; -EEXIST, without a text: the addresses behind are another's; what the driver says. */
int hoist__virtual_extend(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			  size_t granularity);

/* Elsewhere, with the same memory and more, up to @total bytes.  Nobody uses the block. */
int hoist__virtual_move(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t total,
			size_t align);

/* Down to so many pieces and ranges, of which the first @n_shown are shown elsewhere. */
void hoist__virtual_shrink(struct hoist__virtual *v, struct hoist__virtual_block *b, size_t n_pieces,
			   size_t n_ranges, size_t n_shown);

void hoist__virtual_drop_arrays(struct hoist__virtual_block *b);

#endif
