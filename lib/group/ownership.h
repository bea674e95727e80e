/* SPDX-License-Identifier: MIT */
/* lib/group/ownership.h - which rank of a group reads which bytes of the files.
 *
 *   wants    a bitmap of one rank (blocks.h); behind the bits of its blocks, a bit for each
 *            cell that the rank is near
 *   near     said of a rank, to the cells of a file: it runs on the NUMA node of the file's disk
 *   twice    blocks of a cell that are read more than once if each rank reads its own: for each
 *            block, the ranks that want it, less one
 *   apart    said of a cell of which two or more ranks want blocks, in runs so long that a direct
 *            read of each to its place costs less than a read for all and a copy: at most
 *            HOIST__CELL_PARTS runs of all ranks.  Each rank reads its own runs, so the blocks at
 *            the seams are read twice: the cells with the fewest such blocks are apart, as long as
 *            these blocks of all cells are at most a HOIST__TWICE_SHARE-th of the wanted blocks
 *   shared   said of all other cells of which two or more ranks want blocks.  Its owner reads each
 *            block that any of them wants, once, for all
 *
 * Cells that one rank wants, and cells that are apart, are the own affair of those who want them.
 *
 * The result is a pure function of the bitmaps, so that ranks that have the same bitmaps agree
 * without a word.  The ranks that are near a shared cell may own it, or all if none is.  The cell
 * goes to the one that has the fewest blocks to read so far (its own cells, of all files, count
 * from the start); of equals, to the lowest.
 *
 * Invariants: the owner's shared cells are numbered 0, 1, ... in the order of the files
 * (`ordinal`).  Each block of a shared cell that a rank wants is read by exactly one owner; every
 * other block is read by each rank that wants the block.
 */
#ifndef HOIST_LIB_GROUP_OWNERSHIP_H
#define HOIST_LIB_GROUP_OWNERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/swarm/blocks.h"

#define HOIST__GROUP_RANKS 64u /* at most: bits of a word */

#define HOIST__CELL_PARTS 16u
#define HOIST__CELL_TWICE 16u /* in a cell that is apart, at most */
#define HOIST__TWICE_SHARE 64u

struct hoist__cell {
	uint64_t wanted_by; /* a bit for each rank */
	uint32_t ordinal;   /* shared: the cell's number among the owner's */
	uint8_t owner;	    /* shared */
	bool shared;
};

struct hoist__ownership {
	size_t n_cells;
	struct hoist__cell *cells;
	uint64_t *united; /* the bitmap of all ranks */
	uint32_t n_owned[HOIST__GROUP_RANKS];
};

/* Makes the tables.  @wants: a bitmap of hoist__wants_words() words for each rank.  A bitmap that
 * its rank changes meanwhile gives wrong tables, never a fault.  Returns: 0; -ENOMEM. */
int hoist__ownership_make(const uint64_t *const *wants, unsigned n_ranks, size_t n_cells,
			  struct hoist__ownership *ret);
void hoist__ownership_fini(struct hoist__ownership *ownership); /* takes a zeroed one */

/* Marks the cells [begin, end), of @n_cells, as cells that the rank is near. */
void hoist__wants_near(uint64_t *wants, size_t n_cells, size_t begin, size_t end);

#endif
