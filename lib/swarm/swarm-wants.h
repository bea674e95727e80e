/* SPDX-License-Identifier: MIT */
/* lib/swarm/swarm-wants.h - the blocks that a member wants, in few bytes, as they are sent and
 * kept.
 *
 *     kinds      a byte for each cell: NONE, ALL, SOME
 *     some       for each SOME, in the order of the cells: a bitmap of the cell's blocks
 *
 * A member that wants all of 1 TB is half a megabyte.
 */
#ifndef HOIST_LIB_SWARM_SWARM_WANTS_H
#define HOIST_LIB_SWARM_SWARM_WANTS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/swarm/blocks.h"

enum hoist__swarm_kind { HOIST__WANTS_NONE, HOIST__WANTS_ALL, HOIST__WANTS_SOME };

struct hoist__swarm_wants {
	size_t n_cells;
	uint8_t *kinds;
	uint32_t *before; /* of each 64th cell: SOMEs before it */
	uint64_t (*some)[HOIST__CELL_WORDS];
	size_t n_some;
};

/* From a bitmap of blocks (hoist__wants_add()).  Returns: 0; -ENOMEM. */
int hoist__swarm_wants_make(const uint64_t *bitmap, size_t n_cells, struct hoist__swarm_wants *ret);

/* From @kinds and @some, which another member sent, and which become the wants'.
 * Returns: 0; -EBADMSG (a kind that there is not, another number of SOMEs; the arrays stay the
 * caller's); -ENOMEM. */
int hoist__swarm_wants_take(uint8_t *kinds, size_t n_cells, uint64_t (*some)[HOIST__CELL_WORDS],
			    size_t n_some, struct hoist__swarm_wants *ret);
void hoist__swarm_wants_fini(struct hoist__swarm_wants *wants); /* takes a zeroed one */

/* The blocks of the cell.  Returns: how many. */
unsigned hoist__swarm_wants_of(const struct hoist__swarm_wants *wants, size_t cell,
			       uint64_t ret[HOIST__CELL_WORDS]);

#endif
