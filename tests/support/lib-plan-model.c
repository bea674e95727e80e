/* SPDX-License-Identifier: MIT */
/* Makes a checkpoint, chooses tensors, slices and conversions, and compares every element of the
 * plan with the shapes and indices. */
#include "config.h"

#include "tests/support/lib-plan-model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "tests/support/lib-plan-asked.h"
#include "tests/support/lib-plan-random.h"

static uint64_t (*below)(uint64_t n);
static unsigned start; /* for messages */

/* --- what must come out --- */

/* All elements of the slice, row by row where rows lie together; of strided ones those of the span.
 */
static uint64_t compare(const struct model *model, size_t t, const struct hoist__plan_tensor *got,
			const unsigned char *bytes)
{
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	uint64_t n_bad = 0;
	if (tensor->strides != NULL) {
		uint64_t n = tensor->bytes / plan_bytes(tensor->dtype, 1);
		n_bad = plan_count_wrong(tensor, got->dtype, bytes, 0, 0, n);
		cr_assert_eq(n_bad, 0, "seed %u: %s, with strides", start, tensor->name);
		return n;
	}
	int64_t index[4] = {0};
	uint64_t n = 1;
	for (int a = 0; a < tensor->rank; a++)
		n *= (uint64_t)(model->end[t][a] - model->begin[t][a]);
	int last = tensor->rank - 1;
	bool rows = last >= 0 && !model->strided[t];
	uint64_t run = rows ? (uint64_t)(model->end[t][last] - model->begin[t][last]) : 1;
	for (uint64_t i = 0; i < n; i += run) {
		uint64_t from = 0;
		uint64_t to = 0;
		for (int a = 0; a < tensor->rank; a++)
			to += (uint64_t)(index[a] * model->strides[t][a]);
		for (int a = 0; a < tensor->rank; a++)
			from = from * (uint64_t)tensor->shape[a] +
			       (uint64_t)(model->begin[t][a] + index[a]);
		n_bad += plan_count_wrong(tensor, got->dtype, bytes, model->strided[t] ? to : i,
					  from, run);
		for (int a = rows ? last - 1 : last; a >= 0; a--) {
			if (++index[a] < model->end[t][a] - model->begin[t][a])
				break;
			index[a] = 0;
		}
	}
	cr_assert_eq(n_bad, 0, "seed %u: %s", start, tensor->name);
	return n;
}

/* One tensor in its place, and its lot.  Returns the bytes in the file. */
static void check_place(const struct models *models, const struct hoist__plan *plan,
			const struct hoist__plan_tensor *got, bool packed,
			const struct plan_destination *destination)
{
	const struct hoist__plan_lot *lot = &plan->lots[got->lot];
	cr_assert_eq(lot->want, got->want);
	if (!lot->in_place)
		cr_assert_leq(got->target + got->bytes, lot->bytes);
	cr_assert(plan_is_written(destination, got));
	if (packed && !lot->in_place)
		cr_assert_eq(got->target % models->options.tensor_align, 0);
	if (models->options.lot_bytes == 0)
		cr_assert_eq(got->lot, got->want);
}

static uint64_t check_tensor(const struct models *models, size_t w, const struct hoist__plan *plan,
			     size_t t, const struct hoist__plan_tensor *got,
			     const struct plan_destination *destination)
{
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	const struct model *model = &models->wants[w];
	bool whole = true;
	cr_assert(got->index == t && got->want == w);
	for (int a = 0; a < tensor->rank; a++) {
		int64_t extent = model->end[t][a] - model->begin[t][a];
		cr_assert_eq(got->shape[a], extent);
		whole = whole && extent == tensor->shape[a];
	}
	cr_assert_eq(got->whole, whole);
	uint64_t first = 0;
	for (int a = 0; a < tensor->rank; a++)
		first = first * (uint64_t)tensor->shape[a] + (uint64_t)model->begin[t][a];
	if (got->bytes > 0 && tensor->strides == NULL)
		cr_assert_eq(got->begin, tensor->offset + plan_bytes(tensor->dtype, first));
	cr_assert_eq(got->shape == tensor->shape, whole);
	bool converted = model->dtype[t] != tensor->dtype;
	cr_assert_eq(got->dtype, model->dtype[t]);
	uint64_t n = compare(model, t, got, destination->bytes + plan_place(destination, got));
	cr_assert_eq(got->bytes, plan_bytes(got->dtype, n));
	if (got->bytes > 0)
		check_place(models, plan, got,
			    plan->wants[w].kind == HOIST__PLAN_DEVICE || converted, destination);
	uint64_t inside = tensor->offset + (tensor->bytes > 0 ? below(tensor->bytes) : 0);
	const struct hoist__tensor *at = hoist__plan_tensor_at(&plan_made.checkpoint, plan,
							       plan_made.entries[t].file, inside);
	if (tensor->bytes > 0)
		cr_assert(at != NULL && at->offset <= inside && inside < at->offset + at->bytes);
	return plan_bytes(tensor->dtype, n);
}

/* Tensors of the same bytes have one place, and count once. */
static bool is_tied(const struct hoist__plan_tensor *tensors, size_t i)
{
	const struct hoist__plan_tensor *got = &tensors[i];
	for (size_t k = 0; k < i; k++) {
		const struct hoist__plan_tensor *other = &tensors[k];
		if (got->bytes > 0 && other->bytes == got->bytes && other->begin == got->begin &&
		    other->lot == got->lot && other->target == got->target &&
		    plan_made.entries[other->index].file == plan_made.entries[got->index].file)
			return true;
	}
	return false;
}

/* Returns the bytes in the file that the want gets. */
static uint64_t check_want(const struct models *models, size_t w, const struct hoist__plan *plan,
			   const struct plan_destination *destination)
{
	const struct hoist__plan_tensor *tensors = &plan->tensors[plan->wants[w].first_tensor];
	uint64_t bytes = 0;
	uint64_t useful = 0;
	size_t i = 0;
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++)
		if (models->wants[w].wanted[t]) {
			uint64_t more = check_tensor(models, w, plan, t, &tensors[i], destination);
			bytes += is_tied(tensors, i++) ? 0 : more;
		}
	cr_assert_eq(plan->wants[w].n_tensors, i);
	for (size_t lot = 0; lot < plan->n_lots; lot++)
		useful += plan->lots[lot].want == w ? plan->lots[lot].useful : 0;
	cr_assert_eq(useful, bytes, "seed %u: want %zu", start, w);
	return bytes;
}

/* The first and the last chunk that brought bytes of the tensor, over all wants. */
struct span {
	bool any;
	uint32_t first;
	uint32_t last;
};

static void find_spans(const struct hoist__plan *plan, const struct plan_destination *destination,
		       struct span *spans)
{
	for (size_t i = 0; i < plan->n_tensors; i++) {
		const struct hoist__plan_tensor *got = &plan->tensors[i];
		struct span *span = &spans[got->index];
		for (uint64_t b = 0; b < got->bytes; b++) {
			uint32_t when = destination->when[plan_place(destination, got) + b];
			span->first = !span->any || when < span->first ? when : span->first;
			span->last = !span->any || when > span->last ? when : span->last;
			span->any = true;
		}
	}
}

static bool overlap(size_t a, size_t b)
{
	const struct hoist__tensor *one = &plan_made.tensors[a];
	const struct hoist__tensor *other = &plan_made.tensors[b];
	return plan_made.entries[a].file == plan_made.entries[b].file &&
	       one->offset < other->offset + other->bytes &&
	       other->offset < one->offset + one->bytes;
}

/* All of a tensor comes before any byte of a tensor of a later entry, unless tensors that overlap
 * may have drawn that one to the front. */
static void check_order(const struct models *models, const struct hoist__plan *plan,
			const struct plan_destination *destination)
{
	struct span spans[PLAN_MAX_TENSORS] = {{0}};
	size_t n = plan_made.checkpoint.n_tensors;
	size_t drawn[PLAN_MAX_TENSORS];
	find_spans(plan, destination, spans);
	memcpy(drawn, models->tier, sizeof drawn);
	for (size_t round = 0; round < n; round++)
		for (size_t a = 0; a < n; a++)
			for (size_t b = 0; b < n; b++)
				if (drawn[b] < drawn[a] && overlap(a, b))
					drawn[a] = drawn[b];
	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < n; b++)
			if (spans[a].any && spans[b].any && models->tier[a] < drawn[b])
				cr_assert_lt(spans[a].last, spans[b].first,
					     "seed %u: t%03zu, t%03zu", start, a, b);
}

static uint64_t interleave(struct hoist__plan *plan, size_t max_bytes, struct plan_model_saw *saw)
{
	size_t n = plan->n_extents;
	uint64_t step = plan->align * (1 + below(16));
	cr_assert_eq(hoist__plan_interleave(plan, step), 0);
	saw->n_cut += plan->n_extents - n;
	plan_check_extents(plan);
	plan_check_interleaved(plan, max_bytes, step);
	return step;
}

/* Where the plan can begin later, all chunks up to some one begin at @offset or behind, or in
 * another file, and none of the others does.  Returns: whether it can. */
static bool begin_later(struct hoist__plan *plan, size_t max_bytes, uint64_t step)
{
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	size_t file = plan->extents[below(plan->n_extents)].file;
	uint64_t offset = step * below(plan->extents[below(plan->n_extents)].end / step + 2);
	bool behind = true;
	int err = hoist__plan_begin_at(plan, file, offset, below(4) != 0);
	cr_assert(err == 0 || err == 1, "seed %u: %d", start, err);
	while (err == 0 && hoist__plan_next(plan, max_bytes, &cursor, &chunk)) {
		size_t in = plan->extents[chunk.extent].file;
		uint64_t end = chunk.offset + (chunk.n_parts - 1) * chunk.part_stride + chunk.need;
		bool is = in > file || (in == file && chunk.offset >= offset);
		cr_assert(behind || !is, "seed %u", start);
		cr_assert(is || in < file || end <= offset, "seed %u", start);
		behind = is;
	}
	cr_assert(err == 1 || !behind, "seed %u", start);
	return err == 0;
}

static void check_once(const struct models *models, size_t max_bytes, struct plan_model_saw *saw)
{
	struct hoist__plan plan = {0};
	struct plan_seen seen;
	bool later = false;
	int err = hoist__plan_make(&plan_made.checkpoint, &models->options, &plan);
	cr_assert_eq(err, 0, "seed %u: %s", start, hoist_error());
	cr_assert_leq(plan.n_extents, plan.n_runs);
	max_bytes = (size_t)hoist__max_u64(max_bytes, hoist__plan_least_bytes(&plan));
	for (size_t e = 0; e < plan.n_extents; e++)
		saw->n_tight += plan.extents[e].tight;
	plan_check_extents(&plan);
	if (below(2) == 0) {
		uint64_t step = interleave(&plan, max_bytes, saw);
		later = models->options.n_order == 0 && plan.n_extents > 0 &&
			begin_later(&plan, max_bytes, step);
		saw->n_later += later;
	}
	struct plan_destination destination = plan_run(&plan, max_bytes, &seen);
	uint64_t most = 0;
	uint64_t sum = 0;
	cr_assert_eq(plan.n_wants, models->options.n_wants);
	for (size_t w = 0; w < plan.n_wants; w++) {
		uint64_t bytes = check_want(models, w, &plan, &destination);
		most = hoist__max_u64(most, bytes);
		sum += bytes;
	}
	cr_assert(plan.bytes >= most && plan.bytes <= sum);
	if (!later)
		check_order(models, &plan, &destination);
	bool in_place = false;
	for (size_t w = 0; w < plan.n_wants; w++)
		in_place = in_place || plan.wants[w].in_place;
	/* An image in place is up to three runs. */
	cr_assert_leq(plan.n_runs, (in_place ? 3 : 1) * plan.n_tensors);
	plan_put_away(&destination);
	hoist__plan_fini(&plan);
	saw->n_laid += seen.laid;
	saw->n_planes += seen.planes;
}

void plan_model_check(unsigned label, const struct plan_model_size *size,
		      uint64_t (*choose)(uint64_t n), struct plan_model_saw *saw)
{
	static struct models models;
	static const size_t chunks[] = {24576, 28672, 65536, 1 << 20};
	start = label;
	below = choose;
	plan_make_random(size, choose);
	plan_ask_random(&models, choose);
	size_t max_bytes = chunks[below(HOIST__ARRAY_SIZE(chunks))];
	check_once(&models, plan_made.files[1].offset_align > 512 ? 98304 : max_bytes, saw);
}
