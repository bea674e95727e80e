/* SPDX-License-Identifier: MIT */
/* Puts the runs of all wants in order, and finds those that share bytes of a file.
 * The contract is in lib/plan/plan-private.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/plan/plan-private.h"

struct order {
	const hoist_checkpoint *checkpoint;
	struct hoist__plan *plan;
};

static size_t file_of(const struct order *order, const struct hoist__run *run)
{
	return hoist__run_file(order->checkpoint, order->plan, run);
}

static unsigned want_of(const struct order *order, const struct hoist__run *run)
{
	return order->plan->tensors[run->tensor].want;
}

/* --- order --- */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Orders by (file, begin, end), then by conversion and rows.  0: the same bytes of one file,
 * converted alike. */
static int compare_bytes(const struct order *order, const struct hoist__run *a,
			 const struct hoist__run *b)
{
	const uint64_t pairs[][2] = {
		{file_of(order, a), file_of(order, b)},
		{a->begin, b->begin},
		{a->end, b->end},
		{a->from, b->from},
		{a->to, b->to},
		{a->row_bytes, b->row_bytes},
		{a->n_levels, b->n_levels},
	};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		if (pairs[i][0] != pairs[i][1])
			return compare_numbers(pairs[i][0], pairs[i][1]);
	return a->n_levels == 0 ? 0 : memcmp(a->levels, b->levels, a->n_levels * sizeof *a->levels);
}

/* Tied tensors of one want stand together by the places that they were given. */
static int compare(const void *a, const void *b, void *context)
{
	const struct order *order = context;
	const struct hoist__plan_tensor *tensors = order->plan->tensors;
	size_t first = ((const struct hoist__run *)a)->tensor;
	size_t second = ((const struct hoist__run *)b)->tensor;
	int by = compare_bytes(order, a, b);
	if (by == 0 && tensors[first].want == tensors[second].want)
		by = compare_numbers(tensors[first].target, tensors[second].target);
	return by != 0 ? by : compare_numbers(first, second);
}

static uint32_t *tier_of(const struct order *order, const struct hoist__run *run)
{
	return &order->plan->tensors[run->tensor].tier;
}

static int compare_tiers(const void *a, const void *b, void *context)
{
	const struct order *order = context;
	int tiers = compare_numbers(*tier_of(order, a), *tier_of(order, b));
	return tiers != 0 ? tiers : compare(a, b, context);
}

/* Sorts the runs, which are out of order only where tensors overlap or where there are several
 * wants. */
static void sort(struct order *order)
{
	struct hoist__plan *plan = order->plan;
	size_t r = 1;
	for (; r < plan->n_runs; r++) {
		const struct hoist__run *a = &plan->runs[r - 1];
		const struct hoist__run *b = &plan->runs[r];
		bool behind = a->begin < b->begin && file_of(order, a) == file_of(order, b);
		if (!behind && compare(a, b, order) > 0)
			break;
	}
	if (r < plan->n_runs)
		qsort_r(plan->runs, plan->n_runs, sizeof *plan->runs, compare, order);
}

/* --- the same bytes --- */

/* Tensors of the same bytes share one run.  It has a place for each want: tied tensors of one want
 * share their place, too.  Moves the runs of the others behind the runs that stay; their
 * `first_place` is the tensor whose place they share.  Returns: the number of runs that stay. */
static size_t set_twins_aside(struct order *order)
{
	struct hoist__plan *plan = order->plan;
	size_t kept = 0;
	size_t last = 0;     /* the tensor of the last place */
	size_t n_places = 0; /* in plan->places, which one want does not need */
	for (size_t r = 0; r < plan->n_runs; r++) {
		struct hoist__run run = plan->runs[r];
		bool twin = kept > 0 && run.begin == plan->runs[kept - 1].begin &&
			    compare_bytes(order, &run, &plan->runs[kept - 1]) == 0;
		bool other_want = !twin || plan->tensors[last].want != want_of(order, &run);
		/* In place, tied tensors have the places that the caller gave them. */
		if (!other_want && plan->tensors[last].target != plan->tensors[run.tensor].target)
			twin = false;
		if (!twin || other_want) {
			last = run.tensor;
			if (plan->n_wants > 1)
				plan->places[n_places++] = last;
			if (twin)
				plan->runs[kept - 1].n_places++;
		}
		if (twin) {
			uint32_t *tier = tier_of(order, &plan->runs[kept - 1]);
			*tier = *tier < *tier_of(order, &run) ? *tier : *tier_of(order, &run);
			plan->runs[r].first_place = last;
			plan->bytes -= hoist__run_bytes(&run);
			continue;
		}
		run.first_place = n_places - 1;
		run.n_places = 1;
		if (r > kept)
			plan->runs[r] = plan->runs[kept];
		plan->runs[kept++] = run;
	}
	return kept;
}

/* --- the ways of runs --- */

static bool goes_to_device(const struct hoist__plan *plan, const struct hoist__run *run)
{
	const size_t *places = hoist__run_places(plan, run);
	bool any = false;
	for (size_t p = 0; p < run->n_places && !any; p++)
		any = plan->wants[plan->tensors[places[p]].want].kind == HOIST__PLAN_DEVICE;
	return any;
}

static void find_way(const struct order *order, struct hoist__run *run)
{
	const struct hoist__plan *plan = order->plan;
	bool device = goes_to_device(plan, run);
	run->staged = device || run->n_places > 1 || run->rows > 1 || run->to != 0 ||
		      !hoist__run_is_congruent(order->checkpoint, plan, run);
	run->share = device && run->becomes > run->element ? 2 : 1;
	run->singly =
		device && run->n_levels > 0 && run->levels[run->n_levels - 1].target_stride < 0;
	run->laid = device && hoist__run_may_be_laid(plan, run);
}

/* Tells whether the two are slices of one tensor, with rows beside each other: @b behind @a, and
 * before the next row of @first. */
static bool is_beside(const struct hoist__plan *plan, const struct hoist__run *first,
		      const struct hoist__run *a, const struct hoist__run *b)
{
	if (plan->tensors[a->tensor].index != plan->tensors[b->tensor].index || a->n_levels == 0 ||
	    a->n_levels != b->n_levels)
		return false;
	bool same = true;
	for (unsigned i = 0; i < a->n_levels; i++)
		same = same && a->levels[i].count == b->levels[i].count &&
		       a->levels[i].stride == b->levels[i].stride;
	return same && b->begin - a->begin >= a->row_bytes &&
	       b->begin + b->row_bytes - first->begin <= a->levels[a->n_levels - 1].stride;
}

/* Tells whether runs of a crowd for devices are in conflict: one of them is converted, and they may
 * have bytes in common. */
static bool conflict(const struct hoist__plan *plan, const struct hoist__run *runs, size_t n)
{
	const struct hoist__run *first = NULL;
	const struct hoist__run *last = NULL;
	bool converts = false;
	bool beside = true;
	for (size_t r = 0; r < n; r++) {
		if (!goes_to_device(plan, &runs[r]))
			continue;
		converts = converts || runs[r].to != HOIST_DTYPE_INVALID;
		beside = beside && (last == NULL || is_beside(plan, first, last, &runs[r]));
		first = first != NULL ? first : &runs[r];
		last = &runs[r];
	}
	return converts && !beside;
}

/* Tells whether two runs of the crowd have places in one want of devices, and bytes in common. */
static bool overlaps_itself(const struct hoist__plan *plan, const struct hoist__run *runs, size_t n)
{
	uint64_t ends[HOIST__PLAN_MOST_WANTS] = {0};
	bool overlaps = false;
	for (size_t r = 0; r < n; r++) {
		const size_t *places = hoist__run_places(plan, &runs[r]);
		for (unsigned p = 0; p < runs[r].n_places; p++) {
			unsigned want = plan->tensors[places[p]].want;
			if (plan->wants[want].kind != HOIST__PLAN_DEVICE)
				continue;
			overlaps = overlaps || runs[r].begin < ends[want];
			ends[want] = runs[r].end;
		}
	}
	return overlaps;
}

/* The parts of a slot that a tight chunk and its rooms take: a room for each want, and two where a
 * run becomes wider. */
static unsigned char share_of_tight(const struct hoist__plan *plan, const struct hoist__run *runs,
				    size_t n)
{
	unsigned wide = 1;
	for (size_t r = 0; r < n; r++)
		if (goes_to_device(plan, &runs[r]) && runs[r].becomes > runs[r].element)
			wide = 2;
	HOIST__ASSERT(plan->n_device_wants <= HOIST__PLAN_MOST_WANTS);
	return (unsigned char)(1 + wide * plan->n_device_wants);
}

/* Overlapping runs are read once, without leaving out gaps, and in one way: if one of them is
 * staged or in place, or if they are of several wants, all are staged. */
static void treat_crowd(struct order *order, struct hoist__run *runs, size_t n)
{
	bool in_conflict = conflict(order->plan, runs, n);
	bool alone = in_conflict && overlaps_itself(order->plan, runs, n);
	bool tight = in_conflict && !alone;
	bool staged = false;
	unsigned char share = 1;
	uint32_t tier = UINT32_MAX;
	for (size_t r = 0; r < n; r++) {
		tier = tier < *tier_of(order, &runs[r]) ? tier : *tier_of(order, &runs[r]);
		staged = staged || runs[r].staged ||
			 hoist__run_is_in_place(order->plan, &runs[r]) ||
			 want_of(order, &runs[r]) != want_of(order, &runs[0]);
		if (runs[r].share > 1)
			share = 3;
	}
	if (tight)
		share = share_of_tight(order->plan, runs, n);
	for (size_t r = 0; r < n; r++) {
		*tier_of(order, &runs[r]) = tier;
		runs[r].alone = alone;
		runs[r].crowded = !alone;
		runs[r].laid = false;
		runs[r].tight = tight;
		runs[r].staged = staged;
		if (!alone)
			runs[r].share = share;
	}
}

static void find_crowds(struct order *order)
{
	struct hoist__plan *plan = order->plan;
	for (size_t first = 0, next = 0; first < plan->n_runs; first = next) {
		size_t file = file_of(order, &plan->runs[first]);
		uint64_t end = plan->runs[first].end;
		for (next = first + 1; next < plan->n_runs && plan->runs[next].begin < end &&
				       file_of(order, &plan->runs[next]) == file;
		     next++)
			end = hoist__max_u64(end, plan->runs[next].end);
		if (next - first > 1)
			treat_crowd(order, &plan->runs[first], next - first);
	}
}

/* --- tiers --- */

/* Runs that are read together stay in their order, as they are of one tier.  The tensors with a
 * place in a run, and those that share such a place, are of the run's tier. */
static void sort_tiers(struct order *order, size_t n_all)
{
	struct hoist__plan *plan = order->plan;
	qsort_r(plan->runs, plan->n_runs, sizeof *plan->runs, compare_tiers, order);
	for (size_t r = 0; r < plan->n_runs; r++) {
		const size_t *places = hoist__run_places(plan, &plan->runs[r]);
		for (unsigned p = 1; p < plan->runs[r].n_places; p++)
			plan->tensors[places[p]].tier = *tier_of(order, &plan->runs[r]);
	}
	for (size_t r = plan->n_runs; r < n_all; r++)
		*tier_of(order, &plan->runs[r]) = plan->tensors[plan->runs[r].first_place].tier;
}

size_t hoist__plan_order(const hoist_checkpoint *checkpoint, bool tiers, struct hoist__plan *plan)
{
	struct order order = {checkpoint, plan};
	size_t n = plan->n_runs;
	sort(&order);
	plan->n_runs = set_twins_aside(&order);
	HOIST__ASSERT(plan->n_runs <= n);
	for (size_t r = 0; r < plan->n_runs; r++)
		find_way(&order, &plan->runs[r]);
	find_crowds(&order);
	if (tiers)
		sort_tiers(&order, n);
	hoist__plan_find_laid(checkpoint, plan);
	size_t kept = plan->n_runs;
	plan->n_runs = n;
	return kept;
}
