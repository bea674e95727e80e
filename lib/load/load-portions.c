/* SPDX-License-Identifier: MIT */
/* lib/load/load-portions.c - divides a lot in host memory into the tensors that lie in it.
 * The contract is in lib/load/load.h.
 *
 * Tensors that overlap in their lot, tied ones among them, lie in one portion.  The table is
 * made for the first buffer that somebody asks for. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "lib/load/load.h"

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

static int divide(const struct hoist_load *load, const struct hoist__target *target,
		  struct hoist__storage *whole, struct hoist__portions **ret)
{
	const struct hoist__plan_want *want = &load->plan.wants[target->want];
	struct hoist__portion_range *ranges = calloc(want->n_tensors, sizeof *ranges);
	bool in_order = true;
	size_t n = 0;
	if (ranges == NULL)
		return hoist__fail_nomem("the tensors of a load", want->n_tensors * sizeof *ranges);
	for (size_t i = 0; i < want->n_tensors; i++) {
		const struct hoist__plan_tensor *tensor =
			&load->plan.tensors[want->first_tensor + i];
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

/* If two threads make the table at once, the later one drops its own. */
static int need_portions(const struct hoist_load *load, struct hoist__target *target,
			 struct hoist__storage *whole, struct hoist__portions **ret)
{
	struct hoist__portions *known = atomic_load(&target->portions);
	if (known == NULL && target->to_host && (load->options.flags & HOIST__LOAD_SPLITS) == 0 &&
	    hoist__storage_can_shrink(whole)) {
		struct hoist__portions *made;
		int err = divide(load, target, whole, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&target->portions, &known, made))
			known = made;
		else
			hoist__portions_close(made);
	}
	*ret = known;
	return 0;
}

int hoist__load_place(struct hoist_load *load, size_t target, size_t index,
		      struct hoist__storage **storage, size_t *offset)
{
	const struct hoist__plan_tensor *tensor = &load->plan.tensors[index];
	struct hoist__storage *whole = load->targets[target].storages[tensor->lot];
	struct hoist__portions *portions;
	size_t begin = 0;
	*storage = whole;
	int err = need_portions(load, &load->targets[target], whole, &portions);
	if (err == 0 && portions != NULL)
		err = hoist__portions_take(portions, (size_t)tensor->target, storage, &begin);
	*offset = (size_t)tensor->target - begin;
	return err;
}
