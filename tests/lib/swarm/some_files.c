/* SPDX-License-Identifier: MIT */
/* Swarms whose members each have some of the files: no cell is read where its file is not, each
 * byte is read once, in the time that links and storage need, and a member that dies is no harm
 * while another has its files.  Times are the simulation's. */
#include "config.h"

#include <stdio.h>

#include "tests/lib/swarm/sim.h"
#include "tests/support/check.h"

#define LINK 25e6  /* 200 Mbit/s */
#define CELLS 256u /* 512 MiB */
#define BYTES ((double)CELLS * HOIST__CELL_BYTES)

struct row {
	const char *name;
	unsigned n;
	unsigned n_whole; /* the first of the members have all files; the others have a part each */
	unsigned copies;  /* of each part */
	enum sim_wants wants;
	enum sim_fate fate; /* of the last member, half way */
	double time;	    /* of the files at the link's rate, at most */
	double reads;	    /* of the files, at most */
};

static const struct row rows[] = {
	{"two halves", 2, 0, 1, SIM_ALL, SIM_LIVES, 1.1, 1},
	{"one of four has all, the others a third", 4, 1, 1, SIM_ALL, SIM_LIVES, 1.1, 1.01},
	{"eight have an eighth", 8, 0, 1, SIM_ALL, SIM_LIVES, 1.15, 1.01},
	{"eight have a quarter", 8, 0, 2, SIM_ALL, SIM_LIVES, 1.1, 1.01},
	{"eight have a quarter, columns", 8, 0, 2, SIM_COLUMNS, SIM_LIVES, 0.4, 1.01},
	{"eight have a quarter, by chance", 8, 0, 2, SIM_RANDOM, SIM_LIVES, 0.9, 1.01},
	{"one of four has all, one of the others dies", 4, 1, 1, SIM_ALL, SIM_DIES, 1.4, 1.2},
	{"eight have a quarter, one dies", 8, 0, 2, SIM_ALL, SIM_DIES, 1.4, 1.2},
	{"eight have a quarter, one hangs", 8, 0, 2, SIM_ALL, SIM_HANGS, 1.7, 1.3},
};

static struct sim sim_of(const struct row *row, uint64_t seed)
{
	struct sim sim = {.n = row->n,
			  .per_machine = 1,
			  .n_cells = CELLS,
			  .n_slots = 32,
			  .link = LINK,
			  .storage = 10 * LINK,
			  .seed = seed};
	unsigned n_parts = (row->n - row->n_whole) / row->copies;
	for (unsigned m = 0; m < row->n; m++) {
		unsigned part = m < row->n_whole ? 0 : (m - row->n_whole) % n_parts;
		sim.members[m] = (struct sim_member){.reads = true, .wants = row->wants};
		if (m < row->n_whole)
			continue;
		sim.members[m].has_from = CELLS * part / n_parts;
		sim.members[m].has_to = CELLS * (part + 1) / n_parts;
	}
	sim.members[row->n - 1].fate = row->fate;
	sim.members[row->n - 1].fate_ns = (uint64_t)(BYTES / LINK / 2 * 1e9);
	return sim;
}

static void each_file_is_read_where_it_is(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			const struct sim sim = sim_of(&rows[i], seed);
			const struct sim_result r = sim_run(&sim);
			double time = (double)r.others_ns / 1e9 / (BYTES / LINK);
			printf("%-44s %4.2f x; read %5.3f x\n", rows[i].name, time,
			       (double)r.read / BYTES);
			check_at("%s, seed %llu", rows[i].name, (unsigned long long)seed);
			CHECK(r.ended && r.n_lost == 0);
			CHECK(time <= rows[i].time);
			CHECK((double)r.read <= BYTES * rows[i].reads);
		}
}

/* The only member that has the last part dies: the others say that the part is lost, and do not
 * wait.
 */
static void a_part_that_died_is_lost(void)
{
	const struct row row = {"", 4, 0, 1, SIM_ALL, SIM_DIES, 0, 0};
	struct sim sim = sim_of(&row, 1);
	sim.members[3].fate_ns = SIM_SECOND;
	const struct sim_result r = sim_run(&sim);
	CHECK(r.n_lost == 3);
}

/* The only member that has files dies: the others fail within a second, though they have asked each
 * other in the order of before the death, or of after it. */
static void the_only_member_with_files_dies(void)
{
	static const unsigned sizes[] = {2, 3, 4, 8, 16};
	for (unsigned i = 0; i < 5 * 10; i++) {
		const struct row row = {"", sizes[i % 5], 1, 1, SIM_ALL, SIM_LIVES, 0, 0};
		struct sim sim = sim_of(&row, i);
		for (unsigned m = 1; m < sim.n; m++)
			sim.members[m] = (struct sim_member){.wants = SIM_ALL};
		sim.n_slots = i % 2 == 0 ? 8 : 32;
		sim.members[0].fate = SIM_DIES;
		sim.members[0].fate_ns = SIM_SECOND + i * (SIM_SECOND / 10);
		const struct sim_result r = sim_run(&sim);
		double after = ((double)r.lost_ns - (double)sim.members[0].fate_ns) / 1e9;
		printf("the only one of %2u that has files died: %.2f s later %u had failed\n",
		       sim.n, after, r.n_lost);
		check_at("%u members, seed %u", sim.n, i);
		CHECK(r.n_lost == sim.n - 1);
		CHECK(after <= 1);
	}
}

/* The only member that has files dies once it has sent the last cell, and others still wait for the
 * cell: they get it from each other. */
static void the_last_cells_are_passed_on(void)
{
	const double sent = 8.0 * HOIST__CELL_BYTES / LINK * 1e9;
	for (unsigned i = 0; i < 100; i++) {
		const struct row row = {"", 5, 1, 1, SIM_ALL, SIM_LIVES, 0, 0};
		struct sim sim = sim_of(&row, i);
		for (unsigned m = 1; m < sim.n; m++)
			sim.members[m] = (struct sim_member){.wants = SIM_ALL};
		sim.n_cells = 8;
		sim.members[0].fate = SIM_DIES;
		sim.members[0].fate_ns = (uint64_t)sent - (1 + i % 2) * (SIM_SECOND / 20);
		const struct sim_result r = sim_run(&sim);
		check_at("seed %u", i);
		CHECK(r.ended && r.n_lost == 0);
	}
}

int main(void)
{
	CASE(each_file_is_read_where_it_is);
	CASE(a_part_that_died_is_lost);
	CASE(the_only_member_with_files_dies);
	CASE(the_last_cells_are_passed_on);
	return 0;
}
