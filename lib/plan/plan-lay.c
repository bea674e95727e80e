/* SPDX-License-Identifier: MIT */
/* Small and transposed tensors for devices: which extents are laid, how many tensors suit a slot,
 * and where they lie there.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/plan/plan-private.h"

/* From this size on, a copy of a tensor's own costs no more than laying it out does. */
#define SMALL_BYTES ((uint64_t)16384)

/* Fewer copies are not worth a read of their own. */
#define LEAST_COPIES 32u

/* Longer rows are copied from where they lie. */
#define SHORT_ROW_BYTES 512

/* A chunk has few planes that are larger: its rows would stay short. */
#define MOST_PLANE_BYTES ((uint64_t)256 << 10)

/* --- which extents --- */

/* True if the rows follow each other in the lot without gaps. */
static bool is_packed(const struct hoist__run *run)
{
	uint64_t bytes = hoist__run_becomes(run, run->row_bytes);
	bool packed = true;
	for (unsigned level = run->n_levels; level-- > 0 && packed;) {
		packed = run->levels[level].target_stride == (int64_t)bytes;
		bytes *= run->levels[level].count;
	}
	return packed;
}

/* True if the elements of a row are neighbours of those of the next plane, not of the next row. */
static bool is_transposed(const struct hoist__run *run)
{
	if (run->n_levels < 2)
		return false;
	const struct hoist__level *levels = run->levels + run->n_levels;
	int64_t bytes = (int64_t)hoist__run_becomes(run, run->row_bytes);
	return bytes < SHORT_ROW_BYTES && levels[-2].target_stride == bytes &&
	       levels[-1].target_stride > bytes && levels[-2].stride <= MOST_PLANE_BYTES &&
	       levels[-2].stride <= 2 * levels[-1].count * run->row_bytes;
}

bool hoist__run_may_be_laid(const struct hoist__plan *plan, const struct hoist__run *run)
{
	if (is_transposed(run))
		return true;
	return run->end - run->begin <= SMALL_BYTES && is_packed(run) &&
	       !hoist__run_is_in_place(plan, run);
}

/* Tells whether @b is read together with @a if both are laid. */
static bool follows(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan,
		    const struct hoist__run *a, const struct hoist__run *b)
{
	return b->laid && b->begin - a->end <= HOIST__PLAN_GAP &&
	       hoist__run_file(checkpoint, plan, a) == hoist__run_file(checkpoint, plan, b);
}

/* Tells whether @b is in one copy with @a even if neither is laid. */
static bool touches(const struct hoist__plan *plan, const struct hoist__run *a,
		    const struct hoist__run *b)
{
	uint64_t bytes = hoist__run_becomes(a, hoist__run_bytes(a));
	return a->end == b->begin && a->rows == 1 && b->rows == 1 && a->to == b->to &&
	       a->to == HOIST_DTYPE_INVALID && bytes % plan->tensor_align == 0;
}

/* All of an extent have the largest share. */
static void set_share(struct hoist__run *runs, size_t n)
{
	unsigned char share = 1;
	for (size_t r = 0; r < n; r++)
		share = runs[r].share > share ? runs[r].share : share;
	for (size_t r = 0; r < n; r++)
		runs[r].share = share;
}

void hoist__plan_find_laid(const hoist_checkpoint *checkpoint, struct hoist__plan *plan)
{
	for (size_t first = 0, next = 0; first < plan->n_runs; first = next) {
		unsigned n_copies = is_transposed(&plan->runs[first]) ? LEAST_COPIES : 1;
		next = first + 1;
		if (!plan->runs[first].laid)
			continue;
		for (; next < plan->n_runs &&
		       follows(checkpoint, plan, &plan->runs[next - 1], &plan->runs[next]);
		     next++)
			n_copies +=
				is_transposed(&plan->runs[next])
					? LEAST_COPIES
					: !touches(plan, &plan->runs[next - 1], &plan->runs[next]);
		for (size_t r = first; r < next && n_copies < LEAST_COPIES; r++)
			plan->runs[r].laid = false;
		if (n_copies >= LEAST_COPIES)
			set_share(&plan->runs[first], next - first);
	}
}

/* --- how many in a slot --- */

/* The room for those bytes of the run that are before @to, and not before @from. */
static uint64_t room_of(const struct hoist__plan *plan, const struct hoist__run *run, uint64_t from,
			uint64_t to)
{
	uint64_t before = hoist__run_before(run, from);
	uint64_t bytes = hoist__run_becomes(run, hoist__run_before(run, to) - before);
	/* The rest of a tensor does not begin at a multiple of tensor_align. */
	return hoist__round_up(bytes, plan->tensor_align) + (before > 0 ? plan->tensor_align : 0);
}

uint64_t hoist__plan_fit_laid(const struct hoist__plan *plan, const struct hoist__cursor *cursor,
			      uint64_t offset, uint64_t most, size_t max_bytes, size_t *laid)
{
	const struct hoist__plan_extent *extent = &plan->extents[cursor->extent];
	uint64_t stop = hoist__min_u64(offset + most, hoist__round_up(extent->end, extent->align));
	/* The first block may have no more than the first part of an element. */
	uint64_t blocks = plan->has_conversion ? 2 : 1;
	uint64_t least = hoist__min_u64(offset + blocks * extent->align, stop);
	uint64_t whole = 0; /* of the runs before `r` */
	uint64_t fits = 0;
	size_t r = cursor->run;
	*laid = 0;
	for (uint64_t end = offset + extent->align; end <= stop; end += extent->align) {
		size_t last = extent->first_run + extent->n_runs;
		for (; r < last && plan->runs[r].end <= end; r++)
			whole += room_of(plan, &plan->runs[r], cursor->from, end);
		uint64_t all = whole;
		if (r < last && plan->runs[r].begin < end)
			all += room_of(plan, &plan->runs[r], cursor->from, end);
		if (end - offset + all * plan->n_device_wants > max_bytes)
			break;
		fits = end;
		if (end >= least)
			*laid = (size_t)all;
	}
	return fits >= least ? fits - offset : most;
}

uint64_t hoist__plan_stop_laid(const struct hoist__plan *plan, const struct hoist__cursor *cursor,
			       uint64_t end)
{
	const struct hoist__plan_extent *extent = &plan->extents[cursor->extent];
	size_t last = extent->first_run + extent->n_runs;
	size_t r = cursor->run;
	while (r + 1 < last && plan->runs[r].end <= end)
		r++;
	const struct hoist__run *run = &plan->runs[r];
	if (run->begin >= end || run->end <= end || !is_transposed(run))
		return end;
	uint64_t plane = run->levels[run->n_levels - 1].count * run->row_bytes;
	uint64_t bytes = hoist__run_before(run, end);
	bytes -= bytes % plane;
	bool any = bytes > hoist__run_before(run, cursor->from);
	return any ? hoist__run_place(run, bytes - 1) + 1 : end;
}

/* --- where in the slot --- */

/* The next stack of a transposed run, or the next piece.  Planes are rows of one box only where
 * they are neighbours in memory: the last plane of an outer step and the first of the next are not.
 */
static bool next_stack(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_stack *ret)
{
	struct hoist__piece_cursor before = *cursor;
	if (!hoist__plan_stack(plan, chunk, cursor, ret))
		return false;
	bool neighbours = ret->target_plane == (int64_t)hoist__plan_row_after(&ret->piece);
	if (ret->planes == 1 || (neighbours && is_transposed(&plan->runs[cursor->run])))
		return true;
	*cursor = before;
	ret->planes = 1;
	return hoist__plan_piece(plan, chunk, cursor, &ret->piece);
}

bool hoist__plan_lay(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		     unsigned want, struct hoist__lay_cursor *cursor, struct hoist__laid *ret)
{
	struct hoist__plan_piece *piece = &ret->stack.piece;
	const struct hoist__plan_tensor *place = NULL;
	while (place == NULL) {
		if (!next_stack(plan, chunk, &cursor->pieces, &ret->stack))
			return false;
		for (size_t p = 0; p < piece->n_places && place == NULL; p++)
			if (hoist__plan_place(plan, piece, p)->want == want)
				place = hoist__plan_place(plan, piece, p);
	}
	ret->lot = place->lot;
	ret->target = place->target + (uint64_t)piece->within;
	ret->row_bytes = hoist__plan_row_after(piece);
	size_t row = ret->stack.planes * ret->row_bytes;
	bool in_place = plan->lots[place->lot].in_place;
	bool tight = plan->extents[chunk->extent].tight;
	bool together = piece->rows == 1 || piece->target_stride == (int64_t)row;
	HOIST__ASSERT(together || (in_place && piece->target_stride > (int64_t)row));
	ret->rows = together ? 1 : piece->rows;
	ret->stride = (size_t)piece->target_stride;
	/* Between two tensors of a lot that is not in place, less than tensor_align is padding
	 * alone. */
	uint64_t gap = ret->target - cursor->end;
	ret->joins = cursor->begun && !in_place && ret->lot == cursor->lot &&
		     ret->target >= cursor->end &&
		     (gap == 0 || (!tight && piece->within == 0 && gap < plan->tensor_align));
	ret->gap = ret->joins ? (size_t)gap : 0;
	ret->at = cursor->packed + ret->gap;
	cursor->begun = true;
	cursor->lot = ret->lot;
	cursor->packed = ret->at + piece->rows * row;
	cursor->end = ret->target + piece->rows * row;
	HOIST__ASSERT(cursor->packed <= chunk->laid);
	ret->at += plan->wants[want].number * chunk->laid;
	piece->target_stride = (int64_t)row;
	ret->stack.target_plane = (int64_t)ret->row_bytes;
	return true;
}
