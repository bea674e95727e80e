/* SPDX-License-Identifier: MIT */
/* lib/swarm/swarm-wants.h - the blocks that a member wants, and the cells that it lacks, in few
 * bytes, as they are sent and kept.
 *
 *     kinds      of each cell: NONE, ALL, or SOME and the number of a pattern; and LACKS, if the
 *                member lacks the cell's file
 *     patterns   bitmaps of a cell's blocks, each once: slices of a tensor repeat the same few
 *
 * So the wants of a member are a megabyte for each terabyte of files, and 2 MiB of patterns at
 * most.  Beyond HOIST__WANTS_PATTERNS patterns, a cell with a further pattern is wanted whole: all
 * members, the member itself too, count with that.
 */
#ifndef HOIST_LIB_SWARM_SWARM_WANTS_H
#define HOIST_LIB_SWARM_SWARM_WANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/swarm/blocks.h"

enum hoist__swarm_kind { HOIST__WANTS_NONE, HOIST__WANTS_ALL, HOIST__WANTS_SOME };
#define HOIST__WANTS_LACKS 0x8000u /* a flag beside the kind */
#define HOIST__WANTS_PATTERNS ((size_t)HOIST__WANTS_LACKS - HOIST__WANTS_SOME)

struct hoist__swarm_wants {
	size_t n_cells;
	uint16_t *kinds;
	size_t n_patterns;
	uint64_t (*patterns)[HOIST__CELL_WORDS];
};

/* From a bitmap of blocks (hoist__wants_add()).  Returns: 0; -ENOMEM. */
int hoist__swarm_wants_make(const uint64_t *bitmap, size_t n_cells, struct hoist__swarm_wants *ret);

/* Room for the wants that another member sends.  Pre: @n_patterns is HOIST__WANTS_PATTERNS at most.
 * Returns: 0; -ENOMEM. */
int hoist__swarm_wants_begin(size_t n_cells, size_t n_patterns, struct hoist__swarm_wants *ret);

/* Checks wants that another member sent.  Returns: 0; -EBADMSG (a kind that there is not). */
int hoist__swarm_wants_check(const struct hoist__swarm_wants *wants);
void hoist__swarm_wants_fini(struct hoist__swarm_wants *wants); /* takes a zeroed one */

/* Marks the cells [begin, end): the member lacks their file. */
void hoist__swarm_wants_mark_lacking(struct hoist__swarm_wants *wants, size_t begin, size_t end);

static inline bool hoist__swarm_wants_lacks(const struct hoist__swarm_wants *wants, size_t cell)
{
	return (wants->kinds[cell] & HOIST__WANTS_LACKS) != 0;
}

/* Returns: how many cells the member lacks. */
size_t hoist__swarm_wants_n_lacking(const struct hoist__swarm_wants *wants);

/* The blocks of the cell.  Returns: how many. */
unsigned hoist__swarm_wants_of(const struct hoist__swarm_wants *wants, size_t cell,
			       uint64_t ret[HOIST__CELL_WORDS]);

#endif
