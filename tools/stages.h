/* SPDX-License-Identifier: MIT */
/* tools/stages.h - the stages of a load's time, in the words of the command. */
#ifndef HOIST_TOOLS_STAGES_H
#define HOIST_TOOLS_STAGES_H

#include <hoist/timeline.h>

#define N_STAGES (HOIST_STAGE_BUDGET + 1)

/* In the order in which the command prints them. */
extern const struct stage {
	enum hoist_stage stage;
	const char *key;  /* of the JSON */
	const char *word; /* "reads" */
	const char *held; /* "waits for storage" */
	size_t field;	  /* of the report */
} stages[N_STAGES];

double stage_seconds(const hoist_load_report *report, const struct stage *stage);

/* Says what held the load back most since the last call.  @seen: the times of that call, 0 at first;
 * gets those of now.  NULL: no time has passed. */
const char *stages_held(hoist_load *load, hoist_load_report *seen);

#endif
