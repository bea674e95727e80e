/* SPDX-License-Identifier: MIT */
/* alloc/deferred-private.h - shared by deferred.c and deferred-table, -sweep and -end.c.
 *
 *   held        a block that is pending, or live and used by streams     by address
 *   use         one stream that a block waits for (deferred.h: entry)    in the block
 *   batch       uses that one event stands for                           in its queue
 *   bin         pending blocks of one queue that are of one size         by queue and size
 *   queue       a stream                                                 by stream
 *
 * All but queues live in cells of one size, from one free list.  Memory is allocated only when the
 * list is too short, and never under the lock.
 *
 * A use is linked in a batch while its block waits for the use.  A block that waits for no use
 * (n_waits is 0) is live, captured, or ready: the next sweep hands it out.
 *
 * Driver calls are made without the lock.  Meanwhile `pins` keep a queue or a batch (and its event)
 * alive, and `n_busy` keeps hoist__deferred_forget() from returning while a call names the stream.
 *
 * In a child of fork, queues of the parent's streams are stale: they are never found and never
 * asked, and blocks that wait in them wait for ever.
 *
 * Functions are called with the lock held unless they say otherwise.  [unlocks]: the function drops
 * the lock in between, so that everything that is not pinned may have changed.
 */
#ifndef HOIST_ALLOC_DEFERRED_PRIVATE_H
#define HOIST_ALLOC_DEFERRED_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/deferred.h"
#include "base/assert.h"
#include "base/list.h"

#define HOIST__DEFERRED_STREAMS 64 /* buckets */
#define HOIST__DEFERRED_BINS 128   /* buckets of bins, of one queue */

struct hoist__held;

struct hoist__held_use {
	struct hoist__list link; /* in its batch */
	struct hoist__held_use *next;
	struct hoist__held *block;
	struct hoist__held_queue *queue; /* NULL: not in use (a block's first one) */
	struct hoist__held_batch *batch; /* NULL unless linked */
	uint64_t capture; /* the capture whose graph has this use, and may run it again; or 0 */
	bool asked;	  /* the push that is going on has asked this stream */
};

struct hoist__held {
	struct hoist__held *next; /* in its bucket */
	uintptr_t address;
	size_t allocated; /* 0: live */
	struct hoist__held_use first;
	struct hoist__held_bin *bin;
	struct hoist__list of_bin;
	struct hoist__list node; /* in the list of captured or of ready blocks */
	unsigned n_waits;
	bool captured;
};

struct hoist__held_batch {
	struct hoist__list node; /* in the queue's closed batches, or in the idle ones */
	struct hoist__list uses;
	size_t n_uses;
	struct hoist__held_events *events;
	struct hoist__dev_event *event; /* the event stays with an idle batch; NULL: none yet */
	uint64_t sequence;		/* of the recording: a wait takes the oldest first */
	unsigned pins;
	bool recording; /* one thread is recording, which alone touches event */
	bool recorded;
	bool gone; /* out of its queue: the batch becomes idle when the last pin goes */
};

struct hoist__held_bin {
	struct hoist__held_bin *next;
	struct hoist__held_queue *queue;
	size_t allocated;
	uint64_t capture;	   /* 0: pending blocks; else captured blocks of that capture */
	struct hoist__list blocks; /* latest first */
};

union hoist__held_cell {
	union hoist__held_cell *next;
	struct hoist__held block;
	struct hoist__held_use use;
	struct hoist__held_batch batch;
	struct hoist__held_bin bin;
};

/* Idle batches with events of one device. */
struct hoist__held_events {
	struct hoist__held_events *next;
	struct hoist__dev *dev;
	struct hoist__list idle;
};

struct hoist__held_queue {
	struct hoist__held_queue *next; /* in its bucket */
	struct hoist__list node;	/* of all queues */
	struct hoist__dev_stream *stream;
	struct hoist__held_events *events;
	struct hoist__held_batch *open; /* or NULL */
	struct hoist__list closed;	/* oldest first */
	size_t n_uses;			/* in all, linked or not */
	size_t n_linked;
	uint64_t capture; /* the number of the last capture that was seen */
	unsigned generation;
	unsigned n_busy;
	unsigned pins;
	bool capturing; /* when last asked */
	bool forgotten;
	struct hoist__held_bin *bins[HOIST__DEFERRED_BINS];
};

struct hoist__held_chunk {
	struct hoist__held_chunk *next;
	union hoist__held_cell cells[];
};

struct hoist__deferred {
	struct hoist__deferred_options options;
	pthread_mutex_t lock;
	struct hoist__held **buckets; /* n_buckets, a power of two */
	size_t n_buckets;
	size_t n_held;
	union hoist__held_cell *free;
	size_t n_free;
	struct hoist__held_chunk *chunks;
	struct hoist__held_queue *streams[HOIST__DEFERRED_STREAMS];
	struct hoist__list queues;
	size_t n_queues;
	struct hoist__held_queue *spare; /* by next */
	struct hoist__held_events *events;
	struct hoist__list captured;
	struct hoist__list ready;
	uint64_t sequence;
	uint64_t captures;
	_Atomic size_t bytes;
	_Atomic size_t n_pending; /* with ready blocks, without captured ones */
};

static inline bool hoist__held_stale(const struct hoist__held_queue *queue)
{
	return queue->generation != hoist__fork_now();
}

/* Walks through a block's uses.  NULL gives the first use, and the last use gives NULL. */
static inline struct hoist__held_use *hoist__held_next_use(struct hoist__held *block,
							   struct hoist__held_use *use)
{
	if (use != NULL)
		return use->next;
	return block->first.queue == NULL ? NULL : &block->first;
}

/* Changes a counter that is written under the lock, and read without it. */
static inline void hoist__held_count(_Atomic size_t *counter, size_t more, size_t less)
{
	size_t now = atomic_load_explicit(counter, memory_order_relaxed);
	HOIST__ASSERT(now + more >= less);
	atomic_store_explicit(counter, now + more - less, memory_order_relaxed);
}

/* True if a graph may use the block again. */
static inline bool hoist__held_in_graph(struct hoist__held *block)
{
	for (struct hoist__held_use *use = NULL; (use = hoist__held_next_use(block, use)) != NULL;)
		if (use->capture != 0)
			return true;
	return false;
}

static inline void hoist__held_make_captured(struct hoist__deferred *deferred,
					     struct hoist__held *block)
{
	HOIST__ASSERT(!block->captured && block->allocated != 0 && block->n_waits == 0);
	HOIST__ASSERT(hoist__held_in_graph(block));
	block->captured = true;
	hoist__list_push_back(&deferred->captured, &block->node);
}

/* --- deferred-table.c --- */

int hoist__held_tables_init(struct hoist__deferred *deferred);
void hoist__held_tables_fini(struct hoist__deferred *deferred);

/* Makes sure that there are @n free cells.  Returns: 0: the lock was held throughout; 1 [unlocks]:
 * the caller must look again; -ENOMEM [unlocks]. */
int hoist__held_reserve(struct hoist__deferred *deferred, size_t n);

struct hoist__held *hoist__held_find(const struct hoist__deferred *deferred, uintptr_t address);
/* Adds a live block without uses.  Takes a cell. */
struct hoist__held *hoist__held_add(struct hoist__deferred *deferred, uintptr_t address);
/* Removes the block and its uses, which wait for nothing. */
void hoist__held_remove(struct hoist__deferred *deferred, struct hoist__held *block);
/* Makes the table of blocks larger if it is full [unlocks].  Returns: true if it unlocked. */
bool hoist__held_grow(struct hoist__deferred *deferred);

/* Adds @queue to the uses of the block, unless it is one already.  Takes a cell at most. */
struct hoist__held_use *hoist__held_use(struct hoist__deferred *deferred, struct hoist__held *block,
					struct hoist__held_queue *queue);

struct hoist__held_queue *hoist__held_queue_find(const struct hoist__deferred *deferred,
						 const struct hoist__dev_stream *stream);
/* Returns: as hoist__held_reserve(). */
int hoist__held_queue_make(struct hoist__deferred *deferred, struct hoist__dev_stream *stream);
void hoist__held_queue_forget(struct hoist__deferred *deferred, struct hoist__held_queue *queue);
void hoist__held_queue_unpin(struct hoist__deferred *deferred, struct hoist__held_queue *queue);

/* Returns: NULL if there is neither an idle batch nor a cell. */
struct hoist__held_batch *hoist__held_batch_take(struct hoist__deferred *deferred,
						 struct hoist__held_queue *queue);
/* Takes the batch, which has no uses, out of its queue. */
void hoist__held_batch_drop(struct hoist__held_batch *batch);
void hoist__held_batch_unpin(struct hoist__held_batch *batch);

/* Takes the events of idle batches, which the caller owns from then on.  Returns: how many, at most
 * @n. */
size_t hoist__held_events_take(struct hoist__deferred *deferred, struct hoist__dev_event **ret,
			       size_t n);

struct hoist__held_bin *hoist__held_bin_find(const struct hoist__held_queue *queue,
					     size_t allocated, uint64_t capture);
/* Takes a cell at most. */
void hoist__held_bin_put(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			 struct hoist__held *block, uint64_t capture);
void hoist__held_bin_remove(struct hoist__deferred *deferred, struct hoist__held *block);

/* --- deferred-sweep.c --- */

/* Pre: no lock held, and @stream exists.  True also if the driver cannot say. */
bool hoist__held_capturing(struct hoist__deferred *deferred, struct hoist__dev_stream *stream);
void hoist__held_note_capture(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			      bool capturing);
/* [unlocks] Asks, then notes, for a queue that is not forgotten. */
bool hoist__held_ask(struct hoist__deferred *deferred, struct hoist__held_queue *queue);

/* Makes the block wait for this use.  There is nothing to wait for if the work of the use has
 * passed.
 * Returns: false if there is no cell for a batch. */
bool hoist__held_wait_for(struct hoist__deferred *deferred, struct hoist__held_use *use);
void hoist__held_wait_no_more(struct hoist__held_use *use);
/* The block waits for nothing: the next sweep hands it out. */
void hoist__held_make_ready(struct hoist__deferred *deferred, struct hoist__held *block);

/* hoist__held_wait_for() for all uses of the block.  Returns: as there. */
bool hoist__held_wait_for_all(struct hoist__deferred *deferred, struct hoist__held *block);
void hoist__held_wait_for_none(struct hoist__held *block);

/* Closes the open batch, if it has uses: it becomes the last closed batch. */
void hoist__held_close(struct hoist__held_queue *queue);
/* True for a batch whose blocks were all taken again: it needs no event, unless later frees will
 * wait for it. */
bool hoist__held_needless(const struct hoist__held_queue *queue,
			  const struct hoist__held_batch *batch);
/* [unlocks] Records the closed batches that were not recorded yet.  Pre: the queue is pinned.  Once
 * the queue is forgotten, only the caller with @forgetting records: the stream goes away behind
 * that call.
 * Returns: true if nothing is left to record. */
bool hoist__held_record_all(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			    bool forgetting);
/* [unlocks] Waits for the stream, and passes the batches that were closed before.  Pre: the queue
 * is pinned.
 * Returns: true if the driver says that no work of the stream runs any more. */
bool hoist__held_synchronize(struct hoist__deferred *deferred, struct hoist__held_queue *queue);

/* Passes all batches of the queue, whatever the driver says. */
void hoist__held_pass_all(struct hoist__deferred *deferred, struct hoist__held_queue *queue);

#endif
