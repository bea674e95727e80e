/* SPDX-License-Identifier: MIT */
/* Records when the chunks of a job were where.
 * The contract is in io/timeline.h. */
#include "config.h"

#include "io/timeline.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"

/* calloc() takes so large a table from the kernel, which gives it pages when they are touched. */
int hoist__timeline_create(uint64_t begin_ns, struct hoist__timeline **ret)
{
	struct hoist__timeline *timeline = calloc(1, sizeof *timeline);
	if (timeline == NULL)
		return hoist__fail_nomem("a load's timeline", sizeof *timeline);
	timeline->begin_ns = begin_ns;
	*ret = timeline;
	return 0;
}

void hoist__timeline_destroy(struct hoist__timeline *timeline)
{
	free(timeline);
}

static void keep(struct hoist__timeline *timeline, struct hoist__lap *table, size_t *n,
		 const struct hoist__lap *lap)
{
	HOIST__ASSERT(lap->begin_ns <= lap->full_ns && lap->full_ns <= lap->copy_ns &&
		      lap->copy_ns <= lap->end_ns);
	HOIST__ASSERT(*n == 0 || table[*n - 1].end_ns <= lap->end_ns);
	if (*n < HOIST_TIMELINE_MOST)
		table[(*n)++] = *lap;
	else
		timeline->lost++;
}

void hoist__timeline_end(struct hoist__timeline *timeline, const struct hoist__lap *ended)
{
	if (timeline == NULL)
		return;
	struct hoist__lap lap = *ended;
	lap.end_ns = hoist__timeline_now(timeline);
	lap.copy_ns = lap.copy_ns != 0 ? lap.copy_ns : lap.end_ns;
	lap.full_ns = lap.full_ns != 0 ? lap.full_ns : lap.copy_ns;
	keep(timeline, timeline->laps, &timeline->n_chunks, &lap);
}

void hoist__timeline_wait(struct hoist__timeline *timeline, unsigned stage, uint64_t begin_ns,
			  uint64_t end_ns)
{
	if (timeline == NULL || end_ns - begin_ns < HOIST__TIMELINE_LEAST_NS)
		return;
	uint64_t end = end_ns - timeline->begin_ns;
	const struct hoist__lap lap = {
		.kind = HOIST_INTERVAL_WAIT,
		.number = stage,
		.begin_ns = begin_ns - timeline->begin_ns,
		.full_ns = end,
		.copy_ns = end,
		.end_ns = end,
	};
	keep(timeline, &timeline->laps[HOIST_TIMELINE_MOST], &timeline->n_waits, &lap);
}

const struct hoist__lap *hoist__timeline_lap(const struct hoist__timeline *timeline, size_t index)
{
	if (index < timeline->n_chunks)
		return &timeline->laps[index];
	index -= timeline->n_chunks;
	return index < timeline->n_waits ? &timeline->laps[HOIST_TIMELINE_MOST + index] : NULL;
}
