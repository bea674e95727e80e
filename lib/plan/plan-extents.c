/* SPDX-License-Identifier: MIT */
/* Joins runs to the extents that are read together, and gives each tensor its lot and its place.
 * The contract is in lib/plan/plan-private.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

struct layout {
	const hoist_checkpoint *checkpoint;
	struct hoist__plan *plan;
	uint64_t tensor_align;
	uint64_t lot_bytes;
	bool lots_apart;
	bool has_tiers;
	size_t tier_extent;	/* the tier's runs do not join extents before this one, */
	size_t tier_lot;	/* nor, with lot_bytes, lots before this one */
	size_t most_lots;	/* room in plan->lots */
	struct want_lot {	/* of each want: the lot that small tensors join, */
		size_t lot;	/* SIZE_MAX: there is none yet */
		size_t file;	/* the file, */
		uint64_t begin; /* where its first tensor begins there; far behind that place a
				 * new lot begins, as other wants' tensors lie between, */
		bool staged;	/* and the way, of the lot's tensors */
	} * open;
};

/* --- lots --- */

static int add_lot(struct layout *layout, unsigned want)
{
	struct hoist__plan *plan = layout->plan;
	if (plan->n_lots == layout->most_lots) {
		size_t most = 2 * layout->most_lots + plan->n_wants;
		struct hoist__plan_lot *more = reallocarray(plan->lots, most, sizeof *more);
		if (more == NULL)
			return hoist__fail_nomem("a plan", most * sizeof *more);
		plan->lots = more;
		layout->most_lots = most;
	}
	plan->lots[plan->n_lots++] = (struct hoist__plan_lot){
		.want = want,
		.align = layout->tensor_align,
		.in_place = plan->wants[want].in_place,
	};
	return 0;
}

/* Without lot_bytes, or in place, a want has its lot from the beginning, even if the lot stays
 * empty. */
static int begin_lots(struct layout *layout)
{
	struct hoist__plan *plan = layout->plan;
	int err = 0;
	layout->open = calloc(plan->n_wants, sizeof *layout->open);
	if (layout->open == NULL)
		return hoist__fail_nomem("a plan", plan->n_wants * sizeof *layout->open);
	for (size_t w = 0; err == 0 && w < plan->n_wants; w++) {
		bool now = layout->lot_bytes == 0 || plan->wants[w].in_place;
		layout->open[w].lot = now ? plan->n_lots : SIZE_MAX;
		if (now)
			err = add_lot(layout, (unsigned)w);
	}
	return err;
}

/* Chooses the lot of the run's tensor in one want.  An image that overlaps the last extent lies in
 * that extent's lot. */
static int find_lot(struct layout *layout, const struct hoist__run *run,
		    struct hoist__plan_tensor *tensor)
{
	struct hoist__plan *plan = layout->plan;
	struct want_lot *open = &layout->open[tensor->want];
	size_t file = hoist__run_file(layout->checkpoint, plan, run);
	bool overlaps = plan->n_extents > layout->tier_extent && !run->staged && run->crowded &&
			!plan->extents[plan->n_extents - 1].staged &&
			plan->extents[plan->n_extents - 1].file == file &&
			plan->extents[plan->n_extents - 1].end > run->begin;
	bool fits = open->lot != SIZE_MAX && open->lot >= layout->tier_lot && open->file == file &&
		    open->staged == run->staged && run->end - open->begin <= layout->lot_bytes &&
		    plan->lots[open->lot].bytes + tensor->bytes <= layout->lot_bytes;
	bool in_place = plan->wants[tensor->want].in_place;
	int err = 0;
	if (layout->lot_bytes != 0 && !in_place && !overlaps && !fits) {
		*open = (struct want_lot){plan->n_lots, file, run->begin, run->staged};
		err = add_lot(layout, tensor->want);
	}
	tensor->lot = (uint32_t)open->lot;
	return err;
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
		  const struct hoist__run *run, bool in_place)
{
	if (extent->file != made->file || extent->staged != made->staged ||
	    extent->share != made->share || extent->laid != made->laid ||
	    extent->tight != made->tight || extent->block_bytes > 0 || made->block_bytes > 0 ||
	    run->alone)
		return false;
	if (extent->staged)
		return run->begin <= extent->end || run->begin - extent->end <= gap_of(extent);
	if (extent->lot != made->lot)
		return false;
	/* In place, images begin and end at boundaries. */
	if (in_place)
		return run->begin == extent->end &&
		       made->image - extent->image == run->begin - extent->begin;
	return hoist__round_down(run->begin, extent->align) <=
	       hoist__round_up(extent->end, extent->align);
}

/* Returns the last extent if the run is read together with it, else a new one behind it.  @lot: of
 * an image.  @fresh: the run has a place in a lot that begins with the run. */
static struct hoist__plan_extent *add_extent(struct layout *layout, const struct hoist__run *run,
					     size_t lot, bool fresh)
{
	struct hoist__plan *plan = layout->plan;
	size_t f = hoist__run_file(layout->checkpoint, plan, run);
	bool in_place = plan->lots[lot].in_place;
	struct hoist__plan_extent made = {
		.file = f,
		.begin = run->begin,
		.end = run->begin,
		.align = hoist__plan_align_of(layout->checkpoint, f),
		.lot = run->staged ? 0 : lot,
		.image = in_place ? plan->tensors[run->tensor].target + run->shift : 0,
		.tier = plan->tensors[run->tensor].tier,
		.staged = run->staged,
		.laid = run->laid || run->tight,
		.tight = run->tight,
		.share = run->share,
		.first_run = plan->n_runs,
	};
	made.block_bytes = made.laid ? 0 : block_of(run, gap_of(&made));
	struct hoist__plan_extent *next = &plan->extents[plan->n_extents];
	if (plan->n_extents > layout->tier_extent) {
		bool parts = layout->lots_apart && fresh && run->begin >= next[-1].end;
		if (!parts && joins(&next[-1], &made, run, in_place))
			return &next[-1];
	}
	if (!made.staged) {
		struct hoist__plan_lot *own = &plan->lots[lot];
		if (!in_place)
			made.image = hoist__round_up(own->bytes, made.align);
		own->align = hoist__max_u64(own->align, made.align);
		own->has_image = true;
	}
	*next = made;
	plan->n_extents++;
	plan->align = hoist__max_u64(plan->align, made.align);
	plan->most_share = made.share > plan->most_share ? made.share : plan->most_share;
	return next;
}

/* --- places --- */

/* Tells whether the run continues the last run, in the file and in its lots.  Runs that are in
 * place stay apart, so that the bytes of each tensor can be counted. */
static bool continues(const struct layout *layout, const struct hoist__plan_extent *extent,
		      const struct hoist__run *run)
{
	const struct hoist__plan *plan = layout->plan;
	if (extent->n_runs == 0)
		return false;
	const struct hoist__run *last = &plan->runs[plan->n_runs - 1];
	bool more = last->rows == 1 && run->rows == 1 && last->end == run->begin &&
		    last->from == run->from && last->to == run->to &&
		    last->n_places == run->n_places && !hoist__run_is_in_place(plan, run);
	const size_t *places = hoist__run_places(plan, run);
	const size_t *before = hoist__run_places(plan, last);
	for (size_t p = 0; p < run->n_places && more; p++) {
		uint32_t lot = plan->tensors[places[p]].lot;
		more = plan->tensors[before[p]].lot == lot &&
		       (!run->staged || plan->lots[lot].bytes % layout->tensor_align == 0);
	}
	return more;
}

/* Gives the tensor of one want its place in its lot, behind all that the lot has.  False: the lot
 * exceeds 63 bits. */
static bool put(const struct layout *layout, const struct hoist__plan_extent *extent,
		const struct hoist__run *run, struct hoist__plan_tensor *tensor)
{
	struct hoist__plan_lot *lot = &layout->plan->lots[tensor->lot];
	lot->useful += hoist__run_bytes(run);
	if (lot->in_place)
		return true;
	uint64_t first = hoist__round_down(extent->begin, extent->align);
	if (run->staged) {
		tensor->target = hoist__round_up(lot->bytes, layout->tensor_align);
		lot->bytes = tensor->target + tensor->bytes;
	} else {
		tensor->target = extent->image + (run->begin - first);
		lot->bytes = extent->image + (hoist__round_up(extent->end, extent->align) - first);
	}
	return lot->bytes <= INT64_MAX;
}

/* A new tier begins with extents and lots of its own. */
static void begin_tier(struct layout *layout, uint32_t tier)
{
	const struct hoist__plan *plan = layout->plan;
	if (plan->n_extents == 0 || plan->extents[plan->n_extents - 1].tier == tier)
		return;
	layout->tier_extent = plan->n_extents;
	layout->tier_lot = plan->n_lots;
}

/* Gives the run its places, and adds the run to its extent, or its bytes to the last run if the run
 * continues that one. */
static int place(struct layout *layout, struct hoist__run *run)
{
	struct hoist__plan *plan = layout->plan;
	size_t n_lots = plan->n_lots;
	begin_tier(layout, plan->tensors[run->tensor].tier);
	const size_t *places = hoist__run_places(plan, run);
	int err = 0;
	for (size_t p = 0; err == 0 && p < run->n_places; p++)
		err = find_lot(layout, run, &plan->tensors[places[p]]);
	if (err < 0)
		return err;
	struct hoist__plan_extent *extent =
		add_extent(layout, run, plan->tensors[run->tensor].lot, plan->n_lots > n_lots);
	bool more = continues(layout, extent, run);
	bool fits = true;
	extent->end = hoist__max_u64(extent->end, run->end);
	for (size_t p = 0; p < run->n_places; p++)
		fits = put(layout, extent, run, &plan->tensors[places[p]]) && fits;
	if (!fits)
		return hoist__fail(-EOVERFLOW,
				   "the selected tensors do not fit in 63 bits of address");
	if (more) {
		plan->runs[plan->n_runs - 1].row_bytes += run->row_bytes;
		plan->runs[plan->n_runs - 1].end = run->end;
		return 0;
	}
	plan->runs[plan->n_runs++] = *run;
	extent->n_runs++;
	return 0;
}

/* The table of runs is compacted: runs that continue the one before are
 * joined to it.  Runs are written at the front, and never overtake the run that is read: at most
 * one is written for each.  Runs that were set aside wait at the table's end for the places that
 * they share. */
static int place_all(struct layout *layout)
{
	struct hoist__plan *plan = layout->plan;
	size_t n = hoist__plan_order(layout->checkpoint, layout->has_tiers, plan);
	int err = hoist__plan_divide(layout->checkpoint, plan, &n);
	if (err < 0)
		return err;
	size_t n_all = plan->n_runs;
	plan->extents = calloc(n > 0 ? n : 1, sizeof *plan->extents);
	if (plan->extents == NULL)
		return hoist__fail_nomem("a plan", n * sizeof *plan->extents);
	plan->n_runs = 0;
	for (size_t r = 0; r < n; r++) {
		struct hoist__run run = plan->runs[r];
		err = place(layout, &run);
		if (err < 0)
			return err;
		plan->has_images = plan->has_images || !run.staged;
		plan->has_staged = plan->has_staged || run.staged;
		plan->has_conversion = plan->has_conversion || run.to != HOIST_DTYPE_INVALID;
	}
	for (size_t r = n; r < n_all; r++) {
		const struct hoist__plan_tensor *like = &plan->tensors[plan->runs[r].first_place];
		plan->tensors[plan->runs[r].tensor].lot = like->lot;
		plan->tensors[plan->runs[r].tensor].target = like->target;
		plan->tensors[plan->runs[r].tensor].like = like->like;
	}
	/* Usually few runs are left.  If realloc fails, the larger table stays. */
	if (plan->n_runs < n_all) {
		struct hoist__run *fewer = realloc(plan->runs, (plan->n_runs + 1) * sizeof *fewer);
		if (fewer != NULL)
			plan->runs = fewer;
	}
	return 0;
}

int hoist__plan_extents(const hoist_checkpoint *checkpoint,
			const struct hoist__plan_options *options, struct hoist__plan *plan)
{
	struct layout layout = {.checkpoint = checkpoint,
				.plan = plan,
				.tensor_align = options->tensor_align,
				.lot_bytes = options->lot_bytes,
				.lots_apart = options->lots_apart,
				.has_tiers = options->n_order > 0};
	int err = begin_lots(&layout);
	if (err == 0)
		err = place_all(&layout);
	free(layout.open);
	return err;
}
