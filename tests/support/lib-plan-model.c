/* SPDX-License-Identifier: MIT */
/* Makes a checkpoint, chooses tensors, slices and conversions, and compares every element of the
 * plan with the shapes and indices. */
#include "config.h"

#include "tests/support/lib-plan-model.h"

#include <criterion/criterion.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/minifloat.h"
#include "tests/support/lib-plan-random.h"

static uint64_t (*below)(uint64_t n);
static unsigned start; /* for messages */

/* --- what is asked for --- */

/* One want: whether each tensor of plan_made is selected, and the range of each axis. */
struct model {
	bool wanted[PLAN_MAX_TENSORS];
	int64_t begin[PLAN_MAX_TENSORS][4];
	int64_t end[PLAN_MAX_TENSORS][4];
	hoist_load_slice slices[PLAN_MAX_TENSORS * 4];
	size_t n_slices;
	const char *patterns[PLAN_MAX_TENSORS];
	size_t n_patterns;
};

enum { MAX_WANTS = 4, MAX_ORDER = 6 };

struct models {
	struct model wants[MAX_WANTS];
	struct hoist__plan_asked asked[MAX_WANTS];
	struct hoist__plan_options options;
	const char *order[MAX_ORDER];
	size_t tier[PLAN_MAX_TENSORS]; /* the first entry of the order that the tensor matches */
};

static void some_range(int64_t extent, int64_t *begin, int64_t *end)
{
	*begin = (int64_t)below((uint64_t)extent + 1);
	*end = *begin + (int64_t)below((uint64_t)(extent - *begin) + 1);
	if (below(6) == 0) {
		*begin = 0;
		*end = extent;
	}
}

/* The same range in one of the ways to say it. */
static hoist_load_slice say(const struct hoist__tensor *tensor, int axis, int64_t *begin,
			    int64_t *end)
{
	hoist_load_slice slice = {.tensor = tensor->name, .axis = axis};
	int64_t extent = tensor->shape[axis];
	int ranks = 1 + (int)below(4);
	if (below(2))
		slice.axis -= tensor->rank;
	if (below(3) == 0 && extent % ranks == 0) {
		slice.n_ranks = ranks;
		slice.rank = (int)below((uint64_t)ranks);
		*begin = extent / ranks * slice.rank;
		*end = *begin + extent / ranks;
		return slice;
	}
	slice.begin = *begin;
	slice.end = *end;
	if (below(2) && *begin < extent)
		slice.begin -= extent;
	if (*end == extent)
		slice.end = HOIST_SLICE_END;
	else if (below(2))
		slice.end -= extent;
	return slice;
}

/* Cuts no bytes and no blocks: along such tensors' last axis whole units only. */
static bool may_cut(const struct hoist__tensor *tensor, int axis, int64_t *begin, int64_t *end)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	int64_t unit = info->block_elements > 1 ? info->block_elements : info->bits < 8 ? 4 : 1;
	if (unit == 1)
		return true;
	if (tensor->shape[tensor->rank - 1] % unit != 0)
		return false;
	if (axis == tensor->rank - 1) {
		*begin = *begin / unit * unit;
		*end = *end / unit * unit;
	}
	return true;
}

static void slice_some(struct model *model, size_t t)
{
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	bool any = tensor->strides == NULL && below(3) > 0;
	for (int a = 0; a < tensor->rank; a++) {
		model->begin[t][a] = 0;
		model->end[t][a] = tensor->shape[a];
		int64_t begin;
		int64_t end;
		some_range(tensor->shape[a], &begin, &end);
		if (!any || below(2) || !may_cut(tensor, a, &begin, &end))
			continue;
		hoist_load_slice slice = say(tensor, a, &begin, &end);
		int64_t last_begin = begin;
		int64_t last_end = end;
		if (slice.n_ranks > 0 &&
		    (!may_cut(tensor, a, &begin, &end) || begin != last_begin || end != last_end))
			continue;
		model->slices[model->n_slices++] = slice;
		model->begin[t][a] = begin;
		model->end[t][a] = end;
	}
}

static void make_want(struct model *model, struct hoist__plan_asked *asked)
{
	static const hoist_dtype kinds[] = {HOIST_DTYPE_INVALID, HOIST_DTYPE_INVALID, HOIST_F32,
					    HOIST_F16, HOIST_BF16};
	*model = (struct model){0};
	bool all = below(3) == 0;
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++) {
		model->wanted[t] = all || below(3) > 0;
		if (model->wanted[t] && !all)
			model->patterns[model->n_patterns++] = plan_made.names[t];
		slice_some(model, t);
	}
	*asked = (struct hoist__plan_asked){
		.kind = (enum hoist__plan_kind)below(2),
		.patterns = all ? NULL : model->patterns,
		.n_patterns = model->n_patterns,
		.slices = model->slices,
		.n_slices = model->n_slices,
		.dtype = kinds[below(HOIST__ARRAY_SIZE(kinds))],
	};
}

/* A rank's part of each tensor that can be cut into so many columns: as the want before, the next
 * part.  All of one dtype. */
static void make_next_rank(struct models *models, size_t w, size_t n_ranks)
{
	struct model *model = &models->wants[w];
	*model = (struct model){0};
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++) {
		const struct hoist__tensor *tensor = &plan_made.tensors[t];
		int last = tensor->rank - 1;
		model->wanted[t] = true;
		for (int a = 0; a <= last; a++)
			model->end[t][a] = tensor->shape[a];
		int64_t begin = 0;
		int64_t end = last >= 0 ? tensor->shape[last] / (int64_t)n_ranks : 0;
		int64_t part = end;
		if (tensor->strides != NULL || last < 0 ||
		    tensor->shape[last] % (int64_t)n_ranks != 0 ||
		    !may_cut(tensor, last, &begin, &end) || end != part)
			continue;
		model->begin[t][last] = part * (int64_t)w;
		model->end[t][last] = part * (int64_t)(w + 1);
		model->slices[model->n_slices++] = (hoist_load_slice){.tensor = tensor->name,
								      .axis = last,
								      .rank = (int)w,
								      .n_ranks = (int)n_ranks};
	}
	models->asked[w] = (struct hoist__plan_asked){.kind = models->asked[0].kind,
						      .slices = model->slices,
						      .n_slices = model->n_slices,
						      .dtype = models->asked[0].dtype};
}

/* Names, and globs of some that follow each other or lie apart. */
static void make_order(struct models *models)
{
	static const char *const globs[] = {"t00*", "*", "t*[02468]", "t01?", "t0[!0]*"};
	size_t n = plan_made.checkpoint.n_tensors;
	size_t n_order = below(2) == 0 && n > 0 ? 1 + below(MAX_ORDER) : 0;
	models->options.order = models->order;
	models->options.n_order = n_order;
	for (size_t t = 0; t < n; t++)
		models->tier[t] = n_order;
	for (size_t p = 0; p < n_order; p++) {
		bool exact = below(2) == 0;
		models->order[p] = exact ? plan_made.names[below(n)] : globs[below(n > 10 ? 5 : 3)];
		for (size_t t = 0; t < n; t++)
			if (models->tier[t] == n_order &&
			    fnmatch(models->order[p], plan_made.names[t], 0) == 0)
				models->tier[t] = p;
	}
}

static void make_models(struct models *models)
{
	bool several = below(2) == 0;
	bool ranks = several && below(3) == 0;
	size_t n = several ? 1 + below(MAX_WANTS) : 1;
	make_want(&models->wants[0], &models->asked[0]);
	for (size_t w = ranks ? 0 : 1; w < n; w++) {
		if (ranks)
			make_next_rank(models, w, n);
		else if (below(4) > 0)
			make_want(&models->wants[w], &models->asked[w]);
		else /* the same again, perhaps elsewhere */
			models->wants[w] = models->wants[w - 1],
			models->asked[w] = models->asked[w - 1],
			models->asked[w].kind = (enum hoist__plan_kind)below(2);
	}
	static const uint64_t lots[] = {0, 0, 1, 65536};
	models->options = (struct hoist__plan_options){
		.wants = models->asked,
		.n_wants = n,
		.tensor_align = UINT64_C(1) << below(13),
		.lot_bytes = lots[below(HOIST__ARRAY_SIZE(lots))],
		.max_parts = (unsigned)below(9),
	};
	make_order(models);
}

/* --- what must come out --- */

static double value_at(hoist_dtype dtype, const unsigned char *bytes)
{
	uint32_t code = 0;
	memcpy(&code, bytes, hoist_dtype_bits(dtype) / 8);
	return hoist__minifloat_decode(hoist__minifloat_of(dtype), code);
}

static bool is_element(hoist_dtype to, const unsigned char *got, hoist_dtype from,
		       const unsigned char *stored)
{
	double value = value_at(from, stored);
	if (isnan(value))
		return isnan(value_at(to, got));
	uint64_t code = hoist__minifloat_encode(hoist__minifloat_of(to), hoist__real_of(value), 0);
	return memcmp(&code, got, hoist_dtype_bits(to) / 8) == 0;
}

static unsigned bit_of(const unsigned char *bytes, uint64_t bit)
{
	return bytes[bit / 8] >> (bit % 8) & 1;
}

/* Element @to of the destination is element @from of the file. */
static bool same(const struct hoist__tensor *tensor, hoist_dtype dtype, const unsigned char *got,
		 uint64_t to, uint64_t from)
{
	const unsigned char *file =
		plan_made.bytes[plan_made.entries[tensor - plan_made.tensors].file] +
		tensor->offset;
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	if (info->block_elements > 1)
		return memcmp(got + to / info->block_elements * info->block_bytes,
			      file + from / info->block_elements * info->block_bytes,
			      info->block_bytes) == 0;
	if (dtype != tensor->dtype)
		return is_element(dtype, got + to * (hoist_dtype_bits(dtype) / 8), tensor->dtype,
				  file + from * (info->bits / 8));
	bool ret = true;
	if (info->bits % 8 == 0)
		return memcmp(got + to * info->bits / 8, file + from * info->bits / 8,
			      info->bits / 8) == 0;
	for (unsigned b = 0; b < info->bits; b++)
		ret = ret &&
		      bit_of(got, to * info->bits + b) == bit_of(file, from * info->bits + b);
	return ret;
}

/* All elements of the slice, one by one; of strided ones those of the span. */
static uint64_t compare(const struct model *model, size_t t, const struct hoist__plan_tensor *got,
			const unsigned char *bytes)
{
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	uint64_t n_bad = 0;
	if (tensor->strides != NULL) {
		uint64_t n = tensor->bytes / plan_bytes(tensor->dtype, 1);
		for (uint64_t i = 0; i < n; i++)
			n_bad += !same(tensor, got->dtype, bytes, i, i);
		cr_assert_eq(n_bad, 0, "seed %u: %s, with strides", start, tensor->name);
		return n;
	}
	int64_t index[4] = {0};
	uint64_t n = 1;
	for (int a = 0; a < tensor->rank; a++)
		n *= (uint64_t)(model->end[t][a] - model->begin[t][a]);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t from = 0;
		for (int a = 0; a < tensor->rank; a++)
			from = from * (uint64_t)tensor->shape[a] +
			       (uint64_t)(model->begin[t][a] + index[a]);
		n_bad += !same(tensor, got->dtype, bytes, i, from);
		for (int a = tensor->rank - 1; a >= 0; a--) {
			if (++index[a] < model->end[t][a] - model->begin[t][a])
				break;
			index[a] = 0;
		}
	}
	cr_assert_eq(n_bad, 0, "seed %u: %s", start, tensor->name);
	return n;
}

static bool converts(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* One tensor in its place, and its lot.  Returns the bytes in the file. */
static void check_place(const struct models *models, const struct hoist__plan *plan,
			const struct hoist__plan_tensor *got, bool packed,
			const struct plan_destination *destination)
{
	const struct hoist__plan_lot *lot = &plan->lots[got->lot];
	cr_assert_eq(lot->want, got->want);
	cr_assert_leq(got->target + got->bytes, lot->bytes);
	cr_assert(plan_is_written(destination, got));
	if (packed)
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
	hoist_dtype asked = models->asked[w].dtype;
	bool converted =
		converts(tensor->dtype) && asked != HOIST_DTYPE_INVALID && asked != tensor->dtype;
	cr_assert_eq(got->dtype, converted ? asked : tensor->dtype);
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

static size_t check_once(const struct models *models, size_t max_bytes)
{
	struct hoist__plan plan = {0};
	struct plan_seen seen;
	int err = hoist__plan_make(&plan_made.checkpoint, &models->options, &plan);
	cr_assert_eq(err, 0, "seed %u: %s", start, hoist_error());
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
	check_order(models, &plan, &destination);
	cr_assert_leq(plan.n_runs, plan.n_tensors);
	cr_assert_leq(plan.n_extents, plan.n_runs);
	plan_put_away(&destination);
	hoist__plan_fini(&plan);
	return seen.laid;
}

size_t plan_model_check(unsigned label, const struct plan_model_size *size,
			uint64_t (*choose)(uint64_t n))
{
	static struct models models;
	static const size_t chunks[] = {24576, 28672, 65536, 1 << 20};
	start = label;
	below = choose;
	plan_make_random(size, choose);
	make_models(&models);
	size_t max_bytes = chunks[below(HOIST__ARRAY_SIZE(chunks))];
	return check_once(&models, plan_made.files[1].offset_align > 512 ? 98304 : max_bytes);
}
