/* SPDX-License-Identifier: MIT */
/* Small tensors for devices: which extents have many, how many of them suit a slot, and where they
 * lie there.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/plan/plan-private.h"

/* From this size on, a copy of a tensor's own costs no more than laying it out does. */
#define SMALL_BYTES ((uint64_t)16384)

/* Fewer copies are not worth a read of their own. */
#define LEAST_COPIES 32u

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

bool hoist__run_may_be_laid(const struct hoist__plan *plan, const struct hoist__run *run)
{
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
		unsigned n_copies = 1;
		next = first + 1;
		if (!plan->runs[first].laid)
			continue;
		for (; next < plan->n_runs &&
		       follows(checkpoint, plan, &plan->runs[next - 1], &plan->runs[next]);
		     next++)
			n_copies += !touches(plan, &plan->runs[next - 1], &plan->runs[next]);
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

/* --- where in the slot --- */

bool hoist__plan_lay(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		     unsigned want, struct hoist__lay_cursor *cursor, struct hoist__laid *ret)
{
	const struct hoist__plan_piece *piece = &ret->piece;
	const struct hoist__plan_tensor *place = NULL;
	while (place == NULL) {
		if (!hoist__plan_piece(plan, chunk, &cursor->pieces, &ret->piece))
			return false;
		for (size_t p = 0; p < piece->n_places && place == NULL; p++)
			if (hoist__plan_place(plan, piece, p)->want == want)
				place = hoist__plan_place(plan, piece, p);
	}
	ret->lot = place->lot;
	ret->target = place->target + (uint64_t)piece->within;
	ret->row_bytes = piece->from == HOIST_DTYPE_INVALID
				 ? piece->row_bytes
				 : piece->row_bytes / (hoist_dtype_bits(piece->from) / 8) *
					   (hoist_dtype_bits(piece->to) / 8);
	/* Between two tensors of the lot, less than tensor_align is padding alone. */
	uint64_t gap = ret->target - cursor->end;
	ret->joins = cursor->begun && ret->lot == cursor->lot && ret->target >= cursor->end &&
		     (gap == 0 || (piece->within == 0 && gap < plan->tensor_align));
	ret->gap = ret->joins ? (size_t)gap : 0;
	ret->at = cursor->packed + ret->gap;
	cursor->begun = true;
	cursor->lot = ret->lot;
	cursor->packed = ret->at + piece->rows * ret->row_bytes;
	cursor->end = ret->target + piece->rows * ret->row_bytes;
	HOIST__ASSERT(cursor->packed <= chunk->laid);
	HOIST__ASSERT(piece->rows == 1 || piece->target_stride == (int64_t)ret->row_bytes);
	ret->at += plan->wants[want].number * chunk->laid;
	return true;
}
