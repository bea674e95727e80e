/* SPDX-License-Identifier: MIT */
/* alloc/deferred.h - blocks that were freed while streams may still use them.
 *
 * Freeing on a stream says: when the stream has passed what is queued now, the block
 * is free.  That point is an event; events are dear (tens of microseconds when many
 * threads record), so one serves a batch:
 *
 *   queue   one per stream: an open batch that collects frees, and closed batches,
 *           each with the event recorded behind it, oldest first
 *   batch   closed when it holds HOIST__DEFERRED_BATCH blocks, or at a sweep
 *   entry   one block in one queue.  A block that several streams use has an entry
 *           in each one's queue, and is passed when all are
 *
 * A block with one entry can be taken again for the same stream without an event, closed
 * batch or not: the next user is behind the last one in the same queue.  That is for device
 * memory alone; where the host may write next, no block is given out before its event.
 *
 * Such a block, and any that hoist__deferred_use() named, has `users`: streams that its
 * free must wait for, whoever frees it and on whatever stream.
 *
 * Capture: an event is never recorded on a stream that captures, nor queried while it
 * does.  A block freed on it, or used by it (named in a use, a push or a take meanwhile), is
 * parked until hoist__deferred_release_captured(): the graph may run again and use it then.
 * While the capture lasts it can be taken for the same stream, and nothing else can: a graph is
 * not behind what its stream got before.  What it got for that block before, the caller
 * sees to: such a block is for its stream alone until that has passed.
 *   Nothing tells afterwards that a stream captured.  So each use, push and take asks, where the
 * stream may capture at all (hoist__dev_stream_may_capture()); where nobody can make it capture, the
 * three call no driver, but to record full batches.  Asking once a batch would miss a capture
 * that begins and ends within it, and two users would write the same memory when the graph runs.
 * Two captures of one stream with no call between that names it are taken for one: their
 * graphs share blocks.
 *   Where the driver cannot say, twice in turn, the stream counts as capturing.  A stream that
 * begins to capture while another thread's sweep records on it is noticed behind the
 * recording, which is repeated later; the query of a sweep that runs at that moment is not.
 *
 * Streams that are gone: device/event.c answers for their events, without a driver.  Those of a
 * stream that was destroyed while it captured pass with a wait for the whole device, which a
 * sweep that waits makes, unless a stream captures then.
 *
 * Failures: recording is tried again at the next sweep; one that waits, and forget, wait for
 * the stream instead.  An event that cannot be asked is waited for; it has passed when the
 * driver refuses that too and asking fails once more, since it runs nothing any more then.
 *
 * fork: in a child, what waits for a stream of the parent is never handed out, and no driver is
 * asked about it.
 *
 * Invariants:
 *   - an entry is in exactly one batch, or parked; its block is in no magazine, slab or
 *     span: to those it is allocated
 *   - batches of a queue pass in order; their events were recorded on its stream, behind
 *     the last of their frees
 *   - pending bytes are the sum over blocks (not entries)
 *
 * Threads: any; one lock inside, never held across a driver call, nor malloc.
 * In steady state nothing is allocated.  Nothing here calls the
 * pool: blocks that have passed are handed to the caller.
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
/* Takes NULL.  Must hold no block: see hoist__deferred_drain(). */
void hoist__deferred_destroy(struct hoist__deferred *deferred);

/* @stream uses the live block at @address: the pool flags the block, and calls
 * hoist__deferred_push() when it is freed.  Twice the same stream is once.
 * Returns: 0; -ENOMEM. */
int hoist__deferred_use(struct hoist__deferred *deferred, uintptr_t address,
			struct hoist__dev_stream *stream);

/* Takes over the block at @address, of @allocated bytes (with rounding): it was freed on
 * @stream (NULL: on none, its users alone are waited for, if there are any).
 * Allocates before it changes anything: on -ENOMEM the block is still the caller's, and
 * its users are still noted.
 * Records the batch's event when that is full; if the driver fails to, the block is kept
 * and recording is tried again at the next sweep.
 * Returns: 0; -ENOMEM. */
int hoist__deferred_push(struct hoist__deferred *deferred, uintptr_t address, size_t allocated,
			 struct hoist__dev_stream *stream);

/* A pending block of exactly @allocated bytes, at a multiple of @align, that was freed on @stream
 * and on no other; the latest one, of the latest few where @align leaves a choice.  @stream
 * becomes a user of it: the pool flags the block.
 * Returns: the address; 0 if there is none. */
uintptr_t hoist__deferred_take(struct hoist__deferred *deferred, struct hoist__dev_stream *stream,
			       size_t allocated, size_t align);

/* Asks for the oldest event of each queue and, for those passed, the next; fills @ret with up
 * to @n blocks whose every stream has passed, and keeps the rest for the next call.  Closes open
 * batches: of queues that wait for nothing else, lest frees between many sweeps take an event
 * each; with @wait, of all.  With @wait, blocks until at least one has passed (if any can:
 * captured ones do not count).
 * Returns: how many; 0 if none. */
size_t hoist__deferred_sweep(struct hoist__deferred *deferred, bool wait, uintptr_t *ret, size_t n);

/* True if a sweep may find something: cheap enough to ask before every growth. */
bool hoist__deferred_any(const struct hoist__deferred *deferred);

/* Parked blocks whose streams no longer capture become pending ones; also, live blocks that
 * such streams used are not parked for it when they are freed. */
void hoist__deferred_release_captured(struct hoist__deferred *deferred);

/* @stream is about to be destroyed: its last event is recorded, for blocks that it still uses
 * too, or it is waited for if that cannot be; while it captures its blocks are parked.  No
 * later call may name it.  Parked blocks stay parked. */
void hoist__deferred_forget(struct hoist__deferred *deferred, struct hoist__dev_stream *stream);

/* As sweep with waiting, and parked blocks too, and at last those that nothing can be waited for:
 * for the end of the pool.  0 when all are out (but in a child of fork). */
size_t hoist__deferred_drain(struct hoist__deferred *deferred, uintptr_t *ret, size_t n);

/* Destroys the events that are only kept for later frees. */
void hoist__deferred_trim(struct hoist__deferred *deferred);

size_t hoist__deferred_bytes(const struct hoist__deferred *deferred);

/* True if the block at @address is held here: for snapshots. */
bool hoist__deferred_holds(struct hoist__deferred *deferred, uintptr_t address);

/* Held across fork by the pool. */
void hoist__deferred_lock(struct hoist__deferred *deferred);
void hoist__deferred_unlock(struct hoist__deferred *deferred);

#endif
