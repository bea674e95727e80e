/* SPDX-License-Identifier: MIT */
/* lib/swarm/cell-charge.h - the bytes of a budget that the slots of a group's load take.
 *
 * Slots of a group are staging: the budget bounds them.  One turn at the budget brings them and the
 * least of the load's own: two loads that each had one half would wait for each other.
 *
 * Threads: the driving thread's.
 */
#ifndef HOIST_LIB_SWARM_CELL_CHARGE_H
#define HOIST_LIB_SWARM_CELL_CHARGE_H

#include "alloc/budget.h"
#include "lib/load/load.h"

struct hoist__cell_charge {
	struct hoist__budget *budget; /* NULL: not asked yet */
	struct hoist__budget_ticket ticket;
	size_t bytes;	   /* taken for slots */
	uint64_t asked_at; /* first; 0: not yet */
};

#define HOIST__CELL_LEAST_SLOTS 8u

/* Returns: how many slots of one cell a load should have: a quarter of its budget, and no more than
 * @staging bytes for the load's own slots leave, but HOIST__CELL_LEAST_SLOTS at least and @most at
 * most. */
unsigned hoist__cell_slots(const struct hoist_load *load, size_t staging, unsigned most);

/* Takes @bytes for slots, and @staging for the load's own.  Waits for @timeout_ns at most, and for
 * @group_timeout_ns in all calls together.  Pre: @charge is zeroed before the first call.
 * Returns: 0, also if the bytes are taken already; 1: not yet; -EDQUOT (the budget is too small, or
 * had no room in time). */
int hoist__cell_charge_take(struct hoist__cell_charge *charge, struct hoist_load *load,
			    size_t bytes, size_t staging, uint64_t timeout_ns,
			    uint64_t group_timeout_ns);

/* Gives the slots' bytes back, and leaves the line at the budget. */
void hoist__cell_charge_return(struct hoist__cell_charge *charge);

#endif
