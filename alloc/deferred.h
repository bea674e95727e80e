/* SPDX-License-Identifier: MIT */
/* alloc/deferred.h - blocks that were freed while streams may still use them.
 *
 * A free on a stream says: the block is free once the stream has passed the work that is queued
 * now.  That point is an event.  Events are expensive (tens of microseconds when many threads
 * record), so one event serves a batch:
 *
 *   queue   one per stream: an open batch that collects frees, and closed batches,
 *           each with the event recorded behind it, oldest first
 *   batch   closed when it holds HOIST__DEFERRED_BATCH blocks, or at a sweep
 *   entry   one block in one queue.  A block that several streams use has an entry
 *           in the queue of each, and is passed when all its entries are
 *
 * A block with one entry can be taken again for the same stream without an event, whether its batch
 * is closed or not: the next user is behind the last one in the same queue.  This holds for device
 * memory alone.  Where the host may write next, no block is given out before its event.
 *
 * A block that was taken again, and a block that hoist__deferred_use() named, has `users`: streams
 * that its free must wait for, whichever thread frees it and on whatever stream.
 *
 * Capture: an event is never recorded on a stream that captures, nor queried while the stream
 * captures.  A block freed on such a stream, or used by it (named in a use, a push or a take
 * meanwhile), is captured until hoist__deferred_release_captured(): the graph may run again and use
 * the block then.  While the capture lasts, the block can be taken for the same stream.  No other
 * block can be taken for that stream: a graph is not behind the work that its stream got before.
 * The work before the capture that used the captured block is the caller's to order: such a block
 * is for its stream alone until that work has passed.
 *   Nothing tells afterwards that a stream captured.  So each use, push and take asks the driver, if
 * the stream may capture at all (hoist__dev_stream_may_capture()).  If it may not, the three calls
 * call no driver, except to record full batches.  Asking once a batch would miss a capture that
 * begins and ends within it, and two users would write the same memory when the graph runs.  Two
 * captures of one stream with no call between that names the stream count as one: their
 * graphs share blocks.
 *   If the driver cannot say, twice in turn, the stream counts as capturing.  A stream that begins
 * to capture while another thread's sweep records on it is noticed behind the recording, which is
 * repeated later.  The query of a sweep that runs at that moment is not repeated.
 *
 * Streams that are gone: device/event.c answers for their events, without a driver.  Events of a
 * stream that was destroyed while it captured pass with a wait for the whole device, which a
 * sweep that waits makes, unless a stream captures then.
 *
 * Failures: a failed recording is tried again at the next sweep.  A sweep that waits, and forget,
 * wait for the stream instead.  An event that cannot be queried is waited for.  If the driver
 * refuses the wait too, and one more query fails, the event counts as passed, since the driver runs
 * nothing any more then.
 *
 * fork: in a child, blocks that wait for a stream of the parent are never handed out, and no driver
 * is asked about that stream.
 *
 * Invariants:
 *   - an entry is in exactly one batch, or captured; its block is in no magazine, slab or
 *     span: for those the block is allocated
 *   - batches of a queue pass in order; their events were recorded on its stream, behind
 *     the last of their frees
 *   - pending bytes are the sum over blocks (not entries)
 *
 * Threads: any; one lock inside, never held across a driver call, nor malloc.
 * In steady state nothing is allocated.  Nothing here calls the pool: blocks that have passed are
 * handed to the caller.
 */
#ifndef HOIST_ALLOC_DEFERRED_H
#define HOIST_ALLOC_DEFERRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/calls.h"
#include "device/device.h"

#define HOIST__DEFERRED_BATCH 64

struct hoist__deferred;

struct hoist__deferred_options {
	bool reuse;		    /* blocks may be taken again on their stream: device memory */
	struct hoist__calls *calls; /* EVENT, QUERY and WAIT are counted here */
};

int hoist__deferred_create(const struct hoist__deferred_options *options,
			   struct hoist__deferred **ret); /* -ENOMEM */
/* Takes NULL.  Pre: no block is held, see hoist__deferred_drain(). */
void hoist__deferred_destroy(struct hoist__deferred *deferred);

/* Notes that @stream uses the live block at @address.  The pool flags the block, and calls
 * hoist__deferred_push() when the block is freed.  Naming the same stream twice counts once.
 * Returns: 0; -ENOMEM. */
int hoist__deferred_use(struct hoist__deferred *deferred, uintptr_t address,
			struct hoist__dev_stream *stream);

/* Takes over the block at @address, of @allocated bytes (with rounding), which was freed on @stream
 * (NULL: on no stream; only its users are waited for, if there are any).  Allocates before it
 * changes anything: on -ENOMEM the block is still the caller's, and its users are still noted.
 * Records the batch's event when the batch is full.  If the driver fails to record, the block is
 * kept, and the next sweep tries again.
 * Returns: 0; -ENOMEM. */
int hoist__deferred_push(struct hoist__deferred *deferred, uintptr_t address, size_t allocated,
			 struct hoist__dev_stream *stream);

/* Takes a pending block of exactly @allocated bytes, at a multiple of @align, that was freed on
 * @stream and on no other.  Takes the latest one that is aligned, and looks only at the latest few.
 * @stream becomes a user of the block, and the pool flags the block.
 * Returns: the address; 0 if there is none. */
uintptr_t hoist__deferred_take(struct hoist__deferred *deferred, struct hoist__dev_stream *stream,
			       size_t allocated, size_t align);

/* Queries the oldest event of each queue and, while events have passed, the next.  Fills @ret with
 * up to @n blocks that all of their streams have passed, and keeps the rest for the next call.
 * Closes the open batches of queues that wait for nothing else, so that frees between many sweeps
 * do not take an event each; with @wait, of all queues.  With @wait, blocks until at least one
 * block has passed (if any can: captured ones do not count).
 * Returns: how many; 0 if none. */
size_t hoist__deferred_sweep(struct hoist__deferred *deferred, bool wait, uintptr_t *ret, size_t n);

/* True if a sweep may find something: cheap enough to ask before every growth. */
bool hoist__deferred_any(const struct hoist__deferred *deferred);

/* Makes captured blocks pending whose streams no longer capture.  Live blocks that such streams
 * used are no longer captured when they are freed. */
void hoist__deferred_release_captured(struct hoist__deferred *deferred);

/* Prepares for the end of @stream.  Records its last event, also for live blocks that it uses, or
 * waits for the stream if no event can be recorded.  If the stream captures, its blocks are
 * captured.  No later call may name the stream.  Captured blocks stay captured. */
void hoist__deferred_forget(struct hoist__deferred *deferred, struct hoist__dev_stream *stream);

/* For the end of the pool: a sweep with @wait that also takes captured blocks, and at last the
 * blocks that cannot be waited for.  Returns: how many; 0 when all are out (except in a child of
 * fork). */
size_t hoist__deferred_drain(struct hoist__deferred *deferred, uintptr_t *ret, size_t n);

/* Destroys the events that are only kept for later frees. */
void hoist__deferred_trim(struct hoist__deferred *deferred);

size_t hoist__deferred_bytes(const struct hoist__deferred *deferred);

/* True if the block at @address was freed and is held here.  For snapshots. */
bool hoist__deferred_holds(struct hoist__deferred *deferred, uintptr_t address);

/* The pool holds the lock across fork. */
void hoist__deferred_lock(struct hoist__deferred *deferred);
void hoist__deferred_unlock(struct hoist__deferred *deferred);

#endif
