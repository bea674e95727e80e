/* SPDX-License-Identifier: MIT */
/* lib/memory/budget.c - implements the public budgets over alloc/budget.h.
 * The contract is in hoist/budget.h. */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "lib/memory/budget.h"

struct hoist_budget {
	_Atomic unsigned xrefs;
	struct hoist__budget *budget;
};

int hoist_budget_create(size_t bytes, hoist_budget **ret)
{
	hoist_budget *made = malloc(sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a budget", sizeof *made);
	int err = hoist__budget_create(bytes, &made->budget);
	if (err < 0) {
		free(made);
		return err;
	}
	atomic_init(&made->xrefs, 1);
	*ret = made;
	return 0;
}

hoist_budget *hoist_budget_ref(hoist_budget *budget)
{
	atomic_fetch_add_explicit(&budget->xrefs, 1, memory_order_relaxed);
	return budget;
}

void hoist_budget_unref(hoist_budget *budget)
{
	if (budget == NULL ||
	    atomic_fetch_sub_explicit(&budget->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	hoist__budget_unref(budget->budget);
	free(budget);
}

size_t hoist_budget_used(const hoist_budget *budget)
{
	return hoist__budget_used(budget->budget);
}

size_t hoist_budget_peak(const hoist_budget *budget)
{
	return hoist__budget_peak(budget->budget);
}

struct hoist__budget *hoist__budget_of(const hoist_budget *budget)
{
	return budget->budget;
}
