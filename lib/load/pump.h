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

/* Returns: 0; -EDQUOT (not even two of the smallest slots are within the budget's limit). */
int hoist__pump_check_budget(const struct hoist_load *load);

/* Sets the sizes of slots, and their number, that suit the load.  Pre: the disks were found. */
void hoist__pump_size_staging(const struct hoist_load *load, struct hoist__staging_options *ret);

/* False: the load has nothing to stage, or its first rows are hot: a load whose rows are hot needs
 * no slots, so long as all are (load.h).  Pre: the disks were found. */
bool hoist__pump_begins_with_slots(struct hoist_load *load);

/* Chooses how the bytes of a part of the disk's chunk are read, @offset being where the part begins
 * in the file, and counts the reasons (load->routes). */
struct hoist__way hoist__pump_choose_way(struct hoist_load *load, struct hoist__load_disk *disk,
					 const struct hoist__chunk *chunk, uint64_t offset);

/* Requests that all disks may have in the engine. */
unsigned hoist__pump_depth(const struct hoist_load *load);

/* Makes the disk's next chunk known, if there is one: `next`.  False: all of its chunks have been
 * submitted, or the next one waits for slots to be made (load->needs_slots). */
bool hoist__pump_has_chunk(struct hoist_load *load, unsigned disk);

/* True if any disk has a chunk left, also one that waits for slots to be made. */
bool hoist__pump_has_chunks(struct hoist_load *load);

/* The disk whose chunk is to be read next: the one with the fewest flights, of those that may have
 * one more, that need at most @room requests for it, and that have no bit in @without.
 * HOIST__MAX_DISKS: none. */
unsigned hoist__pump_choose(struct hoist_load *load, unsigned room, unsigned without);

/* True if chunks of the load may be straight: a load to the host alone, or to devices alone, that
 * digests nothing. */
bool hoist__pump_may_go_straight(const struct hoist_load *load);

/* Makes the disk's next chunk known if it is straight: its cursor is in a staged extent whose rows
 * lie in the page cache there, suit a request, and are not converted.  Returns: false if not. */
bool hoist__pump_next_rows(struct hoist_load *load, unsigned disk);

/* Tells whether the disk's first staged bytes would be read straight now, or it has none.  Pre:
 * none of its chunks was chosen yet. */
bool hoist__pump_begins_straight(struct hoist_load *load, unsigned disk);

/* Asks the source about the disk's next chunk.  False: the chunk waits for its bytes. */
bool hoist__pump_source_admits(struct hoist_load *load, unsigned disk);

/* Makes the requests of a chunk with bytes that come from the source.  Returns: their number; at
 * most one for each part of the chunk, and one more. */
unsigned hoist__pump_fill_sourced(struct hoist_load *load, struct hoist__flight *flight,
				  struct hoist__request **batch);

/* Has devices copy the flight's chunk from the memory of the load's source, if they may.  Pre: the
 * flight has a slot. */
void hoist__pump_reach(struct hoist_load *load, struct hoist__flight *flight);

/* The copies of the flight's chunk, which is reached, have been queued, or none had to be. */
void hoist__pump_reached(struct hoist_load *load, const struct hoist__flight *flight);

/* The chunks whose copies have ended land. */
void hoist__pump_land_reached(struct hoist_load *load);

/* Makes the request of @bytes, @at bytes behind the beginning of part @part of the chunk. */
struct hoist__request *hoist__pump_fill_part(struct hoist_load *load, struct hoist__flight *flight,
					     unsigned part, size_t at, size_t bytes);

/* True if the load may end, as to its source; @whole: all of its own bytes have arrived.  A source
 * that failed fails the load. */
bool hoist__pump_source_ends(struct hoist_load *load, bool whole);

/* Makes the request of a straight chunk. */
struct hoist__request *hoist__pump_fill_rows(struct hoist_load *load, struct hoist__flight *flight);

/* Where the place of an image's chunk ends in load->fresh. */
static inline size_t hoist__pump_end_of(const struct hoist_load *load,
					const struct hoist__chunk *chunk)
{
	size_t lot = load->plan.extents[chunk->extent].lot;
	return (size_t)(load->lots[lot].at + chunk->target + chunk->bytes);
}

/* Sets the part of fresh memory at [@from, @to) that the request populates: the huge pages that
 * begin there.  The request before has the first one's beginning. */
void hoist__pump_set_fresh(const struct hoist_load *load, uintptr_t from, uintptr_t to,
			   struct hoist__request *request);

/* Starts to populate the places of the images that are still to be read, or notes that no thread
 * could be had. */
void hoist__pump_start_populator(struct hoist_load *load);

/* Submits chunks while there is room, in batches.  Returns: the number of a disk whose next chunk
 * only waits for its pages to be populated; HOIST__MAX_DISKS: none does. */
unsigned hoist__pump_submit(struct hoist_load *load);

/* Handles the requests that the engine has finished; waits as hoist__job_reap(). */
void hoist__pump_reap(struct hoist_load *load, bool copying, uint64_t timeout_ns);

/* The place of the piece's first row in the memory of @target; 0: the piece does not go there. */
uintptr_t hoist__pump_address_on(const struct hoist_load *load, const struct hoist__target *target,
				 const struct hoist__plan_piece *piece);

/* Counts the useful bytes of a chunk, which has been moved, in the lots that it belongs to. */
void hoist__pump_count(struct hoist_load *load, const struct hoist__chunk *chunk);

/* Delivers a chunk that is there: at once, or, with digests, in its sequence. */
void hoist__pump_arrive(struct hoist_load *load, struct hoist__flight *flight);

/* Frees the flight for another chunk. */
void hoist__pump_land(struct hoist_load *load, struct hoist__flight *flight);

/* Frees the flight and its slot; the bytes are dropped. */
void hoist__pump_give_up(struct hoist_load *load, struct hoist__flight *flight);

/* After a failure no more sequences become due: gives up the flights that wait for theirs. */
void hoist__pump_give_up_waiting(struct hoist_load *load);

/* True if settling the flight is work that pays for another thread. */
bool hoist__pump_has_work(const struct hoist_load *load, const struct hoist__flight *flight);

/* Settles the staged chunk of a flight (@owner), whose slot is FULL: see load.h.  Threads: any, one
 * for each flight.  Returns: 0. */
int hoist__pump_settle(void *owner);

/* Queues the copies of a staged chunk that is settled, and counts the chunk; its slot, which was
 * FULL, is then COPYING or free, also after a failure.  Returns: 0; the error of a copy. */
int hoist__pump_deliver(struct hoist_load *load, struct hoist__flight *flight);

/* The place in the slot to which the flight's chunk is read: 0 (hot rows lie one behind the other
 * from there on), or the slot's end for a chunk that will be laid out, or, for a chunk that will be
 * widened, as if it were the largest such chunk.  A multiple of the extent's align, as the slot's
 * size is. */
static inline size_t hoist__pump_slot_offset(const struct hoist_load *load,
					     const struct hoist__flight *flight)
{
	const struct hoist__plan_extent *extent = &load->plan.extents[flight->chunk.extent];
	size_t bytes = load->staged_bytes;
	if (flight->straight)
		return 0;
	if (flight->chunk.laid > 0)
		return bytes - flight->chunk.bytes;
	return bytes - (size_t)hoist__round_down(bytes / extent->share, extent->align);
}

/* Notes the result of reclaiming: @n slots came back, or a device's error. */
void hoist__pump_reclaimed(struct hoist_load *load, int n);

#endif
