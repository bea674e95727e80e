/* SPDX-License-Identifier: MIT */
/* lib/load/give.h - a load that gives its tensors while it runs (HOIST_LOAD_STREAM).
 *
 *   give.c         the states of lots, the line of READY lots, and telling the callers
 *   give-window.c  the window: lots take memory when their bytes are due
 *   load-next.c    hoist_load_next() and hoist_load_fd()
 *
 * Tensors are given lot by lot (lib/plan/plan.h).  The state of a lot:
 *
 *     ABSENT     has no memory yet (only with a window)
 *     NEEDED     a chunk of it is next, and room for it is looked for
 *     TAKEN      has memory; its chunks are read
 *     QUEUED     all of it is in host memory, or its copies are queued (`left` of the lot is 0)
 *     COMPLETE   its bytes are there, in the order of the stream on which its buffers are
 *     READY      its tensors are given, or have been
 *
 * On a stream of the caller's a QUEUED lot is COMPLETE: later work on that stream is behind the
 * copies.  On a stream of the load's own it is COMPLETE when as many slots have been copied as had
 * been queued by then (`ticket`), as slots come back in order.  A COMPLETE lot is READY when all
 * lots before it on its disk are: tensors are given in the order of the plan, except that disks do
 * not wait for each other.  Empty tensors have no lot; they come first, as if they were a lot of
 * their own, with the number plan.n_lots.
 *
 * READY lots stand in a line.  hoist_load_next() gives the tensors of the first one, each to all
 * targets of the lot's want, and drops the load's reference with the last.
 *
 * Window: on each target, `held` bytes of lots are taken and not back; `out` of these are READY or
 * given.  A lot is back when its storage has ended (hoist__storage_watch()).  A chunk is submitted
 * when all of its lots have memory.  These are taken together, if on each target
 *
 *   - held and the bytes needed are at most the window, or
 *   - nothing is held, or
 *   - nothing is out, and nothing is read or copied: no other chunk can make room any more.  (The
 *     chunks of tensors that overlap have several lots; other chunks have one.)
 *
 * A disk whose lots do not fit has the turn: no other disk takes a lot before it, so that a large
 * tensor is not passed by small ones for ever.  Lots that are taken need only slots to become
 * READY, so a load stops only for bytes that its caller has.  It is then `starved`.
 *
 * Told: waiters, and the descriptor, which is readable exactly while a call would not time out.
 * When room is made, the pump's wait in the engine ends.
 *
 * Threads: fields under `lock` are any thread's; the others are the pump's, or constant.  With the
 * lock held nothing drops a storage.  The struct lives as long as the load and the storages that
 * it watches.  In a forked child, a storage's end does nothing here.
 */
#ifndef HOIST_LIB_LOAD_GIVE_H
#define HOIST_LIB_LOAD_GIVE_H

#include "lib/load/load.h"

enum hoist__give_state {
	HOIST__GIVE_ABSENT,
	HOIST__GIVE_NEEDED,
	HOIST__GIVE_TAKEN,
	HOIST__GIVE_QUEUED,
	HOIST__GIVE_COMPLETE,
	HOIST__GIVE_READY
};

/* One target's part of the window. */
struct hoist__give_window {
	uint64_t held;
	uint64_t out;
	uint64_t needs; /* of the lots that the disk with the turn waits for */
};

/* One lot on one target: what its storage's end changes. */
struct hoist__give_place {
	struct hoist__give *give;
	unsigned target;
	uint64_t bytes;
	bool out;
};

struct hoist__give {
	/* Constant. */
	_Atomic unsigned refs;
	unsigned generation;   /* of the process that made it: hoist__fork_now() */
	uint64_t window_bytes; /* 0: all lots are taken at the start */
	unsigned n_targets;
	size_t *first_of;  /* lot l <= plan.n_lots has tensor_of[first_of[l] .. first_of[l + 1]) */
	size_t *tensor_of; /* plan.tensors[] */
	struct hoist__give_place *places; /* with a window: [target * n_lots + lot] */

	/* The pump's. */
	enum hoist__give_state *states;
	uint64_t *tickets;
	size_t *queued; /* lots that wait for their ticket, in the order of tickets */
	size_t n_queued;
	size_t n_copied; /* of these, COMPLETE */
	uint64_t slots_queued;
	uint64_t slots_copied;
	size_t next_of[HOIST__MAX_DISKS]; /* the disk's first lot that is not READY */
	unsigned turn;			  /* a disk; HOIST__MAX_DISKS: none waits for room */

	/* Under lock. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct hoist__engine *engine; /* to be woken when there is room; NULL: none */
	struct hoist__give_window *windows;
	size_t due;	/* the lot that the disk with the turn waits for */
	uint64_t peak;	/* the most bytes held on one target */
	size_t *line;	/* READY lots, in order */
	bool *is_ready; /* of each lot */
	size_t n_line;
	size_t n_gone;	    /* of these, all given */
	size_t at;	    /* the tensor that is next in the first lot that is not gone, */
	unsigned at_target; /* and the target */
	bool starved;
	bool over; /* the load has ended; its outcome is known */
	int fd;
	bool readable; /* the descriptor is */
};

/* True if a lot only waits for the end of copies. */
bool hoist__give_awaits_copies(const struct hoist_load *load);

/* Pre: the plan is made.  Returns: 0; -ENOMEM. */
int hoist__give_create(struct hoist_load *load);
void hoist__give_unref(struct hoist__give *give);
/* The load ends: closes the descriptor, and drops the load's reference.  Takes NULL. */
void hoist__give_close(struct hoist__give *give);

/* --- the pump's calls; without STREAM they do nothing --- */

/* The engine exists, and the disks are known. */
void hoist__give_begin(struct hoist_load *load);

/* Takes the memory of the lots of the disk's next chunk.  False: there is no room for them now, or
 * the load has failed. */
bool hoist__give_admits(struct hoist_load *load, unsigned disk);

/* All of a lot is in host memory, or on its way to the devices. */
void hoist__give_lot(struct hoist_load *load, size_t lot);

/* A slot was queued; so many were copied. */
void hoist__give_queued(struct hoist_load *load);
void hoist__give_copied(struct hoist_load *load, unsigned n);

/* All lots at once: maps. */
void hoist__give_all(struct hoist_load *load);

/* True if the load waits for nothing but room.  *@fresh: the callers have just been told so. */
bool hoist__give_starves(struct hoist_load *load, bool *fresh);

/* The engine ends. */
void hoist__give_part(struct hoist_load *load);

/* The load has ended; its outcome is known. */
void hoist__give_end(struct hoist_load *load);

uint64_t hoist__give_peak(struct hoist_load *load);

/* --- between the files --- */

/* The lot's place on a target. */
static inline struct hoist__give_place *hoist__give_place(const struct hoist_load *load,
							  unsigned target, size_t lot)
{
	return &load->give->places[target * load->plan.n_lots + lot];
}

/* The name of the lot's first tensor, for messages. */
static inline const char *hoist__give_name(const struct hoist_load *load, size_t lot)
{
	size_t first = load->give->tensor_of[load->give->first_of[lot]];
	return hoist__load_entry(load, first)->tensor->name;
}

/* True if the lots that the disk with the turn needs may be taken, on one target and on all; @idle:
 * nothing is read or copied.  Pre: locked. */
bool hoist__give_fits_on(const struct hoist__give *give, unsigned target, bool idle);
bool hoist__give_fits(const struct hoist__give *give, bool idle);

/* Tells waiters and the descriptor of a change.  Pre: locked. */
void hoist__give_tell(struct hoist__give *give);

/* True if hoist_load_next() has something to say.  Pre: locked. */
bool hoist__give_speaks(const struct hoist__give *give);

/* Notes that the storage of the place has ended, in any thread. */
void hoist__give_back(void *place);

/* True if the tensor is one that has been given, or may be at once. */
bool hoist__give_is_ready(struct hoist_load *load, size_t index);

#endif
