/* SPDX-License-Identifier: MIT */
/* The stages of a load's time, in the words of the command.
 * The contract is in tools/stages.h. */
#include "config.h"

#include "tools/stages.h"

const struct stage stages[N_STAGES] = {
	{HOIST_STAGE_READ, "read_seconds", "reads", "waits for storage",
	 offsetof(hoist_load_report, read_ns)},
	{HOIST_STAGE_COPY, "copy_seconds", "copies", "waits for copies",
	 offsetof(hoist_load_report, copy_ns)},
	{HOIST_STAGE_CONVERT, "convert_seconds", "conversions", "converts",
	 offsetof(hoist_load_report, convert_ns)},
	{HOIST_STAGE_PAGES, "pages_seconds", "pages", "waits for pages",
	 offsetof(hoist_load_report, pages_ns)},
	{HOIST_STAGE_CALLER, "caller_seconds", "caller", "waits for room",
	 offsetof(hoist_load_report, caller_ns)},
	{HOIST_STAGE_GROUP, "group_seconds", "group", "waits for ranks",
	 offsetof(hoist_load_report, group_ns)},
	{HOIST_STAGE_BUDGET, "budget_seconds", "budget", "waits for budget",
	 offsetof(hoist_load_report, budget_ns)},
	{HOIST_STAGE_PLAN, "plan_seconds", "plan", "plans", offsetof(hoist_load_report, plan_ns)},
	{HOIST_STAGE_ALLOCATE, "allocate_seconds", "allocate", "allocates",
	 offsetof(hoist_load_report, allocate_ns)},
	{HOIST_STAGE_WORK, "work_seconds", "work", "works", offsetof(hoist_load_report, work_ns)},
};

static uint64_t time_of(const hoist_load_report *report, const struct stage *stage)
{
	return *(const uint64_t *)(const void *)((const char *)report + stage->field);
}

double stage_seconds(const hoist_load_report *report, const struct stage *stage)
{
	return (double)time_of(report, stage) / 1e9;
}

const char *stages_held(hoist_load *load, hoist_load_report *seen)
{
	const char *held = NULL;
	uint64_t most = 0;
	hoist_load_report now = {.size = sizeof now};
	if (hoist_load_get_times(load, &now) != 0)
		return NULL;
	for (size_t i = 0; i < N_STAGES; i++) {
		uint64_t before = time_of(seen, &stages[i]);
		uint64_t ns = time_of(&now, &stages[i]);
		ns = ns > before ? ns - before : 0;
		if (ns > most) {
			most = ns;
			held = stages[i].held;
		}
	}
	*seen = now;
	return held;
}
