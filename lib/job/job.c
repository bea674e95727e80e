/* SPDX-License-Identifier: MIT */
/* A job's life, from its start to its end.
 * The contract is in lib/job/job.h. */
#include "config.h"

#include "lib/job/job.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/wait.h"
#include "device/scope.h"

/* --- making --- */

int hoist__job_init(struct hoist__job *job, const struct hoist__job_kind *kind,
		    hoist_budget *budget)
{
	int err = hoist__fork_watch();
	if (err < 0)
		return err;
	*job = (struct hoist__job){
		.kind = kind,
		.pid = getpid(),
		.generation = hoist__fork_now(),
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.driving = PTHREAD_MUTEX_INITIALIZER,
		.fd = -1,
	};
	err = hoist__condition_init(&job->ended);
	if (err < 0)
		return hoist__fail(-ENOMEM, "making a condition for a %s's end", kind->what);
	if (budget != NULL)
		job->budget = hoist_budget_ref(budget);
	else
		err = hoist_budget_create(HOIST_BUDGET_DEFAULT, &job->budget);
	if (err < 0)
		pthread_cond_destroy(&job->ended);
	return err;
}

void hoist__job_fini(struct hoist__job *job)
{
	HOIST__ASSERT(job->phase == HOIST__JOB_READY || job->phase == HOIST__JOB_DONE);
	HOIST__ASSERT(job->engine == NULL && job->staging == NULL && job->held == 0);
	hoist__timeline_destroy(job->stages.timeline);
	if (job->fd >= 0)
		(void)close(job->fd);
	hoist_budget_unref(job->budget);
	pthread_cond_destroy(&job->ended);
	pthread_mutex_destroy(&job->driving);
	pthread_mutex_destroy(&job->lock);
}

void hoist__job_set_start(struct hoist__job *job)
{
	hoist__stages_begin(&job->stages, HOIST_STAGE_PLAN);
	job->start_cpu_ns = hoist__cpu_ns();
}

int hoist__job_record(struct hoist__job *job)
{
	HOIST__ASSERT(job->stages.timeline == NULL && job->phase == HOIST__JOB_READY);
	return hoist__timeline_create(job->stages.begin_ns, &job->stages.timeline);
}

void hoist__job_times(struct hoist__job *job, uint64_t *ret_ns, uint64_t *ret_cpu_ns)
{
	hoist__stages_end(&job->stages);
	*ret_ns = job->stages.since_ns - job->stages.begin_ns;
	*ret_cpu_ns = hoist__cpu_ns() - job->start_cpu_ns;
}

/* --- driving --- */

void hoist__job_fail(struct hoist__job *job, int err)
{
	HOIST__ASSERT(err < 0 && job->phase != HOIST__JOB_DONE);
	if (job->phase != HOIST__JOB_DRAINING) {
		/* Only the first failure counts: those behind it may come from cancelling. */
		job->phase = HOIST__JOB_DRAINING;
		/* To the caller, -EAGAIN would say "not done yet". */
		job->err = err == -EAGAIN ? -EIO : err;
		hoist__failure_keep(&job->failure);
		hoist__log(load, "the %s failed: %s", job->kind->what, job->failure.text);
	}
	atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
	if (job->engine != NULL)
		hoist__engine_cancel(job->engine);
}

/* Wakes whoever waits for the end.  Under the lock, so that no waiter misses the broadcast between
 * its look and its wait.  A write of 1 to a counter of 0 never fails. */
static void tell_done(struct hoist__job *job)
{
	uint64_t one = 1;
	pthread_mutex_lock(&job->lock);
	atomic_store_explicit(&job->done, true, memory_order_release);
	pthread_cond_broadcast(&job->ended);
	ssize_t n = job->fd >= 0 ? write(job->fd, &one, sizeof one) : (ssize_t)sizeof one;
	pthread_mutex_unlock(&job->lock);
	HOIST__ASSERT(n == sizeof one);
	(void)n;
}

/* Returns: true once the job is DONE. */
static bool advance(struct hoist__job *job, uint64_t timeout_ns)
{
	HOIST__ASSERT(job->generation == hoist__fork_now());
	HOIST__ASSERT(!job->caller_driven || hoist__mutex_held(&job->driving));
	HOIST__ASSERT(job->phase != HOIST__JOB_DONE && !hoist__job_is_done(job));
	(void)hoist__stages_enter(&job->stages, HOIST_STAGE_WORK);
	if (atomic_load_explicit(&job->cancelled, memory_order_relaxed) &&
	    job->phase != HOIST__JOB_DRAINING)
		hoist__job_fail(job,
				hoist__fail(-ECANCELED, "the %s was cancelled", job->kind->what));
	if (job->phase == HOIST__JOB_READY) {
		HOIST__ASSERT(job->err == 0); /* a load with a source begins in several calls */
		int begun = job->kind->begin(job, timeout_ns);
		if (begun > 0)
			return false;
		if (begun < 0)
			hoist__job_fail(job, begun);
		else
			job->phase = HOIST__JOB_RUNNING;
	}
	HOIST__ASSERT(job->phase == HOIST__JOB_RUNNING || job->phase == HOIST__JOB_DRAINING);
	HOIST__ASSERT((job->phase == HOIST__JOB_DRAINING) == (job->err < 0));
	HOIST__ASSERT(job->held == 0 || job->staging == NULL);
	if (!job->kind->round(job, timeout_ns))
		return false;
	HOIST__ASSERT(hoist__job_n_inflight(job) == 0);
	job->kind->end(job);
	HOIST__ASSERT(job->engine == NULL && job->staging == NULL);
	HOIST__ASSERT(job->held == 0 && !job->ticket.in_line);
	job->phase = HOIST__JOB_DONE;
	tell_done(job);
	return true;
}

static void *drive(void *argument)
{
	struct hoist__job *job = argument;
	struct hoist__dev_scope scope;
	hoist__dev_enter(job->dev, &scope);
	while (!advance(job, UINT64_MAX))
		continue;
	hoist__dev_leave(&scope);
	return NULL;
}

int hoist__job_start(struct hoist__job *job)
{
	HOIST__ASSERT(job->phase == HOIST__JOB_READY && !job->has_thread);
	(void)hoist__stages_enter(&job->stages,
				  job->caller_driven ? HOIST_STAGE_CALLER : HOIST_STAGE_WORK);
	if (job->caller_driven)
		return 0;
	int err = hoist__thread_start(NULL, drive, job, &job->thread);
	if (err < 0)
		return hoist__fail_thread(err, job->kind->starting);
	job->has_thread = true;
	return 0;
}

bool hoist__job_step(struct hoist__job *job, uint64_t timeout_ns)
{
	struct hoist__dev_scope scope;
	pthread_mutex_lock(&job->driving);
	hoist__dev_enter(job->dev, &scope);
	bool done = hoist__job_is_done(job) || advance(job, timeout_ns);
	if (!done)
		(void)hoist__stages_enter(&job->stages, HOIST_STAGE_CALLER);
	hoist__dev_leave(&scope);
	pthread_mutex_unlock(&job->driving);
	return done;
}

/* Drives a job that its caller drives, in one scope: the caller waits until @deadline for the
 * end. */
static void drive_until(struct hoist__job *job, uint64_t deadline)
{
	struct hoist__dev_scope scope;
	if (!job->caller_driven)
		return;
	hoist__dev_enter(job->dev, &scope);
	while (!hoist__job_step(job, hoist__deadline_left(deadline)) &&
	       hoist__deadline_left(deadline) > 0)
		continue;
	hoist__dev_leave(&scope);
}

/* --- beside --- */

int hoist__job_check_process(const struct hoist__job *job)
{
	if (job->generation == hoist__fork_now())
		return 0;
	return hoist__fail(-ESTALE, "the %s belongs to process %d, which forked this one",
			   job->kind->what, (int)job->pid);
}

bool hoist__job_is_done(const struct hoist__job *job)
{
	return atomic_load_explicit(&job->done, memory_order_acquire);
}

int hoist__job_fd(struct hoist__job *job)
{
	int err = 0;
	pthread_mutex_lock(&job->lock);
	if (job->fd < 0) {
		job->fd = eventfd(hoist__job_is_done(job), EFD_CLOEXEC | EFD_NONBLOCK);
		if (job->fd < 0)
			err = hoist__fail_errno(-errno, "making a descriptor for a job's end");
	}
	int fd = job->fd;
	pthread_mutex_unlock(&job->lock);
	return err < 0 ? err : fd;
}

int hoist__job_outcome(const struct hoist__job *job)
{
	HOIST__ASSERT(hoist__job_is_done(job) && job->phase == HOIST__JOB_DONE);
	return job->err < 0 ? hoist__fail_again(job->err, &job->failure) : 0;
}

int hoist__job_wait(struct hoist__job *job, uint64_t timeout_ns)
{
	uint64_t deadline = hoist__deadline(timeout_ns);
	int err = hoist__job_check_process(job);
	if (err < 0)
		return err;
	drive_until(job, deadline);
	pthread_mutex_lock(&job->lock);
	while (err == 0 && !hoist__job_is_done(job))
		err = hoist__condition_wait(&job->ended, &job->lock, deadline);
	bool done = hoist__job_is_done(job);
	pthread_mutex_unlock(&job->lock);
	return done ? hoist__job_outcome(job) : 1;
}

void hoist__job_cancel(struct hoist__job *job)
{
	atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
}

bool hoist__job_stop(struct hoist__job *job)
{
	if (job->generation != hoist__fork_now())
		return false;
	hoist__job_cancel(job);
	drive_until(job, UINT64_MAX);
	if (job->has_thread)
		pthread_join(job->thread, NULL);
	HOIST__ASSERT(hoist__job_is_done(job) || !(job->has_thread || job->caller_driven));
	return true;
}
