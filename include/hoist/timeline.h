/* SPDX-License-Identifier: MIT */
/* hoist/timeline.h - when each chunk of a load was where, and what the load waited for.
 *
 *     hoist_load_options o = {.size = sizeof o, .device = device, .flags = HOIST_LOAD_TIMELINE};
 *     hoist_load_interval interval = {.size = sizeof interval};
 *     hoist_load_start(checkpoint, &o, &load);
 *     hoist_load_wait(load);
 *     hoist_load_n_intervals(load, &n, &n_lost);
 *     for (size_t i = 0; i < n; i++)
 *             if (hoist_load_get_interval(load, i, &interval) == 0)
 *                     draw(&interval);
 *
 * A load records only if its options ask for that.  Three kinds of intervals have a begin and an
 * end, in nanoseconds since the load's start:
 *
 *   SLOT      begin --reading-- full --waits, is converted-- copy --copied-- end, the slot is free
 *   STRAIGHT  begin --reading-- full --waits, is digested--- copy = end
 *   WAIT      begin --------------the load waits for `number`, a stage------ end
 *
 * A chunk is a SLOT if it passes through a staging slot, and STRAIGHT if it is read to its place in
 * host memory.  SLOT intervals with one number follow each other and do not overlap, as do STRAIGHT
 * ones, and waits.  Between two waits the load is at work.  Waits of less than a microsecond are left
 * out.
 *
 * The chunks come first, in the order of their ends, then the waits in theirs.  The sum of the
 * chunks' bytes is hoist_load_report.bytes of a load that has succeeded, but for maps
 * (HOIST_IO_MAP), which have no chunks.  A load in a group has those that it reads or copies
 * itself.
 *
 * Memory: a load has room for HOIST_TIMELINE_MOST chunks and as many waits, 8 MiB of addresses that
 * get their pages as they are used.  Later intervals are counted, and not kept.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef HOIST_TIMELINE_H
#define HOIST_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>
#include <hoist/load.h>

HOIST_BEGIN

/* Intervals of one load that are kept: so many chunks, and so many waits. */
#define HOIST_TIMELINE_MOST 65536u

/* The stages of a load's time; hoist_load_report has a field for each.  The thread that
 * drives the load is in one stage at a time; each stage but WORK has intervals of kind WAIT. */
enum hoist_stage {
	HOIST_STAGE_WORK = 0,     /* submits, completes, moves bytes; work_ns */
	HOIST_STAGE_PLAN = 1,     /* chooses tensors, slices and reads; plan_ns, and so on */
	HOIST_STAGE_ALLOCATE = 2, /* memory of tensors, and the staging slots */
	HOIST_STAGE_CALLER = 3,   /* the caller holds the window, has queued work, or makes no step */
	HOIST_STAGE_READ = 4,
	HOIST_STAGE_CONVERT = 5,  /* also the driving thread's own conversions and digests */
	HOIST_STAGE_COPY = 6,     /* to devices */
	HOIST_STAGE_PAGES = 7,    /* of fresh memory */
	HOIST_STAGE_GROUP = 8,    /* the ranks of a group, and their reads */
	HOIST_STAGE_BUDGET = 9    /* others have the budget */
};

enum hoist_interval_kind {
	HOIST_INTERVAL_SLOT = 0,
	HOIST_INTERVAL_STRAIGHT = 1,
	HOIST_INTERVAL_WAIT = 2
};

typedef struct hoist_load_interval {
	size_t size;       /* in: sizeof(hoist_load_interval) */
	enum hoist_interval_kind kind;
	unsigned number;   /* SLOT: of the slot; STRAIGHT: the index of the read among those that are
			    * in flight at one time; both count from 0.  WAIT: the enum hoist_stage */
	uint64_t begin_ns;
	uint64_t full_ns;  /* the bytes were read.  WAIT: end_ns */
	uint64_t copy_ns;  /* the first copy to a device was queued; end_ns: there was none */
	uint64_t end_ns;
	uint64_t bytes;    /* of tensors, that the chunk brought; 0: WAIT, or the load failed before */
	uint32_t targets;  /* SLOT: bit t: there were copies on the stream of target t (0:
			    * options.device, r + 1: options.replicas[r]) */
} hoist_load_interval;

/* The number of intervals, and of those for which no place was left (@ret_lost NULL: not asked).
 * Returns: 0; -EINVAL (the load was started without HOIST_LOAD_TIMELINE); -EAGAIN (the load is not
 *   done). */
HOIST_API int hoist_load_n_intervals(hoist_load *load, size_t *ret, size_t *ret_lost);

/* Fills @interval up to interval->size.  After a failure, too.
 * Returns: 0; -EINVAL (@index is too large; interval->size); as hoist_load_n_intervals(). */
HOIST_API int hoist_load_get_interval(hoist_load *load, size_t index,
				      hoist_load_interval *interval);

/* Where the time has gone so far: fills @report up to report->size with `ns`, and with the times of
 * the stages, whose sum is `ns`; all else is 0.  For any load, at any time: no value is
 * smaller than in a call before, and the difference between two calls says what holds the load back
 * at present.  With the load's end the times end, too.
 * Returns: 0; -EINVAL (report->size is 0 or larger than this library knows). */
HOIST_API int hoist_load_get_times(hoist_load *load, hoist_load_report *report);

HOIST_END

#endif
