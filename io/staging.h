/* SPDX-License-Identifier: MIT */
/* io/staging.h - staging, the pinned slots between files and devices, both ways.
 *
 * Loading:
 *            acquire           filled            copy           (events done)
 *     FREE ----------> READING ------> FULL ----------> COPYING ----------> FREE
 *       ^                 |              |                       reclaim
 *       +-----------------+--------------+  release (failed, cancelled; or moved by the host)
 *
 * Saving:
 *            acquire           fetch           (event done)       (written)
 *     FREE ----------> READING ------> FETCHING ----------> FULL ----------> FREE
 *                         |                      fetched            release
 *                         +--------------------------------> FULL
 *                           filled (by the host itself, or a read)
 *
 *   transition          function                   then
 *   FREE -> READING     hoist__staging_acquire     the engine or the owner writes the slot
 *   READING -> FULL     hoist__slot_filled         only the owner writes the slot
 *   FULL -> COPYING     hoist__slot_copy           devices read the slot
 *   COPYING -> FREE     hoist__staging_reclaim     only after its events completed
 *   READING -> FETCHING hoist__slot_fetch          a device writes the slot
 *   FETCHING -> FULL    hoist__staging_fetched     only after its event completed
 *   READING|FULL -> FREE  hoist__slot_release
 *
 * Invariants: every slot is in exactly one state; a slot is never written before the events
 * behind its last copies completed.  The memory is pinned and on the first device's node (staging
 * without devices: plain memory), charged to the budget for the staging's life.  Reads complete in
 * any order; copies are queued in the order of hoist__slot_copy, on one stream for each device, and
 * slots come back in that order; fetches likewise.
 *
 * Growing: memory is made in parts of options.n_step slots, the first part at creation.  The owner
 * asks for the next part when it misses a slot, as often as it likes; one part is made at a time.
 * Making (mapping, populating, pinning) takes milliseconds, so another thread may do it meanwhile:
 *
 *     hoist__staging_grow   the owner    charges the budget for the part
 *     hoist__staging_make   any thread   makes the part's memory
 *     hoist__staging_made   the owner    the part's slots are FREE; or the charge is given back, and
 *                                        the staging stays as large as it is
 *
 *     slots   [ part 0 ][ part 1 ] ... [ in making ][ not charged    ]
 *             0                        n_made                        n_slots
 *
 * Threads: one owner at a time (the pump of a load or a save).
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
#include "io/timeline.h"

/* A slot is one huge page, so that a direct read into a slot is one request.  There are many slots,
 * because the bus lives on full slots while the disk hesitates, and the disk on free slots while
 * the bus does.  Measured with a bus as fast as the disk, in multiples of the copy time, medians of
 * 7 in one series: 16 x 4 MiB 1.21, 32 x 4 MiB 1.15, 32 x 2 MiB 1.15, 48 x 2 MiB 1.10
 * (bench/RESULTS.md, "Loads to a device"). */
#define HOIST__STAGING_SLOT_BYTES ((size_t)2 << 20)
#define HOIST__STAGING_SLOTS 48
#define HOIST__STAGING_MAX_SLOTS 1024u
#define HOIST__STAGING_MIN_SLOT_BYTES ((size_t)64 << 10)

enum hoist__slot_state {
	HOIST__SLOT_FREE,
	HOIST__SLOT_READING,
	HOIST__SLOT_FULL,
	HOIST__SLOT_COPYING,
	HOIST__SLOT_FETCHING
};

struct hoist__slot {
	struct hoist__request request; /* the owner fills and submits it; the address is the
				        * slot's */
	enum hoist__slot_state state;
	unsigned index;
	size_t useful;		 /* set by the owner: bytes that the slot's copies bring */
	const void *from;	 /* set by the owner: copies read these bytes in place of the slot's.
				  * They lie in one registration, and stay until the slot is FREE;
				  * NULL: the slot's */
	struct hoist__list node; /* in the staging's free, copying or fetching list */
};

#define HOIST__STAGING_MAX_STREAMS 16u

struct hoist__staging_options {
	/* One stream for the copies of each device; none: staging that only the host uses.  The
	 * staging does not own the streams. */
	struct hoist__dev_stream *const *streams;
	unsigned n_streams;
	struct hoist__pool *pool; /* PINNED, for the first stream's device; else HOST */
	/* Called after hoist__staging_ask(), from a thread of the driver's, when copies or fetches
	 * have ended: a hint that slots may be reclaimed.  Must not block.  NULL: nobody asks */
	void (*moved)(void *context);
	void *context;
	struct hoist__timeline *timeline; /* of the slots; NULL: nobody asked for one */
	struct hoist__budget *budget;
	size_t held;		 /* bytes of the budget that the caller already holds.  They become
				  * the staging's; on failure they stay the caller's */
	size_t slot_bytes_least; /* slots are never smaller; 0: HOIST__STAGING_MIN_SLOT_BYTES.  Two
				  * such slots are always enough */
	size_t slot_bytes;	 /* wanted; a multiple of 4096; 0: HOIST__STAGING_SLOT_BYTES */
	unsigned n_slots;	 /* wanted; 0: HOIST__STAGING_SLOTS */
	unsigned n_step;	 /* at least 2: the staging grows by so many slots at a time, up to
				  * n_slots; 0: all are made at creation, in one block */
};

struct hoist__staging;

/* Makes the largest staging that fits in the free bytes of the budget: with less room, first fewer
 * slots (at least 2), then smaller ones (at least options.slot_bytes_least).  One that grows needs
 * room for its first part now, by the same rule.
 * Returns: 0; -EAGAIN if not even two smallest slots are free in the budget now;
 *   -EDQUOT if they exceed its limit (the text gives the least limit that works);
 *   -ENOMEM, -EPERM, -EREMOTEIO from pinning or event creation. */
int hoist__staging_create(const struct hoist__staging_options *options,
			  struct hoist__staging **ret);

/* The size of the first part of a staging that finds @room bytes free in its budget.
 * Returns: the number of slots, of *@slot_bytes each; 0: not even two smallest slots fit. */
unsigned hoist__staging_fit(const struct hoist__staging_options *options, size_t room,
			    size_t *slot_bytes);

/* Waits for copies and fetches in flight and makes their slots FREE.  Afterwards `moved` is not
 * called, and nothing may be queued. */
void hoist__staging_settle(struct hoist__staging *staging);

/* Settles, then gives memory and budget back, in whatever state the slots are: no engine may still
 * use a slot.  Takes NULL. */
void hoist__staging_destroy(struct hoist__staging *staging);

/* Begins to make the next part.  Never blocks.  Returns: true if hoist__staging_make() is to be
 * called, and then, even if it was not, hoist__staging_made(); false if a part is being made, or
 * all are, or the budget has no room now, or making one has failed before. */
bool hoist__staging_grow(struct hoist__staging *staging);

/* Makes the part's memory.  Threads: any; the owner may use the staging meanwhile.
 * Returns: 0; as hoist__pool_alloc(). */
int hoist__staging_make(struct hoist__staging *staging);

/* Takes the part.  @err: hoist__staging_make()'s result, or why the call was not made. */
void hoist__staging_made(struct hoist__staging *staging, int err);

size_t hoist__staging_slot_bytes(const struct hoist__staging *staging);
/* The most that there can be. */
unsigned hoist__staging_n_slots(const struct hoist__staging *staging);
unsigned hoist__staging_n_copying(const struct hoist__staging *staging);
unsigned hoist__staging_n_fetching(const struct hoist__staging *staging);
/* All of the staging's memory, to register with an engine as buffer 0.  False: it is not one block,
 * because it grows.  (A slot is a huge page or two, so a request for unregistered memory costs
 * little.) */
bool hoist__staging_memory(const struct hoist__staging *staging, struct hoist__engine_buffer *ret);
/* Most bytes of slots that were not FREE at one time. */
size_t hoist__staging_peak_bytes(const struct hoist__staging *staging);

/* Takes a FREE slot, the one freed last (it is warm in the cache): it is then READING, and its
 * request has the slot's address.  NULL: no slot is free. */
struct hoist__slot *hoist__staging_acquire(struct hoist__staging *staging);

void hoist__slot_filled(struct hoist__staging *staging, struct hoist__slot *slot);
void hoist__slot_release(struct hoist__staging *staging, struct hoist__slot *slot);

/* One copy between a slot and a device: rows at equal distances on each side. */
struct hoist__slot_box {
	size_t slot_offset;
	uintptr_t device_address;
	size_t bytes; /* of a row */
	size_t rows;  /* 0 or 1: one row */
	size_t slot_stride;
	size_t device_stride;
};

/* Makes @last, a box of the same stream, longer by a box that lies behind it in the slot and on the
 * device, or a row higher by a box as long as its rows.  Nothing between rows is written.
 * Returns: false if the box is one of its own. */
bool hoist__slot_box_join(struct hoist__slot_box *last, const struct hoist__slot_box *box);

/* Queues one copy per box on stream @stream, and an event behind them.  May be called several
 * times, for each stream, the first time with a FULL slot.  If a call fails after it queued any
 * copy, the slot is still COPYING (the event may be missing: reclaim then synchronises the stream),
 * and the error is returned. */
int hoist__slot_copy(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		     const struct hoist__slot_box *boxes, size_t n_boxes);

/* Queues copies from the device into a slot, likewise; the slot is READING at the first call, and
 * FETCHING once a copy is queued. */
int hoist__slot_fetch(struct hoist__staging *staging, struct hoist__slot *slot, unsigned stream,
		      const struct hoist__slot_box *boxes, size_t n_boxes);

/* Takes the slot of the oldest fetch, now FULL, if the fetch has completed; never blocks.
 * Returns: 1 and *ret; 0: it has not, or nothing is fetched; the device's error, after which the
 *   staging only drains (its FETCHING slots are freed when it is destroyed). */
int hoist__staging_fetched(struct hoist__staging *staging, struct hoist__slot **ret);

/* Frees every slot whose copy completed; never blocks.
 * Returns: how many; the device's error, after which the staging only drains. */
int hoist__staging_reclaim(struct hoist__staging *staging);

/* Blocks until the oldest copy has completed, then reclaims.  Returns: as reclaim; 0 if nothing is
 * copying. */
int hoist__staging_wait(struct hoist__staging *staging);

/* The `useful` bytes of slots whose copies completed since the last call. */
uint64_t hoist__staging_take_copied(struct hoist__staging *staging);

/* Has the driver call `moved` when the oldest fetch has ended, or the oldest quarter of the copies;
 * fewer of these, where the slots have copies on different streams.  The owner calls this before it
 * waits for fetches or copies.  The driver's call and the wake that it makes cost more than a
 * copy's other calls together, so that most slots are never asked about.  The three quarters behind
 * keep the device busy meanwhile.
 * Returns: true; false if the driver cannot call, or nothing is in flight: the owner looks again
 *   after a while. */
bool hoist__staging_ask(struct hoist__staging *staging);

/* Slots that hoist__staging_acquire() would give now. */
unsigned hoist__staging_n_free(const struct hoist__staging *staging);

#endif
