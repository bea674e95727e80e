/* SPDX-License-Identifier: MIT */
/* Eight processes load, save, share and kill for a long time, on few cores: each gets the right
 * bytes, nothing hangs, and those that live long hold no more in the end than in the beginning.
 *
 *     soak/mixed                    the whole: starts workers, kills them, and judges in the end
 *     soak/mixed worker SLOT SEED FOLDER
 *     soak/mixed cache hold         the cache's holder, as hoist_cache_add() starts it
 *
 * HOIST_TEST_FORM=short is 30 seconds (20 under a sanitizer), long 20 minutes;
 * HOIST_TEST_SOAK_SECONDS=N says otherwise.  A run goes on until enough of each kind has been done.
 * HOIST_TEST_SEED=N repeats what is chosen, though not when it happens.  The bytes to compare come
 * from model.h, which knows each element by itself; SIGKILL, SIGTERM and SIGSTOP come at any
 * moment.  The budget is within a process, for its threads: hoist's budgets do not cross
 * processes, so each process has one of its own.
 *
 * Under a sanitizer nobody forks in the middle of things: theirs is a malloc whose locks a child
 * may find taken for ever; and what malloc and maps hold is then not judged.
 *
 * Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/support/keep-programs.h"
#include "tests/soak/parent.h"
#include "tests/support/under-tsan.h"

static pid_t start_worker(int slot)
{
	static uint64_t generation;
	char slot_text[16];
	char seed_text[32];
	(void)snprintf(slot_text, sizeof slot_text, "%d", slot);
	(void)snprintf(seed_text, sizeof seed_text, "%llu",
		       (unsigned long long)soak_mix(board->seed + (generation++ << 8)));
	for (int b = 0; b < SOAK_BEATS; b++)
		atomic_store(&board->slots[slot].beats[b].since_ns, 0);
	atomic_store(&board->slots[slot].n_rests, 0);
	(void)fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		(void)close_range(3, ~0U, 0); /* left open by the starter */
		/* Blocks that threads keep for later would look as if they were in use. */
		if (slot < SOAK_OLD)
			(void)setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
		(void)execl(soak_path("soak_mixed"), "soak_mixed", "worker", slot_text, seed_text,
			    soak_folder, (char *)NULL);
		_exit(127);
	}
	atomic_store(&board->slots[slot].pid, pid);
	return pid;
}

/* --- ends --- */

static struct {
	unsigned kills;
	unsigned kills_in_saves; /* while a thread was saving */
	unsigned terminations;
	unsigned stops;
	unsigned holder_kills;
	unsigned workers;
} done;

static int killed[SOAK_SLOTS]; /* with this signal, by us */

/* One that belonged to a process that has ended: a holder of the cache, a child of a worker's.
 * None of them may crash. */
static bool orphan_ended_well(pid_t pid, int status)
{
	if (!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM)
		return true;
	(void)fprintf(stderr, "process %d, a holder or a worker's child, ended with signal %d\n",
		      (int)pid, WTERMSIG(status));
	return false;
}

/* One that was killed may have ended by itself before the signal came, but never otherwise. */
static bool worker_ended_well(int slot, int status)
{
	if (WIFSIGNALED(status))
		return killed[slot] != 0 && WTERMSIG(status) == killed[slot];
	return status == 0 && atomic_load(&board->stop);
}

/* Returns: all is well with those that ended. */
static bool reap(bool restart)
{
	int status = 0;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
		int slot = 0;
		while (slot < SOAK_SLOTS && atomic_load(&board->slots[slot].pid) != pid)
			slot++;
		if (slot == SOAK_SLOTS) {
			if (!orphan_ended_well(pid, status))
				return false;
			continue;
		}
		atomic_store(&board->slots[slot].pid, 0);
		if (!worker_ended_well(slot, status)) {
			(void)fprintf(stderr, "process %d (slot %d) ended with status %#x\n",
				      (int)pid, slot, status);
			soak_show_slot(slot);
			return false;
		}
		killed[slot] = 0;
		if (restart) {
			(void)start_worker(slot);
			done.workers++;
		}
	}
	return !atomic_load(&board->failed);
}

static bool is_saving(int slot)
{
	for (int b = 0; b < SOAK_THREADS; b++) {
		int action = atomic_load(&board->slots[slot].beats[b].action);
		if (action >= SOAK_save && action <= SOAK_save_again)
			return true;
	}
	return false;
}

static void pause_ms(uint64_t ms)
{
	const struct timespec time = {.tv_sec = (time_t)(ms / 1000),
				      .tv_nsec = (long)(ms % 1000) * 1000000};
	(void)nanosleep(&time, NULL);
}

static void kill_one(int slot)
{
	pid_t pid = atomic_load(&board->slots[slot].pid);
	if (pid == 0 || killed[slot] != 0)
		return;
	done.kills_in_saves += is_saving(slot);
	bool gently = soak_chance(4);
	killed[slot] = gently ? SIGTERM : SIGKILL;
	done.terminations += gently;
	done.kills += !gently;
	(void)kill(pid, killed[slot]);
}

static void stop_one(int slot)
{
	pid_t pid = atomic_load(&board->slots[slot].pid);
	if (pid == 0 || killed[slot] != 0)
		return;
	done.stops++;
	(void)kill(pid, SIGSTOP);
	pause_ms(10 + soak_below(300));
	(void)kill(pid, SIGCONT);
}

static void do_harm(void)
{
	switch (soak_below(10)) {
	case 0:
	case 1:
	case 2:
		stop_one((int)soak_below(SOAK_SLOTS));
		break;
	case 3:
		done.holder_kills += soak_kill_holder();
		break;
	default:
		kill_one(SOAK_OLD + (int)soak_below(SOAK_SLOTS - SOAK_OLD));
	}
}

static void kill_all(void)
{
	for (int slot = 0; slot < SOAK_SLOTS; slot++) {
		pid_t pid = atomic_load(&board->slots[slot].pid);
		if (pid != 0) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
		}
	}
}

static struct soak_harm harm_done(void)
{
	return (struct soak_harm){done.kills + done.terminations, done.kills_in_saves,
				  done.holder_kills, done.stops};
}

/* The time is over, and enough of each kind has been done: no time limits that but the wrapper's,
 * which finds in the log what was waited for. */
static bool is_time_to_end(void)
{
	static uint64_t told_ns;
	const struct soak_harm harm = harm_done();
	uint64_t now = soak_now();
	if (now < board->end_ns)
		return false;
	const char *lacks = soak_lacks(&harm);
	if (lacks != NULL && now >= told_ns + UINT64_C(30) * 1000000000) {
		printf("goes on: too few %s yet\n", lacks);
		(void)fflush(stdout);
		told_ns = now;
	}
	return lacks == NULL;
}

/* Returns: all went well. */
static bool run(void)
{
	uint64_t harm_at = soak_now() + 2000000000;
	for (int slot = 0; slot < SOAK_SLOTS; slot++)
		(void)start_worker(slot);
	done.workers = SOAK_SLOTS;
	while (!is_time_to_end()) {
		if (!reap(true) || soak_is_stuck())
			return false;
		if (soak_now() >= harm_at) {
			do_harm();
			/* Under a sanitizer it takes them long to start. */
			harm_at = soak_now() + (200 + soak_below(1500)) * UINT64_C(1000000) *
						       (soak_is_watched() ? 4 : 1);
		}
		pause_ms(20);
	}
	atomic_store(&board->stop, true);
	for (;;) {
		bool any = false;
		if (!reap(false) || soak_is_stuck())
			return false;
		for (int slot = 0; slot < SOAK_SLOTS; slot++)
			any |= atomic_load(&board->slots[slot].pid) != 0;
		if (!any)
			return true;
		pause_ms(20);
	}
}

/* --- the whole --- */

static uint64_t seconds_to_run(void)
{
	const char *seconds = getenv("HOIST_TEST_SOAK_SECONDS");
	const char *form = getenv("HOIST_TEST_FORM");
	if (seconds != NULL)
		return strtoull(seconds, NULL, 10);
	if (form == NULL || strcmp(form, "short") != 0)
		return 1200;
	return soak_is_watched() ? 20 : 30;
}

static void prepare(void)
{
	char base[200];
	char real[PATH_MAX];
	const char *seed = getenv("HOIST_TEST_SEED");
	const char *temporary = getenv("TMPDIR");
	CHECK(realpath(temporary != NULL ? temporary : "/tmp", real) != NULL);
	(void)snprintf(base, sizeof base, "%.180s", real);
	(void)snprintf(soak_folder, sizeof soak_folder, "%s/hoist-soak-XXXXXX", base);
	CHECK(mkdtemp(soak_folder) != NULL);
	OK(mkdir(soak_path("run"), 0700));
	OK(setenv("XDG_RUNTIME_DIR", soak_path("run"), 1));
	keep_programs(soak_folder, "soak_mixed");
	OK(setenv("HOIST_EMULATE_LATENCY", "0..60", 1));
	OK(setenv("HOIST_EMULATE_MEMORY", "1G", 1));
	soak_board_make(soak_path("board"));
	board->seed =
		seed != NULL ? strtoull(seed, NULL, 0) : soak_mix(soak_now() ^ (uint64_t)getpid());
	self = (struct soak_self){.slot = -1, .thread = -1, .random = board->seed};
	printf("HOIST_TEST_SEED=%#llx\n", (unsigned long long)board->seed);
	(void)fflush(stdout);
	soak_make_files();
	uint64_t seconds = seconds_to_run();
	board->round_ns = (seconds < 120 ? 2500 : 10000) * UINT64_C(1000000);
	board->end_ns = soak_now() + seconds * 1000000000;
}

static void tell(uint64_t begin)
{
	printf("workers: %u started, %u killed, %u terminated, %u stopped; %u holders killed\n",
	       done.workers, done.kills, done.terminations, done.stops, done.holder_kills);
	soak_show_counts();
	printf("figure: soak.hours %.3f process-hours of %d processes at once\n",
	       (double)(soak_now() - begin) / 3.6e12 * SOAK_SLOTS, SOAK_SLOTS);
	printf("figure: soak.kills %u processes killed, %u stopped for a while, %u holders "
	       "killed\n",
	       done.kills + done.terminations, done.stops, done.holder_kills);
}

static int whole(void)
{
	if (!lib_emulate()) {
		printf("skipped: the stand-in drivers are not built\n");
		return 77;
	}
	/* Processes that holders and killed workers leave are reaped here. */
	OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
	prepare();
	uint64_t begin = soak_now();
	bool well = run();
	kill_all();
	tell(begin);
	const struct soak_harm harm = harm_done();
	well = well && soak_judge(&harm);
	soak_clean_up();
	if (!well)
		printf("failed; HOIST_TEST_SEED=%#llx repeats it\n",
		       (unsigned long long)board->seed);
	return well ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "cache") == 0 && strcmp(argv[2], "hold") == 0)
		return hoist_cache_hold() < 0;
	if (argc == 5 && strcmp(argv[1], "worker") == 0)
		return soak_worker(atoi(argv[2]), strtoull(argv[3], NULL, 10), argv[4]);
	return whole();
}
