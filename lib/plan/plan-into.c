/* SPDX-License-Identifier: MIT */
/* Tensors that are read in place: to places of the caller's.
 * The contract is in lib/plan/plan-private.h. */
#include "config.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/convert.h"
#include "base/error.h"
#include "lib/plan/plan-private.h"

/* An image with fewer bytes between its boundaries is staged with its neighbours: the reads of its
 * two ends cost as much as a copy of so many bytes (about 15 us). */
#define LEAST_IMAGE_BYTES ((uint64_t)128 << 10)

/* --- selection --- */

static int fail_several(const char *glob, size_t entry, const char *first, const char *second)
{
	return hoist__fail(-EINVAL,
			   "into[%zu]: \"%.200s\" matches \"%.200s\" and \"%.200s\", and has one "
			   "buffer; name each tensor with a buffer of its own",
			   entry, glob, first, second);
}

/* The only tensor that the text names.  *ret: one that may be it. */
static int find_tensor(const hoist_checkpoint *checkpoint, const char *text, size_t entry,
		       size_t *ret)
{
	bool glob = strpbrk(text, "*?[") != NULL;
	size_t found = SIZE_MAX;
	if (*ret < checkpoint->n_tensors &&
	    strcmp(text, checkpoint->tensors[*ret].tensor->name) == 0)
		return 0;
	if (hoist_checkpoint_find(checkpoint, text, ret) == 0)
		return 0;
	for (size_t t = 0; glob && t < checkpoint->n_tensors; t++) {
		const char *name = checkpoint->tensors[t].tensor->name;
		if (fnmatch(text, name, 0) != 0)
			continue;
		if (found != SIZE_MAX)
			return fail_several(text, entry, checkpoint->tensors[found].tensor->name,
					    name);
		found = t;
	}
	if (found == SIZE_MAX)
		return hoist__fail(
			-ENOENT,
			"into[%zu]: no tensor is called or matches \"%.200s\"; `hoist ls` "
			"lists them",
			entry, text);
	*ret = found;
	return 0;
}

int hoist__plan_select_into(const hoist_checkpoint *checkpoint,
			    const struct hoist__plan_asked *asked, uint32_t *places)
{
	size_t t = 0;
	/* Lists are often in the order of the checkpoint. */
	for (size_t i = 0; i < asked->n_into; i++, t++) {
		int err = find_tensor(checkpoint, asked->into[i].tensor, i, &t);
		if (err < 0)
			return err;
		if (places[t] != 0)
			return hoist__fail(-EINVAL,
					   "into[%zu] and into[%zu] both name \"%.200s\"; a tensor "
					   "is read into one buffer, which can be copied",
					   (size_t)places[t] - 1, i,
					   checkpoint->tensors[t].tensor->name);
		places[t] = (uint32_t)i + 1;
	}
	return 0;
}

/* --- checks --- */

static const char *name_of(hoist_dtype dtype)
{
	const char *name = hoist_dtype_name(dtype);
	return name != NULL ? name : "an unknown type";
}

int hoist__plan_fits(const struct hoist__tensor *tensor, const struct hoist__plan_tensor *cut,
		     const struct hoist__plan_into *into)
{
	const struct hoist__tensor asked = {.rank = tensor->rank, .shape = cut->shape};
	const struct hoist__tensor given = {.rank = into->rank, .shape = into->shape};
	struct hoist__plan_text is;
	struct hoist__plan_text was;
	bool same = asked.rank == given.rank;
	for (int a = 0; a < asked.rank && same; a++)
		same = asked.shape[a] == given.shape[a];
	if (!same)
		return hoist__fail(-EINVAL,
				   "into[%u]: %s \"%.200s\" has the shape %s, and its buffer %s; "
				   "give a buffer of the tensor's shape, or a view of one "
				   "(hoist_buffer_slice(), hoist_buffer_reshape()), or a slice of "
				   "the tensor",
				   cut->entry, cut->whole ? "tensor" : "the slice of", tensor->name,
				   hoist__plan_shape_text(&asked, &is),
				   hoist__plan_shape_text(&given, &was));
	if (into->dtype != tensor->dtype && !hoist__converts(tensor->dtype, into->dtype))
		return hoist__fail(
			-EINVAL,
			"into[%u]: tensor \"%.200s\" of shape %s is %s, and its buffer of "
			"shape %s is %s; only f32, f16 and bf16 are converted into each "
			"other: give a buffer of %s",
			cut->entry, tensor->name, hoist__plan_shape_text(&asked, &is),
			name_of(tensor->dtype), hoist__plan_shape_text(&given, &was),
			name_of(into->dtype), name_of(tensor->dtype));
	return 0;
}

/* --- images --- */

bool hoist__run_is_in_place(const struct hoist__plan *plan, const struct hoist__run *run)
{
	const size_t *places = hoist__run_places(plan, run);
	bool any = false;
	for (size_t p = 0; p < run->n_places && !any; p++)
		any = plan->wants[plan->tensors[places[p]].want].in_place;
	return any;
}

uint64_t hoist__plan_align_of(const hoist_checkpoint *checkpoint, size_t file)
{
	const struct hoist__file *opened = checkpoint->files[file].file;
	return hoist__max_u64(HOIST__PLAN_ALIGN,
			      hoist__max_u64(opened->offset_align, opened->memory_align));
}

/* The distance from the file's byte to the memory's. */
static uint64_t shift_of(const struct hoist__plan *plan, const struct hoist__run *run)
{
	return plan->tensors[run->tensor].target - run->begin;
}

bool hoist__run_is_congruent(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan,
			     const struct hoist__run *run)
{
	if (!hoist__run_is_in_place(plan, run))
		return true;
	size_t file = hoist__run_file(checkpoint, plan, run);
	return shift_of(plan, run) % hoist__plan_align_of(checkpoint, file) == 0;
}

struct division {
	const hoist_checkpoint *checkpoint;
	const struct hoist__plan *plan;
	struct hoist__run *runs; /* the new table */
	size_t n;
};

static bool is_image(const struct hoist__plan *plan, const struct hoist__run *run)
{
	return !run->staged && hoist__run_is_in_place(plan, run);
}

/* Adds the part [begin, end) of a run, if it is not empty. */
static void add_part(struct division *division, const struct hoist__run *run, uint64_t begin,
		     uint64_t end, bool staged)
{
	begin = hoist__max_u64(begin, run->begin);
	end = hoist__min_u64(end, run->end);
	if (begin >= end)
		return;
	struct hoist__run *part = &division->runs[division->n++];
	*part = *run;
	part->begin = begin;
	part->end = end;
	part->row_bytes = end - begin;
	part->shift = begin - run->begin;
	part->staged = staged;
}

/* Divides the images from run @r on, of one tier, that follow each other in memory as in the file.
 * Returns: the run behind them. */
static size_t divide_group(struct division *division, size_t r, size_t n)
{
	const struct hoist__plan *plan = division->plan;
	const struct hoist__run *runs = plan->runs;
	size_t file = hoist__run_file(division->checkpoint, plan, &runs[r]);
	uint32_t tier = plan->tensors[runs[r].tensor].tier;
	uint64_t align = hoist__plan_align_of(division->checkpoint, file);
	size_t last = r;
	while (last + 1 < n && is_image(plan, &runs[last + 1]) &&
	       hoist__run_file(division->checkpoint, plan, &runs[last + 1]) == file &&
	       plan->tensors[runs[last + 1].tensor].tier == tier &&
	       runs[last + 1].begin == runs[last].end &&
	       shift_of(plan, &runs[last + 1]) == shift_of(plan, &runs[r]))
		last++;
	uint64_t begin = hoist__round_up(runs[r].begin, align);
	uint64_t end = hoist__round_down(runs[last].end, align);
	if (begin >= end || end - begin < LEAST_IMAGE_BYTES)
		begin = end = runs[r].begin;
	for (size_t i = r; i <= last; i++) {
		add_part(division, &runs[i], 0, begin, true);
		add_part(division, &runs[i], begin, end, false);
		add_part(division, &runs[i], end, UINT64_MAX, true);
	}
	return last + 1;
}

int hoist__plan_divide(const hoist_checkpoint *checkpoint, struct hoist__plan *plan, size_t *n_kept)
{
	size_t n = *n_kept;
	size_t n_images = 0;
	for (size_t r = 0; r < n; r++)
		n_images += is_image(plan, &plan->runs[r]);
	if (n_images == 0)
		return 0;
	size_t most = plan->n_runs + 2 * n_images;
	struct division division = {checkpoint, plan, calloc(most, sizeof *division.runs), 0};
	if (division.runs == NULL)
		return hoist__fail_nomem("a plan", most * sizeof *division.runs);
	for (size_t r = 0; r < n;) {
		if (is_image(plan, &plan->runs[r]))
			r = divide_group(&division, r, n);
		else
			division.runs[division.n++] = plan->runs[r++];
	}
	*n_kept = division.n;
	for (size_t r = n; r < plan->n_runs; r++)
		division.runs[division.n++] = plan->runs[r];
	plan->n_runs = division.n;
	free(plan->runs);
	plan->runs = division.runs;
	return 0;
}
