/* SPDX-License-Identifier: MIT */
/* lib/group/group-shm.h - the transport of one machine: memory that the ranks share.
 *
 *   group-shm.c        the object: slots, cells, the watch over the others
 *   group-shm-meet.c   how ranks find each other
 *   group-shm-wire.c   messages
 *
 * Each rank makes one piece of memory, which no other process can write to or shrink
 * (alloc/shared.h):
 *
 *     [ header ][ wants (ownership.h) ][ hole ][ slot 0 ]...[ slot N - 1 ]
 *
 * and one bell (an eventfd), which the others ring when there is something to see.  The slots begin
 * at a multiple of 2 MiB, so that each can be a huge page.  Each rank has an N of its own, which
 * follows from the size of its memory.
 *
 * Rank 0 listens at an abstract socket, which is no file.  The others connect, and send their
 * memory and their bell.  Once all are there, rank 0 stops to listen, and sends each the memory and
 * the bells of all.  From then on a message is an error: the connections only tell that a process
 * has ended.  A child of fork may keep a rank's end of a connection open, so each end also watches
 * the other's process (a pidfd, where the kernel and the namespaces give one).
 *
 *     rank 0                                        rank r
 *     bind, listen                                  connect, until rank 0 listens
 *       <-- HELLO rank, n_ranks, identity, memory, bell ---
 *       --- WELCOME, or REFUSED why ---------------------->
 *       --- ROSTER memory and bell of each rank ----------> (or REFUSED)
 *
 * Every word of a header has one writer, the header's owner:
 *
 *     published[s]     k + 1: the owner's cell k is in its slot s
 *     released[o][s]   k + 1: this rank needs cell k of owner o no more
 *     waits            1: this rank has looked in vain for a cell or a slot, and is to be rung for
 *                      each that comes.  Rings that nobody waits for are left out
 *     beat             counts, while the load is driven
 *     done             1: this rank has all that it wants
 *     failed           the errno of a rank that left; its text is valid then
 *
 * A rank is missed if its beat has not changed during as many of the watcher's own ticks as make
 * up the timeout: a machine that sleeps, or a whole group that is stopped, misses nobody.
 *
 * All are done: each header says so.  From then on nobody's end is a failure.
 *
 * Threads: one of the transport's own meets the others and watches them.  `lock` guards `state`,
 * `err` and `failure`.  Others' memory is constant once `state` is MET.
 */
#ifndef HOIST_LIB_GROUP_GROUP_SHM_H
#define HOIST_LIB_GROUP_GROUP_SHM_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "alloc/shared.h"
#include "base/error.h"
#include "lib/group/transport.h"
#include "lib/swarm/cell-pin.h"

#define HOIST__SHM_VERSION 4u
#define HOIST__SHM_TEXT_BYTES 1000u
#define HOIST__SHM_NAME_BYTES 64u /* with its end; a socket's address has 108 bytes */

/* --- what ranks see of each other --- */

struct hoist__shm_header {
	_Atomic uint32_t beat;
	_Atomic uint32_t waits;
	_Atomic uint32_t done;
	_Atomic int32_t failed;
	char text[HOIST__SHM_TEXT_BYTES];
	_Atomic uint32_t published[HOIST__GROUP_MOST_SLOTS];
	_Atomic uint32_t released[HOIST__GROUP_RANKS][HOIST__GROUP_MOST_SLOTS];
};

#define HOIST__SHM_HEADER_BYTES ((size_t)16384)

struct hoist__shm_peer {
	struct hoist__shared *shared; /* NULL: it has not come */
	struct hoist__shm_header *header;
	int bell;	  /* -1: none */
	int socket;	  /* rank 0: to this rank; the others: peers[0] alone has one; -1: none */
	int process;	  /* of the same; -1: none */
	unsigned n_slots; /* from the size of `shared` */
	bool pinned[HOIST__GROUP_MOST_SLOTS];
	uint32_t beat;	   /* as last seen, */
	unsigned n_silent; /* so many ticks ago */
};

enum hoist__shm_state { HOIST__SHM_MEETING, HOIST__SHM_MET };

struct hoist__transport {
	struct hoist__transport_options options; /* `wants` is not followed after open */
	char name[HOIST__SHM_NAME_BYTES];
	uint64_t tick_ns;
	unsigned n_ticks;				  /* in the timeout */
	struct hoist__shm_peer peers[HOIST__GROUP_RANKS]; /* this rank's own among them */
	char note[HOIST__SHM_TEXT_BYTES]; /* rank 0: the last guest that was sent away, and why */

	pthread_t thread;
	bool has_thread;
	struct hoist__cell_pins pins; /* the driving thread's */
	_Atomic bool stopping;
	_Atomic bool stepped; /* the load was driven since the last tick */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum hoist__shm_state state;
	int err;
	struct hoist__failure failure;
};

static inline struct hoist__shm_header *hoist__shm_own(const struct hoist__transport *t)
{
	return t->peers[t->options.rank].header;
}

/* The place of the first slot in a rank's memory. */
size_t hoist__shm_slots_at(const struct hoist__transport *t);

/* Closes the connection to the rank. */
void hoist__shm_hang_up(struct hoist__shm_peer *peer);

/* Rings the rank's bell; never blocks. */
void hoist__shm_ring(const struct hoist__transport *t, unsigned rank);

/* --- group-shm-meet.c --- */

/* Finds the others, and maps their memory.
 * Returns: 0; -ECANCELED once `stopping` is set; as transport->meet(). */
int hoist__shm_meet(struct hoist__transport *t);

/* Rank 0 sends the ranks that have joined the present failure, @err.  A rank that has the roster
 * takes the message for rank 0's end, and looks at rank 0's header: `failed` must be set. */
void hoist__shm_dismiss(struct hoist__transport *t, int err);

/* --- group-shm-wire.c --- */

enum hoist__shm_kind {
	HOIST__SHM_HELLO = 1,
	HOIST__SHM_WELCOME,
	HOIST__SHM_REFUSED,
	HOIST__SHM_ROSTER,
	HOIST__SHM_KINDS
};

struct hoist__shm_message {
	char magic[8];
	uint32_t version;
	uint32_t kind;
	uint32_t rank;
	uint32_t n_ranks;
	uint64_t n_cells;
	uint64_t identity[2];
	int32_t err;
	uint32_t reserved;
	char text[HOIST__SHM_TEXT_BYTES];
};

#define HOIST__SHM_MOST_FDS (2 * HOIST__GROUP_RANKS)

/* The abstract address of the group's rank 0.  Returns: its bytes. */
socklen_t hoist__shm_address(const char *name, struct sockaddr_un *ret);

/* Returns: 0; -EPERM, the peer is another user's. */
int hoist__shm_check_peer(int socket, const char *name);

/* Returns: a descriptor that is readable once the peer's process has ended; -1: there is none. */
int hoist__shm_process(int socket);

/* A message of @kind of this rank. */
void hoist__shm_message_init(const struct hoist__transport *t, enum hoist__shm_kind kind,
			     struct hoist__shm_message *ret);

/* Neither blocks.  Received descriptors are the caller's.
 * Returns: 0; -EAGAIN (receive: nothing has come); -ECONNRESET, the peer has ended; -EPROTO,
 * another version; -EBADMSG; -EMFILE. */
int hoist__shm_send(int socket, const struct hoist__shm_message *message, const int *fds,
		    unsigned n_fds);
int hoist__shm_receive(int socket, struct hoist__shm_message *ret, int *fds, unsigned *n_fds);

/* Ends the text of another process within its bytes, without control characters. */
void hoist__shm_clean(char text[static HOIST__SHM_TEXT_BYTES]);

#endif
