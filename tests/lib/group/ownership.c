/* SPDX-License-Identifier: MIT */
/* The owners of random wants, against a model that looks at one block at a time. */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/swarm/cell-read.h"
#include "lib/group/ownership.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

enum { MOST_CELLS = 40, WORDS = MOST_CELLS * HOIST__CELL_WORDS + 1 };

static uint64_t wants[HOIST__GROUP_RANKS][WORDS];
static bool reads[MOST_CELLS * HOIST__CELL_BLOCKS]; /* blocks that an owner reads */

static bool near[HOIST__GROUP_RANKS][MOST_CELLS];
static unsigned n_far; /* shared cells whose owner has more to read than a rank that is not near */

static bool wanted(unsigned rank, size_t block)
{
	return (wants[rank][block / 64] >> block % 64 & 1) != 0;
}

/* Ranks that have a part each, side by side, with seams of up to 3 blocks. */
static void choose_parts(uint64_t *seed, unsigned n_ranks, size_t n_blocks)
{
	size_t at = 0;
	size_t most = random_below(seed, 2) > 0 ? 300 : 150; /* short parts have many seams */
	memset(wants, 0, sizeof wants);
	while (at < n_blocks) {
		for (unsigned r = 0; r < n_ranks && at < n_blocks; r++) {
			size_t end = at + 1 + random_below(seed, most);
			end = end < n_blocks ? end : n_blocks;
			hoist__wants_add(wants[r], at, end);
			size_t seam = random_below(seed, 4);
			at = end - (seam < end - at ? seam : 0);
			at = end == n_blocks ? end : at;
		}
	}
}

/* Some ranks want all, some nothing, and some ranges of any length. */
static void choose(uint64_t *seed, unsigned n_ranks, size_t n_blocks)
{
	memset(wants, 0, sizeof wants);
	for (unsigned r = 0; r < n_ranks; r++) {
		uint64_t kind = random_below(seed, 4);
		if (kind == 0)
			hoist__wants_add(wants[r], 0, n_blocks);
		for (uint64_t n = kind > 1 ? random_below(seed, 60) : 0; n > 0; n--) {
			uint64_t begin = random_below(seed, n_blocks);
			uint64_t most = random_below(seed, 2) > 0 ? 9 : 2000;
			uint64_t end = begin + random_below(seed, most);
			end = end < n_blocks ? end : n_blocks;
			hoist__wants_add(wants[r], begin, end);
			for (uint64_t b = begin; b < end; b++)
				CHECK(wanted(r, b));
		}
	}
}

/* Marks the blocks that are read of a shared cell.  Runs are in order, begin and end with blocks
 * that are wanted, and have only small gaps. */
static void read_cell(const struct hoist__ownership *o, size_t cell, unsigned n_ranks)
{
	const uint64_t *blocks = o->united + cell * HOIST__CELL_WORDS;
	unsigned from = 0;
	unsigned begin = 0;
	unsigned n = 0;
	for (unsigned end = 0; hoist__blocks_run(blocks, HOIST__CELL_GAP, &from, &begin);
	     end = from, n++) {
		unsigned gap = 0;
		CHECK(begin < from && from <= HOIST__CELL_BLOCKS);
		CHECK(n == 0 || begin >= end + HOIST__CELL_GAP);
		for (unsigned b = begin; b < from; b++) {
			bool any = false;
			for (unsigned r = 0; r < n_ranks; r++)
				any = any || wanted(r, cell * HOIST__CELL_BLOCKS + b);
			gap = any ? 0 : gap + 1;
			CHECK(gap < HOIST__CELL_GAP && (b != begin || any));
			reads[cell * HOIST__CELL_BLOCKS + b] = true;
		}
		CHECK(gap == 0);
	}
}

static uint64_t wanted_by(size_t cell, unsigned n_ranks, unsigned *ret_blocks)
{
	uint64_t by = 0;
	*ret_blocks = 0;
	for (size_t b = cell * HOIST__CELL_BLOCKS; b < (cell + 1) * HOIST__CELL_BLOCKS; b++) {
		bool any = false;
		for (unsigned r = 0; r < n_ranks; r++)
			if (wanted(r, b)) {
				by |= UINT64_C(1) << r;
				any = true;
			}
		*ret_blocks += any;
	}
	return by;
}

static bool is_apart[MOST_CELLS];
static unsigned n_twice_of[MOST_CELLS]; /* UINT_MAX: too many blocks twice, or too many runs */

/* Counts the blocks that are wanted again by one more rank. */
static unsigned count_twice(size_t cell, unsigned n_ranks)
{
	unsigned n_twice = 0;
	unsigned n_begins = 0;
	for (unsigned r = 0; r < n_ranks; r++) {
		for (size_t b = 0; b < HOIST__CELL_BLOCKS; b++) {
			size_t at = cell * HOIST__CELL_BLOCKS + b;
			bool other = false;
			for (unsigned q = 0; q < r; q++)
				other = other || wanted(q, at);
			n_twice += wanted(r, at) && other;
			n_begins += wanted(r, at) && (b == 0 || !wanted(r, at - 1));
		}
	}
	return n_begins <= HOIST__CELL_PARTS && n_twice <= HOIST__CELL_TWICE ? n_twice : UINT_MAX;
}

/* Finds the cells that are apart: those with at most as many blocks twice as the largest limit that
 * keeps all of them within the share. */
static void find_apart(size_t n_cells, unsigned n_ranks)
{
	uint64_t n_wanted = 0;
	memset(is_apart, 0, sizeof is_apart);
	for (size_t c = 0; c < n_cells; c++) {
		unsigned blocks;
		uint64_t by = wanted_by(c, n_ranks, &blocks);
		n_twice_of[c] = (by & (by - 1)) == 0 ? UINT_MAX : count_twice(c, n_ranks);
		n_wanted += blocks;
	}
	for (unsigned limit = HOIST__CELL_TWICE + 1; limit-- > 0;) {
		uint64_t sum = 0;
		for (size_t c = 0; c < n_cells; c++)
			sum += n_twice_of[c] <= limit ? n_twice_of[c] : 0;
		if (sum > n_wanted / HOIST__TWICE_SHARE)
			continue;
		for (size_t c = 0; c < n_cells; c++)
			is_apart[c] = n_twice_of[c] <= limit;
		break;
	}
}

static unsigned n_apart;
static unsigned n_refused; /* cells that the share alone keeps from being apart */

/* Looks at each cell.  The owner is a rank that has no more to read than any other. */
static void compare(const struct hoist__ownership *o, unsigned n_ranks)
{
	uint64_t load[HOIST__GROUP_RANKS] = {0};
	uint32_t n_owned[HOIST__GROUP_RANKS] = {0};
	unsigned blocks;
	memset(reads, 0, sizeof reads);
	find_apart(o->n_cells, n_ranks);
	for (size_t c = 0; c < o->n_cells; c++) {
		uint64_t by = wanted_by(c, n_ranks, &blocks);
		bool own = (by & (by - 1)) == 0 || is_apart[c];
		n_refused += n_twice_of[c] != UINT_MAX && !is_apart[c];
		n_apart += own && (by & (by - 1)) != 0;
		for (size_t b = c * HOIST__CELL_BLOCKS; own && b < (c + 1) * HOIST__CELL_BLOCKS;
		     b++)
			for (unsigned r = 0; r < n_ranks; r++)
				load[r] += wanted(r, b);
	}
	for (size_t c = 0; c < o->n_cells; c++) {
		const struct hoist__cell *cell = &o->cells[c];
		CHECK(cell->wanted_by == wanted_by(c, n_ranks, &blocks));
		CHECK(cell->shared == (__builtin_popcountll(cell->wanted_by) > 1 && !is_apart[c]));
		if (!cell->shared)
			continue;
		CHECK(cell->owner < n_ranks && cell->ordinal == n_owned[cell->owner]++);
		bool any_near = false;
		for (unsigned r = 0; r < n_ranks; r++)
			any_near = any_near || near[r][c];
		CHECK(!any_near || near[cell->owner][c]);
		for (unsigned r = 0; r < n_ranks; r++) {
			bool first = load[cell->owner] < load[r] ||
				     (load[cell->owner] == load[r] && cell->owner <= r);
			CHECK(first || (any_near && !near[r][c]));
			n_far += !first;
		}
		load[cell->owner] += blocks;
		read_cell(o, c, n_ranks);
		for (unsigned b = 0; b < HOIST__CELL_BLOCKS; b++)
			for (unsigned r = 0; r < n_ranks; r++)
				CHECK(!wanted(r, c * HOIST__CELL_BLOCKS + b) ||
				      reads[c * HOIST__CELL_BLOCKS + b]);
	}
	for (unsigned r = 0; r < n_ranks; r++)
		CHECK(o->n_owned[r] == n_owned[r]);
}

/* Two files, and ranks that are near one, both or none. */
static void choose_near(uint64_t *seed, unsigned n_ranks, size_t n_cells)
{
	size_t cut = random_below(seed, n_cells + 1);
	memset(near, 0, sizeof near);
	for (unsigned r = 0; random_below(seed, 3) > 0 && r < n_ranks; r++)
		for (unsigned file = 0; file < 2; file++) {
			size_t begin = file == 0 ? 0 : cut;
			size_t end = file == 0 ? cut : n_cells;
			if (random_below(seed, 3) > 0)
				continue;
			hoist__wants_near(wants[r], n_cells, begin, end);
			for (size_t c = begin; c < end; c++)
				near[r][c] = true;
		}
}

static void a_round(uint64_t seed)
{
	static const unsigned sizes[] = {1, 2, 3, 4, 8, HOIST__GROUP_RANKS};
	const uint64_t *bitmaps[HOIST__GROUP_RANKS];
	struct hoist__ownership first = {0};
	struct hoist__ownership second = {0};
	unsigned n_ranks = sizes[random_below(&seed, sizeof sizes / sizeof sizes[0])];
	size_t n_cells = random_below(&seed, MOST_CELLS + 1);
	check_at("%u ranks, %zu cells", n_ranks, n_cells);
	if (n_cells > 0)
		(seed % 2 == 0 ? choose : choose_parts)(&seed, n_ranks,
							n_cells * HOIST__CELL_BLOCKS);
	choose_near(&seed, n_ranks, n_cells);
	for (unsigned r = 0; r < n_ranks; r++)
		bitmaps[r] = wants[r];
	OK(hoist__ownership_make(bitmaps, n_ranks, n_cells, &first));
	OK(hoist__ownership_make(bitmaps, n_ranks, n_cells, &second));
	CHECK(first.n_cells == n_cells);
	compare(&first, n_ranks);
	for (size_t c = 0; c < n_cells; c++)
		CHECK(first.cells[c].owner == second.cells[c].owner &&
		      first.cells[c].ordinal == second.cells[c].ordinal);
	hoist__ownership_fini(&first);
	hoist__ownership_fini(&second);
}

int main(void)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		a_round(seed * 7919);
	check_at("%u cells apart, %u refused", n_apart, n_refused);
	CHECK(n_apart > 100 && n_refused > 20 && n_far > 100);
	return 0;
}
