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

/* The sum of the wants of all ranks in one cell. */
struct sum {
	uint64_t by;	   /* a bit for each rank that wants blocks of it */
	unsigned n_blocks; /* that any rank wants, */
	uint16_t n_of[HOIST__GROUP_RANKS];
	bool apart;
};

/* Unites the bitmaps of the cell. */
static struct sum unite(const uint64_t *const *wants, unsigned n_ranks, size_t cell,
			uint64_t *united)
{
	struct sum sum = {.by = 0};
	unsigned n_all = 0;
	unsigned n_runs = 0;
	for (unsigned r = 0; r < n_ranks; r++) {
		uint64_t before = 0; /* the last bit of the word before */
		for (size_t w = cell * HOIST__CELL_WORDS; w < (cell + 1) * HOIST__CELL_WORDS; w++) {
			uint64_t word = wants[r][w];
			united[w] |= word;
			sum.n_of[r] += (uint16_t)__builtin_popcountll(word);
			n_runs += (unsigned)__builtin_popcountll(word & ~(word << 1 | before));
			before = word >> 63;
		}
		n_all += sum.n_of[r];
		sum.by |= sum.n_of[r] > 0 ? UINT64_C(1) << r : 0;
	}
	for (size_t w = cell * HOIST__CELL_WORDS; w < (cell + 1) * HOIST__CELL_WORDS; w++)
		sum.n_blocks += (unsigned)__builtin_popcountll(united[w]);
	sum.apart = n_runs <= HOIST__CELL_PARTS && n_all - sum.n_blocks <= HOIST__CELL_TWICE;
	return sum;
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
		struct sum sum = unite(wants, n_ranks, c, o.united);
		cell->wanted_by = sum.by;
		cell->shared = (sum.by & (sum.by - 1)) != 0 && !sum.apart;
		in_cell[c] = (uint16_t)sum.n_blocks;
		for (unsigned r = 0; r < n_ranks && !cell->shared; r++)
			n_blocks[r] += sum.n_of[r];
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
