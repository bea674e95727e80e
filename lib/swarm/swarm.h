/* SPDX-License-Identifier: MIT */
/* lib/swarm/swarm.h - a group whose members come and go: the member that reads a cell, and the
 * members that pass the cell on.
 *
 * A swarm is one member's view of the group and its part of the work.  It is a state machine
 * without threads, sockets or a clock: the caller tells what has happened and when, and asks for
 * the next deed (hoist__swarm_next()).  So the same code runs in members (far.h) and, for a hundred
 * of them at a time, on a simulated network (tests/lib/swarm).
 *
 *   member    a process of the group.  A member wants blocks of cells (blocks.h), and may have all
 *             files, some, or none: it reads cells of the files that it has (swarm-wants.h).  The
 *             member itself is number 0 of its own view
 *   slot      memory of one cell.  A slot is FREE, CHOSEN (the cell has the slot, and nothing is
 *             decided yet), READING (from storage), ASKED (the bytes come from another member),
 *             HERE, or LEAVING (asked in vain; bytes may still come)
 *   pace      the order of a member's own cells: from its first cell to the last of all, then
 *             from cell 0 on.  A member that comes late begins with a cell that the others have
 *             not begun (hoist__swarm_cell_ahead()), waits until one of them is near, and reads the
 *             cells before by itself.  `done` cells of a member's pace are HERE or past: it asks
 *             for none of them any more
 *   machine   of a member: members of one machine lend each other slots, which costs no link.  A
 *             member without a number shares with nobody, and is a machine by itself
 *   ring      all members that have ever been, in the order of a hash of their ids
 *   street    the same, machine by machine, in the order of a hash of the machines
 *   share     of a member: its weight, from a cell on.  Weights are HOIST__SWARM_FULL at first.  A
 *             member measures the rate of its reads, hears those of the others, and has the weight
 *             that its rate is of the quickest one's, from a cell on that nobody has begun
 *   turn      of a cell: members whose first cell is not behind the cell take turns, in the order
 *             of the ring, if their weights are the same; else each has turns by its weight.  A
 *             member that has gone keeps its turns, with the full weight, so that the others' turns
 *             stay the same
 *   reader    of a cell: of those that want the cell and have its file, the member whose turn it
 *             is.  If the turn is none of theirs, rendezvous hashing chooses, by the weights.  If
 *             none of those that want the cell has its file, the same among all that have.  A slow
 *             or distrusted member is no reader.  The reader reads the blocks that anybody wants
 *   way       of a cell: its reader, then those that want the cell, in the street's order, slow
 *             ones last.  A late member is on the ways of cells before its first in its own view
 *             alone.  The bytes go along the way as a chain, as a star, or not at all (apart)
 *   chain     of machines: one member of each, the head, gets all blocks that anybody wants from
 *             the head of the machine before, and gives them to the others of its own.  So no link
 *             carries a cell twice, and a group of which one member has the files takes hardly
 *             longer than a copy to one other.  The reader is the first head.  The heads of the
 *             other machines change from cell to cell
 *   star      each gets the blocks that it wants from the reader, where the wants of all are less
 *             than a chain would move (HOIST__SWARM_OVERLAP)
 *   apart     each reads its own blocks: no two want the same ones, but for a few where parts meet
 *             (HOIST__SWARM_TWICE), all have the cell's file, and their blocks are few runs
 *             (HOIST__SWARM_RUNS)
 *
 * Each member computes all of this from its own view.  Views differ for a while when members come
 * and go.  That costs reads, never bytes: a member asks, and the asked member gives, or refuses.
 *
 * Shares: the reader of a cell is a function of the cell and of what the members have said: who
 * they are, their first cells, their wants, and their shares.  Only the member itself says its
 * share.  It says a new one once it has done the cells before the last one's `from`.  So all that
 * have heard the same of all agree on the reader of each cell, and they have heard it before they
 * begin the cell, as hoist__swarm_cell_ahead() is ahead of all whose loads use cells in order.  A
 * member that has begun such a cell before it heard (its load uses cells in another order, beats
 * were late, it has more slots, or lags behind) has another view of these cells, as above.  Two
 * that would wait for each other then do not: the one that is to give withdraws its ask.
 *
 *     asked for a cell   HERE: send.  On its way, or still to come in this member's pace: the ask
 *                        waits.  Past or foreign: refuse.  An ask as the last resort waits all the
 *                        same, if the asked member has the cell's file: the cell is read once more.
 *                        A cell whose reading failed is refused at once from then on.  A member
 *                        that this one waits for, directly or through others, is refused if nobody
 *                        that is left has the cell's file
 *     refused            ask the next: the heads before in the chain, back to the reader.  Then
 *                        read, if this member has the file.  Then ask each that has it, as the last
 *                        resort, in turn and ever more patiently.  If nobody that is left has it:
 *                        ask each that may have got the cell, once
 *     own reading fails  the same; at last, read this member's own blocks alone
 *     no word            after a member's patience: the same, and the silent member is slow
 *     left, died, slow   the same at once
 *     a loan was lost    the same at once, though the cell was HERE.  One that gave the cell as the
 *                        last resort is asked once more, HOIST__SWARM_LOSSES times in all
 *     became the reader  the same at once: read
 *
 * A slot that is HERE is free once the member's own load has used it, no ask waits for it, and
 * those that should ask this member for it have got it, have it from elsewhere (`done`), have left,
 * are slow, or ask, as the last resort, for blocks that the slot has not: then the cell is read
 * once more.
 *
 * A slow member (HOIST__SWARM_SLOW_NS) is asked last, and nobody keeps slots for it: it gets the
 * cells that it asks for in time, and reads the rest itself.  A member whose bytes were wrong is
 * not asked again.  Patience is the sum of three: HOIST__SWARM_PATIENCE_NS; the time in which all
 * slots come or go, one after the other, at the speed of the quickest other member; and the time in
 * which a member with slower storage reads its part of them.  So a slow network or disk is no slow
 * member.  In a chain, a member is the more patient with the one before it the farther it is from
 * the reader, and with the one behind it the more members wait behind that one.  So the member
 * beside a slow one says that it is slow.  A member beside one that waits itself does not.
 *
 * Progress: each member gives slots to cells in the order of its pace.  A part of the slots
 * (HOIST__SWARM_GUESTS) is for asks as the last resort.  Members of the same pace wait for the
 * first cell that one of them lacks.  All earlier slots are free, so the cell's reader has a slot,
 * and so has each member on the cell's way.  If views differ, an ask for other blocks frees the
 * slot at once; if paces differ, patience ends.
 *
 * Invariants: a cell is in one slot at most.  A slot is written to only while READING, ASKED or
 * LEAVING, and constant while HERE.  Sends of a slot end before the slot is FREE.
 *
 * Threads: the caller's lock.
 */
#ifndef HOIST_LIB_SWARM_SWARM_H
#define HOIST_LIB_SWARM_SWARM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/swarm/blocks.h"
#include "lib/swarm/swarm-wants.h"

#define HOIST__SWARM_MEMBERS 128u		   /* at most, with this one */
#define HOIST__SWARM_SLOTS 64u			   /* at most */
#define HOIST__SWARM_SENDS 4u			   /* at a time; half of them to one member */
#define HOIST__SWARM_ASKS (2 * HOIST__SWARM_SLOTS) /* of one member, that wait */

/* Cells that others begin while a READY or a BEAT is under way. */
#define HOIST__SWARM_AHEAD 4u

/* Longer than a hang takes to be noticed (HOIST__FAR_SILENCE_NS). */
#define HOIST__SWARM_PATIENCE_NS (UINT64_C(6) * 1000000000)
/* For the slowest storage members are so much more patient, at most. */
#define HOIST__SWARM_READING_NS (4 * HOIST__SWARM_PATIENCE_NS)
/* How long a member is slow for the first time.  The time doubles each time, HOIST__SWARM_SLOWEST
 * times. */
#define HOIST__SWARM_SLOW_NS (UINT64_C(15) * 1000000000)
#define HOIST__SWARM_SLOWEST 8u
/* A member that gave a cell as the last resort, and lost it, is asked again, so many times in all.
 */
#define HOIST__SWARM_LOSSES 8u
/* A cell is apart if all its members' blocks are at most so many runs, each of which is a read, and
 * at most so many blocks, where members' parts meet, are read twice. */
#define HOIST__SWARM_RUNS 16u
#define HOIST__SWARM_TWICE 4u
/* A cell is a star if the sum of all wants is less than so many halves of the blocks that anybody
 * wants; or than as many halves as members of these have the cell's file, if those are more:
 * readers take turns, so their links share the sending. */
#define HOIST__SWARM_OVERLAP 3u

#define HOIST__SWARM_NOBODY UINT32_MAX

enum hoist__swarm_deed {
	HOIST__SWARM_NOTHING,  /* until something happens, or `wake_ns` */
	HOIST__SWARM_READ,     /* read `blocks` of the cell to the slot; then hoist__swarm_read() */
	HOIST__SWARM_ASK,      /* ask the member for `blocks`; then _received() or _refused() */
	HOIST__SWARM_SEND,     /* send `blocks` of the slot to the member; then _sent() */
	HOIST__SWARM_REFUSE,   /* tell the member that it gets nothing under its ticket */
	HOIST__SWARM_WITHDRAW, /* wait for the member no more; _withdrawn() once nothing writes to
				* the slot */
	HOIST__SWARM_WARN,     /* tell all members, this one too, that the member is slow, or, with
				* `distrust`, that it gave wrong bytes: hoist__swarm_warned() */
	HOIST__SWARM_LOST,     /* nobody has the cell, nor its file */
};

struct hoist__swarm_act {
	enum hoist__swarm_deed deed;
	unsigned member;
	unsigned slot;
	size_t cell;
	uint64_t ticket;  /* SEND, REFUSE: as it was asked */
	bool last_resort; /* ASK */
	bool lend;	  /* SEND: lend the slot; then hoist__swarm_returned() instead of _sent() */
	bool unreadable;  /* REFUSE: because this member's reading failed */
	bool distrust;	  /* WARN */
	uint64_t blocks[HOIST__CELL_WORDS];
	uint64_t wake_ns; /* NOTHING; UINT64_MAX: never */
};

#define HOIST__SWARM_FULL 8u /* the greatest weight */

struct hoist__swarm_share {
	uint64_t rate;	 /* of the member's reads, bytes a second; 0: not known yet */
	size_t from;	 /* the cell from which on */
	unsigned weight; /* counts: 1 to HOIST__SWARM_FULL */
};

struct hoist__swarm_counts {
	uint64_t read_bytes;	 /* from storage, */
	uint64_t received_bytes; /* from members, */
	uint64_t sent_bytes;	 /* to members: whole blocks */
	uint64_t n_refused;	 /* asks of this member's */
	uint64_t n_late;	 /* asks that ended with its patience */
};

struct hoist__swarm_options {
	uint64_t id;	  /* of this member; ids of members differ */
	uint64_t machine; /* 0: it shares memory with nobody */
	bool reads;	  /* this member has files: all but those that `wants` lacks */
	size_t n_cells;
	size_t first_cell; /* of its pace */
	unsigned n_slots;
	const struct hoist__swarm_wants *wants; /* outlives the swarm */
};

struct hoist__swarm;

/* Returns: 0; -ENOMEM. */
int hoist__swarm_create(const struct hoist__swarm_options *options, struct hoist__swarm **ret);
void hoist__swarm_destroy(struct hoist__swarm *swarm); /* takes NULL */

/* A cell that nobody has begun: those that have begun have done @done cells at most, and have slots
 * for the next ones.  A late member begins there, and a new share counts from there on. */
static inline size_t hoist__swarm_cell_ahead(size_t done, unsigned n_slots)
{
	return done + n_slots + HOIST__SWARM_AHEAD;
}

/* --- the other members --- */

/* A member comes.  @wants becomes the swarm's, but on failure.  Returns: the member's number, 1 and
 * more; -ENOSPC (there were HOIST__SWARM_MEMBERS); -EEXIST (the id is there). */
int hoist__swarm_join(struct hoist__swarm *swarm, uint64_t id, uint64_t machine, bool reads,
		      size_t first_cell, struct hoist__swarm_wants *wants, uint64_t now);

/* The member has gone; its number is not given again.  Slots that it was asked for are given up
 * with HOIST__SWARM_WITHDRAW. */
void hoist__swarm_leave(struct hoist__swarm *swarm, unsigned member, uint64_t now);

/* The member says how many cells of its pace it has done. */
void hoist__swarm_heard(struct hoist__swarm *swarm, unsigned member, size_t done);

/* The member says its share.  Pre: the weight is in its range. */
void hoist__swarm_heard_share(struct hoist__swarm *swarm, unsigned member,
			      const struct hoist__swarm_share *share);

/* Finds this member's share anew.  Returns: the share, which a BEAT says. */
struct hoist__swarm_share hoist__swarm_update_share(struct hoist__swarm *swarm);

/* Somebody says that the member, 0 being this one, is slow, or gave wrong bytes. */
void hoist__swarm_warned(struct hoist__swarm *swarm, unsigned member, bool distrust, uint64_t now);

/* The member asks for blocks of a cell.  @lend: it can be lent the slot; any number of slots is
 * lent at a time.  Returns: 0; -EBADMSG (no such cell, no blocks, more asks than
 * HOIST__SWARM_ASKS). */
int hoist__swarm_asked(struct hoist__swarm *swarm, unsigned member, uint64_t ticket, size_t cell,
		       const uint64_t blocks[HOIST__CELL_WORDS], bool last_resort, bool lend);

/* The member does not wait for the ticket any more.  A send that has begun goes on. */
void hoist__swarm_unasked(struct hoist__swarm *swarm, unsigned member, uint64_t ticket);

/* All waiting begins anew: the group has changed, or this process has not run for a while. */
void hoist__swarm_wait_anew(struct hoist__swarm *swarm, uint64_t now);

/* --- slots --- */

/* The time that a whole cell takes, if @n_blocks of it took @ns.  Few blocks take as long as an
 * answer does: they tell little of a cell. */
static inline uint64_t hoist__swarm_cell_ns(uint64_t ns, size_t n_blocks)
{
	const size_t least = HOIST__CELL_BLOCKS / 8;
	return ns * HOIST__CELL_BLOCKS / (n_blocks > least ? n_blocks : least);
}

/* The reading has ended.  If it @failed, others are asked for the cell, and are refused it. */
void hoist__swarm_read(struct hoist__swarm *swarm, unsigned slot, bool failed, uint64_t now);

/* All blocks that were asked for are in the slot, and right.  @ns: the time that a whole cell takes
 * at their speed. */
void hoist__swarm_received(struct hoist__swarm *swarm, unsigned slot, uint64_t ns, uint64_t now);

/* The asked member gives nothing for the slot, or gave @wrong bytes, and writes to it no more.  May
 * come after the member has left, until HOIST__SWARM_WITHDRAW was given. */
void hoist__swarm_refused(struct hoist__swarm *swarm, unsigned slot, bool wrong, uint64_t now);

/* The bytes of a slot that is HERE, lent by the member that was asked, are gone: others are asked.
 * Pre: no send of the slot goes on. */
void hoist__swarm_lost(struct hoist__swarm *swarm, unsigned slot, uint64_t now);

/* After HOIST__SWARM_WITHDRAW: nothing writes to the slot any more. */
void hoist__swarm_withdrawn(struct hoist__swarm *swarm, unsigned slot, uint64_t now);

/* How long the member may let a send wait: while the blocks are @on_their_way, or from then on
 * until it says that they are there.  Longer than it would wait itself. */
uint64_t hoist__swarm_send_patience(const struct hoist__swarm *swarm, unsigned member,
				    bool on_their_way);

/* The send has ended, well or not.  @ns: the time that a whole cell takes at its speed. */
void hoist__swarm_sent(struct hoist__swarm *swarm, unsigned slot, unsigned member, uint64_t ns);

/* The member needs the slot that it was lent no more, or got it not at all. */
void hoist__swarm_returned(struct hoist__swarm *swarm, unsigned slot, unsigned member);

/* The slot in which the cell is HERE; -1: it is not. */
int hoist__swarm_slot_of(const struct hoist__swarm *swarm, size_t cell);

/* The member's own load needs the cell no more. */
void hoist__swarm_used(struct hoist__swarm *swarm, size_t cell);

/* --- deeds --- */

/* The next deed; to be called until it is NOTHING. */
void hoist__swarm_next(struct hoist__swarm *swarm, uint64_t now, struct hoist__swarm_act *ret);

/* Cells of this member's pace that are HERE or past. */
size_t hoist__swarm_done(const struct hoist__swarm *swarm);

/* True if the member may end.  Its load has used all that it wants, nothing is being sent, and no
 * slot is kept for another member.  And one of these holds: all members that lack files are done;
 * this member has no files; another member that has all files is not done either. */
bool hoist__swarm_may_end(const struct hoist__swarm *swarm);

/* Members that have ever been in this view, with this one. */
unsigned hoist__swarm_members(const struct hoist__swarm *swarm);

const struct hoist__swarm_counts *hoist__swarm_counts(const struct hoist__swarm *swarm);

#endif
