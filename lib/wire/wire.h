/* SPDX-License-Identifier: MIT */
/* lib/wire/wire.h - the messages of members and visitors to each other, as frames of a channel.
 *
 * Numbers are little-endian.  A frame of an unknown kind, with bytes too few or too many, or with a
 * number out of its range, is an error of its sender's.  A change here raises
 * HOIST__CHANNEL_VERSION.
 */
#ifndef HOIST_LIB_WIRE_WIRE_H
#define HOIST_LIB_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/checkpoint/checkpoint.h"
#include "lib/swarm/swarm-wants.h"
#include "lib/swarm/swarm.h"
#include "net/address.h"
#include "net/channel.h"
#include "net/fabric.h"
#include "net/neighbour.h"

#define HOIST__WIRE_NAME_BYTES 64u		   /* of a group, with its end */
#define HOIST__WIRE_MOST_CELLS ((uint64_t)1 << 26) /* 128 TiB */
#define HOIST__WIRE_REASON 200u			   /* bytes of a message's text, with its end */
#define HOIST__WIRE_MOST_KINDS 16384u		   /* cells of one WANTS, */
#define HOIST__WIRE_MOST_PATTERNS 512u		   /* bitmaps of one PATTERNS */

/* lib/far/far.h says which side sends each message, and when. */
enum hoist__wire_kind {
	HOIST__WIRE_HELLO = 1,
	HOIST__WIRE_ROSTER, /* one member that is or was there */
	HOIST__WIRE_ROSTER_END,
	HOIST__WIRE_WANTS,    /* kinds of `n` cells from cell `at` on (swarm-wants.h) */
	HOIST__WIRE_PATTERNS, /* `n` bitmaps from the `at`-th on */
	HOIST__WIRE_READY,
	HOIST__WIRE_BEAT,
	HOIST__WIRE_ASK,
	HOIST__WIRE_UNASK,
	HOIST__WIRE_REFUSE,
	HOIST__WIRE_OFFER,
	HOIST__WIRE_LEND, /* slot `n` of the sender's, in edition `at`, has the blocks */
	HOIST__WIRE_TOOK, /* the taker awaits nothing more under the ticket */
	HOIST__WIRE_WARN,
	HOIST__WIRE_VISIT,    /* instead of HELLO: asks for the files (tour.h) */
	HOIST__WIRE_FILE,     /* file `n` is `text`, of `done` bytes */
	HOIST__WIRE_BYTES,    /* of file `n`, from byte `at` on */
	HOIST__WIRE_DIGITS,   /* from the `at`-th on, of the digests kept beside file `n` */
	HOIST__WIRE_LOOK,     /* instead of HELLO: asks for a MEMBER of each, then BYE */
	HOIST__WIRE_MEMBER,   /* one member, and how far the member is */
	HOIST__WIRE_TOUR_END, /* `text` is to be opened; "": the folder */
	HOIST__WIRE_BYE,      /* the sender leaves; err < 0: it sends the other side away */
};

struct hoist__wire_digest {
	uint64_t low, high; /* XXH3-128 */
};

struct hoist__wire_message {
	enum hoist__wire_kind kind;
	uint64_t id; /* HELLO, ROSTER, WARN, MEMBER: of a member; OFFER, LEND: of the reader */
	uint64_t identity[HOIST__CHECKPOINT_IDENTITY]; /* HELLO, TOUR_END: of the checkpoint */
	uint64_t n_cells;			       /* HELLO, MEMBER: of the checkpoint */
	uint64_t n_patterns;			       /* HELLO: of the wants */
	uint64_t cell;				       /* ROSTER, READY: the first of a pace; ASK */
	uint64_t ticket;			       /* ASK, UNASK, REFUSE, OFFER, LEND, TOOK */
	uint64_t at;				       /* WANTS, PATTERNS, BYTES, DIGITS, LEND */
	uint64_t done;				       /* BEAT, MEMBER: cells; FILE: bytes */
	uint32_t n;			 /* WANTS, PATTERNS, FILE, BYTES, DIGITS, LEND */
	uint32_t rank;			 /* HELLO, ROSTER, MEMBER */
	uint32_t n_ranks;		 /* MEMBER: of the group; 0: unknown */
	uint32_t port;			 /* HELLO: at which the member listens */
	int32_t err;			 /* BYE */
	struct hoist__swarm_share share; /* BEAT */
	uint64_t counts[3]; /* BEAT, MEMBER: bytes from storage, from members, to members */
	bool begun;	    /* BEAT, MEMBER: the member has begun */
	bool flag;	    /* HELLO: the member has all files; MEMBER: some; ROSTER: it has gone;
			     * ASK: the last resort; WARN: it gave wrong bytes */
	bool lend;	    /* ASK: LEND will do */
	struct hoist__neighbour place;	    /* HELLO */
	uint64_t blocks[HOIST__CELL_WORDS]; /* ASK */
	struct hoist__wire_digest digest;   /* OFFER: of the blocks; FILE:
					     * hoist__checkpoint_sample() */
	char text[HOIST__WIRE_REASON]; /* HELLO, VISIT, LOOK: the group's name; ROSTER, MEMBER: an
					* address, or "": that of the sender; BYE: why; REFUSE: why,
					* if a reading failed; FILE, TOUR_END: a file's name */
	const unsigned char *bytes; /* HELLO: the fabric's address; WANTS, PATTERNS, BYTES, DIGITS:
				     * in the frame */
	size_t n_bytes;
};

/* Returns: the bytes of the payload, at most HOIST__CHANNEL_MOST_BYTES. */
size_t hoist__wire_pack(const struct hoist__wire_message *message,
			unsigned char ret[static HOIST__CHANNEL_MOST_BYTES]);

/* Returns: 0; -EBADMSG. */
int hoist__wire_unpack(const struct hoist__frame *frame, struct hoist__wire_message *ret);

/* --- wants, in pieces --- */

struct hoist__wire_wanting {
	struct hoist__swarm_wants wants;
	size_t kinds_here, patterns_here;
};

/* Begins to take the wants of a HELLO.  Returns: 0; -ENOMEM. */
int hoist__wire_wanting_begin(struct hoist__wire_wanting *wanting,
			      const struct hoist__wire_message *hello);

/* Takes a WANTS or PATTERNS, which come in order.  Returns: 0; -EBADMSG. */
int hoist__wire_wanting_take(struct hoist__wire_wanting *wanting,
			     const struct hoist__wire_message *message);

/* Are all here?  Then hoist__swarm_wants_check() may see them. */
static inline bool hoist__wire_wanting_whole(const struct hoist__wire_wanting *wanting)
{
	return wanting->wants.kinds != NULL && wanting->kinds_here == wanting->wants.n_cells &&
	       wanting->patterns_here == wanting->wants.n_patterns;
}

#endif
