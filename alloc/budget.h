/* SPDX-License-Identifier: MIT */
/* alloc/budget.h - a byte limit that several users share, and wait for.
 *
 * Invariant: used <= limit, and peak is the largest value that used ever had.
 *
 * The budget applies back-pressure, it does not fail work: a user that gets -EAGAIN goes on with
 * the bytes it holds, or waits if it holds none.  This rule guarantees progress as long as every
 * user can work with the smallest amount that it asked for first.
 *
 * Order: waiting users are served first come, first served, each as soon as its bytes are free, so
 * small requests never starve a large one in front of them.  A request that does not wait may pass
 * the line, so that a user need not stop for the few more bytes that let it give everything back.
 * But all requests that pass the same first in line get at most the limit's bytes together.
 * A grant takes the bytes at once: no wake-up can be lost, and no other user can take the bytes in
 * between.
 *
 * Threads: any.  Reference counted.
 * fork: the child has a budget of its own, in the state of the moment of the fork.
 */
#ifndef HOIST_ALLOC_BUDGET_H
#define HOIST_ALLOC_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct hoist__budget;

/* A place in line, for a caller that cannot block until its turn.  All zero: not in line.  Only its
 * owner uses a ticket. */
struct hoist__budget_ticket {
	struct hoist__list node;
	size_t bytes;
	bool in_line; /* linked into the budget: the ticket must not move or end */
	bool granted; /* set by the budget alone */
};

int hoist__budget_create(size_t limit_bytes,
			 struct hoist__budget **ret); /* -EINVAL for 0; -ENOMEM */
struct hoist__budget *hoist__budget_ref(struct hoist__budget *budget);
void hoist__budget_unref(struct hoist__budget *budget); /* takes NULL */

/* Returns: 0; -EAGAIN if @bytes are not free now, or the first in line was passed by enough bytes
 *   already; -EDQUOT if @bytes exceed the limit itself, so that they can never be free. */
int hoist__budget_acquire(struct hoist__budget *budget, size_t bytes);

/* Waits in line for up to @timeout_ns (0: as above).  The caller must hold nothing of the budget
 * meanwhile: the first in line may be waiting for exactly those bytes.  Returns: as above. */
int hoist__budget_acquire_wait(struct hoist__budget *budget, size_t bytes, uint64_t timeout_ns);

/* The same, but keeps the place in line for the next call when the time is over.  @bytes counts
 * only in the call that gets in line.  Returns: 0, once for each time in line; -EAGAIN, in line;
 * -EDQUOT. */
int hoist__budget_acquire_turn(struct hoist__budget *budget, struct hoist__budget_ticket *ticket,
			       size_t bytes, uint64_t timeout_ns);

/* Gives up the place in line, and the bytes that were granted to it meanwhile.  Takes a ticket that
 * is not in line. */
void hoist__budget_leave(struct hoist__budget *budget, struct hoist__budget_ticket *ticket);

void hoist__budget_release(struct hoist__budget *budget, size_t bytes);

size_t hoist__budget_limit(const struct hoist__budget *budget);
size_t hoist__budget_used(struct hoist__budget *budget);
size_t hoist__budget_peak(struct hoist__budget *budget);

#endif
