/* SPDX-License-Identifier: MIT */
/* lib/save/feed.h - the loads of a save: they bring tensors of checkpoints that are not saved as
 * they lie in their files: converted, sliced, or with strides there.
 *
 * Tensors that come by loads, in the order of the save, are divided into segments: whole tensors,
 * or rows of large ones (indices of the first axis).  Segments that follow each other are a batch,
 * a 16th of the budget at most, which one load brings:
 *
 *     tensors    [a][b][          c           ][d]
 *     segments   [a][b][ c: 0..3 ][ c: 3..6][c][d]
 *     batches    |  0            |  1      | 2   |
 *
 * A block that needs bytes of a batch begins its load, and the load of the next batch, and waits,
 * in a thread of the crew's.  The load and its memory go when the last of the batch's bytes is in a
 * block.  Nothing waits for room: the blocks that are begun bound the batches, as blocks are begun
 * in the order of the batches.  So the memory beside the slots is at most that of the blocks, as
 * they are in the slots, and of three batches; a row that is larger than a batch is a batch of its
 * own. Slots take a quarter of the budget then.  The loads share a budget of their own, of another
 * quarter, but at least HOIST__FEED_LEAST_BYTES: with the save's budget a load could wait for slots
 * that wait for the load.  A save that fails, or is cancelled, cancels its loads.
 */
#ifndef HOIST_LIB_SAVE_FEED_H
#define HOIST_LIB_SAVE_FEED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/budget.h"
#include "hoist/load.h"

struct hoist_save;

/* The least budget of the loads. */
#define HOIST__FEED_LEAST_BYTES ((size_t)1 << 20)

/* A tensor, or rows of one, that one load brings. */
struct hoist__save_segment {
	size_t source;
	size_t batch;
	uint64_t from; /* bytes of the tensor, as it is saved */
	uint64_t bytes;
	int64_t row;	/* of the part that is saved */
	int64_t n_rows; /* 0: all, whether there are rows or not */
};

/* Segments [first, first + n), in the order of the load's tensors. */
struct hoist__save_batch {
	size_t first;
	size_t n;
	uint64_t bytes;
	uint64_t left;	  /* under the lock: not in a block yet */
	hoist_load *load; /* likewise; NULL: not begun, or over */
};

struct hoist__save_feed {
	struct hoist__save_segment *segments;
	size_t n_segments;
	size_t segments_room;
	struct hoist__save_batch *batches;
	size_t n_batches;
	size_t batches_room;
	hoist_budget *budget; /* the loads'; NULL: there are none */
	pthread_mutex_t lock;
	bool stopped; /* under the lock: no load is begun any more */
};

/* --- save-batch.c --- */

/* Pre: the sources are planned.  Returns: 0; -ENOMEM. */
int hoist__save_plan_batches(struct hoist_save *save);
void hoist__save_unplan_batches(struct hoist_save *save);

/* --- save-feed.c --- */

/* Copies bytes [@from, @from + @bytes) of a tensor that comes by loads to @to, once.  Waits for the
 * loads.  Threads: the crew's. */
int hoist__feed_copy(struct hoist_save *save, size_t tensor, uint64_t from, size_t bytes,
		     unsigned char *to);

/* Cancels the loads that run.  May be repeated. */
void hoist__feed_stop(struct hoist_save *save);

/* Ends what is left of the loads.  Pre: nothing is in flight. */
void hoist__feed_release(struct hoist_save *save);

#endif
