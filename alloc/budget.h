/* SPDX-License-Identifier: MIT */
/* alloc/budget.h - a byte limit that several users share, and wait for.
 *
 * Equation, always true: used <= limit, and peak is the largest used ever seen.
 * Back-pressure, not failure: who gets -EAGAIN goes on with what he holds, or
 * waits if he holds nothing.  That rule makes progress certain as long as every
 * user can work with the smallest amount he asked for first.
 *
 * Order: those who wait are served in the order they came, each as soon as his bytes
 * are free: a large request is not starved by small ones behind it.  Who does not wait
 * may pass them, so that he need not stop for a few bytes more that would let him give all
 * back; but past one first in the line, all who do so get no more than the limit's bytes in all.
 * What is granted is taken in that moment: no wake-up can be lost, and nobody comes between.
 *
 * Threads: any.  Reference counted.
 * fork: a child has a budget of its own, as it was at that moment.
 */
#ifndef HOIST_ALLOC_BUDGET_H
#define HOIST_ALLOC_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct hoist__budget;

/* A place in line, for who cannot stay to wait.  All zero is none; its owner's alone. */
struct hoist__budget_ticket {
	struct hoist__list node;
	size_t bytes;
	bool in_line; /* the budget knows it: it must not move or end */
	bool granted; /* the budget's to set */
};

int hoist__budget_create(size_t limit_bytes,
			 struct hoist__budget **ret); /* -EINVAL for 0; -ENOMEM */
struct hoist__budget *hoist__budget_ref(struct hoist__budget *budget);
void hoist__budget_unref(struct hoist__budget *budget); /* takes NULL */

/* Returns: 0; -EAGAIN if that much is not free now, or those who wait for it have been
 *   passed often enough; -EDQUOT if it exceeds the limit itself and never will be. */
int hoist__budget_acquire(struct hoist__budget *budget, size_t bytes);

/* Gets in line, for up to @timeout_ns (0: as above).  Hold nothing of the budget meanwhile: who is
 * first in line may be waiting for just that.  Returns: as above. */
int hoist__budget_acquire_wait(struct hoist__budget *budget, size_t bytes, uint64_t timeout_ns);

/* The same, but keeps the place in line when the time is over, for the next call (@bytes is then
 * what it was).  Returns: 0, once for each time in line; -EAGAIN, in line; -EDQUOT. */
int hoist__budget_acquire_turn(struct hoist__budget *budget, struct hoist__budget_ticket *ticket,
			       size_t bytes, uint64_t timeout_ns);

/* Gives the place up, and what was granted to it meanwhile.  Takes a ticket that has none. */
void hoist__budget_leave(struct hoist__budget *budget, struct hoist__budget_ticket *ticket);

void hoist__budget_release(struct hoist__budget *budget, size_t bytes);

size_t hoist__budget_limit(const struct hoist__budget *budget);
size_t hoist__budget_used(struct hoist__budget *budget);
size_t hoist__budget_peak(struct hoist__budget *budget);

#endif
