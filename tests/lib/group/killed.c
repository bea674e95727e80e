/* SPDX-License-Identifier: MIT */
/* A rank, any of three, is killed at any of its calls: the others end soon, with an error that
 * names the rank, or with all their bytes, and nothing is left.  They load to the host, to devices
 * and in place; HOIST_TEST_FORM=long: each rank in each way, at more calls. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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

/* --- ways to load --- */

enum { HOST, DEVICES, IN_PLACE, N_WAYS };
enum { N_TENSORS = 4 };
static const size_t sizes[N_TENSORS] = {9000000, 11000000, 70, 30000000};

static unsigned way;
static hoist_load_into into[N_TENSORS];

static void look(hoist_checkpoint *checkpoint, hoist_load *load, int err)
{
	if (err == 0)
		support_compare(checkpoint, load);
	for (size_t i = 0; way == IN_PLACE && i < N_TENSORS; i++) {
		enum hoist_into_state state;
		OK(hoist_load_into_state(load, 0, i, &state));
		CHECK(err < 0 || state == HOIST_INTO_WHOLE);
		if (state == HOIST_INTO_WHOLE)
			CHECK(ranks_is_whole(checkpoint, i, into[i].buffer));
		else if (state == HOIST_INTO_UNTOUCHED)
			CHECK(ranks_untouched(into[i].buffer));
	}
}

static int drive(hoist_checkpoint *checkpoint, hoist_load *load, unsigned rank)
{
	(void)checkpoint;
	(void)rank;
	return hoist_load_wait(load);
}

/* All to one device, and a part of its own to another. */
static void load_to_devices(const hoist_group *group, hoist_load_options *o)
{
	const hoist_load_slice part = {.tensor = "t000003",
				       .begin = 4000000 * group->rank,
				       .end = 4000000 * group->rank + 20000000};
	const char *names[] = {"t000003"};
	const hoist_load_target all = {.size = sizeof all, .device = support_device("cuda:0")};
	const hoist_load_target some = {.size = sizeof some,
					.device = support_device("cuda:1"),
					.tensors = names,
					.n_tensors = 1,
					.slices = &part,
					.n_slices = 1};
	const hoist_load_target *const targets[] = {&all, &some};
	o->targets = targets;
	o->n_targets = 2;
	ranks_load_driven(group, path, o, drive, look);
	hoist_device_unref(all.device);
	hoist_device_unref(some.device);
}

static void load_in_place(const hoist_group *group, hoist_load_options *o)
{
	static const char *const names[N_TENSORS] = {"t000000", "t000001", "t000002", "t000003"};
	for (size_t i = 0; i < N_TENSORS; i++) {
		const int64_t shape[] = {(int64_t)sizes[i]};
		into[i] = (hoist_load_into){names[i], ranks_buffer(NULL, HOIST_U8, 1, shape)};
	}
	o->into = into;
	o->n_into = N_TENSORS;
	ranks_load_driven(group, path, o, drive, look);
	for (size_t i = 0; i < N_TENSORS; i++)
		hoist_buffer_unref(into[i].buffer);
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, n_ranks);
	hoist_load_options o = {.size = sizeof o};
	/* Only a rank that is killed before it came is waited for. */
	group.timeout_ns = UINT64_C(3000000000);
	armed = rank == victim;
	self = rank;
	if (way == DEVICES)
		load_to_devices(&group, &o);
	else if (way == IN_PLACE)
		load_in_place(&group, &o);
	else
		ranks_load_driven(&group, path, &o, drive, look);
	said->marks[rank] |= ENDED;
}

/* Did a rank wait in vain for one that lives?  Then the machine was too slow, and the round is run
 * again. */
static bool was_late(const char *name)
{
	bool lived = (said->marks[victim] & ENDED) != 0;
	for (unsigned r = 0; r < n_ranks; r++)
		if (said->err[r] == -ETIMEDOUT &&
		    (lived || (strstr(said->text[r], name) == NULL &&
			       strstr(said->text[r], "rank 0") == NULL)))
			return true;
	return false;
}

/* Returns: false once the victim made fewer calls. */
static bool kill_at(unsigned long k)
{
	char name[16];
	last_call = k;
	(void)snprintf(name, sizeof name, "rank %u", victim);
	bool late = true;
	for (unsigned n_rounds = 0; late && n_rounds < 5; n_rounds++) {
		ranks_next_group();
		ranks_run(n_ranks, rank_main, 1u << victim);
		late = was_late(name);
		if (late)
			printf("way %u, rank %u killed at call %lu: a rank that lives was late; "
			       "run again\n",
			       way, victim, k);
	}
	bool lived = (said->marks[victim] & ENDED) != 0;
	bool came = (said->marks[victim] & CAME) != 0;
	for (unsigned r = 0; r < n_ranks; r++) {
		int err = said->err[r];
		const char *text = said->text[r];
		check_at("way %u, rank %u killed at call %lu; rank %u: %d, %s", way, victim, k, r,
			 err, text);
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

/* Returns: the kills. */
static unsigned kill_each(unsigned by)
{
	unsigned n = 0;
	for (unsigned long k = 1; kill_at(k); k += 1 + k / by)
		n++;
	CHECK(n > 5);
	return n;
}

int main(void)
{
	const char *form = getenv("HOIST_TEST_FORM");
	bool is_long = form != NULL && strcmp(form, "long") == 0;
	support_emulate("cuda:2");
	ranks_begin();
	support_write("model.safetensors", 0, N_TENSORS, sizes, -1);
	path = "model.safetensors";
	n_ranks = 3;
	unsigned n_kills = 0;
	for (victim = 0; victim < n_ranks; victim++)
		for (way = HOST; way < N_WAYS; way++)
			if (is_long || way == victim)
				n_kills += kill_each(is_long ? 6 : 3);
	printf("figure: group.killed %u ranks were killed, each at another call: the others "
	       "ended\n",
	       n_kills);
	support_cleanup();
	return 0;
}
