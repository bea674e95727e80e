/* SPDX-License-Identifier: MIT */
/* Divides the blocks that ranks want among the ranks.
 * The contract is in lib/group/ownership.h. */
#include "config.h"

#include "lib/group/ownership.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void hoist__wants_add(uint64_t *wants, uint64_t begin, uint64_t end)
{
	while (begin < end) {
		uint64_t bit = begin % 64;
		uint64_t n = end - begin < 64 - bit ? end - begin : 64 - bit;
		uint64_t ones = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
		wants[begin / 64] |= ones << bit;
		begin += n;
	}
}

/* Unites the bitmaps of the cell.  Returns: the ranks that have a bit of it; *ret_blocks: the
 * number of blocks that are wanted. */
static uint64_t unite(const uint64_t *const *wants, unsigned n_ranks, size_t cell, uint64_t *united,
		      unsigned *ret_blocks)
{
	uint64_t by = 0;
	unsigned n = 0;
	for (size_t w = cell * HOIST__CELL_WORDS; w < (cell + 1) * HOIST__CELL_WORDS; w++) {
		for (unsigned r = 0; r < n_ranks; r++) {
			uint64_t word = wants[r][w];
			united[w] |= word;
			by |= word != 0 ? UINT64_C(1) << r : 0;
		}
		n += (unsigned)__builtin_popcountll(united[w]);
	}
	*ret_blocks = n;
	return by;
}

static unsigned least_busy(const uint64_t *n_blocks, unsigned n_ranks)
{
	unsigned best = 0;
	for (unsigned r = 1; r < n_ranks; r++)
		if (n_blocks[r] < n_blocks[best])
			best = r;
	return best;
}

int hoist__ownership_make(const uint64_t *const *wants, unsigned n_ranks, size_t n_cells,
			  struct hoist__ownership *ret)
{
	struct hoist__ownership o = {.n_cells = n_cells};
	uint64_t n_blocks[HOIST__GROUP_RANKS] = {0};
	size_t words = n_cells * HOIST__CELL_WORDS;
	o.cells = calloc(n_cells + 1, sizeof *o.cells);
	o.united = calloc(words + 1, sizeof *o.united);
	uint16_t *in_cell = calloc(n_cells + 1, sizeof *in_cell);
	if (o.cells == NULL || o.united == NULL || in_cell == NULL) {
		hoist__ownership_fini(&o);
		free(in_cell);
		return hoist__fail_nomem("the owners of a group's bytes", words * sizeof *o.united);
	}
	for (size_t c = 0; c < n_cells; c++) {
		struct hoist__cell *cell = &o.cells[c];
		unsigned n;
		cell->wanted_by = unite(wants, n_ranks, c, o.united, &n);
		cell->shared = (cell->wanted_by & (cell->wanted_by - 1)) != 0;
		in_cell[c] = (uint16_t)n;
		if (cell->wanted_by != 0 && !cell->shared)
			n_blocks[__builtin_ctzll(cell->wanted_by)] += n;
	}
	for (size_t c = 0; c < n_cells; c++) {
		struct hoist__cell *cell = &o.cells[c];
		if (!cell->shared)
			continue;
		cell->owner = (uint8_t)least_busy(n_blocks, n_ranks);
		cell->ordinal = o.n_owned[cell->owner]++;
		n_blocks[cell->owner] += in_cell[c];
	}
	free(in_cell);
	*ret = o;
	return 0;
}

void hoist__ownership_fini(struct hoist__ownership *ownership)
{
	free(ownership->cells);
	free(ownership->united);
	*ownership = (struct hoist__ownership){0};
}

static bool has(const struct hoist__ownership *ownership, size_t cell, unsigned block)
{
	return (ownership->united[cell * HOIST__CELL_WORDS + block / 64] >> block % 64 & 1) != 0;
}

bool hoist__ownership_run(const struct hoist__ownership *ownership, size_t cell, unsigned *from,
			  unsigned *begin)
{
	unsigned at = *from;
	while (at < HOIST__CELL_BLOCKS && !has(ownership, cell, at))
		at++;
	if (at == HOIST__CELL_BLOCKS)
		return false;
	*begin = at;
	unsigned end = at + 1;
	for (at = end; at < HOIST__CELL_BLOCKS && at - end < HOIST__CELL_GAP; at++)
		if (has(ownership, cell, at))
			end = at + 1;
	*from = end;
	return true;
}
