/* SPDX-License-Identifier: MIT */
/* Divides image extents into ranges that are mapped and ranges that are read.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

/* Makes the extent of [@begin, @end) of @whole.  Runs are in the order of their begins, so those
 * that begin before @end are a prefix; runs that end before @begin have no byte in the part, and
 * may be among its runs. */
static struct hoist__plan_extent part_of(const struct hoist__plan *plan,
					 const struct hoist__plan_extent *whole, uint64_t begin,
					 uint64_t end)
{
	struct hoist__plan_extent part = *whole;
	size_t last = whole->first_run + whole->n_runs;
	size_t run = whole->first_run;
	while (run + 1 < last && plan->runs[run].end <= begin)
		run++;
	part.first_run = run;
	while (run < last && plan->runs[run].begin < end)
		run++;
	part.n_runs = run - part.first_run;
	part.goes_on = begin > whole->begin;
	part.begin = begin;
	part.end = end;
	part.image += hoist__round_down(begin, whole->align) -
		      hoist__round_down(whole->begin, whole->align);
	HOIST__ASSERT(begin < end && part.n_runs != 0 && !whole->staged);
	return part;
}

int hoist__plan_split(struct hoist__plan *plan, const struct hoist__plan_range *ranges, size_t n)
{
	size_t most = plan->n_extents + 2 * n;
	struct hoist__plan_extent *made = calloc(most, sizeof *made);
	size_t n_made = 0;
	size_t r = 0;
	if (made == NULL)
		return hoist__fail_nomem("a plan", most * sizeof *made);
	for (size_t e = 0; e < plan->n_extents; e++) {
		const struct hoist__plan_extent *whole = &plan->extents[e];
		uint64_t at = whole->begin;
		for (; r < n && ranges[r].extent == e; r++) {
			uint64_t begin = hoist__max_u64(ranges[r].begin, whole->begin);
			uint64_t end = hoist__min_u64(ranges[r].end, whole->end);
			HOIST__ASSERT(begin >= at && begin < end);
			if (begin > at)
				made[n_made++] = part_of(plan, whole, at, begin);
			made[n_made] = part_of(plan, whole, begin, end);
			made[n_made++].mapped = true;
			at = end;
		}
		if (at == whole->begin)
			made[n_made++] = *whole;
		else if (at < whole->end)
			made[n_made++] = part_of(plan, whole, at, whole->end);
	}
	HOIST__ASSERT(r == n && n_made <= most);
	free(plan->extents);
	plan->extents = made;
	plan->n_extents = n_made;
	return 0;
}
