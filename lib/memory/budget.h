/* SPDX-License-Identifier: MIT */
/* lib/memory/budget.h - the budget behind a hoist_budget. */
#ifndef HOIST_LIB_MEMORY_BUDGET_H
#define HOIST_LIB_MEMORY_BUDGET_H

#include "alloc/budget.h"
#include "hoist/budget.h"

struct hoist__budget *hoist__budget_of(const hoist_budget *budget);

#endif
