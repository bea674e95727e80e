/* SPDX-License-Identifier: MIT */
/* Groups of several machines, one after the other for a long time: processes over loopback, each
 * with tensors and slices of its own, with or without the files, which lend each other slots or
 * not, and are killed, stopped, cancelled, or come late, at any moment.  Each of the others that
 * has the files has all its bytes; nobody has wrong bytes, and nobody hangs.
 *
 * UCX before 1.16 may end a process that goes on after the others have closed their endpoints
 * (net/fabric.h): with such a UCX no member stops for so long that the others leave it out.
 *
 * HOIST_TEST_FORM=short is 20 seconds, long an hour; HOIST_TEST_SOAK_SECONDS=N says otherwise.
 * HOIST_TEST_SEED=N repeats what is chosen, though not when it happens.  Exit: 0, 1, 77. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hoist/group.h>
#include <hoist/hoist.h>

#include "net/neighbour.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/count.h"
#include "tests/support/free-port.h"
#include "tests/support/load-model.h"
#include "tests/support/load-support.h"
#include "tests/support/net-fabric.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

enum { MOST_MEMBERS = 16, FEW_MEMBERS = 6, HANGS_S = 120, UNKNOWN = 1 };
enum fate { LIVES, DIES, STOPS, IS_CANCELLED, N_FATES };
static const char *const fates[] = {"lives", "dies", "stops", "is cancelled"};

/* Chosen by the parent; times from the round's start. */
static struct member {
	enum fate fate;
	bool absent;	  /* it has no files */
	unsigned machine; /* 0: it shares memory with nobody */
	uint64_t start_ms, at_ms, stop_ms;
	size_t budget;
	pid_t child; /* 0: it has not started */
	int status;
	bool acted, resumed, ended;
} members[MOST_MEMBERS];
static unsigned n_members;
static unsigned longest_stop_ms = 7000;
static uint64_t round_seed;
static hoist_group group;
static char name[256];
static struct load_files files;

/* Told by the children. */
static struct told {
	int err; /* UNKNOWN: it has not come so far */
	char text[400];
} * told;

static struct {
	unsigned rounds, whole, killed, stopped, cancelled, late, absent, absent_whole;
} sums;

/* --- a member --- */

static unsigned machine; /* in a member's process */

/* All are on one machine, and are spread over some. */
WRAP(void, hoist__neighbour_describe,
     (const struct hoist__secret *secret, int fd, struct hoist__neighbour *ret))
{
	__real_hoist__neighbour_describe(secret, fd, ret);
	ret->machine = machine != 0 ? ret->machine + 2 * machine : 0;
}

static struct load_choice choice; /* large */

static void compare(hoist_checkpoint *checkpoint, hoist_load *load)
{
	char what[64];
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		size_t t = 0;
		hoist_buffer *buffer = NULL;
		OK(hoist_load_tensor(load, i, &t, &buffer));
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		check_at("seed %llu, tensor %s", (unsigned long long)round_seed, info.name);
		CHECK(load_compare(&choice, t, &info, &files, buffer, what));
		hoist_buffer_unref(buffer);
	}
}

static int load_as(const struct member *m, hoist_checkpoint *checkpoint, hoist_budget *budget)
{
	hoist_load *load = NULL;
	load_choose_parts(checkpoint, chance(2), &choice);
	const hoist_load_options o = {.size = sizeof o,
				      .budget = budget,
				      .tensors = choice.all ? NULL : choice.names,
				      .n_tensors = choice.n_names,
				      .slices = choice.slices,
				      .n_slices = choice.n_slices,
				      .engine =
					      chance(2) ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS};
	int err = hoist_group_load(&group, checkpoint, &o, &load);
	if (err == 0 && m->fate == IS_CANCELLED &&
	    hoist_load_wait_for(load, m->at_ms * UINT64_C(1000000)) == -ETIMEDOUT)
		hoist_load_cancel(load);
	if (err == 0)
		err = hoist_load_wait(load);
	if (err == 0)
		compare(checkpoint, load);
	hoist_load_destroy(load);
	return err;
}

static void member_main(unsigned number)
{
	const struct member *m = &members[number];
	const char *path = support_path(m->absent ? "absent.safetensors" : "big.safetensors");
	hoist_checkpoint *checkpoint = NULL;
	hoist_budget *budget = NULL;
	random_seed(round_seed + 1 + number * 1000003);
	group.rank = number;
	machine = m->machine;
	OK(hoist_budget_create(m->budget, &budget));
	unsigned n_fds = count_entries("/proc/self/fd");
	int err = hoist_group_open(&group, path, 0, &checkpoint);
	if (err == 0)
		err = load_as(m, checkpoint, budget);
	(void)snprintf(told[number].text, sizeof told->text, "%.390s",
		       err < 0 ? hoist_error() : "");
	told[number].err = err;
	hoist_checkpoint_close(checkpoint);
	CHECK(count_entries("/proc/self/fd") == n_fds);
	CHECK(hoist_budget_used(budget) == 0);
	hoist_budget_unref(budget);
}

/* --- a round --- */

static void choose_round(void)
{
	static const size_t budgets[] = {(size_t)36 << 20, (size_t)72 << 20, (size_t)256 << 20};
	static unsigned n_names;
	random_seed(round_seed);
	n_members = 2 + (unsigned)below((chance(8) ? MOST_MEMBERS : FEW_MEMBERS) - 1);
	unsigned n_machines = (unsigned)below(4);
	bool knows = chance(2);
	if (chance(3))
		(void)snprintf(name, sizeof name, "dir:%s/soak-%u", support_path("door"),
			       n_names++);
	else
		(void)snprintf(name, sizeof name, "tcp://127.0.0.1:%u/soak", free_port());
	group = (hoist_group){.size = sizeof group,
			      .name = name,
			      .n_ranks = knows ? n_members : 0,
			      .timeout_ns = UINT64_C(3000000000)};
	for (unsigned i = 0; i < n_members; i++) {
		members[i] = (struct member){.budget = PICK(budgets)};
		struct member *m = &members[i];
		/* The first has the files, and lives. */
		m->fate = i > 0 && chance(2) ? (enum fate)below(N_FATES) : LIVES;
		m->absent = i > 0 && chance(3);
		m->machine = n_machines > 0 ? (unsigned)below(n_machines + 1) : 0;
		m->start_ms = chance(4) ? below(2000) : below(100);
		m->at_ms = below(chance(2) ? 300 : 1500);
		m->stop_ms = below(chance(2) ? 300 : longest_stop_ms);
		told[i] = (struct told){.err = UNKNOWN};
	}
}

/* Starts a member, and lets befall it what is due. */
static void act(unsigned number, uint64_t ms)
{
	struct member *m = &members[number];
	if (m->child == 0 && ms >= m->start_ms) {
		(void)fflush(NULL);
		m->child = fork();
		CHECK(m->child >= 0);
		if (m->child == 0) {
			member_main(number);
			_exit(0);
		}
	}
	if (m->child == 0 || m->ended)
		return;
	uint64_t at = m->start_ms + m->at_ms;
	if (!m->acted && ms >= at && (m->fate == DIES || m->fate == STOPS)) {
		m->acted = true;
		CHECK(kill(m->child, m->fate == DIES ? SIGKILL : SIGSTOP) == 0);
	}
	if (m->fate == STOPS && m->acted && !m->resumed && ms >= at + m->stop_ms) {
		m->resumed = true;
		CHECK(kill(m->child, SIGCONT) == 0);
	}
	m->ended = waitpid(m->child, &m->status, WNOHANG) == m->child;
}

static void run_round(void)
{
	uint64_t start = patience_now();
	unsigned n_ended = 0;
	while (n_ended < n_members) {
		uint64_t ms = (patience_now() - start) / 1000000;
		n_ended = 0;
		for (unsigned i = 0; i < n_members; i++) {
			act(i, ms);
			n_ended += members[i].ended;
		}
		check_at("seed %llu: %u of %u members have ended after %llu ms",
			 (unsigned long long)round_seed, n_ended, n_members,
			 (unsigned long long)ms);
		CHECK(ms < HANGS_S * 1000);
		(void)usleep(500);
	}
}

/* --- the verdict --- */

/* A member without the files needs the others, who may have gone. */
static bool may_lack(int err)
{
	return err == -ECONNRESET || err == -ECONNREFUSED || err == -ENODATA || err == -ETIMEDOUT ||
	       err == -EHOSTUNREACH;
}

static void judge(const struct member *m, const struct told *says)
{
	bool killed = WIFSIGNALED(m->status) && WTERMSIG(m->status) == SIGKILL;
	sums.late += m->start_ms > 100;
	sums.stopped += m->fate == STOPS && m->acted;
	sums.absent += m->absent;
	if (m->fate == DIES && killed) {
		sums.killed++;
		return;
	}
	CHECK(m->status == 0);
	CHECK(says->err != UNKNOWN);
	if (m->fate == IS_CANCELLED && says->err == -ECANCELED) {
		sums.cancelled++;
		return;
	}
	CHECK(says->err == 0 || (m->absent && may_lack(says->err)));
	sums.whole += says->err == 0;
	sums.absent_whole += m->absent && says->err == 0;
}

static void judge_round(void)
{
	for (unsigned i = 0; i < n_members; i++) {
		const struct member *m = &members[i];
		check_at("seed %llu, %s, member %u of %u, which %s%s, started at %llu ms: status "
			 "%#x, %d, %s",
			 (unsigned long long)round_seed, name, i, n_members, fates[m->fate],
			 m->absent ? " and has no files" : "", (unsigned long long)m->start_ms,
			 (unsigned)m->status, told[i].err, told[i].text);
		judge(m, &told[i]);
	}
	sums.rounds++;
}

/* --- all --- */

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);
	return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
	const char *form = getenv("HOIST_TEST_FORM");
	bool is_long = form == NULL || strcmp(form, "long") == 0;
	uint64_t seconds = number_in("HOIST_TEST_SOAK_SECONDS", is_long ? 3600 : 20);
	uint64_t first_seed = number_in("HOIST_TEST_SEED", (uint64_t)getpid());
	unsigned version = ucx_of_child();
	if (version == 0)
		return 77;
	if (version < UCX_VERSION(1, 16))
		longest_stop_ms = 2500; /* half of the silence after which a member is left out */
	OK(setenv("HOIST_GROUP_SECRET", "a secret of this test's", 1));
	OK(unsetenv("HOIST_GROUP_SECRET_FILE"));
	told = mmap(NULL, MOST_MEMBERS * sizeof *told, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(told != MAP_FAILED);
	files.n = 1;
	CHECK(bytes_load(&files.bytes[0], support_path(ranks_big())));
	OK(mkdir(support_path("door"), 0700));
	uint64_t end = patience_now() + seconds * UINT64_C(1000000000);
	for (uint64_t i = 0; i < 10 || patience_now() < end; i++) {
		round_seed = first_seed + i * 7919;
		choose_round();
		run_round();
		judge_round();
	}
	printf("figure: soak.far %u groups: %u members had all their bytes, %u were killed, %u "
	       "stopped, %u "
	       "cancelled, %u came late; %u of %u without files had all\n",
	       sums.rounds, sums.whole, sums.killed, sums.stopped, sums.cancelled, sums.late,
	       sums.absent_whole, sums.absent);
	support_remove(support_path("door")); /* with the files of members that were killed */
	bytes_free(&files.bytes[0]);
	support_cleanup();
	return 0;
}
