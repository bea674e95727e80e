/* SPDX-License-Identifier: MIT */
/* lib/swarm/cells.h - the cells of a checkpoint's files (blocks.h), and which of them the chunks
 * of a load touch.
 *
 * A chunk touches a cell if it reads bytes of the cell.  Chunks come nearly in the order of the
 * cells: from the first cell of any chunk to the last cell of that chunk and of all chunks before
 * it there are at most `span` cells.
 */
#ifndef HOIST_LIB_SWARM_CELLS_H
#define HOIST_LIB_SWARM_CELLS_H

#include "lib/swarm/blocks.h"
#include "lib/load/load.h"

struct hoist__cells {
	struct hoist_load *load;
	size_t n;
	size_t *first;	   /* of each file; behind them, `n` */
	uint64_t *wants;   /* the load's bitmap (hoist__wants_words()) */
	uint32_t *touches; /* of each cell: chunks that have not landed */
	size_t span;
	size_t most;  /* the span, at most */
	size_t start; /* the cell that the load's first chunk touches first, if it begins later on
		       */
	size_t last;  /* the walk: the last of all chunks so far, counted from `start` */
};

/* The cells of one chunk, each once, in order: `cell` is SIZE_MAX at first. */
struct hoist__cell_walk {
	size_t cell;
	size_t last; /* of `part` */
	unsigned part;
};

/* Numbers the cells, and finds the blocks that the load wants.  Extents of the plan that overlap go
 * back to the beginning of the bytes that they share: they are cut at cells, and read together.  A
 * chunk of many rows that lie far apart gets fewer of them, until the span is @most at most. Pre:
 * the plan is made, and the disks are found.  Returns: 0; -ENOMEM; as the plan. */
int hoist__cells_make(struct hoist__cells *cells, struct hoist_load *load, size_t most);
void hoist__cells_fini(struct hoist__cells *cells); /* takes a zeroed one */

/* Has the load begin at the first cell from @cell on that it touches and where it can begin; the
 * cells before come last.  It can where it has bytes on both sides, and none of these lies on both:
 * an element that is converted, small or transposed tensors that are laid (lib/plan/plan.h), or, in
 * a load that makes digests, a tensor or tensors that are read together.  Pre: no chunk was made.
 * Returns: the cell; `n`: there is none, and nothing was changed. */
size_t hoist__cells_start_at(struct hoist__cells *cells, size_t cell);

static inline size_t hoist__cells_at(const struct hoist__cells *cells, size_t file, uint64_t offset)
{
	return cells->first[file] + (size_t)(offset / HOIST__CELL_BYTES);
}

/* The file of a cell. */
size_t hoist__cells_file(const struct hoist__cells *cells, size_t cell);

/* The file that the chunk is read from. */
static inline size_t hoist__cells_file_of(const struct hoist__cells *cells,
					  const struct hoist__chunk *chunk)
{
	return cells->load->plan.extents[chunk->extent].file;
}

/* The only cell that the chunk, which has one part, touches; SIZE_MAX: it touches several. */
static inline size_t hoist__cells_only(const struct hoist__cells *cells,
				       const struct hoist__chunk *chunk)
{
	size_t file = hoist__cells_file_of(cells, chunk);
	size_t first = hoist__cells_at(cells, file, chunk->offset);
	size_t last = hoist__cells_at(cells, file, chunk->offset + chunk->need - 1);
	return first == last ? first : SIZE_MAX;
}

bool hoist__cells_next(const struct hoist__cells *cells, const struct hoist__chunk *chunk,
		       struct hoist__cell_walk *walk);

#endif
