/* SPDX-License-Identifier: MIT */
/* tools/load-report.h - what `hoist load` and `hoist explain --run` have in common. */
#ifndef HOIST_TOOLS_LOAD_REPORT_H
#define HOIST_TOOLS_LOAD_REPORT_H

#include "cli/json.h"
#include "tools/args.h"

/* Refuses options of loads that do not go together.  Returns: STATUS_OK; STATUS_USAGE. */
int load_check(const struct args *args);

/* Loads, and prints the report; the JSON is {"plan": @plan, "load": the report}, or, if @plan is
 * NULL, the report.  Takes @plan over.  Pre: load_check(). */
int load_and_report(const struct args *args, json_t *plan);

/* Prints one line: what was loaded where, how fast, and what the load waited for most. */
void load_line(const hoist_load_report *report, const struct args *args);

#endif
