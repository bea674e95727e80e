/* SPDX-License-Identifier: MIT */
/* alloc/budget.h - a byte limit that several users share, and wait for.
 *
 * Equation, always true: used <= limit, and peak is the largest used ever seen.
 * Back-pressure, not failure: who gets -EAGAIN goes on with what he holds, or
 * waits if he holds nothing.  That rule makes progress certain as long as every
 * user can work with the smallest amount he asked for first.
 *
 * Threads: any.  Reference counted.
 * fork: a child has a budget of its own, as it was at that moment.
 */
#ifndef HOIST_ALLOC_BUDGET_H
#define HOIST_ALLOC_BUDGET_H

#include <stddef.h>
#include <stdint.h>

struct hoist__budget;

int hoist__budget_create(size_t limit_bytes, struct hoist__budget **ret); /* -EINVAL for 0; -ENOMEM */
struct hoist__budget *hoist__budget_ref(struct hoist__budget *budget);
void hoist__budget_unref(struct hoist__budget *budget); /* takes NULL */

/* Returns: 0; -EAGAIN if that much is not free now; -EDQUOT if it exceeds the
 *   limit itself and never will be. */
int hoist__budget_acquire(struct hoist__budget *budget, size_t bytes);

/* Waits up to @timeout_ns for another user's release, then tries; as above. */
int hoist__budget_acquire_wait(struct hoist__budget *budget, size_t bytes, uint64_t timeout_ns);

void hoist__budget_release(struct hoist__budget *budget, size_t bytes);

size_t hoist__budget_limit(const struct hoist__budget *budget);
size_t hoist__budget_used(struct hoist__budget *budget);
size_t hoist__budget_peak(struct hoist__budget *budget);

#endif
