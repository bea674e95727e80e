/* SPDX-License-Identifier: MIT */
/* Jobs of a made-up kind, whose rounds follow a script: which calls come in which phase, which
 * failure wins, what a cancel, a fork and other drivers do, and the turn at the budget.
 * ThreadSanitizer watches. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/device/device.h"
#include "lib/job/job.h"
#include "lib/memory/device-memory.h"
#include "tests/support/check.h"
#include "tests/support/child.h"
#include "tests/support/threads.h"

#define SLOT HOIST__STAGING_MIN_SLOT_BYTES
#define N_WAITERS 4

struct trial {
	struct hoist__job job;
	int busy;      /* so many begins find the budget with others */
	int begin_err; /* what begin gives then */
	int rounds;    /* so many until all is done */
	int fail_at;   /* the round that fails, with fail_err, and again with -EIO; 0: none */
	int fail_err;
	bool staged; /* begin takes slots, with the budget */
	bool endless;
	int n_begins;
	int n_rounds;
	int n_ends;
	enum hoist__job_phase phase; /* in which end was called */
};

static struct trial *trial_of(struct hoist__job *job)
{
	return HOIST__CONTAINER_OF(job, struct trial, job);
}

static int begin(struct hoist__job *job, uint64_t timeout_ns)
{
	struct trial *trial = trial_of(job);
	CHECK(job->phase == HOIST__JOB_READY && trial->n_rounds == 0);
	if (trial->n_begins++ < trial->busy)
		return 1;
	if (trial->begin_err < 0)
		return hoist__fail(trial->begin_err, "no beginning");
	return trial->staged ? hoist__job_take_staging(job, 2 * SLOT, timeout_ns) : 0;
}

static int make_staging(struct hoist__job *job)
{
	struct hoist__pool *pool;
	hoist_device *cpu;
	int err = hoist__device_cpu(&cpu);
	if (err == 0)
		err = hoist__device_staging_pool(cpu, &pool);
	if (err < 0)
		return err;
	struct hoist__staging_options options = {.pool = pool, .slot_bytes = SLOT, .n_slots = 2};
	hoist__job_size_staging(job, &options, 2 * SLOT);
	return hoist__job_create_staging(job, &options);
}

static bool round_of_trial(struct hoist__job *job, uint64_t timeout_ns)
{
	struct trial *trial = trial_of(job);
	(void)timeout_ns;
	CHECK(job->phase == HOIST__JOB_RUNNING || job->phase == HOIST__JOB_DRAINING);
	CHECK(hoist__job_n_inflight(job) == 0 && !hoist__job_is_done(job));
	trial->n_rounds++;
	if (trial->fail_at == trial->n_rounds) {
		hoist__job_fail(job, hoist__fail(trial->fail_err, "the first"));
		hoist__job_fail(job, hoist__fail(-EIO, "the second"));
	}
	if (job->phase == HOIST__JOB_DRAINING)
		return true;
	if (trial->endless)
		usleep(1000);
	return !trial->endless && trial->n_rounds >= trial->rounds;
}

static void end(struct hoist__job *job)
{
	struct trial *trial = trial_of(job);
	CHECK(!hoist__job_is_done(job));
	trial->n_ends++;
	trial->phase = job->phase;
	CHECK(hoist__job_release(job));
	CHECK(job->staging == NULL && job->engine == NULL && job->held == 0);
}

static const struct hoist__job_kind kind = {
	.what = "trial",
	.starting = "starting the trial's thread",
	.begin = begin,
	.make_staging = make_staging,
	.round = round_of_trial,
	.end = end,
};

static void start(struct trial *trial, bool caller_driven, hoist_budget *budget)
{
	OK(hoist__job_init(&trial->job, &kind, budget));
	trial->job.caller_driven = caller_driven;
	hoist__job_set_start(&trial->job);
	OK(hoist__job_start(&trial->job));
}

/* A job that has ended gives its outcome to every call. */
static void ends(struct trial *trial, int err, const char *text)
{
	for (int i = 0; i < 2; i++) {
		CHECK(hoist__job_wait(&trial->job, UINT64_MAX) == err);
		CHECK(err == 0 || strcmp(hoist__error_text(), text) == 0);
	}
	CHECK(hoist__job_is_done(&trial->job) && trial->n_ends == 1);
	CHECK(trial->phase == (err == 0 ? HOIST__JOB_RUNNING : HOIST__JOB_DRAINING));
	int n_rounds = trial->n_rounds;
	CHECK(hoist__job_stop(&trial->job) && trial->n_rounds == n_rounds);
	hoist__job_fini(&trial->job);
}

/* --- phases and failures --- */

static void all_is_done_after_its_rounds(bool caller_driven)
{
	struct trial trial = {.busy = 3, .rounds = 5};
	start(&trial, caller_driven, NULL);
	for (int i = 0; caller_driven && i < 7; i++) /* the fourth begin is followed by a round */
		CHECK(!hoist__job_step(&trial.job, 0) && trial.n_begins == (i < 3 ? i + 1 : 4));
	ends(&trial, 0, NULL);
	CHECK(trial.n_begins == 4 && trial.n_rounds == 5);
}

static void the_first_failure_wins(bool caller_driven)
{
	struct trial trial = {.rounds = 5, .fail_at = 2, .fail_err = -ENOENT};
	start(&trial, caller_driven, NULL);
	ends(&trial, -ENOENT, "the first");
	CHECK(trial.n_rounds == 2);
}

static void a_job_that_cannot_begin_drains(bool caller_driven)
{
	struct trial trial = {.begin_err = -ENOMEM, .rounds = 5};
	start(&trial, caller_driven, NULL);
	ends(&trial, -ENOMEM, "no beginning");
	CHECK(trial.n_rounds == 1);
}

/* -EAGAIN would mean that the job has not ended. */
static void no_job_ends_in_eagain(void)
{
	struct trial trial = {.begin_err = -EAGAIN};
	start(&trial, false, NULL);
	ends(&trial, -EIO, "no beginning");
	struct trial later = {.fail_at = 1, .fail_err = -EAGAIN};
	start(&later, false, NULL);
	ends(&later, -EIO, "the first");
}

static void a_cancel_ends_it(bool caller_driven)
{
	struct trial trial = {.endless = true};
	start(&trial, caller_driven, NULL);
	hoist__job_cancel(&trial.job);
	ends(&trial, -ECANCELED, "the trial was cancelled");
	struct trial waits = {.busy = INT32_MAX};
	start(&waits, caller_driven, NULL);
	CHECK(hoist__job_stop(&waits.job));
	CHECK(hoist__job_outcome(&waits.job) == -ECANCELED && waits.n_ends == 1);
	hoist__job_fini(&waits.job);
}

/* --- others --- */

static void *wait_for(void *argument)
{
	struct trial *trial = argument;
	OK(hoist__job_wait(&trial->job, UINT64_MAX));
	CHECK(trial->n_ends == 1); /* written before the end is told */
	return NULL;
}

/* Each waiter drives a job that its callers drive, one at a time. */
static void many_wait(bool caller_driven)
{
	struct trial trial = {.rounds = 1000};
	start(&trial, caller_driven, NULL);
	run_threads(N_WAITERS, wait_for, &trial, 0);
	ends(&trial, 0, NULL);
	CHECK(trial.n_rounds == 1000);
}

static void a_child_leaves_it_alone(void)
{
	struct trial trial = {.endless = true};
	start(&trial, false, NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(hoist__job_check_process(&trial.job) == -ESTALE);
		CHECK(strstr(hoist__error_text(), "the trial belongs to process") != NULL);
		CHECK(hoist__job_wait(&trial.job, UINT64_MAX) == -ESTALE);
		CHECK(!hoist__job_is_done(&trial.job) && !hoist__job_stop(&trial.job));
		_exit(0);
	}
	CHECK(child_status(child) == 0);
	hoist__job_cancel(&trial.job);
	ends(&trial, -ECANCELED, "the trial was cancelled");
}

/* --- the budget --- */

/* A job without room for its slots stands in line, and leaves nothing behind when the job goes. */
static void turns_at_the_budget(void)
{
	hoist_budget *budget;
	OK(hoist_budget_create(3 * SLOT, &budget));
	struct trial first = {.staged = true, .endless = true};
	struct trial second = {.staged = true, .rounds = 2};
	struct trial third = {.staged = true, .rounds = 1};
	start(&first, true, budget);
	CHECK(!hoist__job_step(&first.job, 0) && first.job.staging != NULL);
	CHECK(hoist_budget_used(budget) == 2 * SLOT);
	start(&second, true, budget);
	start(&third, true, budget);
	CHECK(!hoist__job_step(&second.job, 0) && !hoist__job_step(&third.job, 0));
	CHECK(second.job.ticket.in_line && second.job.staging == NULL && second.n_rounds == 0);
	hoist__job_cancel(&second.job);
	ends(&second, -ECANCELED, "the trial was cancelled");
	CHECK(!hoist__job_step(&third.job, 0) && third.job.ticket.in_line);
	hoist__job_cancel(&first.job);
	ends(&first, -ECANCELED, "the trial was cancelled");
	ends(&third, 0, NULL);
	CHECK(hoist_budget_used(budget) == 0 && hoist_budget_peak(budget) <= 3 * SLOT);
	struct trial large = {.staged = true};
	hoist_budget *small;
	OK(hoist_budget_create(SLOT, &small));
	start(&large, false, small);
	CHECK(hoist__job_wait(&large.job, UINT64_MAX) == -EDQUOT);
	CHECK(hoist__job_stop(&large.job));
	hoist__job_fini(&large.job);
	CHECK(hoist_budget_used(small) == 0);
	hoist_budget_unref(small);
	hoist_budget_unref(budget);
}

int main(void)
{
	for (int caller_driven = 0; caller_driven < 2; caller_driven++) {
		all_is_done_after_its_rounds(caller_driven != 0);
		the_first_failure_wins(caller_driven != 0);
		a_job_that_cannot_begin_drains(caller_driven != 0);
		a_cancel_ends_it(caller_driven != 0);
		many_wait(caller_driven != 0);
	}
	no_job_ends_in_eagain();
	a_child_leaves_it_alone();
	turns_at_the_budget();
	return 0;
}
