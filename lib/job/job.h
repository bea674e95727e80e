/* SPDX-License-Identifier: MIT */
/* lib/job/job.h - a job: the part that a load and a save have in common.
 *
 *   job.c           the job's life: start, rounds, failure, cancel, wait, end
 *   job-staging.c   the means of a running job: budget, staging slots, engine
 *   stage.c         where its time goes
 *
 * A job moves bytes between files and memory in rounds.  Its kind (lib/load, lib/save) says what a
 * round does.  The job calls the kind's functions, one at a time:
 *
 *   READY ----begin----> RUNNING ----round says: all is done----> end ----> DONE
 *     |                     |                                      |
 *     +--failure, cancel----+----> DRAINING --round says: nothing--+
 *                                             is in flight
 *
 *   begin   makes the staging slots and the engine.  Calls are repeated while others have the
 *           budget
 *   round   moves what can be moved, then waits a little
 *   end     checks files, completes the report, gives slots and engine back
 *
 * Invariants:
 *   - The first failure wins.  It is kept, stops new work and cancels the engine.  Rounds go on
 *     until nothing is in flight, so no memory is released while the kernel or a device may use it.
 *   - Engine and staging slots exist between begin and end only.
 *   - Bytes that the budget granted (`held`) are kept until the slots take them over.  Given back,
 *     they would be the next waiter's, and two jobs could hand them to and fro for ever.
 *   - `done` is set once, behind end.  `err`, `failure` and the kind's report are constant then.
 *   - A job works in the process that made it.  A forked child never uses or frees its copy.
 *
 * Threads: one thread at a time drives: the job's own thread, or, caller-driven, the holder of
 * `driving`.  `cancelled` and `done` are any thread's.  `lock` is for waiting and for `fd` only, so
 * that a forked child can ask whether the job is done.  The job's own thread switches to the job's
 * device once.  A caller's thread does so for each step, and finds its own device current again
 * after it.
 */
#ifndef HOIST_LIB_JOB_JOB_H
#define HOIST_LIB_JOB_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "alloc/budget.h"
#include "base/error.h"
#include "base/list.h"
#include "hoist/budget.h"
#include "hoist/load.h"
#include "io/engine.h"
#include "io/staging.h"
#include "lib/job/stage.h"

/* How long a wait may last before the job looks again whether it was cancelled. */
#define HOIST__JOB_CANCEL_POLL_NS (20 * UINT64_C(1000000))

struct hoist__job;

struct hoist__job_kind {
	const char *what;     /* "load", "save": for messages */
	const char *starting; /* "starting the load's thread": for messages */
	/* Returns: 0, the job runs; 1, others have the budget; what failed. */
	int (*begin)(struct hoist__job *job, uint64_t timeout_ns);
	/* hoist__job_create_staging() with the kind's options, and the tables of that size.
	 * Returns: as hoist__staging_create(). */
	int (*make_staging)(struct hoist__job *job);
	/* Waits up to @timeout_ns.  True: RUNNING, all is done; DRAINING, nothing is in flight. */
	bool (*round)(struct hoist__job *job, uint64_t timeout_ns);
	void (*end)(struct hoist__job *job);
};

enum hoist__job_phase {
	HOIST__JOB_READY,
	HOIST__JOB_RUNNING,
	HOIST__JOB_DRAINING,
	HOIST__JOB_DONE
};

struct hoist__job {
	/* Set at start, then constant. */
	const struct hoist__job_kind *kind;
	hoist_budget *budget;
	bool caller_driven;
	pid_t pid;		/* for messages */
	unsigned generation;	/* of the process that made it: hoist__fork_now() */
	struct hoist__dev *dev; /* set by the kind: most driver calls of a round go to it, so a
				 * round is a scope of it (device/scope.h); NULL: none */
	uint64_t start_cpu_ns;

	/* The driving thread's. */
	enum hoist__job_phase phase;
	struct hoist__engine *engine;
	struct hoist__staging *staging;	    /* NULL if the job needs no slots */
	struct hoist__request growing;	    /* makes the next part of the staging */
	struct hoist__budget_ticket ticket; /* the job's turn at the budget */
	size_t held;			    /* bytes of the budget, until there are slots */
	struct hoist__stages stages;
	enum hoist_stage awaited; /* of the next hoist__job_reap(): what it waits for */

	/* Shared. */
	_Atomic bool cancelled; /* by the caller, or as the job has failed: waits end early */
	_Atomic bool done;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	pthread_mutex_t driving; /* caller-driven: one step at a time */
	int fd;			 /* under lock: readable once `done` is set; -1: nobody asked */
	int err;
	struct hoist__failure failure;
};

/* --- life: job.c --- */

/* The job keeps a reference to @budget; NULL: it makes one of the default size.
 * Returns: 0; -ENOMEM, with nothing to undo. */
int hoist__job_init(struct hoist__job *job, const struct hoist__job_kind *kind,
		    hoist_budget *budget);

/* Pre: the job has not been started, or has ended. */
void hoist__job_fini(struct hoist__job *job);

/* The figures of time begin here, with the stage PLAN. */
void hoist__job_set_start(struct hoist__job *job);

/* From now on the waits are recorded, and what the staging and the kind do: stages.timeline.
 * Returns: 0; -ENOMEM. */
int hoist__job_record(struct hoist__job *job);

/* The time since then, which is the sum of the stages and ends now; the process's for
 * @ret_cpu_ns. */
void hoist__job_times(struct hoist__job *job, uint64_t *ret_ns, uint64_t *ret_cpu_ns);

/* Starts the thread that drives the job, unless its caller does.  Returns: 0; -ENOMEM: the system
 * gives none. */
int hoist__job_start(struct hoist__job *job);

/* Returns: 0; -ESTALE in a forked child. */
int hoist__job_check_process(const struct hoist__job *job);

/* Caller-driven: one round.  True once the job is DONE. */
bool hoist__job_step(struct hoist__job *job, uint64_t timeout_ns);

/* Waits up to @timeout_ns for the end; drives the job meanwhile if its caller does.  UINT64_MAX: as
 * long as needed.  Returns: hoist__job_outcome(); 1: it has not ended; -ESTALE. */
int hoist__job_wait(struct hoist__job *job, uint64_t timeout_ns);

bool hoist__job_is_done(const struct hoist__job *job);

/* A descriptor that is readable once the job is done, the job's until its end.
 * Returns: the descriptor; -EMFILE, -ENFILE, -ENOMEM. */
int hoist__job_fd(struct hoist__job *job);

/* The result of a job that is DONE: 0; its failure, with its text in the calling thread. */
int hoist__job_outcome(const struct hoist__job *job);

/* Any thread; never blocks. */
void hoist__job_cancel(struct hoist__job *job);

/* Cancels a job that was started, and waits for its end.  False in a forked child, where the
 * thread does not exist and locks may be held: the caller leaves all memory as it is. */
bool hoist__job_stop(struct hoist__job *job);

/* The driving thread's: the job fails with @err, whose text is in hoist_error(), unless it has
 * failed already. */
void hoist__job_fail(struct hoist__job *job, int err);

/* --- while it runs: job-staging.c --- */

/* Begins with the kind's make_staging, and waits for the job's turn at the budget if that has not
 * @least bytes free now.
 * A job may take its slots when it runs already; its engine then has not registered them.
 * Returns: 0, the slots are made; 1: others have the budget, to be called again; what failed. */
int hoist__job_take_staging(struct hoist__job *job, size_t least, uint64_t timeout_ns);

/* Lowers options->n_slots to as many as the process's control group has room for, at least two:
 * half of the room at most, as pinned pages cannot be taken back, and the kernel would end the
 * process.  Unless the pool has kept such a block, pools of host memory first give back what they
 * only keep.
 *
 * Then trims the pool.  Slots of @usual bytes stay pinned for the next job, since pinning is slow;
 * but the budget must have room for what is kept and the new slots together, in case the one is of
 * no use for the other. */
void hoist__job_size_staging(const struct hoist__job *job, struct hoist__staging_options *options,
			     size_t usual);

/* Makes the slots with the job's budget; ends of copies wake the engine.
 * Returns: as hoist__staging_create(). */
int hoist__job_create_staging(struct hoist__job *job, struct hoist__staging_options *options);

/* @options say depth and files; the engine's buffers are the slots, unless the staging grows.
 * Returns: as hoist__engine_create(). */
int hoist__job_create_engine(struct hoist__job *job, enum hoist_engine engine,
			     struct hoist__engine_options *options);

/* Has a thread of the engine's make the next part of a staging that grows, unless one is being made
 * or the staging cannot grow now.  @file: any of the engine's.  The slots come with a later
 * hoist__job_reap(). */
void hoist__job_grow_staging(struct hoist__job *job, const struct hoist__file *file);

/* The number of requests that the engine has not given back. */
unsigned hoist__job_n_inflight(const struct hoist__job *job);

/* Takes up to @max requests that the engine has finished.  Waits up to @timeout_ns for the first,
 * but not longer than until the job should look whether it was cancelled.  @copying: the job also
 * waits for the end of copies or fetches: the driver is asked to tell (hoist__staging_ask()), and
 * the job looks for itself where the driver cannot.
 * Returns: how many; 0 also if the job fails here. */
unsigned hoist__job_reap(struct hoist__job *job, struct hoist__request **ret, unsigned max,
			 bool copying, uint64_t timeout_ns);

/* At the end: gives back the engine, the slots and the place at the budget.
 * Returns: true; false if the kernel may still use memory of this job at any later time.  The slots
 *   then stay allocated, pinned and charged, and the caller leaks its own memory likewise. */
bool hoist__job_release(struct hoist__job *job);

#endif
