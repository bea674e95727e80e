/* SPDX-License-Identifier: MIT */
/* Members of a group of several machines, as processes over 127.0.0.1, which lend each other slots,
 * or send bytes by UCX.  One of them is killed at any of its calls, leaves a child of fork(),
 * hangs, is cancelled, comes late, gives wrong bytes, does not say what it has got, lacks
 * descriptors, has a file that becomes short, other files or another secret: the others have all
 * their bytes, and a member that cannot have its own says why.  HOIST_TEST_FORM=long: kills at more
 * calls. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/engine.h"
#include "lib/far/far.h"
#include "lib/swarm/swarm.h"
#include "net/address.h"
#include "net/channel.h"
#include "net/fabric.h"
#include "net/neighbour.h"
#include "tests/lib/group/by-ucx.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/child.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/wrap.h"

enum { ENDED = 2, SENT = 4, WARNED = 8, ACTED = 16, GOES_ON = 32, LISTENS = 64, LEFT_OUT = 128 };
enum { MET = 256, NAMED = 512, KNOWS_ALL = 1024, GOT = 2048, N_TENSORS = 3, MOST_ABORTED = 10 };
static const size_t sizes[N_TENSORS] = {19000000, 70, 41000000};

static unsigned n_ranks;
static unsigned self; /* in a rank's process */

/* --- what befalls a rank, at one of its calls --- */

enum fate {
	LIVES,
	DIES,
	STOPS,
	IS_CANCELLED,
	LIES,
	IS_CUT_SHORT,
	NEVER_SAYS,
	CANNOT_OPEN,
	LEAVES_A_CHILD
};
static enum fate fate;
static unsigned victim;
static unsigned long fate_call;
static atomic_ulong n_calls;

/* Threads: any. */
static void mark(unsigned bits)
{
	(void)__atomic_fetch_or(&said->marks[self], bits, __ATOMIC_SEQ_CST);
}

static void call(void)
{
	if (self != victim || atomic_fetch_add(&n_calls, 1) + 1 != fate_call)
		return;
	if (fate == LEAVES_A_CHILD && fork() == 0) {
		ranks_wait_for_mark(0, ENDED);
		ranks_wait_for_mark(2, ENDED);
		_exit(0);
	}
	if (fate == DIES || fate == LEAVES_A_CHILD)
		(void)kill(getpid(), SIGKILL);
	/* To this thread: another would stop the process later. */
	if (fate == STOPS)
		(void)raise(SIGSTOP);
	mark(ACTED);
	if (fate == IS_CANCELLED || fate == IS_CUT_SHORT)
		ranks_wait_for_mark(self, GOES_ON);
}

WRAP(int, hoist__channel_send,
     (struct hoist__channel * channel, uint16_t kind, const void *bytes, size_t n))
{
	bool lends = kind == HOIST__WIRE_LEND;
	if (fate == DIES || lends)
		call();
	if (fate == NEVER_SAYS && self == victim &&
	    (kind == HOIST__WIRE_TOOK || kind == HOIST__WIRE_UNASK))
		return 0;
	int err = __real_hoist__channel_send(channel, kind, bytes, n);
	if (lends)
		mark(SENT);
	if (fate == DIES && lends)
		call();
	return err;
}

/* As a member's memory that is damaged after its digest was made: the bytes of another slot. */
static const void *other_bytes(const unsigned char *bytes, uint32_t offset)
{
	static const unsigned char *slot_before;
	const unsigned char *slot = bytes - offset;
	const unsigned char *other =
		slot_before != NULL && slot_before != slot ? slot_before + offset : bytes;
	slot_before = slot;
	return other;
}

WRAP(int, hoist__fabric_send,
     (struct hoist__fabric_peer * peer, uint64_t ticket, uint32_t offset, const void *bytes,
      size_t n, void *owner))
{
	call();
	if (fate == LIES && self == victim)
		bytes = other_bytes(bytes, offset);
	int err = __real_hoist__fabric_send(peer, ticket, offset, bytes, n, owner);
	mark(SENT);
	if (fate == DIES)
		call();
	return err;
}

/* A rank whose readings wait for another's coming. */
static bool waits_for_late;

WRAP(int, hoist__engine_submit,
     (struct hoist__engine * engine, struct hoist__request *const *requests, unsigned n))
{
	if (fate == DIES)
		call();
	if (waits_for_late && self < 2 && (said->marks[self] & SENT) != 0)
		ranks_wait_for_mark(self, KNOWS_ALL);
	/* It ends last: it would have left before it is left out. */
	for (unsigned r = 0; fate == NEVER_SAYS && self == victim && r < n_ranks; r++)
		if (r != self)
			ranks_wait_for_mark(r, ENDED);
	return __real_hoist__engine_submit(engine, requests, n);
}

/* Its own address and the door. */
WRAP(int, hoist__address_listen,
     (const struct hoist__address *at, int *ret_fd, struct hoist__address *ret_at))
{
	static unsigned n;
	int err = __real_hoist__address_listen(at, ret_fd, ret_at);
	n += err == 0;
	if (n == 2)
		mark(LISTENS);
	return err;
}

/* While the process has no descriptor left, the kernel says that somebody waits.  Accepting is
 * tried at intervals only. */
static uint64_t crowded_at;
enum { CROWDED_TRIES = 4 };

WRAP(int, accept4, (int fd, struct sockaddr *peer, socklen_t *bytes, int flags))
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	if (fate != CANNOT_OPEN || self != victim || n_calls == CROWDED_TRIES ||
	    poll(&entry, 1, 0) != 1)
		return __real_accept4(fd, peer, bytes, flags);
	uint64_t now = patience_now();
	CHECK(crowded_at == 0 || now >= crowded_at + HOIST__FAR_CROWDED_NS);
	crowded_at = now;
	n_calls++;
	errno = EMFILE;
	return -1;
}

/* A member that gave wrong bytes is asked no more. */
WRAP(void, hoist__swarm_next,
     (struct hoist__swarm * swarm, uint64_t now, struct hoist__swarm_act *ret))
{
	static bool distrusted[HOIST__SWARM_MEMBERS];
	__real_hoist__swarm_next(swarm, now, ret);
	mark(hoist__swarm_members(swarm) == n_ranks ? KNOWS_ALL : 0);
	if (ret->deed == HOIST__SWARM_WARN && ret->distrust) {
		distrusted[ret->member] = true;
		mark(WARNED);
	}
	if (ret->deed == HOIST__SWARM_ASK)
		CHECK(!distrusted[ret->member]);
}

/* --- ranks --- */

static const char *paths[MOST_RANKS];
static const char *secrets[MOST_RANKS];
static uint64_t timeout_ns;
static unsigned flags;

static void look(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	hoist_group_report report = {.size = sizeof report};
	if (err == 0 && !(fate == IS_CUT_SHORT && self == victim))
		support_compare(checkpoint, load);
	if (err == 0) {
		OK(hoist_group_get_report(load, &report));
		mark(report.n_members == n_ranks ? MET : 0);
		mark(report.received_bytes > 0 ? GOT : 0);
		mark(strstr(report.note, "does not take") != NULL ? LEFT_OUT : 0);
		mark(report.n_damaged > 0 ? NAMED : 0);
		check_at("damage: %s", report.damage);
		CHECK(report.n_damaged == 0 || strstr(report.damage, " time") != NULL);
		const char *who = self == victim ? "this member's" : "at 127.0.0.1:";
		CHECK(report.damage[0] == '\0' || (fate == LIES && strstr(report.damage, who)));
	}
}

static int drive(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	(void)checkpoint;
	if (rank != victim || (fate != IS_CANCELLED && fate != IS_CUT_SHORT))
		return hoist_load_wait(load);
	int err = -ETIMEDOUT;
	while (err == -ETIMEDOUT && (said->marks[self] & ACTED) == 0)
		err = hoist_load_wait_for(load, 1000000);
	if (fate == IS_CANCELLED)
		hoist_load_cancel(load);
	else
		CHECK(truncate(support_path(paths[rank]), 12345) == 0);
	mark(GOES_ON);
	return hoist_load_wait(load);
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, waits_for_late && rank < 2 ? 2 : n_ranks);
	hoist_load_options o = {.size = sizeof o};
	hoist_budget *budget = NULL;
	/* Few slots, so that members wait for each other. */
	OK(hoist_budget_create(72 << 20, &budget));
	o.budget = budget;
	o.flags = flags;
	group.timeout_ns = timeout_ns;
	group.secret = secrets[rank];
	self = rank;
	if (waits_for_late && rank == 2) {
		ranks_wait_for_mark(0, SENT);
		ranks_wait_for_mark(1, SENT);
	}
	ranks_load_driven(&group, paths[rank], &o, drive, look);
	hoist_budget_unref(budget);
	mark(ENDED);
}

static void prepare(enum fate what, unsigned who, unsigned long at)
{
	ranks_next_group();
	n_ranks = 3;
	timeout_ns = UINT64_C(60000000000);
	fate = what;
	victim = who;
	fate_call = at;
	waits_for_late = false;
	flags = 0;
	for (unsigned r = 0; r < MOST_RANKS; r++) {
		paths[r] = "model.safetensors";
		secrets[r] = NULL;
	}
}

static void others_are_well(void)
{
	for (unsigned r = 0; r < n_ranks; r++) {
		check_at("fate %d of rank %u at call %lu; rank %u: %d, %s", (int)fate, victim,
			 fate_call, r, said->err[r], said->text[r]);
		CHECK(r == victim || (said->err[r] == 0 && (said->marks[r] & ENDED) != 0));
	}
}

static void says(unsigned rank, int err, const char *piece)
{
	check_at("rank %u: %d, %s", rank, said->err[rank], said->text[rank]);
	CHECK(said->err[rank] == err && strstr(said->text[rank], piece) != NULL);
}

/* --- cases --- */

static unsigned n_aborted; /* rounds */

/* Returns: false: UCX has aborted a rank, and the round is to be made once more. */
static bool run_once(void)
{
	pid_t children[MOST_RANKS];
	bool whole = true;
	for (unsigned r = 0; r < n_ranks; r++)
		children[r] = ranks_start(r, rank_main);
	for (unsigned r = 0; r < n_ranks; r++) {
		int status = child_status(children[r]);
		check_at("fate %d of rank %u at call %lu; rank %u: status %d", (int)fate, victim,
			 fate_call, r, status);
		bool aborted =
			r != victim && (said->marks[victim] & SENT) == 0 && ranks_aborted(status);
		CHECK(status == 0 || (r == victim && status == 128 + SIGKILL) || aborted);
		whole = whole && !aborted;
	}
	ranks_left_nothing();
	CHECK((n_aborted += !whole) < MOST_ABORTED);
	return whole;
}

/* Returns: the kills. */
static unsigned kill_each(unsigned who, unsigned by)
{
	unsigned n = 0;
	bool lived = false;
	for (unsigned long at = 1 + who; !lived;) {
		prepare(DIES, who, at);
		/* Only a rank that is killed before it came is waited for. */
		timeout_ns = UINT64_C(3000000000);
		if (!run_once())
			continue;
		others_are_well();
		lived = (said->marks[victim] & ENDED) != 0;
		at += 1 + at / by;
		n++;
	}
	CHECK(n > 4);
	return n - 1;
}

static void killed(void)
{
	const char *form = getenv("HOIST_TEST_FORM");
	bool is_long = form != NULL && strcmp(form, "long") == 0;
	unsigned n = 0;
	for (unsigned who = 0; who < 3; who++)
		n += kill_each(who, is_long ? 10 : 1);
	printf("figure: group.far_killed%s %u members were killed, each at another call: the "
	       "others had all their bytes; UCX aborted a member in %u further rounds\n",
	       by_ucx ? "" : ".near", n, n_aborted);
}

/* Its child of fork() keeps its connections: the others notice its silence. */
static void leaves_a_child(void)
{
	prepare(LEAVES_A_CHILD, 1, 3);
	ranks_run(n_ranks, rank_main, 1u << 1);
	others_are_well();
	CHECK((said->marks[1] & ENDED) == 0);
}

/* The others end while it is stopped; it ends when it goes on. */
static void stopped(void)
{
	pid_t children[3];
	int status;
	prepare(STOPS, 1, 3);
	for (unsigned r = 0; r < 3; r++)
		children[r] = ranks_start(r, rank_main);
	CHECK(waitpid(children[1], &status, WUNTRACED) == children[1] && WIFSTOPPED(status));
	ranks_end(children[0], 0);
	ranks_end(children[2], 0);
	CHECK((said->marks[1] & ENDED) == 0);
	CHECK(kill(children[1], SIGCONT) == 0);
	ranks_end(children[1], 0);
	others_are_well();
	CHECK(said->err[1] == 0 && (said->marks[1] & ENDED) != 0);
}

static void cancelled(void)
{
	for (unsigned long at = 1; at < 8; at += 2) {
		prepare(IS_CANCELLED, 1, at);
		ranks_run(n_ranks, rank_main, 0);
		others_are_well();
		says(1, -ECANCELED, "");
	}
}

static void comes_late(const char *path, unsigned with)
{
	prepare(LIVES, MOST_RANKS, 0);
	waits_for_late = true;
	flags = with;
	for (unsigned r = 0; r < n_ranks; r++)
		paths[r] = path;
	ranks_run(n_ranks, rank_main, 0);
	others_are_well();
}

/* Amid the only tensor of the only file it takes part from the next cells on.  Digests need each
 * tensor's bytes in order. */
static void late(void)
{
	static const size_t bytes = 101000000;
	uint64_t read = 0;
	support_write("late.safetensors", 0, 1, &bytes, -1);
	comes_late("late.safetensors", 0);
	for (unsigned r = 0; r < n_ranks; r++)
		read += said->read_bytes[r];
	check_at("%llu bytes were read", (unsigned long long)read);
	CHECK((said->marks[2] & GOT) != 0 && (said->marks[2] & MET) != 0);
	CHECK(read < 2 * bytes);
	comes_late("model.safetensors", HOIST_LOAD_DIGEST);
}

static void lies(void)
{
	prepare(LIES, 1, 0);
	ranks_run(n_ranks, rank_main, 0);
	others_are_well();
	CHECK((said->marks[1] & SENT) != 0);
	CHECK(((said->marks[0] | said->marks[2]) & WARNED) != 0);
	for (unsigned r = 0; r < n_ranks; r++)
		CHECK(((said->marks[r] & WARNED) != 0) == ((said->marks[r] & NAMED) != 0));
	CHECK(said->err[1] == 0);
}

/* It asks and takes, and does not say so: those that gave leave it out. */
static void says_nothing(void)
{
	prepare(NEVER_SAYS, 1, 0);
	ranks_run(n_ranks, rank_main, 0);
	others_are_well();
	CHECK(said->err[1] == 0);
	CHECK(((said->marks[0] | said->marks[2]) & LEFT_OUT) != 0);
	CHECK((said->marks[1] & LEFT_OUT) == 0);
}

static void short_file(void)
{
	prepare(IS_CUT_SHORT, 1, 2);
	support_write("short.safetensors", 0, N_TENSORS, sizes, -1);
	paths[1] = "short.safetensors";
	ranks_run(n_ranks, rank_main, 0);
	others_are_well();
	check_at("%d, %s", said->err[1], said->text[1]);
	CHECK(said->err[1] == 0 || strstr(said->text[1], "short.safetensors") != NULL);
}

static void too_few_descriptors(void)
{
	prepare(CANNOT_OPEN, 0, 0);
	n_ranks = 2;
	pid_t first = ranks_start(0, rank_main);
	ranks_wait_for_mark(0, LISTENS);
	ranks_end(ranks_start(1, rank_main), 0);
	ranks_end(first, 0);
	others_are_well();
	CHECK(said->err[0] == 0 && (said->marks[0] & MET) != 0);
}

static void second_is_refused(int err, const char *piece)
{
	n_ranks = 2;
	timeout_ns = UINT64_C(3000000000);
	pid_t first = ranks_start(0, rank_main);
	ranks_wait_for_mark(0, LISTENS);
	ranks_end(ranks_start(1, rank_main), 0);
	ranks_end(first, 0);
	others_are_well();
	says(1, err, piece);
	CHECK(said->text[1][0] != '\0');
}

static void other_files(void)
{
	static const size_t others[N_TENSORS] = {19000001, 70, 41000000};
	prepare(LIVES, 1, 0);
	support_write("other.safetensors", 0, N_TENSORS, others, -1);
	paths[1] = "other.safetensors";
	second_is_refused(-EINVAL, "has other files");
}

static void other_secret(void)
{
	prepare(LIVES, 1, 0);
	secrets[0] = "the secret of the group";
	secrets[1] = "another secret than that";
	second_is_refused(-EACCES, "");
}

int main(void)
{
	ranks_begin_far();
	support_write("model.safetensors", 0, N_TENSORS, sizes, -1);
	CASE(too_few_descriptors);
	CASE(other_files);
	CASE(other_secret);
	for (int turn = 0; turn < 2; turn++) {
		CASE(late);
		CASE(short_file);
		CASE(leaves_a_child);
		CASE(stopped);
		CASE(cancelled);
		CASE(killed);
		by_ucx = true;
	}
	CASE(lies);
	CASE(says_nothing);
	support_cleanup();
	return 0;
}
