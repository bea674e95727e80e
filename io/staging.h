/* SPDX-License-Identifier: MIT */
/* io/staging.h - the ring of pinned slots between a file and a device.
 *
 *            acquire           filled            copy              (event done)
 *     FREE ----------> READING ------> FULL ----------> COPYING ----------> FREE
 *       ^                 |                                       reclaim
 *       +-----------------+  release (read failed or cancelled); from FULL too
 *
 *   transition          function                   who sees it next
 *   FREE -> READING     hoist__staging_acquire     the engine writes the slot
 *   READING -> FULL     hoist__slot_filled         nobody touches it
 *   FULL -> COPYING     hoist__slot_copy           the device reads it
 *   COPYING -> FREE     hoist__staging_reclaim     only after its event completed
 *   READING|FULL -> FREE  hoist__slot_release
 *
 * Invariants: every slot is in exactly one state; a slot is never written before
 * the event behind its last copy completed; n_free + n_reading + n_full +
 * n_copying == n_slots.  The memory is one pinned block on the device's node,
 * charged to the budget for the ring's life.  Reads complete in any order;
 * copies are queued on one stream in the order of hoist__slot_copy.
 *
 * Threads: one owner at a time (the load's pump).
 */
#ifndef HOIST_IO_STAGING_H
#define HOIST_IO_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "device/device.h"
#include "io/engine.h"

/* One huge page a slot, so that a direct read into it is one request; many slots, because
 * while the disk hesitates the bus lives on full ones, and the other way.  Measured with a
 * bus as fast as the disk, in multiples of the copy time, medians of 7 in one series:
 * 16 x 4 MiB 1.21, 32 x 4 MiB 1.15, 32 x 2 MiB 1.15, 48 x 2 MiB 1.10 (bench/RESULTS.md). */
#define HOIST__STAGING_SLOT_BYTES ((size_t)2 << 20)
#define HOIST__STAGING_SLOTS 48
#define HOIST__STAGING_MAX_SLOTS 1024u
#define HOIST__STAGING_MIN_SLOT_BYTES ((size_t)64 << 10)

enum hoist__slot_state {
	HOIST__SLOT_FREE,
	HOIST__SLOT_READING,
	HOIST__SLOT_FULL,
	HOIST__SLOT_COPYING
};

struct hoist__slot {
	struct hoist__request request; /* for the owner to fill and submit; address is the slot's */
	enum hoist__slot_state state;
	unsigned index;
	struct hoist__dev_event *copied;
	struct hoist__list node; /* in the ring's free or copying list */
};

struct hoist__staging_options {
	struct hoist__dev_stream *stream; /* copies go here; the ring does not own it */
	struct hoist__pool *pool;	  /* PINNED, for the stream's device */
	struct hoist__budget *budget;
	size_t slot_bytes; /* wanted; a multiple of 4096; 0: HOIST__STAGING_SLOT_BYTES */
	unsigned n_slots;  /* wanted; 0: HOIST__STAGING_SLOTS */
};

struct hoist__staging;

/* Takes what the budget has free: first fewer slots (at least 2), then smaller
 * ones (at least HOIST__STAGING_MIN_SLOT_BYTES).
 * Returns: 0; -EAGAIN if not even two smallest slots are free in the budget now;
 *   -EDQUOT if they exceed its limit (the text gives the least that works);
 *   -ENOMEM, -EPERM, -EREMOTEIO from pinning or event creation. */
int hoist__staging_create(const struct hoist__staging_options *options,
			  struct hoist__staging **ret);

/* Waits for copies still in flight, then gives memory and budget back.  No slot may
 * be READING.  Takes NULL. */
void hoist__staging_destroy(struct hoist__staging *ring);

size_t hoist__staging_slot_bytes(const struct hoist__staging *ring);
unsigned hoist__staging_n_slots(const struct hoist__staging *ring);
unsigned hoist__staging_n_copying(const struct hoist__staging *ring);
/* All of the ring's memory, to register with an engine as buffer 0. */
void hoist__staging_memory(const struct hoist__staging *ring, struct hoist__engine_buffer *ret);
/* Most bytes of slots that were not FREE at one time. */
size_t hoist__staging_peak_bytes(const struct hoist__staging *ring);

/* A FREE slot, now READING, its request's address and buffer set; the slot freed
 * last first (it is warm in the cache).  NULL if there is none. */
struct hoist__slot *hoist__staging_acquire(struct hoist__staging *ring);

void hoist__slot_filled(struct hoist__staging *ring, struct hoist__slot *slot);
void hoist__slot_release(struct hoist__staging *ring, struct hoist__slot *slot);

struct hoist__piece {
	size_t slot_offset;
	uintptr_t device_address;
	size_t bytes;
};

/* Queues one copy per piece and an event behind them.  On failure the slot is
 * still COPYING if any copy was queued (the event may be missing: reclaim then
 * synchronises the stream), and the error is returned. */
int hoist__slot_copy(struct hoist__staging *ring, struct hoist__slot *slot,
		     const struct hoist__piece *pieces, size_t n_pieces);

/* Frees every slot whose copy completed; never blocks.
 * Returns: how many; the device's error, after which the ring only drains. */
int hoist__staging_reclaim(struct hoist__staging *ring);

/* Blocks until the oldest copy completed, then reclaims.  0 if nothing is copying. */
int hoist__staging_wait(struct hoist__staging *ring);

#endif
