/* SPDX-License-Identifier: MIT */
/* lib/job/stage.h - where a job's time goes.
 *
 * A job is in one stage at a time, that of its driving thread.  A change of stage gives the time
 * since the last change to the stage that ends, so the sum of all stages is the time since
 * hoist__stages_begin().  A wait for several things is of the first of them in the list below: the
 * one whose end the others cannot replace.
 *
 * Threads: the driving thread alone, or the thread that starts the job before that; but any thread
 * may call hoist__stages_look() and hoist__stages_report().
 */
#ifndef HOIST_LIB_JOB_STAGE_H
#define HOIST_LIB_JOB_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "hoist/load.h"
#include "io/timeline.h"

/* As hoist/timeline.h numbers them.  CALLER: who holds the window, has queued work, or makes no
 * step. CONVERT: also the driving thread's own conversions and digests.  PAGES: of fresh memory.
 * GROUP: the ranks of a group, and their reads. */
enum hoist__job_stage {
	/* No waits.  WORK: the thread submits, completes, moves bytes. */
	HOIST__STAGE_WORK = HOIST_STAGE_WORK,
	HOIST__STAGE_PLAN = HOIST_STAGE_PLAN,
	HOIST__STAGE_ALLOCATE = HOIST_STAGE_ALLOCATE,
	/* Waits for: */
	HOIST__STAGE_CALLER = HOIST_STAGE_CALLER,
	HOIST__STAGE_READ = HOIST_STAGE_READ,
	HOIST__STAGE_CONVERT = HOIST_STAGE_CONVERT,
	HOIST__STAGE_COPY = HOIST_STAGE_COPY,
	HOIST__STAGE_PAGES = HOIST_STAGE_PAGES,
	HOIST__STAGE_GROUP = HOIST_STAGE_GROUP,
	HOIST__STAGE_BUDGET = HOIST_STAGE_BUDGET,
	HOIST__N_STAGES
};

/* `turn` is odd while the fields behind it are being changed. */
struct hoist__stages {
	struct hoist__timeline *timeline; /* of the waits; NULL: nobody asked for one */
	uint64_t begin_ns;
	_Atomic unsigned turn;
	_Atomic uint64_t since_ns; /* of the last change */
	_Atomic unsigned now;
	_Atomic uint64_t ns[HOIST__N_STAGES];
};

/* The time begins now, with @first. */
void hoist__stages_begin(struct hoist__stages *stages, enum hoist__job_stage first);

/* The time from now on is of @next.  Returns: the stage that ended. */
enum hoist__job_stage hoist__stages_enter(struct hoist__stages *stages, enum hoist__job_stage next);

/* The stages' times and their sum, up to now.  In a child of fork whose parent was changing them at
 * that moment, the sum may be off by one wait. */
void hoist__stages_look(const struct hoist__stages *stages, hoist_load_report *report);

/* Fills in the stages' times, up to the last change. */
void hoist__stages_report(const struct hoist__stages *stages, hoist_load_report *report);

#endif
