/* SPDX-License-Identifier: MIT */
/* Divides a lot in host memory into the tensors that lie in it.
 * The contract is in lib/plan/plan.h. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "lib/buffer/portions.h"
#include "lib/plan/plan.h"

static int compare(const void *a, const void *b)
{
	const struct hoist__portion_range *first = a;
	const struct hoist__portion_range *second = b;
	return (first->begin > second->begin) - (first->begin < second->begin);
}

/* Joins ranges in order of their begins that overlap.  Returns: how many are left. */
static size_t join(struct hoist__portion_range *ranges, size_t n)
{
	size_t last = 0;
	for (size_t i = 1; i < n; i++) {
		if (ranges[i].begin >= ranges[last].end)
			ranges[++last] = ranges[i];
		else if (ranges[i].end > ranges[last].end)
			ranges[last].end = ranges[i].end;
	}
	return n > 0 ? last + 1 : 0;
}

int hoist__plan_portions(const struct hoist__plan *plan, const struct hoist__plan_want *want,
			 struct hoist__storage *whole, struct hoist__portions **ret)
{
	struct hoist__portion_range *ranges = calloc(want->n_tensors, sizeof *ranges);
	bool in_order = true;
	size_t n = 0;
	if (ranges == NULL)
		return hoist__fail_nomem("the tensors of a load", want->n_tensors * sizeof *ranges);
	for (size_t i = 0; i < want->n_tensors; i++) {
		const struct hoist__plan_tensor *tensor = &plan->tensors[want->first_tensor + i];
		if (tensor->bytes == 0)
			continue;
		ranges[n].begin = (size_t)tensor->target;
		ranges[n].end = (size_t)(tensor->target + tensor->bytes);
		in_order = in_order && (n == 0 || ranges[n - 1].begin <= ranges[n].begin);
		n++;
	}
	if (!in_order)
		qsort(ranges, n, sizeof *ranges, compare);
	int err = hoist__portions_create(whole, ranges, join(ranges, n), ret);
	free(ranges);
	return err;
}
