/* SPDX-License-Identifier: MIT */
/* lib/far/far-loan.h - slots that members of one machine lend each other.
 *
 * Neighbours, the members of one machine, copy from each other's slots.  A member's slots
 * lie in a memfd that is sealed against a change of its size, and against others' writing:
 *
 *     [ board: the edition of each slot ][ hole ][ slot 0 ][ slot 1 ]...
 *
 * A member maps the memory of each neighbour that says HELLO (net/neighbour.h), and says in its
 * ASKs that it did.  The giver answers LEND ticket, slot, edition, reader, and computes no digest:
 * no network carries the bytes.  The giver's slot then stands for the taker's own: the load's
 * threads copy from the giver's slot to the load's places.  The taker says TOOK once its own slot
 * is free again.  It copies the cell into its own slot, and says TOOK at once,
 *
 *   - after BORROW_NS, so that a slow load holds no neighbour's slots,
 *   - before it sends or lends the cell on, and when the giver leaves, so that the owner of the
 *     bytes knows of each loan.
 *
 * Where a step fails (no memfd, no /proc, another user), the fabric moves the bytes.
 *
 * The edition counts how often the slot was filled.  A taker that the giver has given up may live,
 * and stand in the middle of a copy.  So a giver that fills a slot anew counts first, and writes
 * then.  A thread that has copied from a loan looks at the edition afterwards.  If the edition has
 * changed, the bytes do not count, and the cell is lost: the far thread gets it anew, from another
 * member or from storage, while the copying thread waits.  The memory of a neighbour that has left
 * is unmapped once no loan and no copy on its way is from there.
 */
#ifndef HOIST_LIB_FAR_FAR_LOAN_H
#define HOIST_LIB_FAR_FAR_LOAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/shared.h"
#include "lib/swarm/swarm.h"
#include "lib/wire/wire.h"
#include "net/neighbour.h"

struct hoist__far;
struct hoist__far_peer;

/* Neighbours read this beside a member's slots.  Only the member writes. */
struct hoist__far_board {
	_Atomic uint32_t editions[HOIST__SWARM_SLOTS];
};
#define HOIST__FAR_BOARD_BYTES ((size_t)HOIST__CELL_BYTES) /* slots can be huge pages */

/* The memory of a neighbour, mapped. */
struct hoist__far_memory {
	struct hoist__shared *shared; /* NULL: this entry is free */
	bool left;		      /* the neighbour has left: to be unmapped */
	unsigned n_copies;	      /* on their way; under `lock` */
};

/* A slot of this member's that a neighbour copies from. */
struct hoist__far_lent {
	uint64_t ticket; /* 0: none */
	uint64_t since;
};

/* A neighbour's slot that stands for one of this member's. */
struct hoist__far_loan {
	const unsigned char *bytes; /* NULL: none */
	struct hoist__far_memory *memory;
	const _Atomic uint32_t *edition;
	uint32_t edition_was;
	uint64_t ticket;
	uint64_t since;
};

/* The bytes of all slots. */
size_t hoist__far_arena_bytes(const struct hoist__far *far);

/* Makes the memory of the slots; shared, if that can be.  Returns: 0; as hoist__region_create(). */
int hoist__far_arena_make(struct hoist__far *far);

/* Gives the slots' memory back, unless it @stays, and unmaps the neighbours'. */
void hoist__far_arena_end(struct hoist__far *far, bool stays);

/* Takes memory for a slot: a lack of memory shows here, and not as SIGBUS at a touch.  Threads: the
 * one that fills the slot.  Returns: 0; -ENOMEM. */
int hoist__far_populate(struct hoist__far *far, unsigned slot);

/* Copies bytes of one cell, whose slot is HERE, for the load.  Waits if the cell was lost. Threads:
 * any.  Returns: 0; -ECONNRESET (the load fails: hoist__far_fail() was called). */
int hoist__far_copy(struct hoist__far *far, size_t file, uint64_t offset, size_t bytes,
		    unsigned char *to);

/* --- the far thread's --- */

bool hoist__far_is_neighbour(const struct hoist__far *far, const struct hoist__far_peer *peer);

/* The peer has said HELLO: maps its memory, if it is a neighbour. */
void hoist__far_meet_neighbour(struct hoist__far *far, struct hoist__far_peer *peer);

/* Before a slot is filled: gives its loan back, and counts. */
void hoist__far_refill(struct hoist__far *far, unsigned slot);

/* Does a deed HOIST__SWARM_SEND that lends. */
void hoist__far_lend(struct hoist__far *far, const struct hoist__swarm_act *act, uint64_t now);

/* The taker has said TOOK or UNASK, or has left.  Pre: lock. */
void hoist__far_returned(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t ticket);
void hoist__far_forget_lent(struct hoist__far *far, struct hoist__far_peer *peer);

/* Does the peer have slots of this member's; any peer, with NULL? */
bool hoist__far_is_lending(const struct hoist__far *far, const struct hoist__far_peer *peer);

/* Does the peer keep a slot for too long?  It breaks the rules: a taker copies the cell in time. */
bool hoist__far_keeps_lent(const struct hoist__far *far, const struct hoist__far_peer *peer,
			   uint64_t now);

/* The process did not run for @gap: the takers' time was as long. */
void hoist__far_excuse_lent(struct hoist__far *far, uint64_t gap);

/* A giver's LEND.  Pre: lock. */
void hoist__far_borrow(struct hoist__far *far, const struct hoist__far_peer *peer,
		       const struct hoist__wire_message *lend);

/* Copies a borrowed cell into its own slot, and gives the loan back.  False: the cell is lost. */
bool hoist__far_own(struct hoist__far *far, unsigned slot);

/* Gives all loans back: nobody reads from them any more. */
void hoist__far_give_back_all(struct hoist__far *far);

/* The giver has left: its loans are copied. */
void hoist__far_own_loans(struct hoist__far *far, unsigned giver);

/* The neighbour has left: its memory is unmapped once neither loan nor copy uses it.  Takes NULL.
 */
void hoist__far_unmap(struct hoist__far *far, struct hoist__far_memory *memory);

/* Gives back loans whose cells were used, copies those that are old, and asks anew for cells that
 * are lost. */
void hoist__far_look_at_loans(struct hoist__far *far, uint64_t now);

#endif
