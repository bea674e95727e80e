/* SPDX-License-Identifier: MIT */
/* io/timeline.h - records when the chunks of a job were where, and what the job waited for.
 *
 * The owner of a chunk fills in a `struct hoist__lap` on the way, and hands the lap in at its end:
 *
 *     slot      acquire: begin    filled: full    first copy: copy    free: hoist__timeline_end()
 *     straight  submitted: begin  read: full                          counted:        "
 *     wait      hoist__timeline_wait(), at its end
 *
 *     laps   [ chunks, in the order of their ends | free ][ waits, likewise | free ]
 *            0                                            HOIST_TIMELINE_MOST
 *
 * Invariants: begin <= full <= copy <= end.  A table that is full stays as it is, and `lost`
 * counts. A time of a lap that was not reached (a chunk was given up, nothing was copied) is that
 * of the end.  Without a recorder (NULL) each function does nothing, and the time is 0.
 *
 * Threads: one owner, that of the job's staging.  Once the job has ended, any thread reads.
 */
#ifndef HOIST_IO_TIMELINE_H
#define HOIST_IO_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "hoist/timeline.h"

/* Waits that are shorter are not recorded: a job that its caller drives has one at each step. */
#define HOIST__TIMELINE_LEAST_NS 1000u

struct hoist__lap {
	enum hoist_interval_kind kind;
	unsigned number;
	uint32_t streams; /* of the staging: a bit for each that had copies */
	uint64_t begin_ns, full_ns, copy_ns, end_ns;
	uint64_t bytes;
};

struct hoist__timeline {
	uint64_t begin_ns; /* of the clock: the laps' times count from here */
	size_t n_chunks;
	size_t n_waits;
	size_t lost;
	struct hoist__lap laps[2 * HOIST_TIMELINE_MOST];
};

/* Returns: 0; -ENOMEM. */
int hoist__timeline_create(uint64_t begin_ns, struct hoist__timeline **ret);
void hoist__timeline_destroy(struct hoist__timeline *timeline); /* takes NULL */

static inline uint64_t hoist__timeline_now(const struct hoist__timeline *timeline)
{
	return timeline == NULL ? 0 : hoist__now_ns() - timeline->begin_ns;
}

/* The chunk's way has ended now. */
void hoist__timeline_end(struct hoist__timeline *timeline, const struct hoist__lap *lap);

/* The job waited from @begin_ns to @end_ns of the clock, for @stage. */
void hoist__timeline_wait(struct hoist__timeline *timeline, unsigned stage, uint64_t begin_ns,
			  uint64_t end_ns);

/* The @index-th interval, chunks first; NULL: there are fewer. */
const struct hoist__lap *hoist__timeline_lap(const struct hoist__timeline *timeline, size_t index);

#endif
