/* SPDX-License-Identifier: MIT */
/* A hostile member knows the secret, and its messages are changed at random: bits, numbers, lengths
 * and kinds; messages are left out, sent twice, or sent again later.  The loads of the other
 * members end with the right bytes, or with the failure of a member that is sent away: its files,
 * or its group, are said to be others.
 *
 * HOIST_TEST_SEED repeats a run; the groups of a run go on side by side, as they mostly wait. */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/group/by-ucx.h"
#include "tests/lib/group/ranks.h"
#include "tests/support/child.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"
#include "tests/support/wrap.h"

enum { N_RANKS = 3, HOSTILE = 2, N_TENSORS = 3, N_GROUPS = 6, N_ROUNDS = 4, N_TRIES = 5 };
static const size_t sizes[N_TENSORS] = {19000000, 70, 21000000};

/* Counts of all groups, in memory that all processes share. */
struct seen {
	_Atomic unsigned kinds;	    /* of changed messages: bits */
	_Atomic unsigned n_changed; /* messages */
	_Atomic unsigned n_out;	    /* honest members that left the hostile one out */
	_Atomic unsigned n_refused; /* honest members that were told of other files, or the like */
	_Atomic unsigned n_aborted; /* honest members that UCX ended */
};
static struct seen *seen;

static unsigned self;
static uint64_t state;	/* of the hostile rank's chance */
static uint64_t n_calm; /* messages that it sends as they are, at first; */
static uint64_t one_of; /* then one of so many is changed */
static uint64_t n_sent;

static uint64_t below(uint64_t n)
{
	return random_below(&state, n);
}

struct packed_message {
	uint16_t kind;
	size_t n;
	unsigned char bytes[HOIST__CHANNEL_MOST_BYTES];
};

static void change_number(struct packed_message *message)
{
	static const uint64_t edges[] = {0, 1, 7, 512, 16384, UINT32_MAX, UINT64_MAX - 1};
	uint64_t number = below(2) == 0 ? edges[below(sizeof edges / sizeof edges[0])]
					: UINT64_C(1) << below(64);
	size_t bytes = below(2) == 0 ? 4 : 8;
	if (message->n >= bytes)
		memcpy(message->bytes + below(message->n - bytes + 1), &number, bytes);
}

static void change(struct packed_message *message)
{
	size_t n = message->n;
	switch (below(5)) {
	case 0:
		for (uint64_t i = 1 + below(8); n > 0 && i > 0; i--)
			message->bytes[below(n)] ^= (unsigned char)(1u << below(8));
		break;
	case 1:
	case 2:
		change_number(message);
		break;
	case 3:
		message->n = below(2) == 0 ? below(n + 1) : n + below(64);
		if (message->n > sizeof message->bytes)
			message->n = sizeof message->bytes;
		if (message->n > n)
			random_fill(&state, message->bytes + n, message->n - n);
		break;
	default:
		message->kind = (uint16_t)below(HOIST__WIRE_BYE + 2);
		break;
	}
}

WRAP(int, hoist__channel_send,
     (struct hoist__channel * channel, uint16_t kind, const void *bytes, size_t n))
{
	static struct packed_message message, kept; /* the far thread alone sends */
	if (self != HOSTILE || n_sent++ < n_calm || below(one_of) != 0)
		return __real_hoist__channel_send(channel, kind, bytes, n);
	message.kind = kind;
	message.n = n;
	if (n > 0)
		memcpy(message.bytes, bytes, n);
	atomic_fetch_or(&seen->kinds, 1u << kind);
	atomic_fetch_add(&seen->n_changed, 1);
	switch (below(6)) {
	case 0: /* left out */
		return 0;
	case 1: /* sent twice */
		(void)__real_hoist__channel_send(channel, kind, bytes, n);
		break;
	case 2: /* one of before */
		if (kept.kind != 0)
			(void)__real_hoist__channel_send(channel, kept.kind, kept.bytes, kept.n);
		break;
	default:
		/* Members of one machine trust each other's slots (hoist/group.h). */
		if (kind != HOIST__WIRE_LEND)
			change(&message);
		break;
	}
	kept = message;
	return __real_hoist__channel_send(channel, message.kind, message.bytes, message.n);
}

static void look(hoist_checkpoint *checkpoint, hoist_load *load)
{
	hoist_group_report report = {.size = sizeof report};
	support_compare(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	if (self != HOSTILE && strstr(report.note, "left out") != NULL)
		atomic_fetch_add(&seen->n_out, 1);
}

static void rank_main(unsigned rank)
{
	hoist_group group = ranks_group(rank, N_RANKS);
	hoist_load_options o = {.size = sizeof o};
	hoist_budget *budget = NULL;
	(void)alarm(200); /* a load that does not end */
	/* Few slots, so that members wait for each other. */
	OK(hoist_budget_create(72 << 20, &budget));
	o.budget = budget;
	/* A member that never comes is not waited for longer. */
	group.timeout_ns = UINT64_C(3000000000);
	self = rank;
	ranks_load(&group, "model.safetensors", &o, look);
	hoist_budget_unref(budget);
	int err = said->err[rank];
	bool refused = err == -EINVAL || err == -EADDRINUSE || err == -ENOSPC;
	check_at("rank %u: %s", rank, said->text[rank]);
	CHECK(rank == HOSTILE || err == 0 || refused);
	if (rank != HOSTILE && refused)
		atomic_fetch_add(&seen->n_refused, 1);
}

/* Returns: false if UCX ended an honest member. */
static bool one_round(uint64_t seed)
{
	pid_t children[N_RANKS];
	bool whole = true;
	state = seed;
	by_ucx = below(2) == 0;
	n_calm = below(3) == 0 ? 0 : below(60);
	one_of = 1 + below(12);
	ranks_next_group();
	for (unsigned r = 0; r < N_RANKS; r++)
		children[r] = ranks_start(r, rank_main);
	for (unsigned r = 0; r < N_RANKS; r++) {
		int status = child_status(children[r]);
		check_at("seed %llu, rank %u ended with %d", (unsigned long long)seed, r, status);
		whole = whole && (r == HOSTILE || !ranks_aborted(status));
		CHECK(r == HOSTILE || status == 0 || ranks_aborted(status));
	}
	return whole;
}

static void one_group(uint64_t seed)
{
	ranks_begin();
	for (unsigned i = 0; i < N_ROUNDS; i++) {
		unsigned tries = 0;
		for (; !one_round(seed + i); tries++) {
			atomic_fetch_add(&seen->n_aborted, 1);
			CHECK(tries < N_TRIES);
		}
	}
}

int main(void)
{
	const char *text = getenv("HOIST_TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : patience_now();
	pid_t groups[N_GROUPS];
	ranks_begin_far();
	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(seen != MAP_FAILED);
	printf("HOIST_TEST_SEED=%llu\n", (unsigned long long)seed);
	support_write("model.safetensors", 0, N_TENSORS, sizes, -1);
	(void)fflush(NULL);
	for (unsigned g = 0; g < N_GROUPS; g++) {
		groups[g] = fork();
		CHECK(groups[g] >= 0);
		if (groups[g] == 0) {
			one_group(seed + g * 1000);
			_exit(0);
		}
	}
	for (unsigned g = 0; g < N_GROUPS; g++)
		CHECK(child_status(groups[g]) == 0);
	printf("figure: group.far_hostile %u groups, %u messages changed, of %d kinds; %u members "
	       "left the sender out, %u were sent away; UCX ended %u; every byte of the others "
	       "compared\n",
	       N_GROUPS * N_ROUNDS, seen->n_changed, __builtin_popcount(seen->kinds), seen->n_out,
	       seen->n_refused, seen->n_aborted);
	CHECK(seen->n_changed > N_GROUPS && __builtin_popcount(seen->kinds) > 5);
	support_cleanup();
	return 0;
}
