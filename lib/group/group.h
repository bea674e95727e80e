/* SPDX-License-Identifier: MIT */
/* lib/group/group.h - the source of a load that is one rank's part of a group's load.
 *
 *   group.c          hoist_group_load()
 *   group-member.c   the source (lib/load/source.h): wants, chunks, cells, the end
 *   group-feed.c     the feeder: a thread that reads this rank's cells to its slots
 *   ownership.h      which rank reads which cell
 *   transport.h      how cells get from rank to rank; group-shm.h: on one machine
 *
 * A group's load is an ordinary load in each rank.  Chunks of cells that no other rank wants are
 * read as ever.  All other bytes are foreign, those of the rank's own cells too: they are copied
 * out of the slots of the cell's owner.
 *
 *     begin    walk the chunks: wants, and how many chunks touch each cell (`touches`)
 *              meet the others; all compute the same owners; the feeder starts
 *     look     a chunk may be copied once all its shared cells have arrived
 *     landed   a cell that no chunk touches any more is released
 *     step     the load ends once all ranks have all that they want
 *
 * Progress: feeders publish in the order of the files.  Chunks come nearly in that order: from the
 * first cell of any chunk to the last cell of that chunk and of all chunks before it there are at
 * most as many cells as an owner has slots (`reach`).  Take the first cell X, of all files, that
 * any rank still needs, and of a rank that needs it, on the disk of X, the next chunk.  That chunk
 * is the one that touches X, or comes before it.  So its last cell is less than HOIST__GROUP_SLOTS
 * behind X, and it needs no cell before X, as no rank does.  All cells before X are released, so
 * each owner has slots for its own next HOIST__GROUP_SLOTS cells from X on: all that the chunk
 * needs are read in time.
 *
 * Extents of a plan that overlap go back to the beginning of the bytes that they share.  So they
 * are cut at cells, and read together (hoist__plan_interleave()).
 *
 * No windows (give-window.c): a chunk whose lots find no room in a rank's window would keep its
 * cells in their slots until that rank's caller drops a buffer, and so stop all ranks.  The rank is
 * alive, so no timeout would end that.
 *
 * Threads: the driving thread's, but for the feeder's part.  `lock` guards the feeder's failure.
 */
#ifndef HOIST_LIB_GROUP_GROUP_H
#define HOIST_LIB_GROUP_GROUP_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/budget.h"
#include "base/error.h"
#include "hoist/group.h"
#include "io/engine.h"
#include "lib/group/ownership.h"
#include "lib/group/transport.h"
#include "lib/load/load.h"

/* Runs of blocks of one cell, at most: each is a request. */
#define HOIST__CELL_RUNS (HOIST__CELL_BLOCKS / (HOIST__CELL_GAP + 1) + 1)

#define HOIST__FEED_DEPTH 32u

/* A cell on its way into a slot. */
struct hoist__fed_cell {
	uint32_t ordinal;
	size_t cell;
	unsigned next_block; /* blocks before it are in requests */
	unsigned n_requests;
	unsigned n_open; /* of the requests, those in the engine */
	bool complete;	 /* no more requests will be made */
	unsigned char *slot;
	struct hoist__request requests[HOIST__CELL_RUNS];
};

struct hoist__feeder {
	struct hoist__member *member;
	struct hoist__engine *_Atomic engine;
	size_t *cells; /* this rank's, by ordinal */
	uint32_t n_cells;
	uint32_t next;		     /* ordinal of the cell that gets a slot next */
	struct hoist__fed_cell *fed; /* HOIST__GROUP_SLOTS */
	pthread_t thread;
	bool has_thread;
	_Atomic bool stopping;
	uint64_t direct_bytes;
	uint64_t cached_bytes;
	uint64_t n_reads;
};

struct hoist__member {
	struct hoist__load_source source;
	const struct hoist__transport_ops *ops;
	struct hoist__transport *transport;
	char *name; /* behind the scheme */
	unsigned rank;
	unsigned n_ranks;
	uint64_t timeout_ns;

	struct hoist_load *load;      /* from begin on */
	struct hoist__budget *budget; /* once it was asked; NULL: not yet */
	struct hoist__budget_ticket ticket;
	size_t charged;	    /* bytes of the budget */
	uint64_t charge_ns; /* when they were first asked for; 0: not yet */
	size_t *first_cell; /* of each file, and the number of all cells */
	uint64_t *wants;
	uint32_t *touches; /* of each cell: chunks that have not landed */
	size_t reach;	   /* cells from the first of a chunk to the last so far, at most */
	size_t last_cell;  /* the walk: the last of all chunks so far */
	bool met;
	struct hoist__ownership ownership;
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

/* Has the feeder look again.  Threads: any. */
void hoist__feeder_wake(struct hoist__feeder *feeder);

/* Ends the thread and the engine, but for one that was abandoned: false, and the slots must stay.
 */
bool hoist__feeder_stop(struct hoist__feeder *feeder);

/* The file of a cell. */
size_t hoist__member_file(const struct hoist__member *member, size_t cell);

#endif
