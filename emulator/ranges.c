/* SPDX-License-Identifier: MIT */
/* emulator/ranges.c - sets of disjoint address ranges.
 * The contract is in emulator/core.h.
 *
 * They are libc's balanced tree with "shares a byte" as equality, so that an address finds the
 * range that contains it. */
#include "config.h"

#include "emulator/core.h"

#include <errno.h>
#include <search.h>

static int compare(const void *left, const void *right)
{
	const struct hoist__emu_range *a = left;
	const struct hoist__emu_range *b = right;
	if (a->start < b->start)
		return b->start - a->start >= a->bytes ? -1 : 0;
	return a->start - b->start >= b->bytes ? 1 : 0;
}

int hoist__emu_range_add(void **set, struct hoist__emu_range *range)
{
	struct hoist__emu_range **found = tsearch(range, set, compare);
	if (found == NULL)
		return -ENOMEM;
	return *found == range ? 0 : -EEXIST;
}

void *hoist__emu_range_find(void *const *set, uintptr_t start, size_t bytes)
{
	struct hoist__emu_range key = {.start = start, .bytes = bytes};
	struct hoist__emu_range **found = tfind(&key, set, compare);
	return found == NULL ? NULL : *found;
}

void hoist__emu_range_remove(void **set, struct hoist__emu_range *range)
{
	(void)tdelete(range, set, compare);
}
