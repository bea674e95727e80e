/* SPDX-License-Identifier: MIT */
/* Divides extents: images into ranges that are mapped and ranges that are read, and extents that
 * overlap into parts that are read in the order of the file.  Has a plan begin later on.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

/* Makes the extent of [@begin, @end) of @whole.  Runs are in the order of their begins, so those
 * that begin before @end are a prefix; runs that end before @begin have no byte in the part, and
 * may be among its runs. */
static struct hoist__plan_extent part_of(const struct hoist__plan *plan,
					 const struct hoist__plan_extent *whole, uint64_t begin,
					 uint64_t end)
{
	struct hoist__plan_extent part = *whole;
	size_t last = whole->first_run + whole->n_runs;
	size_t run = whole->first_run;
	while (run + 1 < last && plan->runs[run].end <= begin)
		run++;
	part.first_run = run;
	while (run < last && plan->runs[run].begin < end)
		run++;
	part.n_runs = run - part.first_run;
	part.goes_on = begin > whole->begin;
	part.begin = begin;
	part.end = end;
	part.image += hoist__round_down(begin, whole->align) -
		      hoist__round_down(whole->begin, whole->align);
	HOIST__ASSERT(begin < end && part.n_runs != 0);
	return part;
}

int hoist__plan_split(struct hoist__plan *plan, const struct hoist__plan_range *ranges, size_t n)
{
	size_t most = plan->n_extents + 2 * n;
	struct hoist__plan_extent *made = calloc(most, sizeof *made);
	size_t n_made = 0;
	size_t r = 0;
	if (made == NULL)
		return hoist__fail_nomem("a plan", most * sizeof *made);
	for (size_t e = 0; e < plan->n_extents; e++) {
		const struct hoist__plan_extent *whole = &plan->extents[e];
		uint64_t at = whole->begin;
		for (; r < n && ranges[r].extent == e; r++) {
			uint64_t begin = hoist__max_u64(ranges[r].begin, whole->begin);
			uint64_t end = hoist__min_u64(ranges[r].end, whole->end);
			HOIST__ASSERT(begin >= at && begin < end);
			if (begin > at)
				made[n_made++] = part_of(plan, whole, at, begin);
			made[n_made] = part_of(plan, whole, begin, end);
			made[n_made++].mapped = true;
			at = end;
		}
		if (at == whole->begin)
			made[n_made++] = *whole;
		else if (at < whole->end)
			made[n_made++] = part_of(plan, whole, at, whole->end);
	}
	HOIST__ASSERT(r == n && n_made <= most);
	free(plan->extents);
	plan->extents = made;
	plan->n_extents = n_made;
	return 0;
}

/* --- extents that overlap --- */

/* Makes the part of the elements of @whole that end in [@begin, @end).  The part begins and ends
 * where they do, so that each chunk of it has useful bytes, but not before @begin: there, other
 * runs may have elements of the part before.  False: there are none. */
static bool elements_of(const struct hoist__plan *plan, const struct hoist__plan_extent *whole,
			uint64_t begin, uint64_t end, struct hoist__plan_extent *ret)
{
	uint64_t first = UINT64_MAX;
	uint64_t last = 0;
	*ret = part_of(plan, whole, begin, end);
	for (size_t r = ret->first_run; r < ret->first_run + ret->n_runs; r++) {
		const struct hoist__run *run = &plan->runs[r];
		uint64_t before = hoist__run_before(run, begin);
		uint64_t behind = hoist__run_before(run, end);
		if (before == behind)
			continue;
		first = hoist__min_u64(first, hoist__run_place(run, before));
		last = hoist__max_u64(last, hoist__run_place(run, behind - 1) + 1);
	}
	ret->begin = hoist__max_u64(first, begin);
	ret->end = last;
	return first < last;
}

static int compare_begins(const void *a, const void *b)
{
	const struct hoist__plan_extent *x = a;
	const struct hoist__plan_extent *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->first_run > y->first_run) - (x->first_run < y->first_run);
}

/* The end of the extents from @first on that lie in one piece of a file. */
static size_t crowd_end(const struct hoist__plan *plan, size_t first)
{
	const struct hoist__plan_extent *extents = plan->extents;
	uint64_t end = extents[first].end;
	size_t e = first + 1;
	for (; e < plan->n_extents && extents[e].file == extents[first].file &&
	       extents[e].tier == extents[first].tier && extents[e].begin < end;
	     e++)
		end = hoist__max_u64(end, extents[e].end);
	return e;
}

/* The parts of extents [@first, @next).  Returns: their number, at most. */
static size_t interleave(const struct hoist__plan *plan, size_t first, size_t next, uint64_t step,
			 struct hoist__plan_extent *made)
{
	size_t n = 0;
	size_t most = 0;
	for (size_t e = first; e < next; e++) {
		const struct hoist__plan_extent *whole = &plan->extents[e];
		HOIST__ASSERT(step % whole->align == 0 && whole->staged && !whole->laid);
		uint64_t at = whole->begin;
		most += (size_t)((whole->end - 1) / step - at / step + 1);
		while (made != NULL && at < whole->end) {
			uint64_t end = hoist__min_u64(at - at % step + step, whole->end);
			n += elements_of(plan, whole, at, end, &made[n]);
			at = end;
		}
	}
	if (made != NULL)
		qsort(made, n, sizeof *made, compare_begins);
	return made != NULL ? n : most;
}

int hoist__plan_interleave(struct hoist__plan *plan, uint64_t step)
{
	size_t most = 0;
	size_t n = 0;
	for (size_t e = 0, next; e < plan->n_extents; e = next) {
		next = crowd_end(plan, e);
		most += next - e == 1 ? 1 : interleave(plan, e, next, step, NULL);
	}
	if (most == plan->n_extents)
		return 0;
	struct hoist__plan_extent *made = calloc(most, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a plan", most * sizeof *made);
	for (size_t e = 0, next; e < plan->n_extents; e = next) {
		next = crowd_end(plan, e);
		if (next - e == 1)
			made[n++] = plan->extents[e];
		else
			n += interleave(plan, e, next, step, &made[n]);
	}
	HOIST__ASSERT(n <= most);
	free(plan->extents);
	plan->extents = made;
	plan->n_extents = n;
	return 0;
}

/* --- a plan that begins later on --- */

/* Can a chunk begin at @offset, or does an element lie on both sides? */
static bool can_cut(const struct hoist__plan *plan, const struct hoist__plan_extent *extent,
		    uint64_t offset)
{
	for (size_t r = extent->first_run; r < extent->first_run + extent->n_runs; r++) {
		const struct hoist__run *run = &plan->runs[r];
		uint64_t before = hoist__run_before(run, offset);
		if (before < hoist__run_bytes(run) && hoist__run_place(run, before) < offset)
			return false;
	}
	return true;
}

/* The first extent that has bytes of @file from @offset on, or of a later file. */
static size_t first_behind(const struct hoist__plan *plan, size_t file, uint64_t offset)
{
	size_t low = 0;
	size_t high = plan->n_extents;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct hoist__plan_extent *extent = &plan->extents[middle];
		if (extent->file < file || (extent->file == file && extent->end <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* May the plan begin at @offset, which is in extent @k or before, with the other extents as they
 * are?  @may_cut: parts of one extent need not stay together. */
static bool can_begin_at(const struct hoist__plan *plan, size_t k, size_t file, uint64_t offset,
			 bool may_cut)
{
	const struct hoist__plan_extent *extents = plan->extents;
	bool can = true;
	for (size_t e = k; can && e < plan->n_extents && extents[e].file == file; e++) {
		bool follows = extents[e].goes_on &&
			       (e == k || plan->runs[extents[e].first_run].begin < offset);
		can = (may_cut || !follows) && (e == k || extents[e].begin >= offset) &&
		      (extents[e].begin > offset || can_cut(plan, &extents[e], offset));
		if (may_cut && extents[e].begin > offset)
			break;
	}
	return can;
}

int hoist__plan_begin_at(struct hoist__plan *plan, size_t file, uint64_t offset, bool may_cut)
{
	struct hoist__plan_extent *extents = plan->extents;
	size_t k = first_behind(plan, file, offset);
	bool cuts = k < plan->n_extents && extents[k].file == file && extents[k].begin < offset;
	size_t n = 0;
	if (k == plan->n_extents || k + cuts == 0 || (cuts && (!may_cut || extents[k].laid)))
		return 1;
	if (!can_begin_at(plan, k, file, offset, may_cut))
		return 1;
	struct hoist__plan_extent *made = calloc(plan->n_extents + cuts, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a plan", (plan->n_extents + cuts) * sizeof *made);
	if (cuts)
		n += elements_of(plan, &extents[k], offset, extents[k].end, &made[n]);
	for (size_t e = k + cuts; e < plan->n_extents; e++)
		made[n++] = extents[e];
	for (size_t e = 0; e < k; e++)
		made[n++] = extents[e];
	if (cuts)
		n += elements_of(plan, &extents[k], extents[k].begin, offset, &made[n]);
	free(plan->extents);
	plan->extents = made;
	plan->n_extents = n;
	return 0;
}
