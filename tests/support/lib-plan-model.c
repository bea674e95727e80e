/* SPDX-License-Identifier: MIT */
/* Makes a checkpoint, chooses tensors, slices and conversions, and compares every element of the
 * plan with the shapes and indices. */
#include "config.h"

#include "tests/support/lib-plan-model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/minifloat.h"
#include "tests/support/lib-plan.h"

static uint64_t (*below)(uint64_t n);
static unsigned start; /* for messages */
static const struct plan_model_size *limits;

/* --- what is asked for --- */

/* Whether each tensor of plan_made is selected, and the range of each axis. */
struct model {
	bool wanted[PLAN_MAX_TENSORS];
	int64_t begin[PLAN_MAX_TENSORS][4];
	int64_t end[PLAN_MAX_TENSORS][4];
	hoist_load_slice slices[PLAN_MAX_TENSORS * 4];
	size_t n_slices;
	const char *patterns[PLAN_MAX_TENSORS];
	size_t n_patterns;
	struct hoist__plan_options options;
};

static hoist_dtype some_dtype(void)
{
	static const hoist_dtype dtypes[] = {
		HOIST_F32,  HOIST_F16, HOIST_BF16, HOIST_U8,   HOIST_F32,	HOIST_F16,
		HOIST_BF16, HOIST_F64, HOIST_Q4_0, HOIST_Q8_0, HOIST_F4_E2M1FN, HOIST_F6_E2M3FN};
	return dtypes[below(HOIST__ARRAY_SIZE(dtypes))];
}

/* Small, or with rows so far apart that gaps are worth leaving out. */
static int some_shape(hoist_dtype dtype, int64_t shape[4])
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	int64_t unit = info->block_elements > 1 ? info->block_elements : info->bits < 8 ? 4 : 1;
	bool wide = below(2) == 0;
	int rank = wide ? 2 + (int)below(3) : (int)below(5);
	if (unit > 1 && rank == 0)
		rank = 1;
	uint64_t most = wide ? limits->tensor_bytes : limits->tensor_bytes / 6;
	for (int a = 0; a < rank; a++)
		shape[a] = (int64_t)(wide ? 1 : 0) + (int64_t)below(7);
	if (rank > 0) {
		int64_t last = wide ? 4096 * (1 + (int64_t)below(15)) : (int64_t)below(300);
		if (wide && below(2) == 0)
			last += (int64_t)below(2000) * unit;
		shape[rank - 1] = last / unit * unit;
	}
	/* Narrow rows of many, and those far apart. */
	if (wide && rank > 2 && below(2) == 0) {
		shape[rank - 2] = 100 + (int64_t)below(1000);
		shape[rank - 1] = (1 + (int64_t)below(8)) * unit;
	}
	/* Sub-byte rows that end in the middle of a byte, as long as the whole does not. */
	if (info->bits == 4 && rank == 2 && below(2) == 0)
		shape[0] = 2 * (1 + (int64_t)below(3)), shape[1] = shape[1] + 1;
	for (;;) {
		uint64_t n = 1;
		int largest = 0;
		for (int a = 0; a < rank; a++) {
			n *= (uint64_t)shape[a];
			largest = a < rank - 1 && shape[a] > shape[largest] ? a : largest;
		}
		if (n == 0 || plan_bytes(dtype, n) <= most)
			return rank;
		bool may_halve = info->bits != 4 || shape[rank - 1] <= unit;
		int a = rank > 1 && shape[largest] > 1 && may_halve ? largest : rank - 1;
		shape[a] = a < rank - 1 ? shape[a] / 2 : shape[a] / 2 / unit * unit;
		if (shape[a] == 0)
			shape[a] = unit;
	}
}

/* With gaps between elements, or axes exchanged. */
static void make_strided(struct hoist__tensor *tensor, int64_t strides[4])
{
	if (tensor->rank != 2 || tensor->bytes == 0 || tensor->bytes > 100000 || below(3) > 0 ||
	    hoist__dtype_info(tensor->dtype)->bits < 8)
		return;
	uint64_t size = plan_bytes(tensor->dtype, 1);
	strides[0] = 1 + (int64_t)below(2);
	strides[1] = tensor->shape[0] * strides[0] + (int64_t)below(2);
	tensor->strides = strides;
	tensor->bytes = size * (uint64_t)(1 + (tensor->shape[0] - 1) * strides[0] +
					  (tensor->shape[1] - 1) * strides[1]);
}

static uint64_t some_gap(void)
{
	switch (below(8)) {
	case 0:
		return below(64);
	case 1:
		return below(40000);
	default:
		return 0;
	}
}

/* Offsets ascend; where tensors overlap, they begin anywhere behind the one before's beginning. */
static void make_checkpoint(void)
{
	plan_begin();
	size_t n = 1 + below(limits->tensors);
	size_t file = 0;
	bool overlap = below(3) == 0;
	uint64_t offset = below(2) ? 4096 : 8 + below(5000);
	for (size_t i = 0; i < n; i++) {
		int64_t shape[4];
		hoist_dtype dtype = some_dtype();
		int rank = some_shape(dtype, shape);
		if (offset + 800000 > PLAN_FILE_BYTES || below(12) == 0) {
			if (file + 1 == PLAN_FILES)
				break;
			file++;
			offset = 8 + below(5000);
		}
		struct hoist__tensor *tensor = plan_add(file, offset, dtype, rank, shape);
		if (overlap)
			make_strided(tensor, plan_made.strides[i]);
		offset +=
			overlap && below(2) ? below(tensor->bytes + 1) : tensor->bytes + some_gap();
	}
	plan_made.files[1].offset_align = below(2) ? 16384 : 512;
}

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

static void make_model(struct model *model)
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
	model->options = (struct hoist__plan_options){
		.kind = (enum hoist__plan_kind)below(2),
		.tensor_align = UINT64_C(1) << below(13),
		.patterns = all ? NULL : model->patterns,
		.n_patterns = model->n_patterns,
		.slices = model->slices,
		.n_slices = model->n_slices,
		.dtype = kinds[below(HOIST__ARRAY_SIZE(kinds))],
		.max_parts = (unsigned)below(9),
	};
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

/* Returns the bytes in the file. */
static uint64_t check_tensor(const struct model *model, const struct hoist__plan *plan, size_t t,
			     const struct hoist__plan_tensor *got,
			     const struct plan_destination *destination)
{
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	bool whole = true;
	cr_assert_eq(got->index, t);
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
	bool converted = converts(tensor->dtype) && model->options.dtype != HOIST_DTYPE_INVALID &&
			 model->options.dtype != tensor->dtype;
	cr_assert_eq(got->dtype, converted ? model->options.dtype : tensor->dtype);
	uint64_t n = compare(model, t, got, destination->bytes + got->target);
	cr_assert_eq(got->bytes, plan_bytes(got->dtype, n));
	cr_assert_leq(got->target + got->bytes, plan->destination_bytes);
	cr_assert(plan_is_written(destination, got->target, got->bytes));
	if (got->bytes > 0 && (plan->kind == HOIST__PLAN_DEVICE || converted))
		cr_assert_eq(got->target % model->options.tensor_align, 0);
	uint64_t inside = tensor->offset + (tensor->bytes > 0 ? below(tensor->bytes) : 0);
	const struct hoist__tensor *at = hoist__plan_tensor_at(&plan_made.checkpoint, plan,
							       plan_made.entries[t].file, inside);
	if (tensor->bytes > 0)
		cr_assert(at != NULL && at->offset <= inside && inside < at->offset + at->bytes);
	return plan_bytes(tensor->dtype, n);
}

/* Tensors of the same bytes have one place, and count once. */
static bool is_tied(const struct hoist__plan *plan, size_t i)
{
	const struct hoist__plan_tensor *got = &plan->tensors[i];
	for (size_t k = 0; k < i; k++) {
		const struct hoist__plan_tensor *other = &plan->tensors[k];
		if (got->bytes > 0 && other->bytes == got->bytes && other->begin == got->begin &&
		    other->target == got->target &&
		    plan_made.entries[other->index].file == plan_made.entries[got->index].file)
			return true;
	}
	return false;
}

static void check_once(const struct model *model, size_t max_bytes)
{
	struct hoist__plan plan = {0};
	struct plan_seen seen;
	int err = hoist__plan_make(&plan_made.checkpoint, &model->options, &plan);
	cr_assert_eq(err, 0, "seed %u: %s", start, hoist_error());
	struct plan_destination destination = plan_run(&plan, max_bytes, &seen);
	uint64_t bytes = 0;
	size_t i = 0;
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++)
		if (model->wanted[t]) {
			uint64_t more =
				check_tensor(model, &plan, t, &plan.tensors[i], &destination);
			bytes += is_tied(&plan, i++) ? 0 : more;
		}
	cr_assert_eq(plan.n_tensors, i);
	cr_assert_eq(plan.bytes, bytes);
	cr_assert_leq(plan.n_runs, plan.n_tensors);
	cr_assert_leq(plan.n_extents, plan.n_runs);
	plan_put_away(&destination);
	hoist__plan_fini(&plan);
}

void plan_model_check(unsigned label, const struct plan_model_size *size,
		      uint64_t (*choose)(uint64_t n))
{
	static struct model model;
	static const size_t chunks[] = {16384, 20480, 65536, 1 << 20};
	start = label;
	limits = size;
	below = choose;
	make_checkpoint();
	make_model(&model);
	size_t max_bytes = chunks[below(HOIST__ARRAY_SIZE(chunks))];
	check_once(&model, plan_made.files[1].offset_align > 512 ? 65536 : max_bytes);
}
