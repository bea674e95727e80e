/* SPDX-License-Identifier: MIT */
/* lib/group/group.h - the source of a load that is one rank's part of a group's load.
 *
 *   group.c          hoist_group_load() and the like; groups of several machines: lib/far
 *   group-member.c   the source (lib/load/source.h): wants, chunks, cells, the end
 *   group-feed.c     the feeder: gives the reading thread (cell-read.h) this rank's cells and slots
 *   cells.h          which cells a load touches
 *   ownership.h      which rank reads which cell
 *   transport.h      how cells get from rank to rank; group-shm.h: on one machine
 *
 * A group's load is an ordinary load in each rank.  Chunks of cells that no other rank wants are
 * read as ever.  All other bytes are foreign, those of the rank's own cells too: they are copied
 * out of the slots of the cell's owner; or devices copy them from there, if the slots can be
 * registered with their driver (cell-pin.h).
 *
 *     begin    walk the chunks: wants, and how many chunks touch each cell (`cells.touches`)
 *              meet the others; all compute the same owners; the feeder starts
 *     look     a chunk may be copied once all its shared cells have arrived
 *     landed   a cell that no chunk touches any more is released.  A chunk that devices copy from
 *              the slot lands once the copies have ended
 *     step     the load ends once all ranks have all that they want
 *
 * Progress: feeders publish in the order of the files.  Chunks come nearly in that order: from the
 * first cell of any chunk to the last cell of that chunk and of all chunks before it there are at
 * most as many cells as each owner has slots, HOIST__CELL_LEAST_SLOTS (`cells.span`).  Take the
 * first cell X, of all files, that any rank still needs, and of a rank that needs it, on the disk
 * of X, the next chunk.  That chunk is the one that touches X, or comes before it.  So its last
 * cell is less than HOIST__CELL_LEAST_SLOTS behind X, and it needs no cell before X, as no rank
 * does.  All cells before X are released, so each owner has slots for its own next
 * HOIST__CELL_LEAST_SLOTS cells from X on: all that the chunk needs are read in time.
 *
 * Extents of a plan that overlap go back to the beginning of the bytes that they share.  So they
 * are cut at cells, and read together (hoist__plan_interleave()).
 *
 * No windows (give-window.c): a chunk whose lots find no room in a rank's window would keep its
 * cells in their slots until that rank's caller drops a buffer, and so stop all ranks.  The rank is
 * alive, so no timeout would end that.
 *
 * Threads: the driving thread's; the feeder's functions are the reading thread's (cell-read.h).
 * `lock` guards the feeder's failure.
 */
#ifndef HOIST_LIB_GROUP_GROUP_H
#define HOIST_LIB_GROUP_GROUP_H

#include <pthread.h>

#include "base/error.h"
#include "hoist/group.h"
#include "lib/swarm/cell-charge.h"
#include "lib/swarm/cell-read.h"
#include "lib/swarm/cell-readers.h"
#include "lib/swarm/cells.h"
#include "lib/group/ownership.h"
#include "lib/group/transport.h"
#include "lib/load/load.h"

/* A cell on its way into a slot. */
struct hoist__fed_cell {
	struct hoist__cell_job job;
	uint32_t ordinal;
	bool busy;
};

struct hoist__feeder {
	struct hoist__member *member;
	struct hoist__cell_reader reader;
	size_t *cells; /* this rank's, by ordinal */
	uint32_t n_cells;
	uint32_t next;		     /* ordinal of the cell that gets a slot next */
	struct hoist__fed_cell *fed; /* one for each of the rank's slots */
};

struct hoist__member {
	struct hoist__load_source source;
	const struct hoist__transport_ops *ops;
	struct hoist__transport *transport;
	char *name; /* behind the scheme */
	unsigned rank;
	unsigned n_ranks;
	unsigned n_slots; /* of this rank */
	uint64_t timeout_ns;

	struct hoist_load *load; /* from begin on */
	struct hoist__cell_charge charge;
	struct hoist__cells cells;
	bool met;
	struct hoist__ownership ownership;
	struct hoist__cell_readers readers; /* ids: ranks, from 1 on */
	struct hoist__feeder feeder;

	pthread_mutex_t lock;
	int err; /* the feeder's */
	struct hoist__failure failure;
};

static inline struct hoist__member *hoist__member_of(struct hoist__load_source *source)
{
	return HOIST__CONTAINER_OF(source, struct hoist__member, source);
}

extern const struct hoist__load_source_ops hoist__member_ops;

/* Starts to read this rank's cells, if there are any.  Returns: 0; -ENOMEM; as the engine. */
int hoist__feeder_start(struct hoist__feeder *feeder, struct hoist__member *member);

#endif
