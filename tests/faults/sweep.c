/* SPDX-License-Identifier: MIT */
/* The failure sweep: of each public scenario (load, save, copy, IPC, cache), every system call,
 * every allocation and every driver call fails once, in each way that it can.  After each: the
 * error has a text, or what was to come of it is right; no descriptor, thread, mapping, block,
 * locked page, name in the folder, handle of a driver's, budgeted byte or process is left; and the
 * next run works.
 *
 * Two ways: one process that goes on (what is made once is there), and, "cold", a process for each
 * call (it is made while the call fails).  What io_uring completes is no system call, nor is what a
 * page fault reads: tests/io/faults.c spoils the former.
 *
 * Long form: every call, and in the process that goes on in every way.  Short form
 * (HOIST_TEST_FORM): some calls of each, in one way, chosen by HOIST_TEST_SEED, which is shown;
 * HOIST_TEST_SHOTS says how many.
 * HOIST_TEST_SWEEP=SCENARIO[:[cold-]KIND[:CALL[:WAY]]]: that alone, as a report names it.
 * Exit: 0, 1, 77. */
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
#include "tests/support/load-support.h"
#include "tests/support/under-tsan.h"

#define MOST_CALLS 20000

static bool is_long;
static unsigned seed;
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
	atomic_store(&sweep->memory, false);
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
	if (is_long)
		job.stride = 1;
	else
		job.shots = n_shots > 0 ? n_shots : cold ? 2 : kind == SWEEP_CALLS ? 8 : 4;
	/* All ways are tried in the long form, where a process goes on. */
	if (!is_long || cold) {
		seed = seed * 1103515245u + 12345u;
		job.random = (seed >> 8) | 1;
	}
	uint64_t before = hoist__now_ns();
	long faults = atomic_load(&sweep->n_faults);
	(cold ? sweep_cold : sweep_warm)(job);
	n_calls[kind] += atomic_load(&sweep->total);
	/* Who counts nothing, or strikes nothing, proves nothing.  Not each scenario has copies. */
	bool judged = choice.call == 0 && !scenario->varies;
	if (judged && kind != SWEEP_ASYNC && atomic_load(&sweep->n_faults) == faults)
		sweep_describe(&job, "nothing failed");
	else if (judged && atomic_load(&sweep->ended) &&
		 atomic_load(&sweep->n) < atomic_load(&sweep->total) / 2)
		sweep_describe(&job,
			       "from here on nothing failed, and it is not half of the calls");
	if (getenv("HOIST_TEST_TIMES") != NULL)
		printf("%s %s: %ld faults, %ld calls, %ld runs, %.2f s\n", scenario->name, name,
		       atomic_load(&sweep->n_faults) - faults, atomic_load(&sweep->total),
		       atomic_exchange(&sweep->n_runs, 0), seconds_since(before));
}

static void sweep_all_kinds(const struct sweep_scenario *scenario)
{
	if (choice.scenario[0] != '\0' && strcmp(choice.scenario, scenario->name) != 0)
		return;
	n_scenarios++;
	long before[3] = {atomic_load(&sweep->n_faults), atomic_load(&sweep->n_survived),
			  atomic_load(&sweep->n_wrong)};
	/* New processes take long: of one kind, in the short form. */
	seed = seed * 1103515245u + 12345u;
	bool any = is_long || choice.kind[0] != '\0';
	int one = (int)((seed >> 16) % (scenario->api != NULL ? 3 : 2));
	for (int cold = 0; cold < 2; cold++)
		for (int kind = 0; kind < SWEEP_N_KINDS; kind++) {
			if (kind >= SWEEP_DRIVER && scenario->api == NULL)
				continue;
			if (cold && scenario->varies)
				continue;
			if (kind == SWEEP_ASYNC && (cold || scenario->has_texts))
				continue;
			if (cold && !any && kind != one)
				continue;
			if (SWEEP_SANITIZED && kind == SWEEP_MEMORY)
				continue;
			sweep_kind(scenario, (enum sweep_kind)kind, cold);
		}
	if (scenario->varies && choice.kind[0] == '\0' &&
	    atomic_load(&sweep->n_faults) == before[0]) {
		printf("%s: nothing failed\n", scenario->name);
		atomic_fetch_add(&sweep->n_wrong, 1);
	}
	printf("figure: sweep.%s %ld faults injected, %ld survived by another way, %ld wrong\n",
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

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "cache") == 0 && strcmp(argv[2], "hold") == 0) {
		share(false);
		sweep_memory_tell();
		int err = hoist_cache_hold();
		if (err < 0)
			fprintf(stderr, "%s\n", hoist_error());
		exit(err < 0);
	}
	if (UNDER_TSAN) {
		printf("skipped: ThreadSanitizer follows no threads in a child of fork\n");
		return 77;
	}
	run_again(argv);
	sweep_make_files();
	if (setenv("HOIST_TEST_SWEEP_FILE", sweep_path("run-shared"), 1) < 0 ||
	    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		sweep_die("what the processes share");
	share(true);
	if (!can_filter()) {
		printf("skipped: seccomp's notifications are not allowed here\n");
		return 77;
	}
	const char *form = getenv("HOIST_TEST_FORM");
	const char *given = getenv("HOIST_TEST_SEED");
	is_long = form == NULL || strcmp(form, "short") != 0;
	seed = given != NULL ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
	const char *shots = getenv("HOIST_TEST_SHOTS");
	n_shots = shots != NULL ? strtol(shots, NULL, 10) : 0;
	choose();
	printf("HOIST_TEST_SEED=%u\n", seed);
	support_emulate("cuda:2,hip:1");
	sweep_keep_programs();
	sweep_make_others();
	uint64_t began = hoist__now_ns();
	const struct sweep_scenario *const lists[] = {sweep_loads, sweep_copies, sweep_saves,
						      sweep_shares, sweep_caches};
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		for (const struct sweep_scenario *s = lists[i]; s->name != NULL; s++)
			sweep_all_kinds(s);
	printf("figure: sweep.scenarios %ld, in a process that goes on and in new ones\n",
	       n_scenarios);
	printf("figure: sweep.calls %ld system calls, %ld allocations and %ld driver calls of "
	       "them\n",
	       n_calls[SWEEP_CALLS], n_calls[SWEEP_MEMORY], n_calls[SWEEP_DRIVER]);
	printf("figure: sweep.faults %ld injected, %ld survived by another way, %ld leaks or wrong "
	       "results\n",
	       atomic_load(&sweep->n_faults), atomic_load(&sweep->n_survived),
	       atomic_load(&sweep->n_wrong));
	printf("%.1f seconds\n", seconds_since(began));
	sweep_remove_files();
	if (n_scenarios == 0)
		printf("there is no scenario %s\n", choice.scenario);
	if (n_scenarios == 0 || atomic_load(&sweep->n_faults) == 0)
		return 1;
	return atomic_load(&sweep->n_wrong) == 0 ? 0 : 1;
}
