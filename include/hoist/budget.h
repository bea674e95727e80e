/* SPDX-License-Identifier: MIT */
/* hoist/budget.h - a limit in bytes that loads and memory resources share.
 *
 *     hoist_budget_create((size_t)512 << 20, &budget);
 *     hoist_load_options a = {.size = sizeof a, .device = gpu0, .budget = budget};
 *     hoist_load_options b = {.size = sizeof b, .device = gpu1, .budget = budget};
 *     hoist_load_start(first, &a, &load_a);   // both loads together stage at most 512 MiB
 *     hoist_load_start(second, &b, &load_b);
 *     hoist_budget_unref(budget);             // the loads have their own references
 *
 * A Budget counts bytes and owns no memory.  A user of the Budget charges bytes before taking
 * memory, and waits or fails where the bytes would exceed the limit.  Giving the memory back gives
 * the bytes back.  A load charges its staging memory (hoist/load.h), a memory resource its regions
 * (hoist/memory.h).
 *
 * Invariant: used <= limit at any time; peak is the largest value of used so far.
 *
 * Threads: every function may be called from any thread.  Budgets are reference counted: each load
 * or resource that was given a Budget holds a reference.
 */
#ifndef HOIST_BUDGET_H
#define HOIST_BUDGET_H

#include <stddef.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_budget hoist_budget;

/* The bytes of the private Budget that a load or a save gets if its options name none. */
#define HOIST_BUDGET_DEFAULT ((size_t)256 << 20)

/* A new Budget with a limit of @bytes.
 * Returns: 0; -EINVAL (@bytes is 0); -ENOMEM. */
HOIST_API int hoist_budget_create(size_t bytes, hoist_budget **ret);
/* One more reference.  Returns: @budget. */
HOIST_API hoist_budget *hoist_budget_ref(hoist_budget *budget);
HOIST_API void hoist_budget_unref(hoist_budget *budget); /* takes NULL */

/* Bytes that are charged now. */
HOIST_API size_t hoist_budget_used(const hoist_budget *budget);
/* The most bytes that were charged at one time. */
HOIST_API size_t hoist_budget_peak(const hoist_budget *budget);

HOIST_END

#endif
