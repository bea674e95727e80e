/* SPDX-License-Identifier: MIT */
/* lib/job/stage.h - where a job's time goes.
 *
 * A job is in one stage at a time, that of its driving thread.  A change of stage gives the time
 * since the last change to the stage that ends, so the sum of all stages is the time since
 * hoist__stages_begin().  A wait for several things is of the first of them in the list below: the
 * one whose end the others cannot replace.
 *
 * Threads: the driving thread alone, or the thread that starts the job before that.
 */
#ifndef HOIST_LIB_JOB_STAGE_H
#define HOIST_LIB_JOB_STAGE_H

#include <stdint.h>

#include "hoist/load.h"

enum hoist__job_stage {
	HOIST__STAGE_WORK, /* no wait: the thread submits, completes, moves bytes */
	HOIST__STAGE_PLAN,
	HOIST__STAGE_ALLOCATE,
	/* Waits for: */
	HOIST__STAGE_CALLER, /* who holds the window, has queued work, or makes no step */
	HOIST__STAGE_READ,
	HOIST__STAGE_CONVERT, /* also the driving thread's own conversions and digests */
	HOIST__STAGE_COPY,
	HOIST__STAGE_PAGES, /* of fresh memory */
	HOIST__STAGE_GROUP, /* the ranks of a group, and their reads */
	HOIST__STAGE_BUDGET,
	HOIST__N_STAGES
};

struct hoist__stages {
	uint64_t begin_ns;
	uint64_t since_ns; /* of the last change */
	enum hoist__job_stage now;
	uint64_t ns[HOIST__N_STAGES];
};

/* The time begins now, with @first. */
void hoist__stages_begin(struct hoist__stages *stages, enum hoist__job_stage first);

/* The time from now on is of @next.  Returns: the stage that ended. */
enum hoist__job_stage hoist__stages_enter(struct hoist__stages *stages, enum hoist__job_stage next);

/* Fills in the stages' times, up to the last change. */
void hoist__stages_report(const struct hoist__stages *stages, hoist_load_report *report);

#endif
