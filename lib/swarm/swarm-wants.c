/* SPDX-License-Identifier: MIT */
/* The blocks that a member wants, in few bytes.
 * The contract is in lib/swarm/swarm-wants.h. */
#include "config.h"

#include "lib/swarm/swarm-wants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define STRIDE 64u /* cells between two entries of `before` */

/* Makes `before`.  Returns: 0; -EBADMSG; -ENOMEM. */
static int index_some(struct hoist__swarm_wants *wants)
{
	size_t n = 0;
	wants->before = calloc(wants->n_cells / STRIDE + 1, sizeof *wants->before);
	if (wants->before == NULL)
		return hoist__fail_nomem("a member's wants", wants->n_cells);
	for (size_t c = 0; c < wants->n_cells; c++) {
		if (c % STRIDE == 0)
			wants->before[c / STRIDE] = (uint32_t)n;
		if (wants->kinds[c] > HOIST__WANTS_SOME)
			return hoist__fail(-EBADMSG, "a member's wants have a cell of kind %u",
					   wants->kinds[c]);
		n += wants->kinds[c] == HOIST__WANTS_SOME;
	}
	if (n != wants->n_some)
		return hoist__fail(-EBADMSG, "a member's wants have %zu bitmaps for %zu cells",
				   wants->n_some, n);
	return 0;
}

int hoist__swarm_wants_make(const uint64_t *bitmap, size_t n_cells, struct hoist__swarm_wants *ret)
{
	struct hoist__swarm_wants wants = {.n_cells = n_cells};
	wants.kinds = calloc(n_cells + 1, 1);
	for (size_t c = 0; wants.kinds != NULL && c < n_cells; c++) {
		unsigned n = hoist__blocks_count(bitmap + c * HOIST__CELL_WORDS);
		wants.kinds[c] = n == 0			   ? HOIST__WANTS_NONE
				 : n == HOIST__CELL_BLOCKS ? HOIST__WANTS_ALL
							   : HOIST__WANTS_SOME;
		wants.n_some += wants.kinds[c] == HOIST__WANTS_SOME;
	}
	wants.some = calloc(wants.n_some + 1, sizeof *wants.some);
	if (wants.kinds == NULL || wants.some == NULL) {
		hoist__swarm_wants_fini(&wants);
		return hoist__fail_nomem("a member's wants", n_cells);
	}
	for (size_t c = 0, s = 0; c < n_cells; c++)
		if (wants.kinds[c] == HOIST__WANTS_SOME)
			memcpy(wants.some[s++], bitmap + c * HOIST__CELL_WORDS,
			       sizeof wants.some[0]);
	int err = index_some(&wants);
	if (err < 0)
		hoist__swarm_wants_fini(&wants);
	else
		*ret = wants;
	return err;
}

int hoist__swarm_wants_take(uint8_t *kinds, size_t n_cells, uint64_t (*some)[HOIST__CELL_WORDS],
			    size_t n_some, struct hoist__swarm_wants *ret)
{
	struct hoist__swarm_wants wants = {
		.n_cells = n_cells, .kinds = kinds, .some = some, .n_some = n_some};
	int err = index_some(&wants);
	if (err < 0)
		free(wants.before);
	else
		*ret = wants;
	return err;
}

void hoist__swarm_wants_fini(struct hoist__swarm_wants *wants)
{
	free(wants->kinds);
	free(wants->before);
	free(wants->some);
	*wants = (struct hoist__swarm_wants){0};
}

unsigned hoist__swarm_wants_of(const struct hoist__swarm_wants *wants, size_t cell,
			       uint64_t ret[HOIST__CELL_WORDS])
{
	uint8_t kind = wants->kinds[cell];
	if (kind != HOIST__WANTS_SOME) {
		memset(ret, kind == HOIST__WANTS_ALL ? 0xff : 0,
		       sizeof(uint64_t[HOIST__CELL_WORDS]));
		return kind == HOIST__WANTS_ALL ? HOIST__CELL_BLOCKS : 0;
	}
	size_t s = wants->before[cell / STRIDE];
	for (size_t c = cell - cell % STRIDE; c < cell; c++)
		s += wants->kinds[c] == HOIST__WANTS_SOME;
	memcpy(ret, wants->some[s], sizeof wants->some[0]);
	return hoist__blocks_count(ret);
}
