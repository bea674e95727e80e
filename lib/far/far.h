/* SPDX-License-Identifier: MIT */
/* lib/far/far.h - a member of a group whose processes run on several machines: the source of its
 * load (lib/load/source.h).
 *
 *   far.c          the source: slots, chunks whose cells are here, the end
 *   far-name.c     the group's name and secret, and the comparison of its members' files
 *   far-meet.c     how members find each other, and when a member begins
 *   far-folder.c   the same, at a folder that all see
 *   far-peer.c     the other members: channels, messages, life and death
 *   far-move.c     the swarm's deeds: asks, bytes through the fabric, digests
 *   far-loan.c     slots that members of one machine lend each other (far-loan.h)
 *   far-read.c     cells from storage, and readings that fail (far-read.h)
 *   far-report.c   what the report says (far-report.h)
 *   far-thread.c   the thread that does all of this
 *   far-host.c     answers to visitors
 *   far-ask.c      a visitor's questions; hoist_group_look()
 *   far-visit.c    hoist_group_open(): the checkpoint that a member shows
 *   lib/wire/      messages (wire.h); the files, as a visitor is shown them (tour.h)
 *   swarm.h        the member that reads a cell, and the members that pass the cell on
 *   net/           channels (proved members), the fabric (bulk bytes)
 *
 * All bytes of the load are foreign (source.h): the load copies them out of the slots of its own
 * member.  Bytes come to these slots from storage or from another member.  A member that has lost
 * all others is a group of one, and goes on.
 *
 * Meeting: a group has a door, "host:port".  The first member that can listen there is the door, at
 * each of HOST's addresses: of IPv4, of IPv6, of several networks.  The others connect to the door,
 * and learn the addresses of those that are there already.  If the door leaves, a member on its
 * machine opens the door again.  Or the group has a folder that all see, in which each member posts
 * its addresses: each is a door then.  Each pair of members has one channel, which the member that
 * came later makes:
 *
 *     both       HELLO name, id, rank, identity, cells, has the files, port, place of its
 *                slots (neighbour.h), address of the fabric
 *     acceptor   ROSTER for each member that is or was there, ROSTER_END
 *     both       WANTS, PATTERNS (swarm-wants.h), and BEAT from now on
 *     both       READY first cell: the member has chosen its pace
 *     both       ASK, UNASK, OFFER, LEND, REFUSE, TOOK, WARN
 *     both       BYE: the member leaves
 *
 * A member is ready once it has the wants of all that it knows of, and n_ranks ranks are there or
 * have gone; if n_ranks is unknown, once nobody new has come for HOIST__FAR_GATHER_NS.  It begins
 * once all others are ready.  After the group's timeout a member does both, also if members are
 * missing.  A member that finds others which have begun is late (swarm.h).  These send a member
 * away, by BYE with an error: a door of another group; a member with other files, with a UCX that
 * cannot connect to the other's, or with as many others so far as a swarm has numbers.
 *
 * Visitors are processes that are no members.  A visitor says LOOK or VISIT instead of HELLO:
 *
 *     LOOK name    MEMBER for each member, the answering one first, then BYE
 *     VISIT name   lib/wire/tour.h
 *
 * Bytes: the taker sends ASK with a ticket, a random number with the slot in its lowest bits.  The
 * giver says OFFER ticket, XXH3-128 of the blocks, their reader's id, in the channel, and sends the
 * blocks through the fabric under the ticket; or it says REFUSE, and why, if its reading failed.
 * The taker takes each block of the ask once, and compares the digest.  Only then is the slot HERE.
 * The taker says TOOK, right or wrong, or UNASK if it waits no longer: the giver keeps its slot
 * until then, and drops a taker that says neither (hoist__swarm_send_patience()).
 *
 * Loans: members of one machine copy from each other's slots (far-loan.h).
 *
 * Life: a BEAT each 100 ms, and when many cells were done since the last one.  A member that is
 * silent for HOIST__FAR_SILENCE_NS, whose channel or fabric fails, or that breaks the rules, has
 * left.  A process that was stopped excuses the others' silence of that time.
 *
 * Leaving: the member lets its sends end, says BYE, and waits until each other has sent what it
 * was sending, and said BYE, too.
 *
 * Trust: members know the secret, and are trusted not to forge bytes.  All the same, their messages
 * are checked, so that a broken member can give neither a fault nor, where digests of the tensors
 * are verified, wrong bytes.  A neighbour's memory is trusted like a file of the same user: a
 * process that may write to it could write to this process as well.
 *
 * Threads: the far thread has peers, sockets and the fabric to itself.  `lock` guards the swarm,
 * the slots, `state`, `err` and the queue of cells to be read, which the reading thread
 * (cell-read.h) and the load's thread use, too.  The threads wake each other: the far thread by
 * `bell`, the other two by their engines.
 */
#ifndef HOIST_LIB_FAR_FAR_H
#define HOIST_LIB_FAR_FAR_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/region.h"
#include "base/error.h"
#include "hoist/group.h"
#include "lib/swarm/cell-charge.h"
#include "lib/swarm/cell-pin.h"
#include "lib/swarm/cell-read.h"
#include "lib/swarm/cell-readers.h"
#include "lib/swarm/cells.h"
#include "lib/far/far-loan.h"
#include "lib/far/far-read.h"
#include "lib/far/far-report.h"
#include "lib/wire/tour.h"
#include "lib/wire/wire.h"
#include "lib/swarm/swarm.h"
#include "lib/load/load.h"
#include "net/address.h"
#include "net/channel.h"
#include "net/fabric.h"

#define HOIST__FAR_BEAT_NS (UINT64_C(100) * 1000000)
#define HOIST__FAR_SILENCE_NS (UINT64_C(4500) * 1000000)
/* Without n_ranks: how long a member waits for one more. */
#define HOIST__FAR_GATHER_NS (UINT64_C(1000) * 1000000)
/* A visitor may be silent for so much longer than a member, while files are shown. */
#define HOIST__FAR_TOUR_NS (UINT64_C(60) * 1000000000)
/* How long a member that lacks descriptors or memory accepts and makes no connection: those that
 * connect wait in the kernel's queue. */
#define HOIST__FAR_CROWDED_NS (UINT64_C(250) * 1000000)
/* Bytes of wants and files that wait in a channel to go out. */
#define HOIST__FAR_TELL_BYTES ((size_t)1 << 20)
/* Accepted connections that have not said HELLO. */
#define HOIST__FAR_STRANGERS 32u
#define HOIST__FAR_PEERS (HOIST__SWARM_MEMBERS - 1 + HOIST__FAR_STRANGERS)
/* Members that are or were there: more have come and gone then than a swarm can have. */
#define HOIST__FAR_MOST_KNOWN ((size_t)4 * HOIST__SWARM_MEMBERS)
#define HOIST__FAR_SCHEME "tcp://"
#define HOIST__FAR_FOLDER_SCHEME "dir:"
#define HOIST__FAR_PLACES 4u /* addresses of one member */
#define HOIST__FAR_DOORS 16u /* addresses of HOST that are looked at */
/* Members that the door's roster does not have came later, and connect themselves: two connections
 * that cross would both be refused. */
#define HOIST__FAR_CROSS_NS (UINT64_C(2) * 1000000000)
#define HOIST__FAR_TEXT 256u

/* A channel to another member, to a process that is about to become one, or to a visitor. */
struct hoist__far_peer {
	struct hoist__channel *channel; /* NULL: this entry is free */
	bool connector;			/* this side */
	bool has_hello;
	bool visits; /* a visitor */
	bool said_hello;
	size_t kinds_told, patterns_told; /* of this side's wants: sent so far */
	bool told;			  /* all of them */
	bool said_ready;
	uint64_t beat_at;		 /* the last of this side's beats that it was told */
	bool listed;			 /* all of its wants are here */
	bool ready;			 /* it has said READY */
	bool joined;			 /* it is in the swarm, as `number` */
	bool begun;			 /* its last BEAT says so */
	uint64_t counts[3];		 /* of its last BEAT */
	struct hoist__swarm_share share; /* likewise */
	bool broken;			 /* its channel or its fabric has failed: to be dropped */
	bool farewell; /* it has said BYE, and waits for this side's sends to end */
	uint64_t id;
	bool shows; /* it has all files */
	bool reads; /* it has files: all, or some; before it has joined, as far as is known */
	size_t first_cell;
	size_t done; /* of its pace */
	unsigned number, rank;
	struct hoist__address at;	 /* at which it listens */
	struct hoist__fabric_peer *bulk; /* NULL: before HELLO */
	bool moved;			 /* bytes have gone or come through the fabric */
	bool way_noted;
	struct hoist__neighbour place;			 /* of its slots */
	struct hoist__far_memory *memory;		 /* the same, mapped; NULL: it is not */
	struct hoist__far_lent lent[HOIST__SWARM_SLOTS]; /* to it */
	struct hoist__tour tour;			 /* of a visitor */
	struct hoist__wire_wanting wanting;		 /* its wants, as far as they are here */
	uint64_t heard_at;
};

/* A member that others, or a folder, have named, to be connected to, or one that has gone. */
struct hoist__far_known {
	uint64_t id;
	bool gone;
	bool met;     /* by this member or by one that has told so: its turns count */
	bool earlier; /* it was in the folder before this member */
	unsigned rank;
	unsigned tries; /* of its addresses, in turn */
	uint64_t after; /* it is connected to then, if it has not connected itself */
	size_t first_cell;
	struct hoist__address at[HOIST__FAR_PLACES];
	unsigned n_at;
};

struct hoist__far_slot {
	struct hoist__cell_job job;
	uint64_t blocks[HOIST__CELL_WORDS]; /* that are read, or were asked for */
	uint64_t got[HOIST__CELL_WORDS];    /* of the ask: that have a place, or are there */
	uint64_t reader;		    /* the id of the member that read the blocks */
	uint64_t ticket;		    /* 0: none */
	unsigned peer;			    /* the giver's number */
	uint64_t since;			    /* its bytes came; 0: none yet */
	unsigned n_placed;		    /* pieces on their way into the slot */
	bool leaving;			    /* the swarm waits for the last of these */
	bool failed;			    /* a piece did not come whole */
	bool offered;
	bool populated; /* its own memory has pages, */
	bool pinned;	/* and is registered with the devices' driver: the driving thread's */
	bool lost;	/* it is HERE, but its giver has filled the slot anew */
	struct hoist__far_loan loan;
	bool has_digest;
	struct hoist__wire_digest digest; /* offered, or of `blocks` of a slot that is HERE */
};

/* A cell on its way to a taker: until the fabric has sent all pieces, and the taker has said TOOK
 * or UNASK, or has left. */
struct hoist__far_send {
	uint64_t ticket;
	const struct hoist__far_peer *peer; /* NULL: it has left */
	bool took;			    /* the taker has said TOOK or UNASK, or has left */
	bool busy;			    /* false: this entry is free */
	unsigned slot;
	unsigned number; /* the taker's */
	unsigned n_open; /* pieces in the fabric, and one while they are made */
	size_t n_blocks;
	uint64_t since;
	uint64_t out_at; /* the last piece left the fabric; 0: not yet */
};

enum hoist__far_state { HOIST__FAR_MEETING, HOIST__FAR_BEGUN };

struct hoist__far {
	struct hoist__load_source source;
	unsigned n_ranks; /* 0: unknown */
	unsigned rank;	  /* below n_ranks; says nothing if n_ranks is 0 */
	char *name;	  /* behind the door's address, or the folder */
	char *door_text;  /* "host:port"; the folder */
	int folder_fd;	  /* -1: the group has a door */
	bool posted;	  /* this member's file is in the folder, */
	uint64_t born;	  /* since then, by the clock of the folder's server */
	/* HOST has these addresses.  With a folder: this member; for a visitor, the members. */
	struct hoist__address door[HOIST__FAR_DOORS];
	unsigned n_doors;
	unsigned next_door; /* to be connected to */
	struct hoist__secret secret;
	uint64_t id;
	bool reads; /* it has files: all, or some */
	uint64_t identity[HOIST__CHECKPOINT_IDENTITY];
	uint64_t timeout_ns;

	struct hoist_load *load; /* from begin on */
	struct hoist__cell_charge charge;
	unsigned n_slots;
	struct hoist__shared *shared; /* the board and the slots; NULL: they are in `region` */
	int shared_fd;		      /* that neighbours open; -1: none */
	struct hoist__neighbour place;
	struct hoist__far_board *board; /* NULL: `region` */
	struct hoist__region *region;
	unsigned char *arena;
	struct hoist__cell_pins pins; /* the driving thread's */
	struct hoist__cells cells;
	struct hoist__swarm_wants wants;

	/* The far thread's. */
	struct hoist__fabric *fabric;  /* NULL: this member is alone */
	struct hoist__far_peer *peers; /* HOIST__FAR_PEERS */
	struct hoist__far_known *known;
	unsigned n_known;
	int door_fd[HOIST__FAR_DOORS]; /* at those of HOST's addresses that are this machine's */
	bool is_door;
	int listen_fd;
	struct hoist__address listen_at;
	bool met_door; /* this member is the door, or has the roster of one that was there */
	char why_unmet[HOIST__FAR_TEXT]; /* why this member last failed to meet a process; "" */
	uint64_t crowded_until;
	char crowded[HOIST__FAR_TEXT]; /* why; "" */
	bool ready;
	size_t first_cell;
	uint64_t met_at; /* a member has come or gone last */
	uint64_t opened_at;
	uint64_t door_at; /* the door was tried last */
	uint64_t beat_at;
	size_t beat_done;
	uint64_t beat_counts[3];
	struct hoist__swarm_share beat_share;
	struct hoist__far_send sends[HOIST__SWARM_SENDS];
	unsigned n_lent;
	struct hoist__far_memory memories[HOIST__FAR_MOST_KNOWN]; /* of neighbours */
	unsigned n_left;					  /* of these: to be unmapped */

	pthread_t thread;
	bool has_thread;
	_Atomic bool stopping;
	int bell;
	unsigned char frame[HOIST__CHANNEL_MOST_BYTES]; /* on its way out */
	unsigned char piece[HOIST__TOUR_PIECE];		/* of a file that is shown */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum hoist__far_state state;
	_Atomic int err;
	struct hoist__failure failure;
	struct hoist__failure other_group; /* is at the door; no text: none is */
	hoist_group_report report;	   /* once the load has ended */
	char note[2 * HOIST__FAR_TEXT];	   /* which members are missing or have left, and why */
	struct hoist__far_account account;
	struct hoist__swarm *swarm;
	struct hoist__far_slot *slots; /* n_slots */
	struct hoist__cell_readers readers;
	unsigned queue[HOIST__SWARM_SLOTS]; /* slots to be read */
	unsigned n_queue;
	struct hoist__cell_reader reader;
	int read_err; /* the first reading of this member's that failed */
	struct hoist__failure read_failure;
	struct hoist__failure refusal; /* the last reading that failed at another member; no text:
					* none did */
	_Atomic bool whole;	       /* the load has all that it wants */
};

static inline struct hoist__far *hoist__far_of(struct hoist__load_source *source)
{
	return HOIST__CONTAINER_OF(source, struct hoist__far, source);
}

/* Makes the source of a load.  @group: checked, with a timeout; named "tcp://host:port/name" or
 * "dir:folder/name".
 * Returns: 0; -EINVAL; -EACCES and the like (the secret); -EHOSTUNREACH; as open() (the folder);
 * -ENOMEM. */
int hoist__far_make(const hoist_group *group, struct hoist__load_source **ret);

/* The rest of hoist_group_look(), likewise. */
int hoist__far_look(const hoist_group *group,
		    int (*each)(void *context, const hoist_group_member *member), void *context);

/* Visits a member: connects, sends LOOK or VISIT (@kind), and gives the answers to @take, until
 * @take returns another value than 0.  Returns: that value; -ETIMEDOUT at @end; as channels. */
int hoist__far_ask(struct hoist__far *far, const struct hoist__address *at,
		   enum hoist__wire_kind kind,
		   int (*take)(void *context, const struct hoist__wire_message *message),
		   void *context, uint64_t end);

/* The rest of hoist_group_open(), likewise: opens the checkpoint that a member shows. */
int hoist__far_show(const hoist_group *group, const char *path, unsigned flags,
		    hoist_checkpoint **ret);

/* --- far-name.c --- */

/* Does the member that says @hello have the same files?  Returns: 0; -EINVAL. */
int hoist__far_compare_files(const struct hoist__far *far, const struct hoist__far_peer *peer,
			     const struct hoist__wire_message *hello);

/* The failures: at the door is the group @there, and not @wanted; the group is full. */
int hoist__far_fail_name(const struct hoist__far *far, const char *there, const char *wanted);
int hoist__far_fail_full(const struct hoist__far *far);

/* --- far.c --- */

extern const struct hoist__load_source_ops hoist__far_ops;

unsigned char *hoist__far_slot(const struct hoist__far *far, unsigned slot);

/* The bytes of the cell that its file has. */
size_t hoist__far_cell_bytes(const struct hoist__far *far, size_t cell);

/* Fails the load with hoist_error(). */
void hoist__far_fail(struct hoist__far *far, int err);

/* Has the far thread look again.  Threads: any. */
void hoist__far_ring(struct hoist__far *far);

/* --- far-thread.c --- */

int hoist__far_start(struct hoist__far *far);
void hoist__far_stop(struct hoist__far *far);

/* --- far-meet.c: the far thread's --- */

/* Opens the sockets.  Returns: 0; as hoist__address_find() and hoist__address_listen(). */
int hoist__far_open(struct hoist__far *far);

/* Accepts, connects, and begins when it is time. */
void hoist__far_meet(struct hoist__far *far, uint64_t now);

/* Is there room for one more that connects?  Until then, others wait in the kernel's queue. */
bool hoist__far_accepts(const struct hoist__far *far, uint64_t now);

/* Is the peer at the door of a group that has one? */
bool hoist__far_at_door(const struct hoist__far *far, const struct hoist__far_peer *peer);

/* Learns of a member that is or was there. */
void hoist__far_learn(struct hoist__far *far, const struct hoist__wire_message *roster);

/* The entry of a member, which may be a new one.  NULL: there are too many. */
struct hoist__far_known *hoist__far_known_of(struct hoist__far *far, uint64_t id);

/* Is the text an address in numbers?  A name would have a name server asked. */
bool hoist__far_is_address(const char *text);

/* Keeps id, rank and pace of a member that has left: its turns count.  The report says @why. */
void hoist__far_forget(struct hoist__far *far, const struct hoist__far_peer *gone, const char *why);

/* Members that were there. */
unsigned hoist__far_n_gone(const struct hoist__far *far);
void hoist__far_close(struct hoist__far *far);

/* --- far-folder.c --- */

/* Splits "dir:folder/name", and opens the folder.  Returns: 0; -EINVAL; as open(); -ENOMEM. */
int hoist__far_split_folder(struct hoist__far *far, const char *name);

/* The addresses at which this member shall be found.  Returns: 0; as hoist__address_own(). */
int hoist__far_own_doors(struct hoist__far *far);

/* Posts this member's file.  Returns: 0; as open(), write() and rename(). */
int hoist__far_post(struct hoist__far *far);
void hoist__far_unpost(struct hoist__far *far);

/* Reads the others' files, until this member begins.  The far thread's. */
void hoist__far_look_in_folder(struct hoist__far *far, uint64_t now);

/* For a visitor of a group with a folder: the doors are those of the members that the folder names
 * now. */
void hoist__far_find_doors(struct hoist__far *far);

/* --- far-peer.c: the far thread's --- */

/* A peer for the channel, which becomes the peer's, also on failure.  NULL: no entry is free. */
struct hoist__far_peer *hoist__far_peer_add(struct hoist__far *far, struct hoist__channel *channel,
					    bool connector, uint64_t now);

/* Lets the channel read and write, and handles the messages that have come. */
void hoist__far_peer_work(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now);

/* Sends what is due, and drops a peer that is silent, broken or has gone. */
void hoist__far_peer_look(struct hoist__far *far, struct hoist__far_peer *peer, uint64_t now);

/* The peer has left, for the reason in @why. */
void hoist__far_peer_drop(struct hoist__far *far, struct hoist__far_peer *peer, const char *why,
			  uint64_t now);

/* Sends a message; a peer that cannot take it is to be dropped. */
void hoist__far_say(struct hoist__far *far, struct hoist__far_peer *peer,
		    const struct hoist__wire_message *message);

/* Names to a peer the members that are there, and those that were. */
void hoist__far_tell_roster(struct hoist__far *far, struct hoist__far_peer *to);

/* Says BYE with @err and hoist_error().  Returns: @err, for the caller to drop the peer. */
int hoist__far_send_away(struct hoist__far *far, struct hoist__far_peer *peer, int err);

/* The peer of a member of the swarm; NULL: it has left. */
struct hoist__far_peer *hoist__far_peer_of(struct hoist__far *far, unsigned number);

/* --- far-host.c: the far thread's --- */

/* A LOOK or a VISIT.  Returns: 0; an error: the peer is to be dropped. */
int hoist__far_hear_visitor(struct hoist__far *far, struct hoist__far_peer *peer,
			    const struct hoist__wire_message *m, uint64_t now);

/* Shows a visitor more of the files, as much as the channel's queue may hold. */
void hoist__far_show_more(struct hoist__far *far, struct hoist__far_peer *peer);

/* --- far-move.c: the far thread's --- */

extern const struct hoist__fabric_handlers hoist__far_handlers;

/* Does the swarm's deeds.  Returns: when to look again. */
uint64_t hoist__far_move(struct hoist__far *far, uint64_t now);

/* A giver's OFFER or REFUSE.  Pre: lock. */
void hoist__far_offered(struct hoist__far *far, const struct hoist__far_peer *peer,
			const struct hoist__wire_message *offer);
void hoist__far_refused(struct hoist__far *far, const struct hoist__far_peer *peer,
			const struct hoist__wire_message *refuse);

/* A message that has nothing but a ticket, to a member of the swarm, unless the member has left. */
void hoist__far_say_ticket(struct hoist__far *far, unsigned number, enum hoist__wire_kind kind,
			   uint64_t ticket);

/* The slot that waits for an answer under the ticket; NULL: none.  Pre: lock. */
struct hoist__far_slot *hoist__far_slot_of_ticket(struct hoist__far *far, uint64_t ticket);

/* The pieces of a cell: runs of its blocks, up to the end of the file. */
struct hoist__far_piece {
	unsigned next; /* block: 0 before the first piece */
	size_t offset; /* in the cell */
	size_t bytes;
};
bool hoist__far_next_piece(const struct hoist__far *far, size_t cell, const uint64_t *blocks,
			   struct hoist__far_piece *piece);

/* The taker has said TOOK or UNASK.  Pre: lock. */
void hoist__far_took(struct hoist__far *far, uint64_t ticket);

/* Are sends on their way to the peer; to any, with NULL? */
bool hoist__far_is_sending(const struct hoist__far *far, const struct hoist__far_peer *peer);

/* Does the peer keep one of this member's sends for too long?  It breaks the rules, as it would say
 * UNASK. */
bool hoist__far_keeps_send(struct hoist__far *far, const struct hoist__far_peer *peer,
			   uint64_t now);

/* The process did not run for @gap: the takers' time was as long. */
void hoist__far_excuse_takers(struct hoist__far *far, uint64_t gap);

/* The peer has left: its sends wait for no TOOK. */
void hoist__far_forget_sends(struct hoist__far *far, struct hoist__far_peer *peer);

/* The blocks in the slot, or those that come to it, were read by the member @id.  Pre: lock. */
void hoist__far_note_reader(struct hoist__far *far, struct hoist__far_slot *slot, uint64_t id);

/* Are bytes on their way into slots? */
bool hoist__far_is_taking(struct hoist__far *far);

#endif
