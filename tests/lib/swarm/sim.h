/* SPDX-License-Identifier: MIT */
/* tests/lib/swarm/sim.h - members of a swarm on a simulated network, with a clock of its own.
 *
 * Each member has storage, and each machine an uplink and a downlink, which serve one after the
 * other at their rates.  Messages take LATENCY_NS, and so do loans between members of one machine.
 * A member's load uses each cell as soon as the cell is there.
 * No bytes are moved: a send checks that the sender has the blocks in the slot, and a slot that is
 * used must have come from a slot or from storage. */
#ifndef HOIST_TESTS_SWARM_SIM_H
#define HOIST_TESTS_SWARM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/swarm/swarm.h"

#define SIM_MEMBERS HOIST__SWARM_MEMBERS
#define SIM_SECOND UINT64_C(1000000000)
#define SIM_HANG_NS (5 * SIM_SECOND)  /* until others notice that a member hangs or is cut off */
#define SIM_DEATH_NS (SIM_SECOND / 5) /* or died */

/* PARTS: of the files, cut within cells; COLUMNS: of each cell; NARROW: of each cell, so that two
 * members want each block. */
enum sim_wants { SIM_ALL, SIM_PARTS, SIM_COLUMNS, SIM_NARROW, SIM_RANDOM, SIM_NOTHING };
enum sim_fate {
	SIM_LIVES,
	SIM_DIES,
	SIM_HANGS,
	SIM_SLOW_LINK,
	SIM_SLOW_USE,
	SIM_SLOW_STORAGE, /* a quarter of the others' rate */
	SIM_STUCK,	  /* its load waits for a device, for ever */
	SIM_STALLED,	  /* its storage never answers any more */
	SIM_LIES,
	SIM_LOSES, /* each third loan to it */
	SIM_CUT
};

struct sim_member {
	bool reads;
	size_t has_from, has_to; /* cells whose files it has, if it reads; 0, 0: all */
	enum sim_wants wants;
	enum sim_fate fate;
	uint64_t fate_ns;  /* when it begins */
	uint64_t joins_ns; /* 0: from the beginning */
};

struct sim {
	unsigned n;
	unsigned per_machine; /* 1 and more: members with consecutive numbers */
	size_t n_cells;
	unsigned n_slots;
	bool in_order;	/* loads use cells in the order of their paces, as those of one disk do */
	double link;	/* bytes a second, each way */
	double storage; /* bytes a second, of each member */
	uint64_t seed;
	struct sim_member members[SIM_MEMBERS];
};

struct sim_result {
	bool ended;	    /* all that live have all that they want */
	uint64_t ns;	    /* when the last of them had */
	uint64_t others_ns; /* of those that nothing befell */
	uint64_t read;	    /* bytes from storage, of all */
	uint64_t wanted;    /* bytes that any wants */
	uint64_t most_up;   /* bytes that one machine sent, */
	uint64_t most_down; /* and received, at most */
	unsigned n_lost;    /* members that ended with HOIST__SWARM_LOST */
	uint64_t lost_ns;   /* when the last of them did */
	uint64_t n_events;
};

/* Fails the test if a member uses what it cannot have, or if nothing happens any more. */
struct sim_result sim_run(const struct sim *sim);

#endif
