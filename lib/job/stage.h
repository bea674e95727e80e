/* SPDX-License-Identifier: MIT */
/* lib/job/stage.h - where a job's time goes.
 *
 * A job is in one stage at a time, that of its driving thread.  A change of stage gives the time
 * since the last change to the stage that ends, so the sum of all stages is the time since
 * hoist__stages_begin().  A wait for several things is of the first of them in enum hoist_stage:
 * the one whose end the others cannot replace.
 *
 * Times never fall from one look to the next: the clock is read under the lock that the changes are
 * made under, and hoist__stages_end() stops all times.
 *
 * Threads: the driving thread alone, or the thread that starts the job before that; but any thread
 * may call hoist__stages_look().
 */
#ifndef HOIST_LIB_JOB_STAGE_H
#define HOIST_LIB_JOB_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "hoist/timeline.h"
#include "io/timeline.h"

#define HOIST__N_STAGES (HOIST_STAGE_BUDGET + 1)

/* The driving thread alone changes the fields, those behind the lock under the lock. */
struct hoist__stages {
	struct hoist__timeline *timeline; /* of the waits; NULL: nobody asked for one */
	unsigned generation;		  /* of the process that began: hoist__fork_now() */
	uint64_t begin_ns;
	pthread_mutex_t lock;
	uint64_t since_ns; /* of the last change */
	enum hoist_stage now;
	bool ended;
	uint64_t ns[HOIST__N_STAGES];
};

/* The time begins now, with @first. */
void hoist__stages_begin(struct hoist__stages *stages, enum hoist_stage first);

/* The time from now on is of @next.  After the end no time is of any.  Returns: the stage that
 * ended. */
enum hoist_stage hoist__stages_enter(struct hoist__stages *stages, enum hoist_stage next);

/* The time ends now. */
void hoist__stages_end(struct hoist__stages *stages);

/* Fills in the stages' times and their sum, up to now or to the end.  In a child of fork whose
 * parent was changing them at that moment, the sum may be off by one wait. */
void hoist__stages_look(struct hoist__stages *stages, hoist_load_report *report);

#endif
