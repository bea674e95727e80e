/* SPDX-License-Identifier: MIT */
/* Chooses the chunk that is read next; each disk follows the order of the plan.
 * The contract is in lib/load/pump.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/load/pump.h"

/* Rows of a slice are small reads, of which a disk can serve many at once: direct reads of 4 KiB,
 * 86,000 a second at a depth of 32, 125,000 at 64, 141,000 at 128 (virtio, 2 CPUs). */
#define ROWS_DEPTH 64u

/* Tells whether the plan has slices whose gaps are left out. */
static bool has_rows(const struct hoist_load *load)
{
	bool rows = false;
	for (size_t e = 0; e < load->plan.n_extents && !rows; e++)
		rows = load->plan.extents[e].block_bytes > 0;
	return rows;
}

/* Sets the depth and the sizes of the disk's reads: the caller's, or those that suit the file
 * system of the disk's first file. */
static void choose_shape(const struct hoist_load *load, const struct hoist__fs *fs, bool rows,
			 struct hoist__load_disk *disk)
{
	const struct hoist_load_options *o = &load->options;
	unsigned depth = rows && fs->depth < ROWS_DEPTH ? ROWS_DEPTH : fs->depth;
	size_t image = o->chunk_bytes != 0 ? o->chunk_bytes : fs->chunk_bytes;
	disk->depth = o->depth != 0 ? o->depth : depth;
	disk->image_bytes = (size_t)hoist__round_up(image, load->plan.align);
	/* A flight waits only for flights that are in the engine, so twice the depth is enough for
	 * both; and so it is for those that are read and those that are settled. */
	bool twice = load->digests != NULL || load->plan.has_staged;
	disk->most_flights = twice ? 2 * disk->depth : disk->depth;
	HOIST__ASSERT(disk->depth != 0 && disk->image_bytes % load->plan.align == 0);
}

void hoist__pump_find_disks(struct hoist_load *load)
{
	bool rows = has_rows(load);
	load->n_parts = (rows ? load->plan.max_parts : 1) + (load->source != NULL ? 1 : 0);
	hoist__disks_find(load->files, (unsigned)load->n_files, &load->disk_table);
	for (size_t f = load->n_files; f-- > 0;) {
		unsigned disk = hoist__disk_of(&load->disk_table, load->files[f]);
		choose_shape(load, load->files[f]->fs, rows, &load->disks[disk]);
	}
}

unsigned hoist__pump_depth(const struct hoist_load *load)
{
	unsigned depth = 0;
	for (unsigned d = 0; d < load->disk_table.n; d++)
		depth += load->disks[d].depth;
	return depth;
}

/* Staged chunks and images have different sizes, so the cursor's next extent decides which one is
 * asked for. */
bool hoist__pump_has_chunk(struct hoist_load *load, unsigned disk)
{
	const struct hoist__plan *plan = &load->plan;
	struct hoist__load_disk *own = &load->disks[disk];
	struct hoist__cursor *cursor = &own->cursor;
	if (own->has_next)
		return true;
	while (cursor->from == 0 && cursor->extent < plan->n_extents &&
	       hoist__pump_disk_of(load, plan->extents[cursor->extent].file) != disk)
		cursor->extent++;
	if (cursor->extent == plan->n_extents)
		return false;
	bool staged = plan->extents[cursor->extent].staged;
	own->straight = false;
	if (staged && hoist__pump_next_rows(load, disk))
		return true;
	if (staged && load->staged_bytes == 0) {
		load->needs_slots = true;
		return false;
	}
	own->has_next = hoist__plan_next(plan, staged ? load->staged_bytes : own->image_bytes,
					 cursor, &own->next);
	HOIST__ASSERT(!own->has_next || own->next.n_parts <= load->n_parts);
	return own->has_next;
}

bool hoist__pump_has_chunks(struct hoist_load *load)
{
	bool any = false;
	load->needs_slots = false; /* rows that were cold may be hot now */
	for (unsigned d = 0; d < load->disk_table.n; d++)
		any = hoist__pump_has_chunk(load, d) || any;
	return any || load->needs_slots;
}

/* The requests that the disk's next chunk may need. */
static unsigned n_needed(const struct hoist_load *load, const struct hoist__load_disk *disk)
{
	return disk->next.n_parts + (load->source != NULL ? 1 : 0);
}

static bool has_room(const struct hoist_load *load, const struct hoist__load_disk *disk)
{
	return disk->n_flights < disk->most_flights &&
	       disk->n_requests + n_needed(load, disk) <= disk->depth;
}

/* The disk with the fewest flights is the one that lacks work most; the order of the disks decides
 * between equals. */
unsigned hoist__pump_choose(struct hoist_load *load, unsigned room, unsigned without)
{
	unsigned best = HOIST__MAX_DISKS;
	for (unsigned d = 0; d < load->disk_table.n; d++) {
		const struct hoist__load_disk *disk = &load->disks[d];
		if ((without & 1u << d) == 0 && hoist__pump_has_chunk(load, d) &&
		    has_room(load, disk) && n_needed(load, disk) <= room &&
		    (best == HOIST__MAX_DISKS || disk->n_flights < load->disks[best].n_flights))
			best = d;
	}
	return best;
}
