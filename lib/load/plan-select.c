/* SPDX-License-Identifier: MIT */
/* Selects tensors, and the ranges of their axes.
 * The contract is in lib/load/plan-private.h.
 *
 * An exact name is found in O(log n).  A glob is compared with every tensor once. */
#include "config.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/load/plan-private.h"

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

/* Marks the tensors that @pattern selects.  An exact name selects that tensor alone, even if the
 * name holds glob characters. */
static int mark(const hoist_checkpoint *checkpoint, const char *pattern, unsigned char *wanted)
{
	size_t exact;
	if (hoist_checkpoint_find(checkpoint, pattern, &exact) == 0) {
		wanted[exact] = 1;
		return 0;
	}
	bool found = false;
	for (size_t t = 0; is_glob(pattern) && t < checkpoint->n_tensors; t++)
		if (fnmatch(pattern, checkpoint->tensors[t].tensor->name, 0) == 0) {
			wanted[t] = 1;
			found = true;
		}
	return found ? 0 : fail_no_match(pattern);
}

int hoist__plan_select(const hoist_checkpoint *checkpoint,
		       const struct hoist__plan_options *options, struct hoist__plan *plan)
{
	size_t n = checkpoint->n_tensors;
	unsigned char *wanted = calloc(n > 0 ? n : 1, 1);
	plan->tensors = calloc(n > 0 ? n : 1, sizeof *plan->tensors);
	int err = 0;
	if (wanted == NULL || plan->tensors == NULL)
		err = hoist__fail_nomem("a plan", n * sizeof *plan->tensors);
	else
		memset(wanted, options->patterns == NULL, n);
	for (size_t p = 0; err == 0 && options->patterns != NULL && p < options->n_patterns; p++)
		err = mark(checkpoint, options->patterns[p], wanted);
	for (size_t t = 0; err == 0 && t < n; t++)
		if (wanted[t])
			plan->tensors[plan->n_tensors++].index = t;
	free(wanted);
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

/* The place of tensor @index among the selected ones; n_tensors: it is not selected. */
static size_t selected(const struct hoist__plan *plan, size_t index)
{
	size_t low = 0;
	size_t high = plan->n_tensors;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (plan->tensors[middle].index < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low < plan->n_tensors && plan->tensors[low].index == index ? low : plan->n_tensors;
}

/* A pattern that matches a tensor of the checkpoint is no error even if no such tensor was
 * selected. */
static int slice_all(const hoist_checkpoint *checkpoint, const hoist_load_slice *slice,
		     struct hoist__plan *plan, struct hoist__range **ranges)
{
	size_t exact;
	if (hoist_checkpoint_find(checkpoint, slice->tensor, &exact) == 0) {
		size_t i = selected(plan, exact);
		return i == plan->n_tensors ? 0
					    : slice_tensor(checkpoint->tensors[exact].tensor, slice,
							   plan, &ranges[i]);
	}
	bool found = false;
	size_t i = 0;
	for (size_t t = 0; is_glob(slice->tensor) && t < checkpoint->n_tensors; t++) {
		const struct hoist__tensor *tensor = checkpoint->tensors[t].tensor;
		bool wanted = i < plan->n_tensors && plan->tensors[i].index == t;
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

int hoist__plan_ranges(const hoist_checkpoint *checkpoint,
		       const struct hoist__plan_options *options, struct hoist__plan *plan,
		       struct hoist__range **ret)
{
	int err = 0;
	for (size_t s = 0; err == 0 && s < options->n_slices; s++) {
		err = check(&options->slices[s], s);
		if (err == 0)
			err = slice_all(checkpoint, &options->slices[s], plan, ret);
	}
	return err;
}
