/* SPDX-License-Identifier: MIT */
/* Swarms of up to 100 members on a simulated network: all get all that they want, each byte is read
 * once, in the time that links and storage need, whoever comes late, dies, hangs, lies or is slow.
 * Times are the simulation's. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/swarm/sim.h"
#include "tests/support/check.h"

#define LINK 25e6    /* 200 Mbit/s, */
#define STORAGE 10e6 /* 0.4 of it */
#define CELLS 256u   /* 512 MiB */

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

struct row {
	const char *name;
	unsigned n;
	size_t cells;
	double link;
	double storage;
	unsigned readers; /* the first of the members */
	enum sim_wants wants;
	double reads; /* of the bytes that any wants: at most */
	double time; /* of max(share of storage, bytes that a member receives at the link's rate) */
	double link_bytes;    /* that a machine's link carries each way, of the wanted: at most */
	unsigned per_machine; /* members */
};

static const struct row whole[] = {
	{"alone", 1, CELLS, LINK, STORAGE, 1, SIM_ALL, 1.01, 1.02, 0, 1},
	{"two, all", 2, CELLS, LINK, STORAGE, 2, SIM_ALL, 1.01, 1.1, 0.52, 1},
	{"four, all", 4, CELLS, LINK, STORAGE, 4, SIM_ALL, 1.01, 1.15, 1.02, 1},
	{"eight, all", 8, CELLS, LINK, STORAGE, 8, SIM_ALL, 1.01, 1.15, 1.02, 1},
	{"sixteen, all", 16, CELLS, LINK, STORAGE, 16, SIM_ALL, 1.01, 1.2, 1.02, 1},
	{"eight, an eighth of the files each", 8, CELLS, LINK, STORAGE, 8, SIM_PARTS, 1, 1.02, 0,
	 1},
	{"eight, an eighth of each cell", 8, CELLS, LINK, STORAGE, 8, SIM_COLUMNS, 1.01, 1.1, 0.15,
	 1},
	{"eight, narrow columns", 8, CELLS, LINK, 4 * LINK, 8, SIM_NARROW, 1.01, 1.3, 0.3, 1},
	{"one of eight has the files", 8, CELLS, LINK, 10 * LINK, 1, SIM_ALL, 1.01, 1.3, 1.02, 1},
	{"two of eight have the files", 8, CELLS, LINK, 10 * LINK, 2, SIM_ALL, 1.01, 1.3, 1.02, 1},
	{"one of sixteen has the files", 16, CELLS, LINK, 10 * LINK, 1, SIM_ALL, 1.01, 1.4, 1.02,
	 1},
	{"eight, by chance", 8, CELLS, LINK, STORAGE, 8, SIM_RANDOM, 1.01, 1.5, 1.2, 1},
	{"eight, by chance, one has the files", 8, CELLS, LINK, 10 * LINK, 1, SIM_RANDOM, 1.01, 1.5,
	 1.2, 1},
	{"a hundred, all", 100, 400, LINK, STORAGE, 100, SIM_ALL, 1.03, 2.2, 1.05, 1},
	{"one of a hundred has the files", 100, 400, LINK, 10 * LINK, 1, SIM_ALL, 1.01, 1.4, 1.02,
	 1},
	{"one machine of eight, all", 8, CELLS, LINK, STORAGE, 8, SIM_ALL, 1.01, 1.1, 0, 8},
	{"two machines of four, all", 8, CELLS, LINK, STORAGE, 8, SIM_ALL, 1.01, 1.15, 0.53, 4},
	{"four machines of eight, all", 32, CELLS, LINK, STORAGE, 32, SIM_ALL, 1.01, 1.15, 0.78, 8},
	{"four machines of eight, one has the files", 32, CELLS, LINK, 10 * LINK, 8, SIM_ALL, 1.01,
	 1.15, 1.02, 8},
	{"four machines of eight, a member has the files", 32, CELLS, LINK, 10 * LINK, 1, SIM_ALL,
	 1.01, 1.15, 1.02, 8},
};

static struct sim sim_of(const struct row *row, uint64_t seed)
{
	struct sim sim = {.n = row->n,
			  .per_machine = row->per_machine,
			  .n_cells = row->cells,
			  .n_slots = 32,
			  .link = row->link,
			  .storage = row->storage,
			  .seed = seed};
	for (unsigned m = 0; m < row->n; m++)
		sim.members[m] =
			(struct sim_member){.reads = m < row->readers, .wants = row->wants};
	return sim;
}

/* The time that the row's work needs at least, and the bytes that any member wants.  A machine that
 * has the files alone sends them all. */
static double least(const struct row *row, double *ret_bytes)
{
	double bytes = (double)row->cells * HOIST__CELL_BYTES;
	double n = row->n / row->per_machine;
	double received = row->wants == SIM_ALL ? bytes * (n - 1) / n : bytes / n;
	received = row->wants == SIM_NARROW ? bytes / 4 * 7 / 8 : received;
	received = row->wants == SIM_RANDOM ? bytes * 3 / 4 : received;
	received = row->wants == SIM_PARTS || row->n == 1 ? 0 : received;
	received = row->wants == SIM_ALL && row->readers <= row->per_machine && n > 1 ? bytes
										      : received;
	double read = bytes / row->readers / row->storage;
	*ret_bytes = bytes;
	return read > received / row->link ? read : received / row->link;
}

static void whole_groups(void)
{
	for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
		double bytes;
		const struct row *row = &whole[i];
		double should = least(row, &bytes);
		for (uint64_t seed = 1; seed <= 3; seed++) {
			struct sim sim = sim_of(row, seed);
			struct sim_result r = sim_run(&sim);
			printf("%-48s %5.2f s, %4.2f x; read %5.3f x, a link carried %4.2f x out, "
			       "%4.2f x in at most\n",
			       row->name, seconds(r.ns), seconds(r.ns) / should,
			       (double)r.read / bytes, (double)r.most_up / bytes,
			       (double)r.most_down / bytes);
			check_at("%s, seed %llu", row->name, (unsigned long long)seed);
			CHECK(r.ended && r.n_lost == 0);
			CHECK((double)r.read <= bytes * row->reads);
			CHECK(seconds(r.ns) <= should * row->time);
			CHECK((double)r.most_up <= bytes * row->link_bytes);
			CHECK((double)r.most_down <= bytes * row->link_bytes);
			if (row->n == 100)
				break;
		}
	}
}

/* --- members whose storage is slower --- */

/* The time that the work needs at least if the first reader reads at a quarter of the others' rate:
 * it reads as much less, and its link brings what it does not read. */
static double least_weighted(const struct row *row, double *ret_bytes)
{
	double most = least(row, ret_bytes);
	double rate = (row->readers - 0.75) * row->storage;
	double received = *ret_bytes * (1 - row->storage / 4 / rate);
	if (row->per_machine == 1 && received / row->link > most)
		most = received / row->link;
	return *ret_bytes / rate > most ? *ret_bytes / rate : most;
}

/* A quarter of the others' rate: each reads by its rate once rates are known. */
static void a_slow_disk_reads_less(void)
{
	static const struct row rows[] = {
		{"two, all", 2, 4 * CELLS, LINK, STORAGE, 2, SIM_ALL, 1.05, 1.15, 1.02, 1},
		{"four, all", 4, 4 * CELLS, 2 * LINK, STORAGE, 4, SIM_ALL, 1.05, 1.15, 1.02, 1},
		{"eight, all", 8, 8 * CELLS, 4 * LINK, STORAGE, 8, SIM_ALL, 1.05, 1.15, 1.02, 1},
		{"two of eight have the files", 8, 4 * CELLS, LINK, STORAGE, 2, SIM_ALL, 1.05, 1.15,
		 1.02, 1},
		{"two machines of four, all", 8, 8 * CELLS, 4 * LINK, STORAGE, 8, SIM_ALL, 1.05,
		 1.15, 1.02, 4},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			double bytes;
			struct sim sim = sim_of(&rows[i], seed);
			double should = least_weighted(&rows[i], &bytes);
			sim.members[0].fate = SIM_SLOW_STORAGE;
			sim.in_order = true;
			struct sim_result r = sim_run(&sim);
			printf("%-40s with a slow disk %6.2f s, %4.2f x; read %5.3f x\n",
			       rows[i].name, seconds(r.ns), seconds(r.ns) / should,
			       (double)r.read / bytes);
			check_at("%s, seed %llu", rows[i].name, (unsigned long long)seed);
			CHECK(r.ended && r.n_lost == 0);
			CHECK((double)r.read <= bytes * rows[i].reads);
			CHECK(seconds(r.ns) <= should * rows[i].time);
		}
}

/* --- members that come late, die, hang, lie, or are slow --- */

struct trouble {
	const char *name;
	struct row row;
	unsigned n_struck; /* the last members but one */
	enum sim_fate fate;
	double at;	/* of the time that the row's work needs */
	double joins;	/* the same: when they come; 0: with the others */
	double seconds; /* that the others take longer than without trouble, at most */
	double cells;	/* that are read more than without trouble, at most */
};

#define ALL(n)                                                                                     \
	{                                                                                          \
		"", n, CELLS, LINK, STORAGE, n, SIM_ALL, 1.01, 1, 1, 1                             \
	}
#define SEED                                                                                       \
	{                                                                                          \
		"", 8, CELLS, LINK, 10 * LINK, 1, SIM_ALL, 1.01, 1, 1, 1                           \
	}
#define SEEDS                                                                                      \
	{                                                                                          \
		"", 8, CELLS, LINK, 10 * LINK, 2, SIM_ALL, 1.01, 1, 1, 1                           \
	}
#define COLUMNS                                                                                    \
	{                                                                                          \
		"", 8, CELLS, LINK, STORAGE, 8, SIM_COLUMNS, 1, 1, 1, 1                            \
	}

#define MACHINES                                                                                   \
	{                                                                                          \
		"", 8, CELLS, LINK, STORAGE, 8, SIM_ALL, 1.01, 1, 1, 4                             \
	}

/* The same; two members, on the first machine, have the files. */
#define LENDERS                                                                                    \
	{                                                                                          \
		"", 8, CELLS, LINK, 10 * LINK, 2, SIM_ALL, 1.01, 1, 1, 4                           \
	}

/* One member has the files, on one of two machines. */
#define THREE                                                                                      \
	{                                                                                          \
		"", 3, 4 * CELLS, LINK, 10 * LINK, 1, SIM_ALL, 1.01, 1, 1, 2                       \
	}

static const struct trouble troubles[] = {
	{"a member of four dies", ALL(4), 1, SIM_DIES, 0.5, 0, 2.2, 16},
	{"two of eight die", ALL(8), 2, SIM_DIES, 0.5, 0, 2.2, 20},
	{"all but one of four die", ALL(4), 3, SIM_DIES, 0.5, 0, 20, 32},
	{"a member without files dies", SEED, 1, SIM_DIES, 0.5, 0, 2.2, 4},
	{"a member of four hangs", ALL(4), 1, SIM_HANGS, 0.5, 0, 7, 16},
	{"a member without files hangs", SEED, 1, SIM_HANGS, 0.5, 0, 7, 4},
	{"a member is cut off", ALL(4), 1, SIM_CUT, 0.5, 0, 7, 140},
	{"a group is cut in two", ALL(8), 4, SIM_CUT, 0.5, 0, 7, 160},
	{"a member lies", ALL(4), 1, SIM_LIES, 0, 0, 8, 16},
	{"storage of a member stalls", ALL(4), 1, SIM_STALLED, 0.5, 0, 7, 40},
	{"storage of two of eight stalls", ALL(8), 2, SIM_STALLED, 0.5, 0, 20, 60},
	{"one of a hundred dies", ALL(100), 1, SIM_DIES, 0.5, 0, 2.2, 20},
	{"a member comes late", ALL(4), 1, SIM_LIVES, 0, 0.5, 2.2, 160},
	{"a member without files comes late", SEEDS, 1, SIM_LIVES, 0, 0.5, 20, 220},
	{"a member of a slice dies", COLUMNS, 1, SIM_DIES, 0.5, 0, 2.2, 0},
	{"a member's link is slow", ALL(4), 1, SIM_SLOW_LINK, 0.2, 0, 13, 180},
	{"a member's load is slow", ALL(4), 1, SIM_SLOW_USE, 0.2, 0, 13, 180},
	{"a slow member without files", SEEDS, 1, SIM_SLOW_LINK, 0.2, 0, 40, 230},
	{"a member of a machine dies", MACHINES, 1, SIM_DIES, 0.5, 0, 2.2, 16},
	{"a member of a machine hangs", MACHINES, 1, SIM_HANGS, 0.5, 0, 7, 16},
	{"a member's load stops for good", THREE, 1, SIM_STUCK, 0.1, 0, 2.2, 40},
	{"a member of a machine loses loans", MACHINES, 1, SIM_LOSES, 0, 0, 4, 100},
	{"the same, without files", LENDERS, 1, SIM_LOSES, 0, 0, 8, 100},
	{"a machine of two dies", MACHINES, 4, SIM_DIES, 0.5, 0, 2.2, 40},
};

static void members_in_trouble(void)
{
	for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++) {
		const struct trouble *t = &troubles[i];
		double bytes;
		double should = least(&t->row, &bytes);
		for (uint64_t seed = 1; seed <= (t->row.n == 100 ? 1 : 3); seed++) {
			struct sim sim = sim_of(&t->row, seed);
			struct sim_result calm = sim_run(&sim);
			for (unsigned k = 0; k < t->n_struck; k++) {
				struct sim_member *m = &sim.members[t->row.n - 1 - k];
				m->fate = t->fate;
				m->fate_ns = (uint64_t)(t->at * should * 1e9) + 1;
				m->joins_ns = (uint64_t)(t->joins * should * 1e9);
			}
			struct sim_result r = sim_run(&sim);
			double later = seconds(r.others_ns) - seconds(calm.ns);
			double cells = ((double)r.read - (double)calm.read) / HOIST__CELL_BYTES;
			printf("%-40s others end %+6.2f s, read %+7.1f cells\n", t->name, later,
			       cells);
			check_at("%s, seed %llu", t->name, (unsigned long long)seed);
			CHECK(r.ended && r.n_lost == 0);
			CHECK(later <= t->seconds);
			CHECK(cells <= t->cells);
		}
	}
}

/* --- the last resort --- */

/* The first blocks of the only cell. */
static struct hoist__swarm_wants wants_of_blocks(uint64_t end)
{
	uint64_t bitmap[HOIST__CELL_WORDS + 1] = {0};
	struct hoist__swarm_wants wants;
	hoist__wants_add(bitmap, 0, end);
	OK(hoist__swarm_wants_make(bitmap, 1, &wants));
	return wants;
}

/* A member without the files, and two that have them and say nothing for a while, but live: one of
 * them then gives what it is asked for, the other never does. */
static void no_silence_is_waited_for(unsigned giver)
{
	struct hoist__swarm *swarm = NULL;
	struct hoist__swarm_wants own = wants_of_blocks(HOIST__CELL_BLOCKS);
	const struct hoist__swarm_options options = {
		.id = 7, .n_cells = 1, .n_slots = 8, .wants = &own};
	bool here = false;
	OK(hoist__swarm_create(&options, &swarm));
	for (uint64_t id = 11; id < 13; id++) {
		struct hoist__swarm_wants none = wants_of_blocks(0);
		CHECK(hoist__swarm_join(swarm, id, 0, true, 0, &none, 1) > 0);
	}
	for (uint64_t now = 1; now < UINT64_C(300000000000) && !here; now += 100000000) {
		struct hoist__swarm_act act = {.deed = HOIST__SWARM_READ};
		while (act.deed != HOIST__SWARM_NOTHING) {
			hoist__swarm_next(swarm, now, &act);
			here = here || (act.deed == HOIST__SWARM_ASK && act.member == giver &&
					now > UINT64_C(20000000000));
			if (act.deed == HOIST__SWARM_WITHDRAW)
				hoist__swarm_withdrawn(swarm, act.slot, now);
			if (act.deed == HOIST__SWARM_WARN)
				hoist__swarm_warned(swarm, act.member, act.distrust, now);
			CHECK(act.deed != HOIST__SWARM_LOST);
		}
	}
	CHECK(here);
	hoist__swarm_destroy(swarm);
	hoist__swarm_wants_fini(&own);
}

static void the_last_resort_goes_on(void)
{
	no_silence_is_waited_for(1);
	no_silence_is_waited_for(2);
}

/* The only member that has the files gives a cell, and loses it, again and again.  Returns: how
 * often it is asked, until @most, or until the cell is given up. */
static unsigned count_asks(unsigned most)
{
	struct hoist__swarm *swarm = NULL;
	struct hoist__swarm_wants own = wants_of_blocks(HOIST__CELL_BLOCKS);
	struct hoist__swarm_wants none = wants_of_blocks(0);
	const struct hoist__swarm_options options = {
		.id = 7, .n_cells = 1, .n_slots = 8, .wants = &own};
	struct hoist__swarm_act act;
	unsigned n = 0;
	OK(hoist__swarm_create(&options, &swarm));
	CHECK(hoist__swarm_join(swarm, 11, 7, true, 0, &none, 1) == 1);
	for (hoist__swarm_next(swarm, 1, &act); act.deed == HOIST__SWARM_ASK && n < most; n++) {
		hoist__swarm_received(swarm, act.slot, 1000, 1);
		hoist__swarm_lost(swarm, act.slot, 1);
		hoist__swarm_next(swarm, 1, &act);
	}
	CHECK(n == most || act.deed == HOIST__SWARM_LOST);
	hoist__swarm_destroy(swarm);
	hoist__swarm_wants_fini(&own);
	return n;
}

static void the_only_giver_may_lose_a_cell(void)
{
	unsigned n = count_asks(1000);
	check_at("%u asks", n);
	CHECK(n > HOIST__SWARM_LOSSES && n < 1000);
}

/* --- cells that cannot be read --- */

#define OWN 10u /* blocks, from the first on */

/* Another member asks for one block. */
static struct hoist__swarm_act answer_to(struct hoist__swarm *swarm, unsigned block,
					 bool last_resort)
{
	uint64_t blocks[HOIST__CELL_WORDS] = {0};
	struct hoist__swarm_act act;
	hoist__wants_add(blocks, block, block + 1);
	OK(hoist__swarm_asked(swarm, 1, 7, 0, blocks, last_resort, false));
	hoist__swarm_next(swarm, 3, &act);
	return act;
}

/* A member with the files reads a cell for another, or, with @wants, for both, and fails.  It tries
 * its own blocks once more, alone, and refuses the others at once from then on. */
static void what_cannot_be_read(bool wants, bool last_resort)
{
	struct hoist__swarm *swarm = NULL;
	struct hoist__swarm_act act;
	struct hoist__swarm_wants own = wants_of_blocks(wants ? OWN : 0);
	struct hoist__swarm_wants others = wants_of_blocks(HOIST__CELL_BLOCKS);
	const struct hoist__swarm_options options = {
		.id = 7, .reads = true, .n_cells = 1, .n_slots = 8, .wants = &own};
	check_at("wants %d, last resort %d", wants, last_resort);
	OK(hoist__swarm_create(&options, &swarm));
	CHECK(hoist__swarm_join(swarm, 11, 0, false, 0, &others, 1) > 0);
	hoist__swarm_next(swarm, 2, &act);
	CHECK(act.deed == HOIST__SWARM_READ &&
	      hoist__blocks_count(act.blocks) == HOIST__CELL_BLOCKS);
	hoist__swarm_read(swarm, act.slot, true, 2);
	if (wants) {
		hoist__swarm_next(swarm, 2, &act);
		CHECK(act.deed == HOIST__SWARM_READ && hoist__blocks_count(act.blocks) == OWN);
		hoist__swarm_read(swarm, act.slot, false, 2);
	}
	for (unsigned i = 0; i < 3; i++) {
		act = answer_to(swarm, OWN, last_resort);
		CHECK(act.deed == HOIST__SWARM_REFUSE && act.unreadable);
	}
	act = answer_to(swarm, 0, last_resort);
	CHECK(act.deed == (wants ? HOIST__SWARM_SEND : HOIST__SWARM_REFUSE));
	hoist__swarm_destroy(swarm);
	hoist__swarm_wants_fini(&own);
}

static void what_cannot_be_read_is_refused(void)
{
	for (unsigned i = 0; i < 4; i++)
		what_cannot_be_read(i / 2 != 0, i % 2 != 0);
}

/* --- wants in few bytes --- */

enum { MANY_CELLS = 100000 };

/* @n cells with @n_patterns patterns: the first word of cell c is c modulo @n_patterns, and the
 * last block is wanted. */
static void make_patterns(size_t n, uint64_t n_patterns, struct hoist__swarm_wants *ret)
{
	uint64_t *bitmap = calloc(hoist__wants_words(n), sizeof *bitmap);
	CHECK(bitmap != NULL);
	for (uint64_t c = 0; c < n; c++) {
		bitmap[c * HOIST__CELL_WORDS] = c % n_patterns;
		bitmap[(c + 1) * HOIST__CELL_WORDS - 1] = UINT64_C(1) << 63;
	}
	OK(hoist__swarm_wants_make(bitmap, n, ret));
	free(bitmap);
}

/* The same patterns are kept once.  Cells of patterns too many are wanted whole. */
static void wants_are_few_bytes(void)
{
	static const uint64_t n_patterns[] = {1, 7, HOIST__WANTS_PATTERNS, MANY_CELLS};
	for (size_t i = 0; i < sizeof n_patterns / sizeof n_patterns[0]; i++) {
		struct hoist__swarm_wants wants;
		uint64_t blocks[HOIST__CELL_WORDS];
		make_patterns(MANY_CELLS, n_patterns[i], &wants);
		OK(hoist__swarm_wants_check(&wants));
		check_at("%llu patterns: %zu", (unsigned long long)n_patterns[i], wants.n_patterns);
		CHECK(wants.n_patterns == (n_patterns[i] < HOIST__WANTS_PATTERNS
						   ? n_patterns[i]
						   : HOIST__WANTS_PATTERNS));
		for (uint64_t c = 0; c < MANY_CELLS; c++) {
			uint64_t wanted = c % n_patterns[i];
			unsigned n = hoist__swarm_wants_of(&wants, c, blocks);
			if (wanted >= HOIST__WANTS_PATTERNS)
				CHECK(n == HOIST__CELL_BLOCKS);
			else
				CHECK(blocks[0] == wanted &&
				      n == (unsigned)__builtin_popcountll(wanted) + 1);
		}
		hoist__swarm_wants_fini(&wants);
	}
}

/* --- views that differ --- */

/* A member should ask for what a slot has, and asks for other blocks: the slot waits for nobody,
 * and the cell is read once more at once. */
static void an_ask_for_other_blocks_frees_the_slot(void)
{
	struct hoist__swarm *swarm = NULL;
	struct hoist__swarm_act act;
	struct hoist__swarm_wants own = wants_of_blocks(OWN);
	struct hoist__swarm_wants others = wants_of_blocks(OWN);
	const struct hoist__swarm_options options = {
		.id = 7, .reads = true, .n_cells = 1, .n_slots = 8, .wants = &own};
	OK(hoist__swarm_create(&options, &swarm));
	CHECK(hoist__swarm_join(swarm, 11, 0, false, 0, &others, 1) > 0);
	hoist__swarm_next(swarm, 2, &act);
	CHECK(act.deed == HOIST__SWARM_READ && hoist__blocks_count(act.blocks) == OWN);
	hoist__swarm_read(swarm, act.slot, false, 2);
	hoist__swarm_used(swarm, 0);
	hoist__swarm_next(swarm, 3, &act);
	CHECK(act.deed == HOIST__SWARM_NOTHING && hoist__swarm_slot_of(swarm, 0) >= 0);
	act = answer_to(swarm, OWN, true);
	CHECK(act.deed == HOIST__SWARM_READ && hoist__blocks_has(act.blocks, OWN));
	hoist__swarm_read(swarm, act.slot, false, 3);
	hoist__swarm_next(swarm, 3, &act);
	CHECK(act.deed == HOIST__SWARM_SEND && hoist__blocks_has(act.blocks, OWN));
	hoist__swarm_sent(swarm, act.slot, act.member, 1000);
	hoist__swarm_destroy(swarm);
	hoist__swarm_wants_fini(&own);
}

/* Patience grows with the time that a cell takes: an answer of 20 ms is no cell of 10 s. */
static void few_blocks_tell_little_of_a_cell(void)
{
	CHECK(hoist__swarm_cell_ns(20000000, HOIST__CELL_BLOCKS) == 20000000);
	CHECK(hoist__swarm_cell_ns(20000000, HOIST__CELL_BLOCKS / 2) == 40000000);
	CHECK(hoist__swarm_cell_ns(20000000, 1) <= 160000000);
}

int main(void)
{
	CASE(an_ask_for_other_blocks_frees_the_slot);
	CASE(few_blocks_tell_little_of_a_cell);
	CASE(wants_are_few_bytes);
	CASE(whole_groups);
	CASE(a_slow_disk_reads_less);
	CASE(members_in_trouble);
	CASE(the_last_resort_goes_on);
	CASE(the_only_giver_may_lose_a_cell);
	CASE(what_cannot_be_read_is_refused);
	return 0;
}
