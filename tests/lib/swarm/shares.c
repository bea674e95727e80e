/* SPDX-License-Identifier: MIT */
/* A member has asked for cells when it hears of a share that changes their readers.  An ask of a
 * member that now gets the cell from this one is withdrawn; the ask that takes its place stays. */
#include "config.h"

#include <stdio.h>

#include "lib/swarm/swarm.h"
#include "tests/support/check.h"

enum { N_CELLS = 16, N_SEEDS = 64, OTHERS = 2, NEAR = 7, ELSEWHERE = 9 };

static struct hoist__swarm *swarm;
static unsigned asked[N_CELLS]; /* the member that was asked last */
static unsigned slot_of[N_CELLS];
static unsigned n_asks[N_CELLS];
static unsigned n_withdrawn[N_CELLS];

static struct hoist__swarm_wants wants_of_all(void)
{
	uint64_t bitmap[N_CELLS * HOIST__CELL_WORDS + 1] = {0};
	struct hoist__swarm_wants wants;
	hoist__wants_add(bitmap, 0, N_CELLS * HOIST__CELL_BLOCKS);
	OK(hoist__swarm_wants_make(bitmap, N_CELLS, &wants));
	return wants;
}

static void do_all(uint64_t now)
{
	struct hoist__swarm_act act;
	for (hoist__swarm_next(swarm, now, &act); act.deed != HOIST__SWARM_NOTHING;
	     hoist__swarm_next(swarm, now, &act)) {
		check_at("deed %d, cell %zu, member %u", (int)act.deed, act.cell, act.member);
		CHECK(act.deed == HOIST__SWARM_ASK || act.deed == HOIST__SWARM_WITHDRAW);
		if (act.deed == HOIST__SWARM_WITHDRAW) {
			CHECK(act.member == asked[act.cell]);
			n_withdrawn[act.cell]++;
			hoist__swarm_withdrawn(swarm, act.slot, now);
			continue;
		}
		CHECK(!act.last_resort && act.member != asked[act.cell]);
		asked[act.cell] = act.member;
		slot_of[act.cell] = act.slot;
		n_asks[act.cell]++;
	}
}

/* This member has no files.  Its neighbour has them, and reads half of the cells, until the
 * neighbour says that its storage is slow: then a member of another machine reads most of these.
 * The head of this machine gets them from there, and the other one from the head.  Where this
 * member is the head, its ask of the neighbour is circular.  Returns: the asks that took another's
 * place. */
static unsigned hear_of_a_share(uint64_t seed)
{
	struct hoist__swarm_wants own = wants_of_all();
	const struct hoist__swarm_options options = {.id = 3 * seed + 1,
						     .machine = NEAR,
						     .n_cells = N_CELLS,
						     .n_slots = N_CELLS,
						     .wants = &own};
	const struct hoist__swarm_share share = {.rate = 1, .weight = 1};
	uint64_t now = 1;
	unsigned n_kept = 0;
	OK(hoist__swarm_create(&options, &swarm));
	for (unsigned m = 1; m <= OTHERS; m++) {
		struct hoist__swarm_wants wants = wants_of_all();
		int number = hoist__swarm_join(swarm, 3 * seed + 1 + m, m == 1 ? NEAR : ELSEWHERE,
					       true, 0, &wants, now);
		CHECK(number == (int)m);
	}
	for (size_t c = 0; c < N_CELLS; c++)
		asked[c] = n_asks[c] = n_withdrawn[c] = 0;
	do_all(now);
	hoist__swarm_heard_share(swarm, 1, &share);
	for (; now < HOIST__SWARM_PATIENCE_NS / 2; now += UINT64_C(100000000))
		do_all(now);
	for (size_t c = 0; c < N_CELLS; c++) {
		check_at("seed %llu, cell %zu: %u asks, %u withdrawn", (unsigned long long)seed, c,
			 n_asks[c], n_withdrawn[c]);
		CHECK(n_asks[c] <= 2 && n_withdrawn[c] == n_asks[c] - 1);
		n_kept += n_withdrawn[c];
		hoist__swarm_received(swarm, slot_of[c], 1, now);
		CHECK(hoist__swarm_slot_of(swarm, c) >= 0);
	}
	hoist__swarm_destroy(swarm);
	hoist__swarm_wants_fini(&own);
	return n_kept;
}

/* The ids set the turns, and the heads. */
static void an_ask_behind_a_circular_one_is_kept(void)
{
	unsigned n_kept = 0;
	for (uint64_t seed = 0; seed < N_SEEDS; seed++)
		n_kept += hear_of_a_share(seed);
	printf("%u asks of %u took the place of circular ones\n", n_kept, N_CELLS * N_SEEDS);
	CHECK(n_kept > N_SEEDS / 2);
}

int main(void)
{
	CASE(an_ask_behind_a_circular_one_is_kept);
	return 0;
}
