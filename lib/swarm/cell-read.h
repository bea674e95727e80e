/* SPDX-License-Identifier: MIT */
/* lib/swarm/cell-read.h - the reading thread: reads cells of a checkpoint's files to slots.
 *
 *     next ---> requests, one for each run of blocks ---> done
 *
 * Reads are as those of the load itself: direct, but for bytes that are in the page cache already.
 * A cell's job is the caller's memory from `next` to `done`.  Several cells are read at a time.
 *
 * Threads: the reading thread calls `next`, `done` and `failed`.  wake is any thread's;
 * start, stop and destroy are the owner's.
 */
#ifndef HOIST_LIB_SWARM_CELL_READ_H
#define HOIST_LIB_SWARM_CELL_READ_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/engine.h"
#include "lib/swarm/cells.h"

/* Runs of blocks of one cell, at most: each is a request. */
#define HOIST__CELL_RUNS (HOIST__CELL_BLOCKS / (HOIST__CELL_GAP + 1) + 1)

struct hoist__cell_job {
	size_t cell;
	unsigned char *slot; /* of HOIST__CELL_BYTES; the cell's bytes come to their places in it */
	const uint64_t *blocks; /* of the cell, which are read; gaps between them may be, too */

	/* The reader's. */
	unsigned next_block; /* blocks before it are in requests */
	unsigned n_requests;
	unsigned n_open; /* of the requests, those in the engine */
	bool complete;	 /* no more requests will be made */
	int err;
	struct hoist__request requests[HOIST__CELL_RUNS];
};

struct hoist__cell_reader_ops {
	/* The next cell to be read.  NULL: none now; hoist__cell_reader_wake() has the thread ask
	 * again. */
	struct hoist__cell_job *(*next)(void *context);
	/* The cell is in its slot, or @err < 0, whose text is in hoist_error(). */
	void (*done)(void *context, struct hoist__cell_job *job, int err);
	/* The thread ends: no cell is read any more. */
	void (*failed)(void *context, int err);
};

struct hoist__cell_reader {
	const struct hoist__cell_reader_ops *ops;
	void *context;
	const struct hoist__cells *cells;
	struct hoist__engine *_Atomic engine;
	struct hoist__cell_job *current; /* whose requests are being made */
	pthread_t thread;
	bool has_thread;
	_Atomic bool stopping;
	uint64_t direct_bytes;
	uint64_t cached_bytes;
	uint64_t n_reads;
};

/* Takes a zeroed reader.  Returns: 0; -ENOMEM; as the engine. */
int hoist__cell_reader_start(struct hoist__cell_reader *reader, const struct hoist__cells *cells,
			     const struct hoist__cell_reader_ops *ops, void *context);

/* Does nothing before the reader was started. */
void hoist__cell_reader_wake(struct hoist__cell_reader *reader);

/* Ends the thread, and adds its reads to the load's report.  False: the engine was abandoned, and
 * the kernel may still write to slots: they, the jobs and the reader must stay. */
bool hoist__cell_reader_stop(struct hoist__cell_reader *reader);

/* Pre: stopped, and not abandoned. */
void hoist__cell_reader_destroy(struct hoist__cell_reader *reader);

#endif
