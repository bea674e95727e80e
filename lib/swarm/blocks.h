/* SPDX-License-Identifier: MIT */
/* lib/swarm/blocks.h - cells and blocks of a checkpoint's files, and bitmaps of blocks.
 *
 *   block    4 KiB of a file: the unit of a member's wants
 *   cell     512 blocks of a file, at a multiple of its size: the unit that one member reads for
 *            all.  The cells of all files are numbered one after the other; a file begins with a
 *            cell
 *   wants    a bitmap of one member: a bit for each block that its load would read
 */
#ifndef HOIST_LIB_SWARM_BLOCKS_H
#define HOIST_LIB_SWARM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__BLOCK_BYTES ((uint64_t)4096)
#define HOIST__CELL_BLOCKS 512u
#define HOIST__CELL_BYTES (HOIST__CELL_BLOCKS * HOIST__BLOCK_BYTES)
#define HOIST__CELL_WORDS (HOIST__CELL_BLOCKS / 64)

/* Gaps of fewer blocks are read along: a request costs as much (HOIST__PLAN_GAP). */
#define HOIST__CELL_GAP 4u

/* The words of a bitmap: of its blocks, and then a bit for each cell (lib/group/ownership.h: near).
 */
static inline size_t hoist__wants_words(size_t n_cells)
{
	return n_cells * HOIST__CELL_WORDS + (n_cells + 63) / 64;
}

/* Marks the blocks [begin, end) of a bitmap. */
void hoist__wants_add(uint64_t *wants, uint64_t begin, uint64_t end);

/* The next run of a cell's blocks, from block *from on, whose gaps have less than @gap blocks. Sets
 * *from behind the run.  False: there is none. */
bool hoist__blocks_run(const uint64_t *blocks, unsigned gap, unsigned *from, unsigned *begin);

static inline unsigned hoist__blocks_count(const uint64_t *blocks)
{
	unsigned n = 0;
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		n += (unsigned)__builtin_popcountll(blocks[w]);
	return n;
}

static inline bool hoist__blocks_has(const uint64_t *blocks, unsigned block)
{
	return (blocks[block / 64] >> block % 64 & 1) != 0;
}

static inline bool hoist__blocks_within(const uint64_t *few, const uint64_t *many)
{
	uint64_t left = 0;
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		left |= few[w] & ~many[w];
	return left == 0;
}

#endif
