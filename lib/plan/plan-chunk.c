/* SPDX-License-Identifier: MIT */
/* Cuts extents into chunks, and the runs in a chunk into pieces.
 * The contract is in lib/plan/plan.h.
 *
 * Both are computed from two functions of a run: the number of the run's bytes that lie before a
 * place in the file, and the place of one of its bytes.  A chunk is a range [from, to) of places in
 * the file.  It has those bytes of each run that lie before `to` and not before `from`. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/plan/plan-private.h"

uint64_t hoist__run_before(const struct hoist__run *run, uint64_t offset)
{
	if (offset >= run->end)
		return hoist__run_bytes(run);
	if (offset <= run->begin)
		return 0;
	uint64_t rest = offset - run->begin;
	uint64_t row = 0;
	for (unsigned level = 0; level < run->n_levels; level++) {
		const struct hoist__level *l = &run->levels[level];
		uint64_t i = hoist__min_u64(rest / l->stride, l->count - 1);
		rest -= i * l->stride; /* in a gap: behind all that the inner levels have */
		row = row * l->count + i;
	}
	rest = hoist__min_u64(rest, run->row_bytes);
	return row * run->row_bytes + rest - rest % run->element;
}

uint64_t hoist__run_place(const struct hoist__run *run, uint64_t index)
{
	if (run->n_levels == 0)
		return run->begin + index;
	uint64_t row = index / run->row_bytes;
	uint64_t offset = run->begin + index % run->row_bytes;
	for (unsigned level = run->n_levels; level-- > 0;) {
		const struct hoist__level *l = &run->levels[level];
		offset += row % l->count * l->stride;
		row /= l->count;
	}
	return offset;
}

int64_t hoist__run_within(const struct hoist__run *run, uint64_t index)
{
	uint64_t row = run->n_levels > 0 ? index / run->row_bytes : 0;
	int64_t offset =
		(int64_t)(run->shift + hoist__run_becomes(run, index - row * run->row_bytes));
	for (unsigned level = run->n_levels; level-- > 0;) {
		const struct hoist__level *l = &run->levels[level];
		offset += (int64_t)(row % l->count) * l->target_stride;
		row /= l->count;
	}
	return offset;
}

/* --- chunks --- */

/* The first selected byte of the extent that is in no chunk before the cursor. */
static uint64_t first_place(const struct hoist__plan *plan, const struct hoist__plan_extent *extent,
			    const struct hoist__cursor *cursor)
{
	uint64_t ret = UINT64_MAX;
	size_t end = extent->first_run + extent->n_runs;
	for (size_t r = cursor->run; r < end && plan->runs[r].begin < ret; r++) {
		uint64_t before = hoist__run_before(&plan->runs[r], cursor->from);
		if (before < hoist__run_bytes(&plan->runs[r]))
			ret = hoist__min_u64(ret, hoist__run_place(&plan->runs[r], before));
	}
	return ret;
}

uint64_t hoist__plan_wanted(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			    uint64_t offset)
{
	const struct hoist__cursor cursor = {chunk->extent, offset, chunk->first_run};
	uint64_t place = first_place(plan, &plan->extents[chunk->extent], &cursor);
	/* The place is before @offset if @offset lies within an element. */
	return hoist__max_u64(place, offset);
}

bool hoist__plan_brings(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			size_t *cursor, struct hoist__plan_bytes *ret)
{
	const struct hoist__plan_extent *extent = &plan->extents[chunk->extent];
	size_t end = extent->first_run + extent->n_runs;
	size_t r = chunk->first_run + *cursor;
	uint64_t bytes = 0;
	for (; r < end && plan->runs[r].begin < chunk->to && bytes == 0; r++)
		bytes = hoist__run_before(&plan->runs[r], chunk->to) -
			hoist__run_before(&plan->runs[r], chunk->from);
	*cursor = r - chunk->first_run;
	if (bytes == 0)
		return false;
	const struct hoist__run *run = &plan->runs[r - 1];
	*ret = (struct hoist__plan_bytes){hoist__run_places(plan, run), run->n_places, bytes};
	return true;
}

static size_t useful(const struct hoist__plan *plan, const struct hoist__chunk *chunk)
{
	struct hoist__plan_bytes brings;
	size_t cursor = 0;
	uint64_t ret = 0;
	while (hoist__plan_brings(plan, chunk, &cursor, &brings))
		ret += brings.bytes;
	return (size_t)ret;
}

/* The innermost level between whose rows the gaps are left out. */
static unsigned wide_level(const struct hoist__plan_extent *extent, const struct hoist__run *run)
{
	unsigned level = run->n_levels - 1;
	for (uint64_t bytes = run->row_bytes; bytes < extent->block_bytes; level--)
		bytes *= run->levels[level].count;
	return level;
}

/* Adds the blocks of the extent behind the chunk's whole block, which ends at @stop, as parts, as
 * long as they lie at the same distance from alignment boundaries: a stride that is a multiple of
 * the alignment. */
static void add_parts(const struct hoist__plan *plan, const struct hoist__plan_extent *extent,
		      uint64_t block, uint64_t stop, uint64_t most, struct hoist__chunk *chunk)
{
	const struct hoist__run *run = &plan->runs[extent->first_run];
	unsigned wide = wide_level(extent, run);
	const struct hoist__level *level = &run->levels[wide];
	if (level->stride % extent->align != 0)
		return;
	uint64_t left = hoist__min_u64(level->count - block % level->count,
				       (extent->end - stop) / level->stride + 1);
	uint64_t n = hoist__min_u64(most / chunk->bytes, hoist__min_u64(left, plan->max_parts));
	chunk->n_parts = (unsigned)n;
	chunk->part_stride = level->stride;
	chunk->to += (n - 1) * level->stride;
}

/* The bytes from @offset to where the plan cuts the extent. */
static uint64_t before_cut(const struct hoist__plan *plan, const struct hoist__plan_extent *extent,
			   bool through, uint64_t offset)
{
	bool cuts = plan->cut_bytes > 0 && extent->staged && !extent->tight && !extent->laid;
	return cuts && through ? plan->cut_bytes - offset % plan->cut_bytes : UINT64_MAX;
}

/* @through: gaps are not left out, whatever the extent says.
 *
 * A chunk ends at the earliest of these: the extent's share of @max_bytes, the end of the extent,
 * the end of the small tensors that have room in the slot twice (plan-lay.c), and, where gaps are
 * left out, the end of the block.  An image's chunk ends where the lot crosses a multiple of
 * @max_bytes; others end where the plan is cut. */
static bool next_chunk(const struct hoist__plan *plan, size_t max_bytes, bool through,
		       struct hoist__cursor *cursor, struct hoist__chunk *ret)
{
	if (cursor->extent == plan->n_extents)
		return false;
	const struct hoist__plan_extent *extent = &plan->extents[cursor->extent];
	through = through || extent->block_bytes == 0;
	if (cursor->from == 0)
		*cursor = (struct hoist__cursor){cursor->extent, extent->begin, extent->first_run};
	const struct hoist__run *run = &plan->runs[cursor->run];
	uint64_t begin = first_place(plan, extent, cursor);
	uint64_t offset = hoist__round_down(begin, extent->align);
	uint64_t target =
		extent->image + (offset - hoist__round_down(extent->begin, extent->align));
	uint64_t most = hoist__min_u64(hoist__round_down(max_bytes / extent->share, extent->align),
				       before_cut(plan, extent, through, offset));
	uint64_t stop = extent->end;
	uint64_t done = 0;
	size_t laid = 0;
	if (extent->tight) {
		uint64_t end = hoist__min_u64(offset + most, hoist__round_up(stop, extent->align));
		laid = (size_t)hoist__round_down(
			(max_bytes - (end - offset)) / plan->n_device_wants, extent->align);
	} else if (extent->laid) {
		most = hoist__plan_fit_laid(plan, cursor, offset, most, max_bytes, &laid);
		if (laid > 0 && offset + most < extent->end)
			stop = hoist__plan_stop_laid(plan, cursor, offset + most);
	} else if (!extent->staged) {
		most = max_bytes - target % max_bytes;
	} else if (!through) {
		done = hoist__run_before(run, cursor->from);
		uint64_t next = done - done % extent->block_bytes + extent->block_bytes;
		stop = hoist__min_u64(hoist__run_place(run, next - 1) + 1, extent->end);
	}
	uint64_t end = hoist__min_u64(offset + most, hoist__round_up(stop, extent->align));
	*ret = (struct hoist__chunk){
		.extent = cursor->extent,
		.offset = offset,
		.bytes = (size_t)(end - offset),
		.need = (size_t)(hoist__min_u64(end, stop) - offset),
		.skip = (size_t)(begin - offset),
		.target = target,
		.n_parts = 1,
		.laid = laid,
		.first_run = cursor->run,
		.from = cursor->from,
		.to = extent->laid && stop < extent->end ? hoist__min_u64(stop, end) : end,
	};
	if (!through && done % extent->block_bytes == 0 && end >= stop)
		add_parts(plan, extent, done / extent->block_bytes, stop, most, ret);
	HOIST__ASSERT(ret->offset % extent->align == 0 && ret->to > ret->from);
	HOIST__ASSERT(ret->need != 0 && ret->need <= ret->bytes && ret->skip < ret->need);
	HOIST__ASSERT(ret->n_parts != 0 && ret->bytes * ret->n_parts <= max_bytes);
	ret->useful = useful(plan, ret);
	cursor->from = ret->to;
	while (cursor->run < extent->first_run + extent->n_runs &&
	       plan->runs[cursor->run].end <= ret->to)
		cursor->run++;
	if (ret->to >= extent->end)
		*cursor = (struct hoist__cursor){.extent = cursor->extent + 1};
	return true;
}

bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret)
{
	return next_chunk(plan, max_bytes, false, cursor, ret);
}

bool hoist__plan_next_rows(const struct hoist__plan *plan, size_t max_bytes, size_t most_runs,
			   struct hoist__cursor *cursor, struct hoist__chunk *ret)
{
	if (cursor->extent == plan->n_extents)
		return false;
	const struct hoist__plan_extent *extent = &plan->extents[cursor->extent];
	size_t first = cursor->from == 0 ? extent->first_run : cursor->run;
	uint64_t from = hoist__max_u64(cursor->from, extent->begin);
	/* The chunk ends so far behind its first byte, or further. */
	uint64_t least =
		hoist__round_down(max_bytes / extent->share, extent->align) - extent->align;
	if (first + most_runs < extent->first_run + extent->n_runs &&
	    plan->runs[first + most_runs].begin < from + least)
		return false;
	return next_chunk(plan, max_bytes, true, cursor, ret);
}

/* --- pieces --- */

/* Makes the piece of the bytes from @done on, up to @end or to where the distance of rows
 * changes. */
static void cut_piece(const struct hoist__plan *plan, const struct hoist__run *run,
		      const struct hoist__chunk *chunk, uint64_t done, uint64_t end,
		      struct hoist__plan_piece *ret)
{
	uint64_t row = run->rows > 1 ? done / run->row_bytes : 0;
	uint64_t within = done - row * run->row_bytes;
	uint64_t bytes = hoist__min_u64(end - done, run->row_bytes - within);
	uint64_t far = hoist__run_place(run, done) - chunk->offset;
	uint64_t part = chunk->n_parts > 1 ? far / chunk->part_stride : 0;
	*ret = (struct hoist__plan_piece){
		.at = (size_t)(far - part * chunk->part_stride + part * chunk->bytes),
		.rows = 1,
		.row_bytes = (size_t)bytes,
		.at_stride = (size_t)bytes,
		.target_stride = (int64_t)hoist__run_becomes(run, bytes),
		.from = run->from,
		.to = run->to,
		.places = hoist__run_places(plan, run),
		.n_places = run->n_places,
		.within = hoist__run_within(run, done),
	};
	HOIST__ASSERT(bytes != 0 && ret->at + bytes <= chunk->bytes * chunk->n_parts);
	if (bytes < run->row_bytes || run->n_levels == 0 || run->singly)
		return;
	const struct hoist__level *inner = &run->levels[run->n_levels - 1];
	uint64_t left = inner->count - row % inner->count;
	ret->rows = (size_t)hoist__min_u64(left, (end - done) / run->row_bytes);
	if (ret->rows == 1)
		return;
	ret->target_stride = inner->target_stride;
	ret->at_stride = chunk->n_parts > 1 && inner->stride == chunk->part_stride
				 ? chunk->bytes
				 : (size_t)inner->stride;
}

/* Runs of an extent may overlap, so each run is cut by itself, from the chunk's `from` to its
 * `to`. */
bool hoist__plan_piece(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_piece *ret)
{
	const struct hoist__plan_extent *extent = &plan->extents[chunk->extent];
	size_t last = extent->first_run + extent->n_runs;
	if (!cursor->begun) {
		cursor->begun = true;
		cursor->run = chunk->first_run;
		cursor->done = hoist__run_before(&plan->runs[cursor->run], chunk->from);
	}
	while (cursor->run < last && plan->runs[cursor->run].begin < chunk->to) {
		const struct hoist__run *run = &plan->runs[cursor->run];
		uint64_t end = hoist__run_before(run, chunk->to);
		if (cursor->done < end) {
			cut_piece(plan, run, chunk, cursor->done, end, ret);
			cursor->done += ret->rows * ret->row_bytes;
			return true;
		}
		cursor->run++;
		if (cursor->run < last)
			cursor->done = hoist__run_before(&plan->runs[cursor->run], chunk->from);
	}
	return false;
}
