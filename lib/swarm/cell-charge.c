/* SPDX-License-Identifier: MIT */
/* The bytes of a budget that the slots of a group's load take.
 * The contract is in lib/swarm/cell-charge.h. */
#include "config.h"

#include "lib/swarm/cell-charge.h"

#include <errno.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "lib/memory/budget.h"
#include "lib/memory/memory.h"
#include "lib/swarm/blocks.h"

#define BUDGET_SHARE 4u /* slots take one part in so many of a budget */

unsigned hoist__cell_slots(const struct hoist_load *load, size_t staging, unsigned most)
{
	size_t limit = hoist__budget_limit(hoist__budget_of(load->job.budget));
	uint64_t left = limit > staging ? limit - staging : 0;
	uint64_t slots = hoist__min_u64(limit / BUDGET_SHARE, left) / HOIST__CELL_BYTES;
	return (unsigned)hoist__min_u64(hoist__max_u64(slots, HOIST__CELL_LEAST_SLOTS), most);
}

int hoist__cell_charge_take(struct hoist__cell_charge *charge, struct hoist_load *load,
			    size_t bytes, size_t staging, uint64_t timeout_ns,
			    uint64_t group_timeout_ns)
{
	struct hoist__budget *budget = hoist__budget_of(load->job.budget);
	uint64_t now = hoist__now_ns();
	if (charge->bytes > 0)
		return 0;
	charge->budget = budget;
	charge->asked_at = charge->asked_at != 0 ? charge->asked_at : now;
	hoist__memories_yield(budget);
	int err = hoist__budget_acquire_turn(budget, &charge->ticket, bytes + staging,
					     hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS));
	if (err == -EAGAIN && now - charge->asked_at <= group_timeout_ns)
		return 1;
	if (err == -EAGAIN)
		return hoist__fail(-EDQUOT,
				   "the budget of %zu bytes had no room for the %zu bytes of a "
				   "group's slots and %zu of staging slots, within the group's "
				   "timeout; raise the budget",
				   hoist__budget_limit(budget), bytes, staging);
	if (err < 0)
		return hoist__fail(err,
				   "the budget of %zu bytes is too small for the %zu bytes of a "
				   "group's slots and %zu of staging slots; raise the budget",
				   hoist__budget_limit(budget), bytes, staging);
	charge->bytes = bytes;
	load->job.held = staging;
	return 0;
}

void hoist__cell_charge_return(struct hoist__cell_charge *charge)
{
	if (charge->budget != NULL)
		hoist__budget_leave(charge->budget, &charge->ticket);
	if (charge->bytes > 0)
		hoist__budget_release(charge->budget, charge->bytes);
	charge->bytes = 0;
}
