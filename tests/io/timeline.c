/* SPDX-License-Identifier: MIT */
/* The recorder of a job's chunks and waits: both tables keep their places, and count later ones. */
#include "config.h"

#include <criterion/criterion.h>

#include "base/clock.h"
#include "base/error.h"
#include "io/timeline.h"

static uint64_t clock_ns;

static uint64_t read_clock(void *context)
{
	(void)context;
	return clock_ns;
}

static struct hoist__timeline *begin_at(uint64_t ns)
{
	struct hoist__timeline *timeline;
	hoist__clock_hook(read_clock, NULL);
	clock_ns = ns;
	cr_assert(hoist__timeline_create(ns, &timeline) == 0, "%s", hoist__error_text());
	return timeline;
}

static void end(struct hoist__timeline *timeline)
{
	hoist__timeline_destroy(timeline);
	hoist__clock_hook(NULL, NULL);
}

/* A chunk's way from @begin on that ends at @clock. */
static void chunk(struct hoist__timeline *timeline, uint64_t begin, uint64_t full, uint64_t copy,
		  uint64_t clock)
{
	const struct hoist__lap lap = {
		.number = 7, .begin_ns = begin, .full_ns = full, .copy_ns = copy, .bytes = 10};
	clock_ns = clock;
	hoist__timeline_end(timeline, &lap);
}

Test(timeline, times_that_were_not_reached_are_those_of_the_end)
{
	static const struct {
		uint64_t full, copy;	   /* 0: not reached */
		uint64_t full_is, copy_is; /* 100: the end */
	} table[] = {{20, 30, 20, 30}, {20, 0, 20, 100}, {0, 0, 100, 100}};
	struct hoist__timeline *timeline = begin_at(5000);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		chunk(timeline, 10, table[i].full, table[i].copy, 5100);
		const struct hoist__lap *lap = hoist__timeline_lap(timeline, i);
		cr_assert(lap != NULL, "lap %zu", i);
		cr_expect(lap->begin_ns == 10 && lap->full_ns == table[i].full_is &&
				  lap->copy_ns == table[i].copy_is && lap->end_ns == 100,
			  "lap %zu", i);
	}
	cr_expect(hoist__timeline_lap(timeline, 3) == NULL);
	end(timeline);
}

Test(timeline, waits_stand_behind_the_chunks_and_short_ones_are_left_out)
{
	struct hoist__timeline *timeline = begin_at(5000);
	hoist__timeline_wait(timeline, HOIST_STAGE_COPY, 6000, 6000 + HOIST__TIMELINE_LEAST_NS);
	hoist__timeline_wait(timeline, HOIST_STAGE_READ, 8000, 8000 + HOIST__TIMELINE_LEAST_NS - 1);
	chunk(timeline, 10, 20, 30, 9000);
	const struct hoist__lap *wait = hoist__timeline_lap(timeline, 1);
	cr_assert(wait != NULL && hoist__timeline_lap(timeline, 0)->number == 7);
	cr_expect(wait->kind == HOIST_INTERVAL_WAIT && wait->number == HOIST_STAGE_COPY);
	cr_expect(wait->begin_ns == 1000 && wait->end_ns == 2000 && wait->bytes == 0);
	cr_expect(hoist__timeline_lap(timeline, 2) == NULL && timeline->lost == 0);
	end(timeline);
}

Test(timeline, what_finds_no_place_is_counted)
{
	struct hoist__timeline *timeline = begin_at(0);
	const size_t more = 3;
	for (size_t i = 0; i < HOIST_TIMELINE_MOST + more; i++) {
		chunk(timeline, i, 0, 0, i);
		hoist__timeline_wait(timeline, HOIST_STAGE_READ, 2000 * i, 2000 * i + 1500);
	}
	cr_expect(timeline->lost == 2 * more);
	cr_expect(timeline->n_chunks == HOIST_TIMELINE_MOST &&
		  timeline->n_waits == HOIST_TIMELINE_MOST);
	const struct hoist__lap *last = hoist__timeline_lap(timeline, HOIST_TIMELINE_MOST - 1);
	cr_expect(last->begin_ns == HOIST_TIMELINE_MOST - 1 && last->bytes == 10);
	last = hoist__timeline_lap(timeline, 2 * HOIST_TIMELINE_MOST - 1);
	cr_expect(last->begin_ns == UINT64_C(2000) * (HOIST_TIMELINE_MOST - 1));
	cr_expect(hoist__timeline_lap(timeline, 2 * HOIST_TIMELINE_MOST) == NULL);
	end(timeline);
}

Test(timeline, without_a_recorder_nothing_happens)
{
	const struct hoist__lap lap = {0};
	hoist__timeline_end(NULL, &lap);
	hoist__timeline_wait(NULL, HOIST_STAGE_READ, 0, 5000);
	hoist__timeline_destroy(NULL);
	cr_expect(hoist__timeline_now(NULL) == 0);
}
