/* SPDX-License-Identifier: MIT */
/* Selects tensors, and the ranges of their axes.
 * The contract is in lib/plan/plan-private.h.
 *
 * An exact name is found in O(log n).  A glob is compared with every tensor once. */
#include "config.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/plan/plan-private.h"

static bool is_glob(const char *pattern)
{
	return strpbrk(pattern, "*?[") != NULL;
}

static int fail_no_match(const char *pattern)
{
	return hoist__fail(-ENOENT,
			   "no tensor is called or matches \"%.200s\"; `hoist ls` lists them",
			   pattern);
}

/* --- tensors --- */

static uint32_t first_mark(uint32_t before, uint32_t mark)
{
	return before < mark ? before : mark;
}

/* Marks the tensors that @pattern selects, unless they have a lower mark.  An exact name selects
 * that tensor alone, even if the name holds glob characters. */
static int mark_all(const hoist_checkpoint *checkpoint, const char *pattern, uint32_t mark,
		    uint32_t *marks)
{
	size_t exact;
	if (hoist_checkpoint_find(checkpoint, pattern, &exact) == 0) {
		marks[exact] = first_mark(marks[exact], mark);
		return 0;
	}
	bool found = false;
	for (size_t t = 0; is_glob(pattern) && t < checkpoint->n_tensors; t++)
		if (fnmatch(pattern, checkpoint->tensors[t].tensor->name, 0) == 0) {
			marks[t] = first_mark(marks[t], mark);
			found = true;
		}
	return found ? 0 : fail_no_match(pattern);
}

/* A mark for each tensor of the checkpoint, all of them @mark; NULL (with text): no memory. */
static uint32_t *make_marks(const hoist_checkpoint *checkpoint, uint32_t mark)
{
	size_t n = checkpoint->n_tensors;
	uint32_t *marks = calloc(n > 0 ? n : 1, sizeof *marks);
	if (marks == NULL)
		(void)hoist__fail_nomem("a plan", n * sizeof *marks);
	for (size_t t = 0; marks != NULL && t < n; t++)
		marks[t] = mark;
	return marks;
}

int hoist__plan_tiers(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		      uint32_t **ret)
{
	if (options->n_order == 0)
		return 0;
	uint32_t *tiers = make_marks(checkpoint, (uint32_t)options->n_order);
	int err = tiers != NULL ? 0 : -ENOMEM;
	for (size_t p = 0; err == 0 && p < options->n_order; p++)
		err = mark_all(checkpoint, options->order[p], (uint32_t)p, tiers);
	if (err < 0)
		free(tiers);
	else
		*ret = tiers;
	return err;
}

/* Marks the tensors that have places of the caller's.  The caller frees *ret_places, the number of
 * the place of each plus 1, after a failure, too. */
static int mark_into(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		     uint32_t *wanted, uint32_t **ret_places)
{
	uint32_t *places = make_marks(checkpoint, 0);
	*ret_places = places;
	if (places == NULL)
		return -ENOMEM;
	int err = hoist__plan_select_into(checkpoint, asked, places);
	for (size_t t = 0; err == 0 && t < checkpoint->n_tensors; t++)
		wanted[t] = places[t] == 0;
	return err;
}

/* Marks say of each tensor of the checkpoint: */
struct marks {
	const uint32_t *wanted; /* 0: it is */
	const uint32_t *tiers;	/* NULL: there is one tier */
	const uint32_t *places; /* the number of its place plus 1; NULL: not in place */
};

/* Appends the wanted tensors of the checkpoint to the plan's. */
static int append(const struct marks *marks, size_t n, size_t w, struct hoist__plan *plan)
{
	struct hoist__plan_want *want = &plan->wants[w];
	want->first_tensor = plan->n_tensors;
	for (size_t t = 0; t < n; t++)
		want->n_tensors += marks->wanted[t] == 0;
	size_t all = plan->n_tensors + want->n_tensors;
	struct hoist__plan_tensor *more =
		reallocarray(plan->tensors, all > 0 ? all : 1, sizeof *more);
	if (more == NULL)
		return hoist__fail_nomem("a plan", all * sizeof *more);
	plan->tensors = more;
	for (size_t t = 0; t < n; t++)
		if (marks->wanted[t] == 0) {
			more[plan->n_tensors] = (struct hoist__plan_tensor){
				.index = t,
				.want = (uint16_t)w,
				.tier = marks->tiers != NULL ? marks->tiers[t] : 0,
				.entry = marks->places != NULL ? marks->places[t] - 1 : 0,
				.like = (uint32_t)plan->n_tensors,
			};
			plan->n_tensors++;
		}
	return 0;
}

int hoist__plan_select(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		       size_t w, const uint32_t *tiers, struct hoist__plan *plan)
{
	bool all = asked->patterns == NULL && asked->into == NULL;
	uint32_t *wanted = make_marks(checkpoint, !all);
	uint32_t *places = NULL;
	int err = wanted != NULL ? 0 : -ENOMEM;
	if (err == 0 && asked->into != NULL)
		err = mark_into(checkpoint, asked, wanted, &places);
	for (size_t p = 0; err == 0 && asked->patterns != NULL && p < asked->n_patterns; p++)
		err = mark_all(checkpoint, asked->patterns[p], 0, wanted);
	const struct marks marks = {wanted, tiers, places};
	if (err == 0)
		err = append(&marks, checkpoint->n_tensors, w, plan);
	free(wanted);
	free(places);
	return err;
}

/* --- ranges --- */

static int fail_slice(const hoist_load_slice *slice, const struct hoist__tensor *tensor,
		      const char *why)
{
	struct hoist__plan_text shape;
	char what[80];
	if (slice->n_ranks > 0)
		(void)snprintf(what, sizeof what, "part %d of %d", slice->rank, slice->n_ranks);
	else
		(void)snprintf(what, sizeof what, "[%" PRId64 ":%" PRId64 "]", slice->begin,
			       slice->end);
	return hoist__fail(-EINVAL, "slice: %s along axis %d of \"%.200s\", of shape %s: %s", what,
			   slice->axis, tensor->name, hoist__plan_shape_text(tensor, &shape), why);
}

/* Turns the slice into a range of one axis of the tensor: negative numbers count from the end, and
 * nothing is clipped. */
static int resolve(const hoist_load_slice *slice, const struct hoist__tensor *tensor, int *ret_axis,
		   struct hoist__range *ret)
{
	int axis = slice->axis < 0 ? slice->axis + tensor->rank : slice->axis;
	if (axis < 0 || axis >= tensor->rank)
		return fail_slice(slice, tensor, "there is no such axis");
	if (tensor->strides != NULL)
		return fail_slice(slice, tensor,
				  "the tensor has strides in the file; load the whole tensor and "
				  "slice the buffer");
	int64_t extent = tensor->shape[axis];
	int64_t begin = slice->begin;
	int64_t end = slice->end;
	if (slice->n_ranks > 0) {
		if (extent % slice->n_ranks != 0)
			return fail_slice(slice, tensor,
					  "the axis cannot be cut into so many equal "
					  "parts; give begin and end");
		begin = extent / slice->n_ranks * slice->rank;
		end = begin + extent / slice->n_ranks;
	} else {
		if (end == HOIST_SLICE_END)
			end = extent;
		end += end < 0 ? extent : 0;
		begin += begin < 0 ? extent : 0;
		if (begin < 0 || begin > end || end > extent)
			return fail_slice(slice, tensor,
					  "outside the axis, or its end is before its beginning; "
					  "nothing is clipped");
	}
	*ret_axis = axis;
	*ret = (struct hoist__range){begin, end};
	return 0;
}

static int slice_tensor(const struct hoist__tensor *tensor, const hoist_load_slice *slice,
			struct hoist__plan *plan, struct hoist__range **ranges)
{
	int axis = 0;
	struct hoist__range range = {0};
	int err = resolve(slice, tensor, &axis, &range);
	if (err < 0)
		return err;
	if (*ranges == NULL) {
		*ranges = hoist__plan_alloc(plan, (size_t)tensor->rank * sizeof **ranges);
		if (*ranges == NULL)
			return -ENOMEM;
		for (int a = 0; a < tensor->rank; a++)
			(*ranges)[a] = (struct hoist__range){-1, -1};
	}
	if ((*ranges)[axis].begin >= 0)
		return fail_slice(slice, tensor, "another slice cuts the same axis");
	(*ranges)[axis] = range;
	return 0;
}

/* Checks the parts of the slice that do not depend on a tensor. */
static int check(const hoist_load_slice *slice, size_t number)
{
	if (slice->tensor == NULL)
		return hoist__fail(-EINVAL, "slice: number %zu names no tensor", number);
	if (slice->n_ranks < 0 ||
	    (slice->n_ranks > 0 && (slice->rank < 0 || slice->rank >= slice->n_ranks)))
		return hoist__fail(-EINVAL,
				   "slice of \"%.200s\": there is no rank %d of %d; ranks count "
				   "from 0 to the number of ranks - 1",
				   slice->tensor, slice->rank, slice->n_ranks);
	return 0;
}

int hoist__plan_slice(const hoist_load_slice *slice, size_t number,
		      const struct hoist__tensor *tensor, int *ret_axis, int64_t *ret_begin,
		      int64_t *ret_end)
{
	struct hoist__range range = {0};
	int err = check(slice, number);
	if (err == 0)
		err = resolve(slice, tensor, ret_axis, &range);
	if (err < 0)
		return err;
	*ret_begin = range.begin;
	*ret_end = range.end;
	return 0;
}

/* The selected tensors of one want. */
struct selection {
	const struct hoist__plan_tensor *tensors;
	size_t n;
};

/* The place of tensor @index of the checkpoint in the selection; n: it is not selected. */
static size_t find_selected(const struct selection *selection, size_t index)
{
	size_t low = 0;
	size_t high = selection->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (selection->tensors[middle].index < index)
			low = middle + 1;
		else
			high = middle;
	}
	bool found = low < selection->n && selection->tensors[low].index == index;
	return found ? low : selection->n;
}

/* A pattern that matches a tensor of the checkpoint is no error even if no such tensor was
 * selected. */
static int slice_all(const hoist_checkpoint *checkpoint, const hoist_load_slice *slice,
		     const struct selection *selection, struct hoist__plan *plan,
		     struct hoist__range **ranges)
{
	size_t exact;
	if (hoist_checkpoint_find(checkpoint, slice->tensor, &exact) == 0) {
		size_t i = find_selected(selection, exact);
		return i == selection->n ? 0
					 : slice_tensor(checkpoint->tensors[exact].tensor, slice,
							plan, &ranges[i]);
	}
	bool found = false;
	size_t i = 0;
	for (size_t t = 0; is_glob(slice->tensor) && t < checkpoint->n_tensors; t++) {
		const struct hoist__tensor *tensor = checkpoint->tensors[t].tensor;
		bool wanted = i < selection->n && selection->tensors[i].index == t;
		if ((wanted || !found) && fnmatch(slice->tensor, tensor->name, 0) == 0) {
			found = true;
			int err = wanted ? slice_tensor(tensor, slice, plan, &ranges[i]) : 0;
			if (err < 0)
				return err;
		}
		i += wanted;
	}
	return found ? 0 : fail_no_match(slice->tensor);
}

int hoist__plan_ranges(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		       size_t w, struct hoist__plan *plan, struct hoist__range **ret)
{
	const struct selection selection = {&plan->tensors[plan->wants[w].first_tensor],
					    plan->wants[w].n_tensors};
	int err = 0;
	for (size_t s = 0; err == 0 && s < asked->n_slices; s++) {
		err = check(&asked->slices[s], s);
		if (err == 0)
			err = slice_all(checkpoint, &asked->slices[s], &selection, plan, ret);
	}
	return err;
}
