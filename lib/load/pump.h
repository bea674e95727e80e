/* SPDX-License-Identifier: MIT */
/* lib/load/pump.h - shared by the pump's files; lib/load/load.h tells how the pump works. */
#ifndef HOIST_LIB_LOAD_PUMP_H
#define HOIST_LIB_LOAD_PUMP_H

#include "base/checked.h"
#include "lib/load/load.h"

/* The most requests that are submitted, or reaped, at once. */
#define HOIST__PUMP_BATCH 64u

/* The most copies that are queued at once. */
#define HOIST__PUMP_BOXES 128u

/* Finds the disks of the files that are read, and the depth and sizes of each disk's reads.  The
 * other fields of load->disks are zero. */
void hoist__pump_find_disks(struct hoist_load *load);

static inline unsigned hoist__pump_disk_of(const struct hoist_load *load, size_t file)
{
	return hoist__disk_of(&load->disk_table, load->checkpoint->files[file].file);
}

/* Requests that all disks may have in the engine. */
unsigned hoist__pump_depth(const struct hoist_load *load);

/* Makes the disk's next chunk known, if there is one: `next`.  False: all of its chunks have been
 * submitted. */
bool hoist__pump_has_chunk(struct hoist_load *load, unsigned disk);

/* True if any disk has a chunk left. */
bool hoist__pump_has_chunks(struct hoist_load *load);

/* The disk whose chunk is to be read next: the one with the fewest flights, of those that may have
 * one more, that need at most @room requests for it, and that have no bit in @without.
 * HOIST__MAX_DISKS: none. */
unsigned hoist__pump_choose(struct hoist_load *load, unsigned room, unsigned without);

/* Submits chunks while there is room, in batches.  Returns: the number of a disk whose next chunk
 * only waits for its pages to be populated; HOIST__MAX_DISKS: none does. */
unsigned hoist__pump_submit(struct hoist_load *load);

/* Handles the requests that the engine has finished; waits as hoist__job_reap(). */
void hoist__pump_reap(struct hoist_load *load, bool copying, uint64_t timeout_ns);

/* Frees the flight for another chunk. */
void hoist__pump_land(struct hoist_load *load, struct hoist__flight *flight);

/* Frees the flight and its slot; the bytes are dropped. */
void hoist__pump_give_up(struct hoist_load *load, struct hoist__flight *flight);

/* Moves a staged chunk, whose slot is FULL, to its destinations; the slot is then COPYING or free,
 * also after a failure.  Returns: 0; the error of a copy. */
int hoist__pump_deliver(struct hoist_load *load, struct hoist__flight *flight);

/* The place in the slot to which the flight's chunk is read: 0, or, for a chunk that will be
 * widened, behind room for another chunk of the largest size.  A multiple of the extent's align, as
 * the slot's size is. */
static inline size_t hoist__pump_slot_offset(const struct hoist_load *load,
					     const struct hoist__flight *flight)
{
	const struct hoist__plan_extent *extent = &load->plan.extents[flight->chunk.extent];
	size_t bytes = load->staged_bytes;
	return extent->half ? bytes - (size_t)hoist__round_down(bytes / 2, extent->align) : 0;
}

/* Notes the result of reclaiming: @n slots came back, or a device's error. */
void hoist__pump_reclaimed(struct hoist_load *load, int n);

#endif
