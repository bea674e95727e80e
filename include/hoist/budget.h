/* SPDX-License-Identifier: MIT */
/* hoist/budget.h - a limit in bytes that loads and memory resources share.
 *
 * A Budget owns no memory: it counts.  Who takes memory charges its bytes to the
 * Budget first, and waits, or fails, where they would exceed it; giving the memory
 * back gives the bytes back.  A load charges its staging memory (hoist/load.h), a
 * memory resource its regions (hoist/memory.h).
 *
 * Invariant: used <= limit at any time, and peak is the largest used ever seen.
 *
 * Threads: every function may be called from any thread.  Reference counted: who
 * was given a Budget keeps it alive.
 */
#ifndef HOIST_BUDGET_H
#define HOIST_BUDGET_H

#include <stddef.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_budget hoist_budget;

/* What a load has to itself if it is given none. */
#define HOIST_BUDGET_DEFAULT ((size_t)256 << 20)

/* Returns: 0; -EINVAL for 0 bytes; -ENOMEM. */
HOIST_API int hoist_budget_create(size_t bytes, hoist_budget **ret);
HOIST_API hoist_budget *hoist_budget_ref(hoist_budget *budget);
HOIST_API void hoist_budget_unref(hoist_budget *budget); /* takes NULL */
HOIST_API size_t hoist_budget_used(const hoist_budget *budget);
HOIST_API size_t hoist_budget_peak(const hoist_budget *budget);

HOIST_END

#endif
