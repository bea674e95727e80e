/* SPDX-License-Identifier: MIT */
/* A member that has proved that it knows the secret, and whose messages are then changed by chance:
 * bits, numbers, lengths and kinds, messages that are left out, sent twice, or sent again later.
 * The loads of the other members end, with the right bytes.  They fail only where the first that a
 * member hears of the group is that its files are others.
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
	_Atomic unsigned n_aborted; /* honest members that UCX ended */
};
static struct seen *seen;

enum { BEGUN = 1, EARLY = 2, LEFT_OTHERS = 4, ALONE = 8 }; /* marks of ranks */

static unsigned self;
static bool is_two_faced; /* the hostile rank: after its first greeting, it claims other files */
static uint64_t state;	  /* of the hostile rank's chance */
static uint64_t n_calm;	  /* messages that it sends as they are, at first; */
static uint64_t one_of;	  /* then one of so many is changed */
static uint64_t n_sent;

static uint64_t below(uint64_t n)
{
	return random_below(&state, n);
}

/* A message that can be changed. */
struct letter {
	uint16_t kind;
	size_t n;
	unsigned char bytes[HOIST__CHANNEL_MOST_BYTES];
};

static void change_number(struct letter *letter)
{
	static const uint64_t numbers[] = {0,
					   1,
					   2,
					   7,
					   512,
					   16384,
					   UINT64_C(1) << 26,
					   UINT64_C(1) << 31,
					   UINT32_MAX,
					   UINT64_C(1) << 62,
					   UINT64_C(1) << 63,
					   UINT64_MAX - 1,
					   UINT64_MAX};
	uint64_t number = numbers[below(sizeof numbers / sizeof numbers[0])];
	size_t bytes = below(2) == 0 ? 4 : 8;
	if (letter->n >= bytes)
		memcpy(letter->bytes + below(letter->n - bytes + 1), &number, bytes);
}

static void change(struct letter *letter)
{
	size_t n = letter->n;
	switch (below(5)) {
	case 0:
		for (uint64_t i = 1 + below(8); n > 0 && i > 0; i--)
			letter->bytes[below(n)] ^= (unsigned char)(1u << below(8));
		break;
	case 1:
	case 2:
		change_number(letter);
		break;
	case 3:
		letter->n = below(2) == 0 ? below(n + 1) : n + below(64);
		if (letter->n > sizeof letter->bytes)
			letter->n = sizeof letter->bytes;
		if (letter->n > n)
			random_fill(&state, letter->bytes + n, letter->n - n);
		break;
	default:
		letter->kind = (uint16_t)below(HOIST__WIRE_BYE + 2);
		break;
	}
}

static void mark(unsigned marks)
{
	(void)__atomic_fetch_or(&said->marks[self], marks, __ATOMIC_SEQ_CST);
}

static void claim_other_files(struct letter *letter)
{
	static unsigned n_greetings;
	struct hoist__wire_message hello;
	const struct hoist__frame frame = {letter->kind, letter->bytes, letter->n};
	static unsigned char packed[HOIST__CHANNEL_MOST_BYTES];
	if (letter->kind != HOIST__WIRE_HELLO || n_greetings++ == 0)
		return;
	OK(hoist__wire_unpack(&frame, &hello));
	hello.identity[0]++;
	letter->n = hoist__wire_pack(&hello, packed);
	memcpy(letter->bytes, packed, letter->n);
}

WRAP(int, hoist__channel_send,
     (struct hoist__channel * channel, uint16_t kind, const void *bytes, size_t n))
{
	static struct letter letter, kept; /* the fabric's thread alone sends */
	letter.kind = kind;
	letter.n = n;
	if (n > 0)
		memcpy(letter.bytes, bytes, n);
	if (self == HOSTILE && is_two_faced)
		claim_other_files(&letter);
	else if (kind == HOIST__WIRE_ASK || kind == HOIST__WIRE_OFFER || kind == HOIST__WIRE_LEND)
		mark(BEGUN);
	if (self != HOSTILE || is_two_faced || n_sent++ < n_calm || below(one_of) != 0)
		return __real_hoist__channel_send(channel, kind, letter.bytes, letter.n);
	mark((said->marks[self] & BEGUN) == 0 ? EARLY : 0);
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
		change(&letter);
		break;
	}
	kept = letter;
	return __real_hoist__channel_send(channel, letter.kind, letter.bytes, letter.n);
}

static void look(hoist_checkpoint *checkpoint, hoist_load *load)
{
	hoist_group_report report = {.size = sizeof report};
	support_compare(checkpoint, load);
	OK(hoist_group_get_report(load, &report));
	check_at("rank %u's note: %s", self, report.note);
	mark(strstr(report.note, "has other files") != NULL ? LEFT_OTHERS : 0);
	mark(report.n_members == 1 ? ALONE : 0);
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
	bool early = (said->marks[HOSTILE] & EARLY) != 0;
	int err = said->err[rank];
	check_at("rank %u: %s", rank, said->text[rank]);
	CHECK(rank == HOSTILE || err == 0 ||
	      (early && (err == -EINVAL || err == -EADDRINUSE || err == -ENOSPC)));
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

static int count(void *context, const hoist_group_member *member)
{
	(void)member;
	++*(unsigned *)context;
	return 0;
}

static void wait_for_members(unsigned n)
{
	const hoist_group group = ranks_group(0, N_RANKS);
	unsigned there = 0;
	for (uint64_t until = 0; there != n;) {
		CHECK(patience(&until));
		there = 0;
		(void)hoist_group_look(&group, count, &there);
	}
}

/* The group's first member has met the hostile one.  The second hears of it from the first, and
 * that it has other files: the second is of the first one's group all the same. */
static void a_member_that_claims_other_files_is_left_out(void)
{
	pid_t children[N_RANKS];
	static const unsigned order[] = {0, HOSTILE, 1};
	ranks_next_group();
	is_two_faced = true;
	for (unsigned i = 0; i < N_RANKS; i++) {
		children[i] = ranks_start(order[i], rank_main);
		if (i < 2)
			wait_for_members(i + 1);
	}
	for (unsigned i = 0; i < N_RANKS; i++)
		CHECK(child_status(children[i]) == 0);
	/* On a slow machine the first may have ended before. */
	CHECK((said->marks[1] & (LEFT_OTHERS | ALONE)) != 0);
	is_two_faced = false;
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
	CASE(a_member_that_claims_other_files_is_left_out);
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
	       "left the sender out; UCX ended %u; every byte of the others compared\n",
	       N_GROUPS * N_ROUNDS, seen->n_changed, __builtin_popcount(seen->kinds), seen->n_out,
	       seen->n_aborted);
	CHECK(seen->n_changed > N_GROUPS && __builtin_popcount(seen->kinds) > 5);
	support_cleanup();
	return 0;
}
