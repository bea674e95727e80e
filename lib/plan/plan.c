/* SPDX-License-Identifier: MIT */
/* Makes a plan: selects tensors, cuts slices, lays out extents.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include <stdlib.h>

#include "base/convert.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

#define ARENA_BYTES ((size_t)16384)

void *hoist__plan_alloc(struct hoist__plan *plan, size_t bytes)
{
	struct hoist__plan_arena *arena = plan->arena;
	bytes = (bytes + 7) & ~(size_t)7;
	if (arena == NULL || arena->bytes - arena->used < bytes) {
		size_t size = bytes > ARENA_BYTES ? bytes : ARENA_BYTES;
		arena = malloc(sizeof *arena + size);
		if (arena == NULL) {
			(void)hoist__fail_nomem("slices of a plan", size);
			return NULL;
		}
		*arena = (struct hoist__plan_arena){.next = plan->arena, .bytes = size};
		plan->arena = arena;
	}
	void *ret = (unsigned char *)(arena + 1) + arena->used;
	arena->used += bytes;
	return ret;
}

void hoist__plan_fini(struct hoist__plan *plan)
{
	while (plan->arena != NULL) {
		struct hoist__plan_arena *next = plan->arena->next;
		free(plan->arena);
		plan->arena = next;
	}
	free(plan->wants);
	free(plan->tensors);
	free(plan->lots);
	free(plan->extents);
	free(plan->runs);
	free(plan->places);
	*plan = (struct hoist__plan){0};
}

static int check_dtype(hoist_dtype dtype)
{
	if (dtype == HOIST_DTYPE_INVALID || dtype == HOIST_F32 || dtype == HOIST_F16 ||
	    dtype == HOIST_BF16)
		return 0;
	const char *name = hoist_dtype_name(dtype);
	return hoist__fail(
		-EINVAL, "tensors cannot be converted to %s (dtype %d), only to f32, f16 and bf16",
		name != NULL ? name : "an unknown type", (int)dtype);
}

/* Makes one run for each tensor of the want that is not empty. */
static int make_runs(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		     size_t w, struct hoist__range *const *ranges, struct hoist__plan *plan)
{
	const struct hoist__plan_want *want = &plan->wants[w];
	for (size_t i = 0; i < want->n_tensors; i++) {
		struct hoist__plan_tensor *tensor = &plan->tensors[want->first_tensor + i];
		hoist_dtype own = checkpoint->tensors[tensor->index].tensor->dtype;
		const struct hoist__plan_into *into =
			want->in_place ? &asked->into[tensor->entry] : NULL;
		hoist_dtype dtype = into != NULL ? into->dtype : asked->dtype;
		tensor->dtype = hoist__converts(own, dtype) ? dtype : own;
		struct hoist__run *run = &plan->runs[plan->n_runs];
		int made = hoist__plan_cut(checkpoint, plan, want->first_tensor + i,
					   ranges != NULL ? ranges[i] : NULL, into, run);
		if (made < 0)
			return made;
		if (made == 0)
			continue;
		plan->n_runs++;
		if (__builtin_add_overflow(plan->bytes, hoist__run_bytes(run), &plan->bytes) ||
		    plan->bytes > INT64_MAX)
			return hoist__fail(-EOVERFLOW,
					   "the selected tensors' bytes do not fit in 63 bits");
	}
	return 0;
}

/* Ranges are only needed while runs are made; their rows are in the plan's arena. */
static int cut_want(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		    size_t w, struct hoist__plan *plan)
{
	struct hoist__range **ranges = NULL;
	size_t n = plan->wants[w].n_tensors > 0 ? plan->wants[w].n_tensors : 1;
	int err = 0;
	if (asked->n_slices > 0) {
		ranges = calloc(n, sizeof *ranges);
		if (ranges == NULL)
			return hoist__fail_nomem("slices of a plan", n * sizeof *ranges);
		err = hoist__plan_ranges(checkpoint, asked, w, plan, ranges);
	}
	if (err == 0)
		err = make_runs(checkpoint, asked, w, ranges, plan);
	free(ranges);
	return err;
}

static int make(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		struct hoist__plan *plan)
{
	int err = 0;
	plan->wants = calloc(options->n_wants, sizeof *plan->wants);
	if (plan->wants == NULL)
		return hoist__fail_nomem("a plan", options->n_wants * sizeof *plan->wants);
	plan->n_wants = options->n_wants;
	uint32_t *tiers = NULL;
	err = hoist__plan_tiers(checkpoint, options, &tiers);
	for (size_t w = 0; err == 0 && w < options->n_wants; w++) {
		plan->wants[w].kind = options->wants[w].kind;
		plan->wants[w].in_place = options->wants[w].into != NULL;
		if (plan->wants[w].kind == HOIST__PLAN_DEVICE)
			plan->wants[w].number = plan->n_device_wants++;
		err = check_dtype(options->wants[w].dtype);
		if (err == 0)
			err = hoist__plan_select(checkpoint, &options->wants[w], w, tiers, plan);
	}
	free(tiers);
	if (err < 0)
		return err;
	size_t n = plan->n_tensors > 0 ? plan->n_tensors : 1;
	plan->runs = calloc(n, sizeof *plan->runs);
	if (plan->n_wants > 1)
		plan->places = calloc(n, sizeof *plan->places);
	if (plan->runs == NULL || (plan->n_wants > 1 && plan->places == NULL))
		return hoist__fail_nomem("a plan", n * (sizeof *plan->runs + sizeof *plan->places));
	for (size_t w = 0; err == 0 && w < options->n_wants; w++)
		err = cut_want(checkpoint, &options->wants[w], w, plan);
	return err < 0 ? err : hoist__plan_extents(checkpoint, options, plan);
}

int hoist__plan_make(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		     struct hoist__plan *plan)
{
	*plan = (struct hoist__plan){
		.max_parts = options->max_parts > 0 ? options->max_parts : 1,
		.most_share = 1,
		.tensor_align = options->tensor_align,
		.align = HOIST__PLAN_ALIGN,
	};
	int err = make(checkpoint, options, plan);
	if (err < 0)
		hoist__plan_fini(plan);
	return err;
}

/* Tells whether the tensor begins behind that byte. */
static bool is_behind(const struct hoist__checkpoint_tensor *entry, size_t file, uint64_t offset)
{
	return entry->file > file || (entry->file == file && entry->tensor->offset > offset);
}

static const struct hoist__tensor *tensor_at(const hoist_checkpoint *checkpoint,
					     const struct hoist__plan_tensor *tensors, size_t n,
					     size_t file, uint64_t offset)
{
	size_t low = 0;
	size_t high = n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (is_behind(&checkpoint->tensors[tensors[middle].index], file, offset))
			high = middle;
		else
			low = middle + 1;
	}
	/* Starts at the last tensor that begins at or before the byte; a tensor that begins earlier
	 * may reach farther. */
	while (low-- > 0) {
		const struct hoist__checkpoint_tensor *entry =
			&checkpoint->tensors[tensors[low].index];
		if (entry->file != file)
			return NULL;
		if (offset - entry->tensor->offset < entry->tensor->bytes)
			return entry->tensor;
	}
	return NULL;
}

const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset)
{
	const struct hoist__tensor *found = NULL;
	for (size_t w = 0; found == NULL && w < plan->n_wants; w++)
		found = tensor_at(checkpoint, &plan->tensors[plan->wants[w].first_tensor],
				  plan->wants[w].n_tensors, file, offset);
	return found;
}
