/* SPDX-License-Identifier: MIT */
/* One scenario in a process: a call fails, and then: is there a text, what is left, does the next
 * run work? */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hoist/compat.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"

struct sweep_shared *sweep;

static const struct sweep_job *job;
static unsigned n_reports;
static char said[256]; /* what the failing run did */

#define MOST_REPORTS 6

__attribute__((format(printf, 1, 0))) static void say_wrong(const char *format, va_list args)
{
	if (sweep->wrong[0] == '\0')
		(void)vsnprintf(sweep->wrong, sizeof sweep->wrong, format, args);
}

void sweep_wrong(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	say_wrong(format, args);
	va_end(args);
}

void sweep_die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, ": %s\n  hoist_error(): %s\n", strerror(errno), hoist_error());
	exit(1);
}

/* --- reports --- */

/* The rest that a scenario leaves at its end is the last thing that can be wrong. */
static void finish(void)
{
	if (job->scenario->finish != NULL)
		job->scenario->finish();
	if (sweep->wrong[0] == '\0')
		return;
	atomic_fetch_add(&sweep->n_wrong, 1);
	printf("%s: in the end: %s\n", job->scenario->name, sweep->wrong);
	(void)fflush(stdout);
}

static void report(long n, unsigned way, int err)
{
	int nr = atomic_load(&sweep->nr);
	atomic_fetch_add(&sweep->n_wrong, 1);
	printf("%s:%s%s:%ld:%u of %ld", job->scenario->name, job->cold ? "cold-" : "",
	       sweep_kinds[job->kind], n, way, atomic_load(&sweep->total));
	if (nr >= 0) {
		int as = atomic_load(&sweep->err);
		printf(" (%s: %s)", sweep_call_name(nr),
		       as != 0 ? strerrorname_np(as) : "no bytes");
	}
	printf(": it gave %d: %s\n  hoist_error(): %s\n", err, sweep->wrong, said);
	(void)fflush(stdout);
	if (atomic_load(&sweep->n_trace) > 0)
		backtrace_symbols_fd(sweep->trace, atomic_load(&sweep->n_trace), STDOUT_FILENO);
	sweep->wrong[0] = '\0';
	if (++n_reports == MOST_REPORTS) {
		printf("%s: enough of this\n", job->scenario->name);
		(void)fflush(stdout);
		atomic_store(&sweep->ended, true);
		finish();
		exit(0);
	}
}

/* --- what is left --- */

static void trim(void)
{
	static const char *const specs[] = {"cpu", "cuda:0", "cuda:1", "hip:0"};
	for (size_t i = 0; i < 4; i++) {
		hoist_device *device = NULL;
		bool there = i == 0 ||
			     support_control(i < 3 ? "cuda" : "hip", "hoist_emulator_fail") != NULL;
		if (!there || hoist_device_open(specs[i], &device) != 0)
			continue;
		for (int kind = 0; kind < 2; kind++) {
			hoist_memory *memory = NULL;
			if (hoist_memory_of_device(
				    device, kind == 0 ? HOIST_MEMORY_DEVICE : HOIST_MEMORY_PINNED,
				    &memory) == 0)
				(void)hoist_memory_trim(memory, 0);
			hoist_memory_unref(memory);
		}
		hoist_device_unref(device);
	}
}

/* Threads end, and memory that was freed behind a stream comes back, a little later.  @idle NULL:
 * only @trimmed counts. */
static bool is_more(const struct sweep_counts *idle, const struct sweep_counts *trimmed,
		    struct sweep_counts *now, char *text, size_t room)
{
	for (int tries = 0; tries < 60; tries++) {
		if (idle != NULL) {
			sweep_count(now);
			if (!sweep_counts_more(now, idle, text, room))
				return false;
		}
		if (idle == NULL || tries > 2) {
			trim();
			sweep_count(now);
			if (!sweep_counts_more(now, trimmed, text, room))
				return false;
		}
		(void)usleep(tries < 10 ? 300 : 10000);
	}
	return true;
}

void sweep_compare_with(const struct sweep_counts *idle, const char *when)
{
	struct sweep_counts now;
	char text[512];
	for (uint64_t until = 0; is_more(NULL, idle, &now, text, sizeof text);)
		if (!patience(&until)) {
			sweep_wrong("%s there is more: %s", when, text);
			return;
		}
}

/* --- texts --- */

static char stale[64]; /* a text that no failure here has */

void sweep_forget_text(void)
{
	(void)hoist_spec_parse("nothing at all", 0, NULL);
	(void)snprintf(stale, sizeof stale, "%s", hoist_error());
}

void sweep_check_text(int err)
{
	if (err > 0 || err < -4095)
		sweep_wrong("%d is no error", err);
	if (err != 0 &&
	    (hoist_error()[0] == '\0' || strncmp(hoist_error(), stale, strlen(stale)) == 0))
		sweep_wrong("there is no text");
}

static void begin(void)
{
	atomic_fetch_add(&sweep->n_runs, 1);
	if (job->scenario->begin != NULL)
		job->scenario->begin();
	sweep_forget_text();
}

static void check(int err)
{
	if (job->scenario->check != NULL)
		job->scenario->check(err);
}

/* Without a failure. */
static void run_well(const char *when)
{
	begin();
	int err = job->scenario->run();
	if (err != 0)
		sweep_wrong("%s it gives %d (%s)", when, err, hoist_error());
	check(0);
}

static void measure(void)
{
	for (int i = 0; i < 4; i++)
		run_well("without a failure");
	trim();
	(void)usleep(5000);
	trim();
	sweep_count(&sweep->trimmed);
	for (int i = 0; i < 2; i++)
		run_well("without a failure");
	(void)usleep(5000);
	sweep_count(&sweep->idle);
	sweep->has_idle = true;
}

/* --- one call --- */

static bool run_failing(long n, unsigned way, int *ret)
{
	atomic_fetch_add(&sweep->beats, 1);
	atomic_store(&sweep->n, n);
	begin();
	sweep_arm(job, n, way);
	int err = job->scenario->run();
	bool struck = sweep_disarm(job);
	(void)snprintf(said, sizeof said, "%s", err != 0 ? hoist_error() : "");
	if (!job->scenario->has_texts)
		sweep_check_text(err);
	if (err != 0 && !struck)
		sweep_wrong("it fails though nothing failed");
	if (err == 0 && struck && job->kind == SWEEP_ASYNC && job->scenario->kinds != 0)
		sweep_wrong("the failure was lost");
	*ret = err;
	return struck;
}

/* A run in which calls are counted and none fails. */
static void count_calls(void)
{
	int err = 0;
	(void)run_failing(LONG_MAX / 2, 0, &err);
	atomic_store(&sweep->total, atomic_load(&sweep->seen));
	check(err);
}

void sweep_reset_drivers(void)
{
	static const char *const apis[] = {"cuda", "hip"};
	for (size_t i = 0; i < 2; i++)
		if ((job->kind == SWEEP_DRIVER || job->kind == SWEEP_ASYNC) &&
		    support_control(apis[i], "hoist_emulator_reset") != NULL)
			support_reset(apis[i]);
}

/* A few blocks more may be kept for the next time, or lie in a larger region: its first user
 * decided its size.  A leak adds up each time. */
static bool grows(long n, unsigned way, const struct sweep_counts *first)
{
	struct sweep_counts last = *first;
	for (int i = 0; i < 4; i++) {
		struct sweep_counts now;
		int err = 0;
		(void)run_failing(n, way, &err);
		check(err);
		sweep_reset_drivers();
		run_well("the next time");
		trim();
		(void)usleep(5000);
		sweep_count(&now);
		bool more_blocks = job->kind != SWEEP_ASYNC && now.blocks > last.blocks;
		if (!more_blocks && now.anonymous_kib <= last.anonymous_kib)
			return false;
		last = now;
	}
	return true;
}

static void compare_warm(long n, unsigned way, const char *when)
{
	struct sweep_counts now;
	char text[512];
	char rest[512];
	struct sweep_counts idle = sweep->idle;
	struct sweep_counts trimmed = sweep->trimmed;
	/* Calls that a broken stream never made are kept: see device/call.c. */
	if (job->kind == SWEEP_ASYNC)
		idle.blocks = trimmed.blocks = LONG_MAX;
	if (!is_more(&idle, &trimmed, &now, text, sizeof text))
		return;
	/* Memory may be kept, but not more each time; of all else nothing. */
	struct sweep_counts others = now;
	others.blocks = others.anonymous_kib = 0;
	uint64_t until = 0;
	bool left;
	while ((left = sweep_counts_more(&others, &trimmed, rest, sizeof rest)) &&
	       patience(&until)) {
		trim();
		sweep_count(&others);
		others.blocks = others.anonymous_kib = 0;
	}
	if (left || grows(n, way, &now))
		sweep_wrong("%s there is more: %s", when, text);
	else
		measure();
}

void sweep_allow_library(struct sweep_counts *counts)
{
	int nr = atomic_load(&sweep->nr);
	if (sweep->is_cold && (nr == SYS_mmap || nr == SYS_mprotect))
		counts->mapped_files_kib += sweep_driver_kib;
}

static void compare_cold(void)
{
	struct sweep_counts idle = sweep->idle;
	/* As above; once is not enough to see whether it grows. */
	idle.anonymous_kib += 8192;
	idle.blocks += 8;
	sweep_allow_library(&idle);
	if (sweep->has_idle)
		sweep_compare_with(&idle, "after the next time");
}

/* Before call n + 1 fails, all calls up to n work once more.  So in make check every eighth failure
 * is enough. */
static bool is_tried_again(long n)
{
	return job->scenario->kinds == 0 || job->scenario->tries_again || n % 8 == 0;
}

static bool try_one(long n, unsigned way)
{
	int err = 0;
	bool struck = run_failing(n, way, &err);
	check(err);
	sweep_reset_drivers();
	if (!job->cold)
		compare_warm(n, way, "afterwards");
	if (job->cold || is_tried_again(n))
		run_well("the next time");
	if (job->cold) {
		if (job->scenario->kinds == 0)
			run_well("the time after next");
		compare_cold();
	} else if (is_tried_again(n)) {
		compare_warm(n, way, "after the next time");
	}
	if (struck) {
		atomic_fetch_add(&sweep->n_faults, 1);
		atomic_fetch_add(&sweep->n_survived, err == 0);
	}
	int nr = atomic_load(&sweep->nr);
	if (err == 0 && (nr == SYS_fsync || nr == SYS_fdatasync))
		sweep_wrong("the disk failed, and nobody is told");
	int unknown = atomic_exchange(&sweep->unknown, -1);
	if (unknown >= 0)
		sweep_wrong("%s is in neither table", sweep_call_name(unknown));
	if (sweep->wrong[0] != '\0') {
		report(n, way, err);
		if (!job->cold)
			measure();
	}
	return struck;
}

/* All ways of the n-th call, or one. */
static bool try_call(long n)
{
	if (job->way >= 0)
		return try_one(n, (unsigned)job->way);
	if (job->random != 0)
		return try_one(n, (unsigned)(job->random + (unsigned long)n * 7) % 12);
	bool struck = try_one(n, 0);
	unsigned n_ways = job->kind == SWEEP_CALLS ? atomic_load(&sweep->n_ways) : 1;
	for (unsigned way = 1; struck && way < n_ways; way++)
		(void)try_one(n, way); /* the calls of threads may come in another order */
	return struck;
}

/* The fewer calls of two runs: one may wait for something in many short steps. */
static void count_usual_calls(void)
{
	count_calls();
	long first = atomic_load(&sweep->total);
	count_calls();
	if (first < atomic_load(&sweep->total))
		atomic_store(&sweep->total, first);
}

static void sweep_warm(void)
{
	if (!sweep->has_idle)
		measure();
	if (sweep->wrong[0] != '\0')
		sweep_die("%s: %s", job->scenario->name, sweep->wrong);
	if (atomic_load(&sweep->total) == 0)
		count_usual_calls();
	long stride = job->stride;
	if (stride == 0)
		stride = atomic_load(&sweep->total) / job->shots + 1;
	long n = job->first > 0 ? job->first : 1 + (long)job->random % stride;
	while ((try_call(n) || (job->scenario->varies && n < atomic_load(&sweep->total))) &&
	       job->way < 0)
		n += job->scenario->alike != 0 && n >= job->scenario->alike ? 3 : stride;
	atomic_store(&sweep->ended, true);
}

/* A process without a failure, or with one. */
static void run_cold(void)
{
	if (job->first == 0) {
		count_calls();
		run_well("the second time");
		run_well("the third time");
		trim();
		(void)usleep(20000);
		trim();
		sweep_count(&sweep->idle);
		sweep->has_idle = true;
		if (sweep->wrong[0] != '\0')
			sweep_die("%s: %s", job->scenario->name, sweep->wrong);
	} else if (!try_one(job->first, job->way >= 0 ? (unsigned)job->way : job->random % 12)) {
		atomic_store(&sweep->ended, true);
	}
}

void sweep_child(const struct sweep_job *wanted)
{
	job = wanted;
	sweep_device = wanted->scenario->device;
	sweep_catch_signals();
	sweep->is_cold = wanted->cold;
	/* Processes that the scenario starts and leaves come to this one. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		sweep_die("prctl");
	if (hoist_budget_create((size_t)8 << 20, &sweep_budget) != 0)
		sweep_die("no budget");
	if (job->scenario->prepare != NULL)
		job->scenario->prepare();
	if (job->cold)
		run_cold();
	else
		sweep_warm();
	finish();
	hoist_budget_unref(sweep_budget);
	(void)fflush(stdout);
	exit(0);
}
