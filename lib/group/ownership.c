/* SPDX-License-Identifier: MIT */
/* Divides the blocks that ranks want among the ranks.
 * The contract is in lib/group/ownership.h. */
#include "config.h"

#include "lib/group/ownership.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void hoist__wants_near(uint64_t *wants, size_t n_cells, size_t begin, size_t end)
{
	hoist__wants_add(wants + n_cells * HOIST__CELL_WORDS, begin, end);
}

/* The ranks that are near the cell, a bit for each; all if none is. */
static uint64_t near_ranks(const uint64_t *const *wants, unsigned n_ranks, size_t n_cells,
			   size_t cell)
{
	uint64_t near = 0;
	for (unsigned r = 0; r < n_ranks; r++)
		near |= (wants[r][n_cells * HOIST__CELL_WORDS + cell / 64] >> cell % 64 & 1) << r;
	return near != 0 ? near : UINT64_MAX;
}

/* The sum of the wants of all ranks in one cell. */
struct sum {
	uint64_t by;	   /* a bit for each rank that wants blocks of it */
	unsigned n_blocks; /* that any rank wants, */
	unsigned n_runs;   /* of all ranks */
	unsigned n_twice;
	uint16_t n_of[HOIST__GROUP_RANKS];
};

/* Unites the bitmaps of the cell; a second call changes nothing. */
static struct sum sum_of(const uint64_t *const *wants, unsigned n_ranks, size_t cell,
			 uint64_t *united)
{
	struct sum sum = {.by = 0};
	unsigned n_all = 0;
	for (unsigned r = 0; r < n_ranks; r++) {
		uint64_t before = 0; /* the last bit of the word before */
		for (size_t w = cell * HOIST__CELL_WORDS; w < (cell + 1) * HOIST__CELL_WORDS; w++) {
			uint64_t word = wants[r][w];
			united[w] |= word;
			sum.n_of[r] += (uint16_t)__builtin_popcountll(word);
			sum.n_runs += (unsigned)__builtin_popcountll(word & ~(word << 1 | before));
			before = word >> 63;
		}
		n_all += sum.n_of[r];
		sum.by |= sum.n_of[r] > 0 ? UINT64_C(1) << r : 0;
	}
	for (size_t w = cell * HOIST__CELL_WORDS; w < (cell + 1) * HOIST__CELL_WORDS; w++)
		sum.n_blocks += (unsigned)__builtin_popcountll(united[w]);
	sum.n_twice = n_all - sum.n_blocks;
	return sum;
}

/* May the cell be apart, as to itself? */
static bool may_be_apart(const struct sum *sum)
{
	return (sum->by & (sum->by - 1)) != 0 && sum->n_runs <= HOIST__CELL_PARTS &&
	       sum->n_twice <= HOIST__CELL_TWICE;
}

/* Unites all cells.  Returns: the most blocks that a cell that is apart may have twice, so that all
 * such cells keep to their share; -1: no cell is apart. */
static int unite_all(const uint64_t *const *wants, unsigned n_ranks,
		     const struct hoist__ownership *o)
{
	uint64_t n_cells_with[HOIST__CELL_TWICE + 1] = {0};
	uint64_t n_blocks = 0;
	uint64_t n_twice = 0;
	int most = -1;
	for (size_t c = 0; c < o->n_cells; c++) {
		struct sum sum = sum_of(wants, n_ranks, c, o->united);
		n_blocks += sum.n_blocks;
		if (may_be_apart(&sum))
			n_cells_with[sum.n_twice]++;
	}
	while (most < (int)HOIST__CELL_TWICE) {
		n_twice += n_cells_with[most + 1] * (uint64_t)(most + 1);
		if (n_twice > n_blocks / HOIST__TWICE_SHARE)
			break;
		most++;
	}
	return most;
}

/* @among: a bit for each rank; one of them is below @n_ranks. */
static unsigned least_busy(const uint64_t *n_blocks, unsigned n_ranks, uint64_t among)
{
	unsigned best = (unsigned)__builtin_ctzll(among);
	for (unsigned r = best + 1; r < n_ranks; r++)
		if ((among >> r & 1) != 0 && n_blocks[r] < n_blocks[best])
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
	int most_twice = unite_all(wants, n_ranks, &o);
	for (size_t c = 0; c < n_cells; c++) {
		struct hoist__cell *cell = &o.cells[c];
		struct sum sum = sum_of(wants, n_ranks, c, o.united);
		bool apart = may_be_apart(&sum) && (int)sum.n_twice <= most_twice;
		cell->wanted_by = sum.by;
		cell->shared = (sum.by & (sum.by - 1)) != 0 && !apart;
		in_cell[c] = (uint16_t)sum.n_blocks;
		for (unsigned r = 0; r < n_ranks && !cell->shared; r++)
			n_blocks[r] += sum.n_of[r];
	}
	for (size_t c = 0; c < n_cells; c++) {
		struct hoist__cell *cell = &o.cells[c];
		if (!cell->shared)
			continue;
		cell->owner = (uint8_t)least_busy(n_blocks, n_ranks,
						  near_ranks(wants, n_ranks, n_cells, c));
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
