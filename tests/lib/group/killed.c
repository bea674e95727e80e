/* SPDX-License-Identifier: MIT */
/* A rank is killed at any of its calls: the others end soon, with an error that names the rank, or
 * with all their bytes, and nothing is left. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "alloc/shared.h"
#include "io/engine.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

/* Steps that a rank has done: said something, saw the memory of another, ended by itself. */
enum { CAME = 1, SAW = 2, ENDED = 4 };

static unsigned victim;
static unsigned self;
static unsigned n_ranks;
static bool armed; /* in the victim's process */
static atomic_ulong n_calls;
static unsigned long last_call;

static void call(void)
{
	if (armed && atomic_fetch_add(&n_calls, 1) + 1 == last_call)
		(void)kill(getpid(), SIGKILL);
}

WRAP(int, poll, (struct pollfd * fds, nfds_t n, int ms))
{
	call();
	return __real_poll(fds, n, ms);
}

/* A rank that has said hello has come. */
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags))
{
	call();
	ssize_t n = __real_sendmsg(fd, message, flags);
	if (n > 0)
		said->marks[self] |= CAME;
	call();
	return n;
}

WRAP(ssize_t, write, (int fd, const void *bytes, size_t n))
{
	call();
	return __real_write(fd, bytes, n);
}

WRAP(int, hoist__shared_open, (int fd, bool read_only, struct hoist__shared **ret))
{
	call();
	said->marks[self] |= SAW;
	return __real_hoist__shared_open(fd, read_only, ret);
}

WRAP(int, hoist__engine_submit,
     (struct hoist__engine * engine, struct hoist__request *const *requests, unsigned n))
{
	call();
	return __real_hoist__engine_submit(engine, requests, n);
}

WRAP(int, hoist__engine_reap,
     (struct hoist__engine * engine, struct hoist__request **ret, unsigned max, uint64_t ns))
{
	call();
	return __real_hoist__engine_reap(engine, ret, max, ns);
}

static const char *path;

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	hoist_load_options o = {.size = sizeof o};
	/* Only a rank that is killed before it came is waited for. */
	group.timeout_ns = UINT64_C(3000000000);
	armed = rank == victim;
	self = rank;
	ranks_load(&group, path, &o, support_compare);
	said->marks[rank] |= ENDED;
}

/* Returns: false once the victim made fewer calls. */
static bool kill_at(unsigned long k)
{
	char name[16];
	last_call = k;
	ranks_next_group();
	(void)snprintf(name, sizeof name, "rank %u", victim);
	ranks_run(n_ranks, rank_main, 1u << victim);
	bool lived = (said->marks[victim] & ENDED) != 0;
	bool came = (said->marks[victim] & CAME) != 0;
	for (unsigned r = 0; r < n_ranks; r++) {
		int err = said->err[r];
		const char *text = said->text[r];
		check_at("rank %u killed at call %lu; rank %u: %d, %s", victim, k, r, err, text);
		CHECK((said->marks[r] & ENDED) != 0 || r == victim);
		CHECK(err == 0 || (!lived && r != victim));
		/* Where not all had come yet, nobody is left to tell a rank that comes later. */
		bool met = r == 0 ? came : (said->marks[r] & SAW) != 0;
		if (err < 0 && met)
			CHECK(err == -ECONNRESET && strstr(text, name) != NULL);
		if (err < 0 && !met)
			CHECK((err == -ETIMEDOUT || err == -ECONNRESET) &&
			      (strstr(text, name) != NULL || strstr(text, "rank 0") != NULL));
	}
	return !lived;
}

int main(void)
{
	static const size_t sizes[] = {9000000, 11000000, 70, 30000000};
	ranks_begin();
	support_write("model.safetensors", 0, 4, sizes, -1);
	path = "model.safetensors";
	n_ranks = 3;
	unsigned n_kills = 0;
	for (victim = 0; victim < 2; victim++) {
		unsigned long k = 1;
		unsigned n = 0;
		for (; kill_at(k); k += 1 + k / 6)
			n++;
		CHECK(n > 10);
		n_kills += n;
	}
	printf("figure: group.killed %u ranks were killed, each at another call: the others "
	       "ended\n",
	       n_kills);
	support_cleanup();
	return 0;
}
