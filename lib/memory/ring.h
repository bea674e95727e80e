/* SPDX-License-Identifier: MIT */
/* lib/memory/ring.h - what the pumps of loads and saves do alike until they have a ring of slots and an
 * engine.
 *
 * A turn is a place in the budget's line.  What comes at its end is kept (`held`) until the ring
 * takes it over: given back, it would be the next one's who waits, and two could hand it to and fro
 * for ever. */
#ifndef HOIST_LIB_RING_H
#define HOIST_LIB_RING_H

#include <stddef.h>
#include <stdint.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "hoist/budget.h"
#include "hoist/load.h"
#include "io/engine.h"

struct hoist__turn {
	struct hoist__budget_ticket ticket;
	size_t held; /* bytes of the budget */
};

/* Waits for @least bytes up to @timeout_ns.
 * Returns: 0, `held` says whether they came; -EDQUOT they exceed the limit. */
int hoist__turn_wait(struct hoist__turn *turn, hoist_budget *budget, size_t least,
		     uint64_t timeout_ns);

/* Gives up the place, and what is held. */
void hoist__turn_leave(struct hoist__turn *turn, hoist_budget *budget);

/* A ring of the usual size stays pinned for the next one, since pinning is slow; but what is kept
 * and the new ring must fit the budget together, were the one of no use for the other. */
void hoist__ring_trim(struct hoist__pool *pool, hoist_budget *budget, size_t usual);

/* How many of @n slots the process's control group has room for, at least two: a ring of half of what
 * it has left at most, as its pages cannot be taken back, and the kernel would end the process.
 * Unless @pool has kept such a ring, pools of host memory first give back what they only keep. */
unsigned hoist__ring_slots(struct hoist__pool *pool, unsigned n, size_t slot_bytes);

enum hoist__engine_kind hoist__engine_kind_of(enum hoist_engine engine);

#endif
