/* SPDX-License-Identifier: MIT */
/* The blocks that a member wants, in few bytes.
 * The contract is in lib/swarm/swarm-wants.h. */
#include "config.h"

#include "lib/swarm/swarm-wants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A hash table of patterns, at most half full. */
#define TABLE_BITS 16u
#define TABLE_ROOM (1u << TABLE_BITS)
_Static_assert(TABLE_ROOM >= 2 * HOIST__WANTS_PATTERNS, "the table is too small");

static unsigned hash_of(const uint64_t *blocks)
{
	uint64_t hash = 0;
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		hash = ((hash ^ hash >> 32) + blocks[w]) * UINT64_C(0x9e3779b97f4a7c15);
	return (unsigned)(hash >> (64 - TABLE_BITS));
}

/* The kind of a cell of which these blocks are wanted.  @table: kinds by hash; 0: none there. */
static uint16_t kind_of(struct hoist__swarm_wants *wants, uint16_t *table, const uint64_t *blocks)
{
	unsigned n = hoist__blocks_count(blocks);
	if (n == 0 || n == HOIST__CELL_BLOCKS)
		return n == 0 ? HOIST__WANTS_NONE : HOIST__WANTS_ALL;
	unsigned at = hash_of(blocks);
	while (table[at] != 0 && memcmp(wants->patterns[table[at] - HOIST__WANTS_SOME], blocks,
					sizeof wants->patterns[0]) != 0)
		at = (at + 1) % TABLE_ROOM;
	if (table[at] == 0) {
		if (wants->n_patterns == HOIST__WANTS_PATTERNS)
			return HOIST__WANTS_ALL;
		memcpy(wants->patterns[wants->n_patterns], blocks, sizeof wants->patterns[0]);
		table[at] = (uint16_t)(HOIST__WANTS_SOME + wants->n_patterns++);
	}
	return table[at];
}

int hoist__swarm_wants_begin(size_t n_cells, size_t n_patterns, struct hoist__swarm_wants *ret)
{
	struct hoist__swarm_wants wants = {
		.n_cells = n_cells,
		.kinds = calloc(n_cells + 1, sizeof *wants.kinds),
		.n_patterns = n_patterns,
		.patterns = calloc(n_patterns + 1, sizeof *wants.patterns),
	};
	if (wants.kinds == NULL || wants.patterns == NULL) {
		hoist__swarm_wants_fini(&wants);
		return hoist__fail_nomem("a member's wants",
					 n_cells * sizeof *wants.kinds +
						 n_patterns * sizeof *wants.patterns);
	}
	*ret = wants;
	return 0;
}

int hoist__swarm_wants_make(const uint64_t *bitmap, size_t n_cells, struct hoist__swarm_wants *ret)
{
	struct hoist__swarm_wants wants;
	size_t most = n_cells < HOIST__WANTS_PATTERNS ? n_cells : HOIST__WANTS_PATTERNS;
	int err = hoist__swarm_wants_begin(n_cells, most, &wants);
	if (err < 0)
		return err;
	uint16_t *table = calloc(TABLE_ROOM, sizeof *table);
	if (table == NULL) {
		hoist__swarm_wants_fini(&wants);
		return hoist__fail_nomem("a member's wants", TABLE_ROOM * sizeof *table);
	}
	wants.n_patterns = 0;
	for (size_t c = 0; c < n_cells; c++)
		wants.kinds[c] = kind_of(&wants, table, bitmap + c * HOIST__CELL_WORDS);
	free(table);
	*ret = wants;
	return 0;
}

int hoist__swarm_wants_check(const struct hoist__swarm_wants *wants)
{
	for (size_t c = 0; c < wants->n_cells; c++)
		if ((wants->kinds[c] & ~HOIST__WANTS_LACKS) >=
		    HOIST__WANTS_SOME + wants->n_patterns)
			return hoist__fail(-EBADMSG, "a member's wants have a cell of kind %u",
					   wants->kinds[c]);
	return 0;
}

void hoist__swarm_wants_mark_lacking(struct hoist__swarm_wants *wants, size_t begin, size_t end)
{
	for (size_t c = begin; c < end; c++)
		wants->kinds[c] |= HOIST__WANTS_LACKS;
}

size_t hoist__swarm_wants_n_lacking(const struct hoist__swarm_wants *wants)
{
	size_t n = 0;
	for (size_t c = 0; c < wants->n_cells; c++)
		n += hoist__swarm_wants_lacks(wants, c);
	return n;
}

void hoist__swarm_wants_fini(struct hoist__swarm_wants *wants)
{
	free(wants->kinds);
	free(wants->patterns);
	*wants = (struct hoist__swarm_wants){0};
}

unsigned hoist__swarm_wants_of(const struct hoist__swarm_wants *wants, size_t cell,
			       uint64_t ret[HOIST__CELL_WORDS])
{
	uint16_t kind = wants->kinds[cell] & (uint16_t)~HOIST__WANTS_LACKS;
	if (kind < HOIST__WANTS_SOME) {
		memset(ret, kind == HOIST__WANTS_ALL ? 0xff : 0,
		       sizeof(uint64_t[HOIST__CELL_WORDS]));
		return kind == HOIST__WANTS_ALL ? HOIST__CELL_BLOCKS : 0;
	}
	memcpy(ret, wants->patterns[kind - HOIST__WANTS_SOME], sizeof wants->patterns[0]);
	return hoist__blocks_count(ret);
}
