/* SPDX-License-Identifier: MIT */
/* Bitmaps of blocks.
 * The contract is in lib/swarm/blocks.h. */
#include "config.h"

#include "lib/swarm/blocks.h"

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

bool hoist__blocks_run(const uint64_t *blocks, unsigned gap, unsigned *from, unsigned *begin)
{
	unsigned at = *from;
	while (at < HOIST__CELL_BLOCKS && !hoist__blocks_has(blocks, at))
		at++;
	if (at == HOIST__CELL_BLOCKS)
		return false;
	*begin = at;
	unsigned end = at + 1;
	for (at = end; at < HOIST__CELL_BLOCKS && at - end < gap; at++)
		if (hoist__blocks_has(blocks, at))
			end = at + 1;
	*from = end;
	return true;
}
