/* SPDX-License-Identifier: MIT */
/* The failure sweep: of each scenario (load, save, copy, IPC, cache, and those of the rooms of
 * lib/), every system call, every allocation and every driver call fails once, in each way that it
 * can. After each: the error has a text, or the result is right; no descriptor, thread, mapping,
 * block, locked page, name in the folder, handle of a driver's, budgeted byte or process is left;
 * and the next run works.
 *
 * Two ways: one process that goes on (what is made once is there), and, "cold", a process for each
 * call (it is made while the call fails).  Neither a completion of io_uring nor the
 * read of a page fault is a system call: tests/io/faults.c spoils the completions.
 *
 * HOIST_TEST_FORM=check, for make check: every call of the scenarios that name their kinds, with
 * few pages (sweep-memory.c).  The others are for make check-faults.  long (or nothing): every
 * call, and in the process that goes on in every way.  short: some calls of each, in one way,
 * chosen by HOIST_TEST_SEED, which is shown; HOIST_TEST_SHOTS says how many.
 * HOIST_TEST_SWEEP=SCENARIO[:[cold-]KIND[:CALL[:WAY]]]: that alone, as a report names it.
 * Exit: 0, 1, 2 for another HOIST_TEST_FORM, 77. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/lib-support.h"
#include "tests/support/under-tsan.h"
#include "tests/support/random.h"

#define MOST_CALLS 20000

static enum form { LONG, SHORT, CHECK } form;
static uint64_t seed;
static long n_scenarios;
static long n_calls[SWEEP_N_KINDS];
static long n_shots; /* 0: as few as suits */

static double seconds_since(uint64_t ns)
{
	return (double)(hoist__now_ns() - ns) * 1e-9;
}

/* --- one scenario, one kind --- */

static void begin(void)
{
	atomic_store(&sweep->total, 0);
	atomic_store(&sweep->ended, false);
	atomic_store(&sweep->nr, -1);
	atomic_store(&sweep->unknown, -1);
	atomic_store(&sweep->armed, false);
	atomic_store(&sweep->memory, 0);
	sweep->wrong[0] = '\0';
	sweep->has_idle = false;
}

static void sweep_warm(struct sweep_job job)
{
	begin();
	for (int tries = 0; tries < 6 && !sweep_run(&job); tries++) {
		/* It goes on behind the call that ended it. */
		if (job.way >= 0 || !sweep->has_idle)
			break;
		if (job.stride == 0)
			job.stride = atomic_load(&sweep->total) / job.shots + 1;
		job.first = atomic_load(&sweep->n) + job.stride;
		sweep->has_idle = false;
	}
}

static void sweep_cold(struct sweep_job job)
{
	begin();
	long first = job.first;
	job.first = 0;
	if (!sweep_run(&job))
		return;
	long stride = job.stride;
	if (stride == 0)
		stride = atomic_load(&sweep->total) / job.shots + 1;
	job.first = first > 0 ? first : 1 + (long)job.random % stride;
	unsigned n_failed = 0;
	while (!atomic_load(&sweep->ended) && n_failed < 6 && job.first < MOST_CALLS) {
		n_failed += !sweep_run(&job);
		if (first > 0)
			break;
		job.first += stride;
		job.random = job.random * 5 + 1;
	}
	if (!atomic_load(&sweep->ended) && job.first >= MOST_CALLS)
		sweep_describe(&job, "the sweep did not end");
}

/* --- all of them --- */

struct choice {
	char scenario[64];
	char kind[32];
	long call;
	long way;
};

static struct choice choice;

static void choose(void)
{
	const char *text = getenv("HOIST_TEST_SWEEP");
	choice.way = -1;
	if (text != NULL)
		(void)sscanf(text, "%63[^:]:%31[^:]:%ld:%ld", choice.scenario, choice.kind,
			     &choice.call, &choice.way);
}

static void sweep_kind(const struct sweep_scenario *scenario, enum sweep_kind kind, bool cold)
{
	char name[32];
	struct sweep_job job = {
		.scenario = scenario, .kind = kind, .cold = cold, .way = (int)choice.way};
	(void)snprintf(name, sizeof name, "%s%s", cold ? "cold-" : "", sweep_kinds[kind]);
	if (choice.kind[0] != '\0' && strcmp(choice.kind, name) != 0)
		return;
	job.first = choice.call;
	if (choice.call > 0 && choice.way < 0)
		job.way = 0;
	if (form != SHORT)
		job.stride = 1;
	else
		job.shots = n_shots > 0 ? n_shots : cold ? 2 : kind == SWEEP_CALLS ? 8 : 4;
	/* All ways are tried in the long form, where a process goes on. */
	if (form == SHORT || (form == LONG && cold)) {
		job.random = (unsigned)random_next(&seed) | 1;
	}
	uint64_t before = hoist__now_ns();
	long faults = atomic_load(&sweep->n_faults);
	(cold ? sweep_cold : sweep_warm)(job);
	n_calls[kind] += atomic_load(&sweep->total);
	/* A scenario without calls, or without failures, proves nothing.  Some have no copies. */
	bool judged = choice.call == 0 && !scenario->varies;
	if (judged && kind != SWEEP_ASYNC && atomic_load(&sweep->n_faults) == faults)
		sweep_describe(&job, "nothing failed");
	else if (judged && atomic_load(&sweep->ended) &&
		 atomic_load(&sweep->n) < atomic_load(&sweep->total) / 2)
		sweep_describe(&job,
			       "from here on nothing failed, and it is not half of the calls");
	/* Whatever a driver's copies are, they are fewer than its calls. */
	long least = scenario->least != 0 ? scenario->least : kind == SWEEP_ASYNC ? 5 : 20;
	if (judged && form == CHECK && atomic_load(&sweep->n_faults) - faults < least - 1)
		sweep_describe(&job, "so few calls failed");
	if (getenv("HOIST_TEST_TIMES") != NULL)
		printf("%s %s: %ld faults, %ld calls, %ld runs, %.2f s\n", scenario->name, name,
		       atomic_load(&sweep->n_faults) - faults, atomic_load(&sweep->total),
		       atomic_exchange(&sweep->n_runs, 0), seconds_since(before));
}

/* @any: new processes take long; in the short form they are for the kind @one alone. */
static bool is_wanted(const struct sweep_scenario *scenario, enum sweep_kind kind, bool cold,
		      bool any, enum sweep_kind one)
{
	if (scenario->kinds != 0)
		return (scenario->kinds & (cold ? SWEEP_COLD(kind) : SWEEP_WARM(kind))) != 0;
	if (kind == SWEEP_OWN || (kind >= SWEEP_DRIVER && scenario->api == NULL) ||
	    (SWEEP_SANITIZED && kind == SWEEP_MEMORY))
		return false;
	if (kind == SWEEP_ASYNC && (cold || scenario->has_texts))
		return false;
	return !cold || (!scenario->varies && (any || kind == one));
}

static bool is_chosen(const struct sweep_scenario *scenario)
{
	if (choice.scenario[0] != '\0')
		return strcmp(choice.scenario, scenario->name) == 0;
	return (scenario->kinds != 0) == (form == CHECK);
}

/* Only make check-faults gives figures. */
static const char *figure(void)
{
	return form == CHECK ? "" : "figure: ";
}

static void sweep_all_kinds(const struct sweep_scenario *scenario)
{
	if (!is_chosen(scenario))
		return;
	n_scenarios++;
	if (scenario->set_up != NULL && !scenario->set_up()) {
		printf("%s: skipped, this machine cannot run it\n", scenario->name);
		return;
	}
	long before[3] = {atomic_load(&sweep->n_faults), atomic_load(&sweep->n_survived),
			  atomic_load(&sweep->n_wrong)};
	uint64_t drawn = random_next(&seed);
	bool any = form != SHORT || choice.kind[0] != '\0';
	enum sweep_kind one = drawn % (scenario->api != NULL ? 3 : 2);
	for (int cold = 0; cold < 2; cold++)
		for (int kind = 0; kind < SWEEP_N_KINDS; kind++)
			if (is_wanted(scenario, (enum sweep_kind)kind, cold, any, one))
				sweep_kind(scenario, (enum sweep_kind)kind, cold);
	if (scenario->varies && choice.kind[0] == '\0' &&
	    atomic_load(&sweep->n_faults) == before[0]) {
		printf("%s: nothing failed\n", scenario->name);
		atomic_fetch_add(&sweep->n_wrong, 1);
	}
	printf("%ssweep.%s %ld faults injected, %ld survived by another way, %ld wrong\n", figure(),
	       scenario->name, atomic_load(&sweep->n_faults) - before[0],
	       atomic_load(&sweep->n_survived) - before[1],
	       atomic_load(&sweep->n_wrong) - before[2]);
	(void)fflush(stdout);
}

/* Freed stacks are not kept (but the last) and are small, and there is one heap: so that mappings
 * can be counted. */
static void run_again(char **argv)
{
	static const char tunables[] = "glibc.pthread.stack_cache_size=0:glibc.malloc.arena_max=1";
	const char *old = getenv("GLIBC_TUNABLES");
	struct rlimit limit;
	if (old != NULL && strcmp(old, tunables) == 0)
		return;
	if (getrlimit(RLIMIT_STACK, &limit) < 0)
		sweep_die("getrlimit");
	limit.rlim_cur = SWEEP_STACK_KIB << 10;
	if (setrlimit(RLIMIT_STACK, &limit) < 0 || setenv("GLIBC_TUNABLES", tunables, 1) < 0 ||
	    execv("/proc/self/exe", argv) < 0)
		sweep_die("execv");
}

/* Also with the cache's holder, which is a program of its own. */
static void share(bool create)
{
	const char *path = getenv("HOIST_TEST_SWEEP_FILE");
	int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
	if (fd < 0 || (create && ftruncate(fd, sizeof *sweep) < 0))
		sweep_die("what the processes share");
	void *map = mmap(NULL, sizeof *sweep, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		sweep_die("what the processes share");
	(void)close(fd);
	sweep = map;
}

static bool can_filter(void)
{
	int sockets[2];
	int status = 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		sweep_die("socketpair");
	pid_t child = fork();
	if (child == 0)
		_exit(sweep_filter(sockets[1]) < 0 ? 1 : 0);
	(void)waitpid(child, &status, 0);
	close(sockets[0]);
	close(sockets[1]);
	return status == 0;
}

static void hold_cache(void)
{
	share(false);
	sweep_memory_tell();
	int err = hoist_cache_hold();
	if (err < 0)
		fprintf(stderr, "%s\n", hoist_error());
	exit(err < 0);
}

static bool read_form(void)
{
	static const char *const names[] = {[LONG] = "long", [SHORT] = "short", [CHECK] = "check"};
	const char *text = getenv("HOIST_TEST_FORM");
	if (text == NULL || text[0] == '\0')
		return true;
	for (int i = LONG; i <= CHECK; i++) {
		form = (enum form)i;
		if (strcmp(text, names[i]) == 0)
			return true;
	}
	fprintf(stderr, "HOIST_TEST_FORM=%s is none of long, short, check\n", text);
	return false;
}

static void read_environment(void)
{
	const char *given = getenv("HOIST_TEST_SEED");
	const char *shots = getenv("HOIST_TEST_SHOTS");
	seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	n_shots = shots != NULL ? strtol(shots, NULL, 10) : 0;
	choose();
	printf("HOIST_TEST_SEED=%llu\n", (unsigned long long)seed);
}

/* The scenarios: one table, in parts. */
static const struct sweep_scenario *const scenarios[] = {
	sweep_loads,	  sweep_copies,		sweep_saves,	  sweep_shares,
	sweep_caches,	  sweep_lib_device,	sweep_lib_memory, sweep_lib_transfer,
	sweep_lib_buffer, sweep_lib_element,	sweep_lib_copy,	  sweep_lib_dlpack,
	sweep_lib_ipc,	  sweep_lib_checkpoint, sweep_lib_plan,	  sweep_lib_save,
	sweep_lib_doctor, sweep_lib_forecast,	sweep_groups,
};

static void sweep_all(void)
{
	uint64_t began = hoist__now_ns();
	for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
		for (const struct sweep_scenario *s = scenarios[i]; s->name != NULL; s++)
			sweep_all_kinds(s);
	printf("%ssweep.scenarios %ld, in a process that goes on and in new ones\n", figure(),
	       n_scenarios);
	printf("%ssweep.calls %ld system calls, %ld allocations and %ld driver calls of them\n",
	       figure(), n_calls[SWEEP_CALLS], n_calls[SWEEP_MEMORY] + n_calls[SWEEP_OWN],
	       n_calls[SWEEP_DRIVER]);
	printf("%ssweep.faults %ld injected, %ld survived by another way, %ld leaks or wrong "
	       "results\n",
	       figure(), atomic_load(&sweep->n_faults), atomic_load(&sweep->n_survived),
	       atomic_load(&sweep->n_wrong));
	printf("%.1f seconds\n", seconds_since(began));
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "cache") == 0 && strcmp(argv[2], "hold") == 0)
		hold_cache();
	if (!read_form())
		return 2;
	if (UNDER_TSAN) {
		printf("skipped: ThreadSanitizer follows no threads in a child of fork\n");
		return 77;
	}
	run_again(argv);
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	sweep_make_files();
	if (setenv("HOIST_TEST_SWEEP_FILE", sweep_path("run-shared"), 1) < 0 ||
	    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		sweep_die("what the processes share");
	share(true);
	read_environment();
	/* Under a sanitizer pools write to all of their pages: small ones are slow there. */
	sweep->few_pages = form == CHECK && !SWEEP_SANITIZED;
	if (form != CHECK && !can_filter()) {
		printf("skipped: seccomp's notifications are not allowed here\n");
		return 77;
	}
	sweep_keep_programs();
	sweep_make_others();
	/* Drivers that are late keep more alive, but not so that it takes long. */
	if (form == CHECK && setenv("HOIST_EMULATE_LATENCY", "0..20", 1) < 0)
		sweep_die("the environment");
	sweep_all();
	sweep_remove_files();
	if (n_scenarios == 0)
		printf("there is no scenario %s\n", choice.scenario);
	if (n_scenarios == 0 || atomic_load(&sweep->n_faults) == 0)
		return 1;
	return atomic_load(&sweep->n_wrong) == 0 ? 0 : 1;
}
