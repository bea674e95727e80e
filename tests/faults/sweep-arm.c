/* SPDX-License-Identifier: MIT */
/* Makes one call of a process fail, and says where it came from. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/load-support.h"

static enum sweep_kind kind; /* of what fails */

/* --- where a call came from --- */

/* The call that failed has not returned yet. */
static void on_fault(int signal)
{
	(void)signal;
	int before = errno;
	atomic_store(&sweep->n_trace, backtrace(sweep->trace, SWEEP_MOST_TRACE));
	errno = before;
}

static void on_crash(int signal)
{
	void *trace[48];
	static const char text[] = "the process crashed:\n";
	if (write(STDOUT_FILENO, text, sizeof text - 1) > 0)
		backtrace_symbols_fd(trace, backtrace(trace, 48), STDOUT_FILENO);
	(void)raise(signal); /* SA_RESETHAND */
}

void sweep_catch_signals(void)
{
	const struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_RESTART};
	const struct sigaction crash = {.sa_handler = on_crash,
					.sa_flags = (int)(SA_RESETHAND | SA_NODEFER | SA_ONSTACK)};
	static char room[1 << 16];
	const stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
	void *trace[2];
	(void)sigaltstack(&stack, NULL);
	(void)backtrace(trace, 2); /* which loads what it needs */
	(void)sigaction(SIGUSR2, &fault, NULL);
	for (int i = 0; !SWEEP_SANITIZED && i < 3; i++)
		(void)sigaction(i == 0 ? SIGSEGV : i == 1 ? SIGABRT : SIGFPE, &crash, NULL);
}

/* --- what fails --- */

/* setenv() would keep each string that it ever had. */
static void fail_in_new_processes(const char *spec)
{
	static char text[96];
	(void)unsetenv("HOIST_EMULATE_FAIL");
	(void)snprintf(text, sizeof text, "HOIST_EMULATE_FAIL=%s", spec);
	(void)putenv(text);
}

void sweep_arm(const struct sweep_job *job, long n, unsigned way)
{
	char spec[64];
	kind = job->kind;
	atomic_store(&sweep->nr, -1);
	atomic_store(&sweep->n_trace, 0);
	atomic_store(&sweep->n_ways, 1);
	atomic_store(&sweep->seen, 0);
	atomic_store(&sweep->bytes, 0);
	atomic_store(&sweep->at, n);
	atomic_store(&sweep->way, way);
	atomic_store(&sweep->struck, false);
	switch (job->kind) {
	case SWEEP_CALLS:
		atomic_store(&sweep->armed, true);
		break;
	case SWEEP_MEMORY:
	case SWEEP_OWN:
		atomic_store(&sweep->memory, kind);
		break;
	default:
		(void)snprintf(spec, sizeof spec, "%s:%ld",
			       job->kind == SWEEP_ASYNC ? "async" : "any", n);
		if (job->cold ||
		    support_control(job->scenario->api, "hoist_emulator_fail") == NULL) {
			fail_in_new_processes(spec);
		} else {
			support_reset(job->scenario->api);
			support_fail(job->scenario->api, spec);
		}
	}
}

static void forgive(const char *api)
{
	if (support_control(api, "hoist_emulator_fail") != NULL)
		support_fail(api, NULL);
}

static bool driver_failed(const struct sweep_job *job)
{
	void *there = support_control(job->scenario->api, "hoist_emulator_fail");
	(void)unsetenv("HOIST_EMULATE_FAIL");
	if (there == NULL)
		return atomic_load(&sweep->struck);
	struct hoist_emulator_counters counters = support_counters(job->scenario->api);
	forgive("cuda");
	forgive("hip");
	atomic_store(&sweep->seen,
		     (long)(job->kind == SWEEP_ASYNC ? counters.copies : counters.calls));
	return counters.injected_failures > 0;
}

bool sweep_disarm(const struct sweep_job *job)
{
	switch (job->kind) {
	case SWEEP_CALLS:
		atomic_store(&sweep->armed, false);
		return atomic_load(&sweep->nr) >= 0;
	case SWEEP_MEMORY:
	case SWEEP_OWN:
		atomic_store(&sweep->memory, 0);
		return atomic_load(&sweep->struck);
	default:
		return driver_failed(job);
	}
}

bool sweep_pause(void)
{
	return atomic_exchange(&sweep->armed, false) || atomic_exchange(&sweep->memory, 0) != 0 ||
	       getenv("HOIST_EMULATE_FAIL") != NULL;
}

void sweep_resume(bool was)
{
	if (was && kind == SWEEP_CALLS)
		atomic_store(&sweep->armed, true);
	if (was && (kind == SWEEP_MEMORY || kind == SWEEP_OWN))
		atomic_store(&sweep->memory, kind);
}
