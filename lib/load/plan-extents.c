/* SPDX-License-Identifier: MIT */
/* Joins runs to the extents that are read together, and gives each tensor its place.
 * The contract is in lib/load/plan-private.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "lib/load/plan-private.h"

struct layout {
	const hoist_checkpoint *checkpoint;
	struct hoist__plan *plan;
	uint64_t tensor_align;
};

static size_t file_of(const struct layout *layout, const struct hoist__run *run)
{
	const struct hoist__plan_tensor *tensor = &layout->plan->tensors[run->tensor];
	return layout->checkpoint->tensors[tensor->index].file;
}

/* --- order --- */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Orders by (file, begin, end), then by conversion and rows.  0: the same bytes of one file,
 * converted alike. */
static int compare_bytes(const struct layout *layout, const struct hoist__run *a,
			 const struct hoist__run *b)
{
	const uint64_t pairs[][2] = {
		{file_of(layout, a), file_of(layout, b)},
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

static int compare(const void *a, const void *b, void *context)
{
	const struct hoist__run *first = a;
	const struct hoist__run *second = b;
	int order = compare_bytes(context, first, second);
	return order != 0 ? order : compare_numbers(first->tensor, second->tensor);
}

/* Sorts the runs, which are out of order only where tensors overlap. */
static void sort(struct layout *layout)
{
	struct hoist__plan *plan = layout->plan;
	bool sorted = true;
	for (size_t r = 1; r < plan->n_runs && sorted; r++)
		sorted = compare(&plan->runs[r - 1], &plan->runs[r], layout) < 0;
	if (!sorted)
		qsort_r(plan->runs, plan->n_runs, sizeof *plan->runs, compare, layout);
}

/* Tied tensors, of the same bytes, share one run, and so one place.  Moves the runs of the others
 * behind the runs that stay; their `target` is the tensor whose place they share.  Returns: the
 * number of runs that stay. */
static size_t set_twins_aside(struct layout *layout)
{
	struct hoist__plan *plan = layout->plan;
	size_t kept = 0;
	for (size_t r = 0; r < plan->n_runs; r++) {
		struct hoist__run run = plan->runs[r];
		if (kept > 0 && compare_bytes(layout, &run, &plan->runs[kept - 1]) == 0) {
			plan->runs[r].target = plan->runs[kept - 1].tensor;
			plan->bytes -= hoist__run_bytes(&run);
			continue;
		}
		plan->runs[r] = plan->runs[kept];
		plan->runs[kept++] = run;
	}
	return kept;
}

/* Overlapping runs are read once, without leaving out gaps, and in one way: if one of them is
 * staged, all are.  But bytes that are converted for a device are converted in the slot that they
 * were read to.  If one of the runs is, each tensor of the crowd is read by itself. */
static void find_crowds(struct layout *layout)
{
	struct hoist__plan *plan = layout->plan;
	for (size_t first = 0, next = 0; first < plan->n_runs; first = next) {
		size_t file = file_of(layout, &plan->runs[first]);
		uint64_t end = plan->runs[first].end;
		bool staged = plan->runs[first].staged;
		bool converts = plan->runs[first].to != HOIST_DTYPE_INVALID;
		for (next = first + 1; next < plan->n_runs && plan->runs[next].begin < end &&
				       file_of(layout, &plan->runs[next]) == file;
		     next++) {
			end = hoist__max_u64(end, plan->runs[next].end);
			staged = staged || plan->runs[next].staged;
			converts = converts || plan->runs[next].to != HOIST_DTYPE_INVALID;
		}
		for (size_t r = first; r < next && next - first > 1; r++) {
			plan->runs[r].alone = converts && plan->kind == HOIST__PLAN_DEVICE;
			plan->runs[r].crowded = !plan->runs[r].alone;
			plan->runs[r].staged = staged;
		}
	}
}

/* --- extents --- */

static uint64_t gap_of(const struct hoist__plan_extent *extent)
{
	return hoist__max_u64(HOIST__PLAN_GAP, 2 * extent->align);
}

/* The run's bytes between two gaps that are left out; 0 if no gap is. */
static uint64_t block_of(const struct hoist__run *run, uint64_t gap)
{
	uint64_t block = run->row_bytes;
	uint64_t span = run->row_bytes; /* the same, with gaps */
	for (unsigned level = run->n_levels; level-- > 0 && !run->crowded;) {
		if (run->levels[level].stride - span > gap)
			return block;
		block *= run->levels[level].count;
		span += (run->levels[level].count - 1) * run->levels[level].stride;
	}
	return 0;
}

/* Tells whether the run is read together with the extent, for which @made would be the run's own
 * extent. */
static bool joins(const struct hoist__plan_extent *extent, const struct hoist__plan_extent *made,
		  const struct hoist__run *run)
{
	if (extent->file != made->file || extent->staged != made->staged ||
	    extent->half != made->half || extent->block_bytes > 0 || made->block_bytes > 0 ||
	    run->alone)
		return false;
	if (extent->staged)
		return run->begin <= extent->end || run->begin - extent->end <= gap_of(extent);
	return hoist__round_down(run->begin, extent->align) <=
	       hoist__round_up(extent->end, extent->align);
}

/* Returns the last extent if the run is read together with it, else a new one behind it. */
static struct hoist__plan_extent *add_extent(struct layout *layout, const struct hoist__run *run)
{
	struct hoist__plan *plan = layout->plan;
	size_t f = file_of(layout, run);
	const struct hoist__file *file = layout->checkpoint->files[f].file;
	struct hoist__plan_extent made = {
		.file = f,
		.begin = run->begin,
		.end = run->begin,
		.align = hoist__max_u64(HOIST__PLAN_ALIGN,
					hoist__max_u64(file->offset_align, file->memory_align)),
		.staged = run->staged,
		.half = plan->kind == HOIST__PLAN_DEVICE && run->becomes > run->element,
		.first_run = plan->n_runs,
	};
	made.block_bytes = block_of(run, gap_of(&made));
	struct hoist__plan_extent *last = plan->extents;
	if (plan->n_extents > 0) {
		last = &plan->extents[plan->n_extents - 1];
		if (joins(last, &made, run))
			return last;
		last++;
	}
	if (!made.staged)
		made.image = hoist__round_up(plan->destination_bytes, made.align);
	*last = made;
	plan->n_extents++;
	plan->align = hoist__max_u64(plan->align, made.align);
	return last;
}

/* --- places --- */

/* Tells whether the run continues the last run, in the file and in the destination. */
static bool continues(const struct layout *layout, const struct hoist__plan_extent *extent,
		      const struct hoist__run *run)
{
	const struct hoist__plan *plan = layout->plan;
	if (extent->n_runs == 0)
		return false;
	const struct hoist__run *last = &plan->runs[plan->n_runs - 1];
	return last->rows == 1 && run->rows == 1 && last->end == run->begin &&
	       last->from == run->from && last->to == run->to &&
	       (!run->staged || plan->destination_bytes % layout->tensor_align == 0);
}

/* Gives the run's tensor its place, and adds the run to the extent, or its bytes to the last run if
 * the run continues that one.  False: the destination exceeds 63 bits. */
static bool place(struct layout *layout, struct hoist__plan_extent *extent, struct hoist__run *run)
{
	struct hoist__plan *plan = layout->plan;
	struct hoist__plan_tensor *tensor = &plan->tensors[run->tensor];
	uint64_t first = hoist__round_down(extent->begin, extent->align);
	bool more = continues(layout, extent, run);
	extent->end = hoist__max_u64(extent->end, run->end);
	if (run->staged) {
		uint64_t align = more ? 1 : layout->tensor_align;
		run->target = hoist__round_up(plan->destination_bytes, align);
		plan->destination_bytes = run->target + tensor->bytes;
	} else {
		run->target = extent->image + (run->begin - first);
		plan->destination_bytes =
			extent->image + (hoist__round_up(extent->end, extent->align) - first);
	}
	tensor->target = run->target;
	if (more) {
		plan->runs[plan->n_runs - 1].row_bytes += run->row_bytes;
		plan->runs[plan->n_runs - 1].end = run->end;
	} else {
		plan->runs[plan->n_runs++] = *run;
		extent->n_runs++;
	}
	return plan->destination_bytes <= INT64_MAX;
}

/* The table of runs is compacted in place: runs that continue the one before are joined to it.
 * Runs of tied tensors wait at the table's end for the places that they share. */
int hoist__plan_extents(const hoist_checkpoint *checkpoint, uint64_t tensor_align,
			struct hoist__plan *plan)
{
	struct layout layout = {checkpoint, plan, tensor_align};
	size_t n = plan->n_runs;
	for (size_t r = 0; r < n; r++) {
		struct hoist__run *run = &plan->runs[r];
		run->staged = plan->kind == HOIST__PLAN_DEVICE || run->rows > 1 || run->to != 0;
	}
	sort(&layout);
	size_t n_all = n;
	n = plan->n_runs = set_twins_aside(&layout);
	find_crowds(&layout);
	plan->extents = calloc(n > 0 ? n : 1, sizeof *plan->extents);
	if (plan->extents == NULL)
		return hoist__fail_nomem("a plan", n * sizeof *plan->extents);
	/* Runs are written at the front, and never overtake the run that is read: at most one is
	 * written for each. */
	plan->n_runs = 0;
	for (size_t r = 0; r < n; r++) {
		struct hoist__run run = plan->runs[r];
		struct hoist__plan_extent *extent = add_extent(&layout, &run);
		if (!place(&layout, extent, &run))
			return hoist__fail(-EOVERFLOW,
					   "the selected tensors do not fit in 63 bits of address");
		plan->has_images = plan->has_images || !run.staged;
		plan->has_staged = plan->has_staged || run.staged;
		plan->has_conversion = plan->has_conversion || run.to != HOIST_DTYPE_INVALID;
	}
	for (size_t r = n; r < n_all; r++)
		plan->tensors[plan->runs[r].tensor].target =
			plan->tensors[plan->runs[r].target].target;
	/* Usually few runs are left.  If realloc fails, the larger table stays. */
	if (plan->n_runs < n_all) {
		struct hoist__run *fewer = realloc(plan->runs, plan->n_runs * sizeof *fewer);
		if (fewer != NULL)
			plan->runs = fewer;
	}
	return 0;
}
