/* SPDX-License-Identifier: MIT */
/* lib/swarm/swarm-view.h - inside a swarm: the members, the slots, and the way of a cell. */
#ifndef HOIST_LIB_SWARM_SWARM_VIEW_H
#define HOIST_LIB_SWARM_SWARM_VIEW_H

#include <string.h>

#include "lib/swarm/swarm.h"

/* A set of members: a bit for each. */
struct hoist__member_set {
	uint64_t word[HOIST__SWARM_MEMBERS / 64];
};

static inline bool hoist__member_set_has(const struct hoist__member_set *few, unsigned member)
{
	return (few->word[member / 64] >> member % 64 & 1) != 0;
}

static inline void hoist__member_set_add(struct hoist__member_set *few, unsigned member)
{
	few->word[member / 64] |= UINT64_C(1) << member % 64;
}

/* One slot of so many is for asks as the last resort.  They get no others: all slots would wait for
 * a slow member that asks for all that it lacks. */
#define HOIST__SWARM_GUESTS 8u

struct hoist__swarm_ask {
	uint64_t ticket;
	size_t cell;
	bool last_resort;
	bool lend;
	uint64_t blocks[HOIST__CELL_WORDS];
};

struct hoist__swarm_member {
	bool here; /* false, and an id: it has gone */
	bool reads;
	bool reads_all; /* it lacks no cell */
	bool distrusted;
	uint64_t id;
	uint64_t machine;
	unsigned first_of_machine; /* the first member of its machine, with or without a number */
	size_t first_cell;	   /* of its pace */
	size_t done;
	size_t done_was;   /* at `moved_at`: */
	uint64_t moved_at; /* `done` was seen to change last */
	struct hoist__swarm_wants wants;
	struct hoist__swarm_share share;
	unsigned weight_before; /* at cells before share.from */
	bool warn_slow;		/* all are to be told that it is slow, */
	bool warn_wrong;	/* that it gave wrong bytes */
	uint64_t slow_until;
	unsigned n_slow;	       /* times that it was slow */
	uint64_t send_ns;	       /* of a cell to it: a moving average; 0: none yet */
	uint64_t take_ns;	       /* of a cell from it, likewise */
	unsigned n_sending;	       /* to it */
	struct hoist__swarm_ask *asks; /* of it, as they came: room for HOIST__SWARM_ASKS */
	unsigned n_asks;
};

enum hoist__swarm_slot_state {
	HOIST__SLOT_FREE,
	HOIST__SLOT_CHOSEN,
	HOIST__SLOT_READING,
	HOIST__SLOT_ASKED,
	HOIST__SLOT_LEAVING,
	HOIST__SLOT_HERE
};

struct hoist__swarm_slot {
	enum hoist__swarm_slot_state state;
	size_t cell;
	unsigned from;	   /* ASKED, LEAVING */
	bool told;	   /* LEAVING: WITHDRAW was given */
	bool guest;	   /* chosen for an ask as the last resort */
	bool needed;	   /* this member's load has not used the cell */
	bool alone;	   /* the cell is unreadable; this member's own blocks were read alone */
	bool resort;	   /* members are asked as the last resort */
	unsigned n_lost;   /* times, since then */
	unsigned n_rounds; /* of the last resort: each is twice as patient */
	unsigned n_sending;
	struct hoist__member_set tried;	 /* that do not give the cell */
	struct hoist__member_set late;	 /* of those: that did not say so, and are asked last */
	struct hoist__member_set served; /* that got the cell */
	struct hoist__member_set expect; /* that should ask this one for the cell, as of `view` */
	uint64_t view;
	bool circular;	   /* ASKED: since a share has changed, `from` gets the cell from here */
	unsigned n_behind; /* in a chain: so many wait behind the expected one, up to a bound */
	unsigned place;	   /* of this member in the cell's way, as of then, */
	unsigned depth;	   /* and so many members from the reader */
	uint64_t since;	   /* of the state */
	uint64_t blocks[HOIST__CELL_WORDS];
};

/* Cells of which one is being read all the time, up to the last that has been. */
struct hoist__swarm_burst {
	unsigned n;
	uint64_t bytes;
	uint64_t ns;
};

enum hoist__cell_mark {
	HOIST__CELL_USED = 1,	   /* this member's load needs it no more */
	HOIST__CELL_UNREADABLE = 2 /* this member's reading failed */
};

struct hoist__swarm {
	struct hoist__swarm_options options;
	struct hoist__swarm_counts counts;
	/* Room for HOIST__SWARM_MEMBERS.  Member 0 is this one, without asks. */
	struct hoist__swarm_member *members;
	struct hoist__swarm_ask *asks; /* of all members: loops over members touch none of them */
	unsigned n_members; /* that have ever been, with this one: in members, ring and street */
	struct hoist__swarm_slot slots[HOIST__SWARM_SLOTS];
	uint16_t *slot_of; /* of each cell: its slot and 1; 0: none */
	uint8_t *marks;	   /* of each cell: enum hoist__cell_mark */
	uint64_t began;	   /* at hoist__swarm_next()'s first call */
	size_t next;	   /* of its pace: cells before have had a slot, or need none */
	unsigned n_sending;
	unsigned n_free;
	unsigned n_reading;		  /* slots */
	struct hoist__swarm_burst burst;  /* since `burst_at`, */
	struct hoist__swarm_burst bursts; /* and before */
	uint64_t burst_at;
	unsigned ring[HOIST__SWARM_MEMBERS];
	unsigned street[HOIST__SWARM_MEMBERS]; /* the same members, machine by machine */
	bool has_neighbours;		       /* two members are of one machine */
	uint64_t view;	     /* counts joins, leaves, and members that become slow */
	uint64_t share_view; /* the view that the last share made */
	bool changed;	     /* since there was NOTHING to do */
	uint64_t looked_at;  /* there was NOTHING to do */
};

/* The way of a cell from storage to those that want it. */
struct hoist__swarm_way {
	unsigned n; /* that want the cell, or read it */
	bool star;
	bool apart;
	bool has_reader; /* members[0] */
	bool only_reads; /* the reader wants no block of the cell */
	unsigned members[HOIST__SWARM_MEMBERS];
	unsigned before[HOIST__SWARM_MEMBERS]; /* the place from which each gets the cell */
	uint64_t united[HOIST__CELL_WORDS];
};

/* A number that looks random: the finalizer of splitmix64 (Steele, Lea, Flood, 2014). */
static inline uint64_t hoist__swarm_mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* --- swarm-turn.c --- */

/* Finds the reader among @members: the one whose turn it is, else one by rendezvous hashing.
 * Returns: its index; @n: none may read. */
unsigned hoist__swarm_reader_among(const struct hoist__swarm *swarm, size_t cell, uint64_t now,
				   const unsigned *members, unsigned n);

/* Measures the rate of this member's reads. */
void hoist__swarm_reading_begins(struct hoist__swarm *swarm, uint64_t now);
void hoist__swarm_reading_ends(struct hoist__swarm *swarm, const struct hoist__swarm_slot *slot,
			       uint64_t now);

/* --- swarm-view.c --- */

/* Members that have done the cell have their places all the same. */
void hoist__swarm_way_of(const struct hoist__swarm *swarm, size_t cell, uint64_t now,
			 struct hoist__swarm_way *ret);

/* The blocks that the member at @place of the way asks for. */
void hoist__swarm_blocks_at(const struct hoist__swarm *swarm, const struct hoist__swarm_way *way,
			    size_t cell, unsigned place, uint64_t ret[HOIST__CELL_WORDS]);

/* --- swarm-serve.c --- */

/* Notes the members that should ask this one for the slot's cell, whose way is @way. */
void hoist__swarm_note_expected(const struct hoist__swarm *swarm, struct hoist__swarm_slot *slot,
				const struct hoist__swarm_way *way);
/* The same, if the group has changed. */
void hoist__swarm_look_at_view(const struct hoist__swarm *swarm, struct hoist__swarm_slot *slot,
			       uint64_t now);

/* Does the member ask, as the last resort, for blocks that the slot has not?  Then it has another
 * view of the cell's way, and will not ask for those that the slot has.  An ask that is no last
 * resort is refused at once. */
bool hoist__swarm_asks_for_others(const struct hoist__swarm_member *member,
				  const struct hoist__swarm_slot *slot);

/* Answers one ask: refuses one, else sends the cell that comes first in this member's pace.
 * False: no ask can be answered now. */
bool hoist__swarm_answer(struct hoist__swarm *swarm, uint64_t now, struct hoist__swarm_act *ret);

/* Frees a slot that is HERE, if nobody needs it any more. */
void hoist__swarm_release(struct hoist__swarm *swarm, struct hoist__swarm_slot *slot, uint64_t now);

/* --- */

static inline size_t hoist__swarm_step_of(const struct hoist__swarm *swarm, unsigned member,
					  size_t cell)
{
	size_t first = swarm->members[member].first_cell;
	return cell >= first ? cell - first : cell + swarm->options.n_cells - first;
}

static inline bool hoist__swarm_is_done(const struct hoist__swarm *swarm, unsigned member,
					size_t cell)
{
	return hoist__swarm_step_of(swarm, member, cell) < swarm->members[member].done;
}

/* Has the member the cell's file? */
static inline bool hoist__swarm_has(const struct hoist__swarm *swarm, unsigned member, size_t cell)
{
	return swarm->members[member].reads &&
	       !hoist__swarm_wants_lacks(&swarm->members[member].wants, cell);
}

/* Has a member that is left the cell's file? */
static inline bool hoist__swarm_anybody_has(const struct hoist__swarm *swarm, size_t cell)
{
	bool any = false;
	for (unsigned m = 0; m < swarm->n_members && !any; m++)
		any = swarm->members[m].here && hoist__swarm_has(swarm, m, cell);
	return any;
}

static inline bool hoist__swarm_is_slow(const struct hoist__swarm *swarm, unsigned member,
					uint64_t now)
{
	return now < swarm->members[member].slow_until;
}

/* Slots that this member's own cells leave to asks as the last resort, which may be for a cell
 * without which no slot becomes free.  0: all members have all files. */
unsigned hoist__swarm_left_free(const struct hoist__swarm *swarm);

/* How long this member waits for @member. */
uint64_t hoist__swarm_patience(const struct hoist__swarm *swarm, unsigned member);

/* Has this member the cell's file, and has no reading of the cell failed? */
static inline bool hoist__swarm_can_read(const struct hoist__swarm *swarm, size_t cell)
{
	return hoist__swarm_has(swarm, 0, cell) &&
	       (swarm->marks[cell] & HOIST__CELL_UNREADABLE) == 0;
}

static inline void hoist__swarm_set_state(struct hoist__swarm *s, struct hoist__swarm_slot *slot,
					  enum hoist__swarm_slot_state state, uint64_t now)
{
	slot->state = state;
	slot->since = now;
	s->changed = true;
}

static inline void hoist__swarm_free_slot(struct hoist__swarm *s, struct hoist__swarm_slot *slot,
					  uint64_t now)
{
	s->slot_of[slot->cell] = 0;
	s->n_free++;
	hoist__swarm_set_state(s, slot, HOIST__SLOT_FREE, now);
}

static inline void hoist__swarm_drop_ask(struct hoist__swarm_member *member, unsigned i)
{
	member->n_asks--;
	memmove(&member->asks[i], &member->asks[i + 1],
		(member->n_asks - i) * sizeof member->asks[0]);
}

static inline struct hoist__swarm_slot *hoist__swarm_slot_at(struct hoist__swarm *s, size_t cell)
{
	return s->slot_of[cell] == 0 ? NULL : &s->slots[s->slot_of[cell] - 1];
}

#endif
