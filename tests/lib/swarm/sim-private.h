/* SPDX-License-Identifier: MIT */
/* tests/lib/swarm/sim-private.h - inside the simulated network: events and members. */
#ifndef HOIST_TESTS_SWARM_SIM_PRIVATE_H
#define HOIST_TESTS_SWARM_SIM_PRIVATE_H

#include "tests/lib/swarm/sim.h"

#define LATENCY_NS UINT64_C(100000)
#define SIM_SENDS (HOIST__SWARM_SENDS + HOIST__SWARM_SLOTS * 16) /* with loans */
#define LIMIT_NS (UINT64_C(100000) * SIM_SECOND)

enum event_kind {
	JOIN,  /* `member` begins */
	HELLO, /* `member` learns of `other` */
	GONE,  /* `member` notices that `other` has gone */
	FATE,
	BEAT,
	HEARD, /* `member` hears `number` of `other` */
	READ_DONE,
	ASKED,
	UNASKED,
	REFUSED,
	WARNED,
	SENT,
	RECEIVED,
	USED,
	WAKE
};

struct event {
	uint64_t ns;
	uint64_t order; /* of equals */
	enum event_kind kind;
	unsigned member;
	unsigned other;
	unsigned slot;
	size_t cell;
	uint64_t ticket;
	uint64_t number;
	bool flag;
	struct hoist__swarm_share share;
	uint64_t blocks[HOIST__CELL_WORDS];
};

struct node {
	struct hoist__swarm *swarm;
	struct hoist__swarm_wants wants;
	bool here;   /* it takes part */
	bool frozen; /* it hangs: nothing that it should do is done */
	bool ended;
	bool lost;
	size_t n_wanted;
	size_t n_used;
	unsigned n_loans;
	uint8_t *has; /* of each cell: 1, used, or not wanted */
	size_t first_cell;
	size_t first;	  /* all cells before it have 1 */
	uint64_t up_free; /* of a machine: those of its first member count */
	uint64_t down_free;
	uint64_t storage_free;
	uint64_t use_free;
	uint64_t wake; /* the WAKE that counts */
	uint64_t sent; /* likewise */
	uint64_t received;
	struct {
		bool is;
		bool lent;
		uint64_t order;
		unsigned slot;
		unsigned number;
		unsigned to;
	} sends[SIM_SENDS];
	int number_of[SIM_MEMBERS]; /* of the others in its view; -1: none */
	uint64_t ticket[HOIST__SWARM_SLOTS];
	uint64_t next_ticket;
};

extern const struct sim *the_sim;
extern struct node sim_nodes[SIM_MEMBERS];
extern uint64_t sim_now;
extern uint64_t sim_n_events;
extern struct sim_result sim_result_so_far;

/* Puts the event into the queue. */
void sim_push(struct event event);

/* --- sim-members.c --- */

/* Rarer in large groups, whose beats would be most of the events. */
uint64_t sim_beat_ns(void);

/* The first member of the member's machine. */
unsigned sim_machine(unsigned m);

/* Can the two not hear each other? */
bool sim_is_cut(unsigned a, unsigned b);

/* The others notice after this time that the member has gone. */
void sim_leave(unsigned m, uint64_t after);

/* Has the member do what its swarm wants, use what is there, and end if it may. */
void sim_drive(unsigned m);

#endif
