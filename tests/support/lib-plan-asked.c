/* SPDX-License-Identifier: MIT */
/* Wants by chance.  The contract is in lib-plan-asked.h. */
#include "config.h"

#include "tests/support/lib-plan-asked.h"

#include <fnmatch.h>

#include "base/checked.h"
#include "base/dtype.h"

static uint64_t (*below)(uint64_t n);

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

static bool converts(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* Where one tensor goes: its axes in any order, behind the tensor before.  Returns the end. */
static uint64_t place_tensor(struct model *model, size_t t, uint64_t address)
{
	static const hoist_dtype kinds[] = {HOIST_F32, HOIST_F16, HOIST_BF16};
	const struct hoist__tensor *tensor = &plan_made.tensors[t];
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	int order[4] = {0, 1, 2, 3};
	int64_t n = 1;
	bool plain = info->bits % 8 != 0 || info->block_elements > 1 || below(3) == 0;
	if (converts(tensor->dtype) && below(3) == 0)
		model->dtype[t] = kinds[below(HOIST__ARRAY_SIZE(kinds))];
	/* Rows that become columns, or any order. */
	int least = below(2) == 0 ? tensor->rank - 1 : 1;
	for (int a = tensor->rank - 1; a >= least && a > 0 && !plain; a--) {
		int other = least > 1 ? a - 1 : (int)below((uint64_t)a + 1);
		int swapped = order[a];
		order[a] = order[other];
		order[other] = swapped;
	}
	for (int a = tensor->rank - 1; a >= 0; a--) {
		model->shapes[t][a] = model->end[t][a] - model->begin[t][a];
		model->strides[t][order[a]] = n;
		n *= model->end[t][order[a]] - model->begin[t][order[a]];
	}
	model->strided[t] = !plain;
	address = hoist__round_up(address, 64) + 8 * below(2);
	model->into[model->n_into++] = (struct hoist__plan_into){
		.tensor = tensor->name,
		.address = address,
		.dtype = model->dtype[t],
		.rank = tensor->rank,
		.shape = model->shapes[t],
		.strides = plain ? NULL : model->strides[t],
	};
	return address + plan_bytes(model->dtype[t], (uint64_t)n);
}

/* The want, in place. */
static void put_in_place(struct model *model, struct hoist__plan_asked *asked)
{
	uint64_t address = 4096 * below(2);
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++) {
		model->dtype[t] = plan_made.tensors[t].dtype;
		if (model->wanted[t])
			address = place_tensor(model, t, address);
	}
	asked->patterns = NULL;
	asked->n_patterns = 0;
	asked->dtype = HOIST_DTYPE_INVALID;
	asked->into = model->into;
	asked->n_into = model->n_into;
}

static bool has_strides(void)
{
	bool any = false;
	for (size_t t = 0; t < plan_made.checkpoint.n_tensors; t++)
		any = any || plan_made.tensors[t].strides != NULL;
	return any;
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

static void set_dtypes(struct model *model, const struct hoist__plan_asked *asked)
{
	for (size_t t = 0; asked->into == NULL && t < plan_made.checkpoint.n_tensors; t++) {
		hoist_dtype is = plan_made.tensors[t].dtype;
		bool converted = asked->dtype != HOIST_DTYPE_INVALID && converts(is);
		model->dtype[t] = converted ? asked->dtype : is;
	}
}

void plan_ask_random(struct models *models, uint64_t (*choose)(uint64_t n))
{
	below = choose;
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
	for (size_t w = 0; w < n; w++)
		if (!ranks && !has_strides() && below(3) == 0) {
			if (models->asked[w].slices != models->wants[w].slices)
				continue; /* it shares those of the want before */
			put_in_place(&models->wants[w], &models->asked[w]);
		}
	for (size_t w = 0; w < n; w++)
		set_dtypes(&models->wants[w], &models->asked[w]);
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
