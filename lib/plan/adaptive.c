/* SPDX-License-Identifier: MIT */
/* lib/plan/adaptive.c - finds the ranges that an adaptive load maps, and maps them.
 * The contract is in lib/plan/adaptive.h.
 *
 * The lot begins so that its first extent lies in huge pages as in its file: the kernel maps huge
 * pages of the page cache whole.  Later extents of SPREAD_BYTES or more are moved so that they lie
 * so, too: with four files, 3,900 MB were mapped by 3,300 page faults in place of 45,000.  An image
 * extent is looked at in granules of 2 MiB, so that a map ends between two huge pages.  Granules
 * that lie in the page cache, as far as the kernel says, make hot runs:
 *
 *   lot      |....|.[==|====|====|====|====|=]..|      [ ]: the extent
 *   cached         yes  yes   no   yes   yes
 *            |.[   map  | read |    map      ]..|
 *
 * A run shorter than LEAST_BYTES is read: the copy costs less than the map and its page faults.  If
 * there are more than MOST_MAPS runs, the longest are mapped.  A range that the kernel does not map
 * is read, too. */
#include "config.h"

#include <stdlib.h>

#include "alloc/map.h"
#include "alloc/pool.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/log.h"
#include "lib/buffer/patchwork.h"
#include "lib/plan/adaptive.h"

#define LEAST_BYTES HOIST__HUGE_PAGE_BYTES
#define MOST_MAPS ((size_t)1000)
/* The gap before a moved extent is smaller than a huge page: at most a 64th of the extent. */
#define SPREAD_BYTES (64 * HOIST__HUGE_PAGE_BYTES)

struct runs {
	size_t n;
	size_t room;
	struct hoist__plan_range *list;
};

static int add(struct runs *runs, const struct hoist__plan_range *run)
{
	if (run->end - run->begin < LEAST_BYTES)
		return 0;
	if (runs->n == runs->room) {
		size_t room = runs->room * 2 + 64;
		void *grown = realloc(runs->list, room * sizeof *runs->list);
		if (grown == NULL)
			return hoist__fail_nomem("a load", room * sizeof *runs->list);
		runs->list = grown;
		runs->room = room;
	}
	runs->list[runs->n++] = *run;
	return 0;
}

/* Pages of the file are pages of the lot. */
static bool can_map(const struct hoist__plan_extent *extent)
{
	size_t page = hoist__page_bytes();
	return !extent->staged && extent->align % page == 0 && extent->image % page == 0 &&
	       HOIST__HUGE_PAGE_BYTES % extent->align == 0;
}

/* The bytes from a huge page's begin to the lot's. */
static size_t skew(const struct hoist__plan *plan)
{
	const struct hoist__plan_extent *first = &plan->extents[0];
	uint64_t at = hoist__round_down(first->begin, first->align) - first->image;
	return can_map(first) ? at % HOIST__HUGE_PAGE_BYTES : 0;
}

/* The bytes that extent @e moves, for @shift that the extents before it have moved. */
static uint64_t shift_of(const struct hoist__plan *plan, size_t e, uint64_t shift)
{
	const struct hoist__plan_extent *extent = &plan->extents[e];
	uint64_t first = hoist__round_down(extent->begin, extent->align);
	uint64_t at = skew(plan) + extent->image + shift;
	if (e == 0 || !can_map(extent) || extent->end - first < SPREAD_BYTES)
		return shift;
	return shift + (first - at) % HOIST__HUGE_PAGE_BYTES;
}

/* The extent that has byte @target of the lot.  Extents ascend in the lot. */
static size_t extent_at(const struct hoist__plan *plan, uint64_t target)
{
	size_t e = 0;
	size_t end = plan->n_extents;
	while (end - e > 1) {
		size_t middle = e + (end - e) / 2;
		if (plan->extents[middle].image <= target)
			e = middle;
		else
			end = middle;
	}
	return e;
}

/* Moves each extent, with its tensors, by its shift. */
static void move(struct hoist__plan *plan, const uint64_t *shifts)
{
	for (size_t i = 0; i < plan->n_tensors; i++)
		plan->tensors[i].target += shifts[extent_at(plan, plan->tensors[i].target)];
	for (size_t e = 0; e < plan->n_extents; e++)
		plan->extents[e].image += shifts[e];
	plan->lots[0].bytes += shifts[plan->n_extents - 1];
}

/* Moves the extents, with their tensors, so that those of SPREAD_BYTES or more lie in huge pages as
 * in their files.  An empty tensor has the target 0, which stays.  A lot that would exceed 63 bits
 * stays as it is. */
static int spread(struct hoist__plan *plan)
{
	uint64_t *shifts = calloc(plan->n_extents, sizeof *shifts);
	uint64_t shift = 0;
	if (shifts == NULL)
		return hoist__fail_nomem("a load", plan->n_extents * sizeof *shifts);
	for (size_t e = 0; e < plan->n_extents; e++)
		shifts[e] = shift = shift_of(plan, e, shift);
	if (shift > 0 && plan->lots[0].bytes <= INT64_MAX - shift)
		move(plan, shifts);
	free(shifts);
	return 0;
}

/* Lists the hot runs of one extent. */
static int look(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan, size_t index,
		struct runs *runs)
{
	const struct hoist__plan_extent *extent = &plan->extents[index];
	const struct hoist__file *file = checkpoint->files[extent->file].file;
	struct hoist__resident_window window = {0};
	struct hoist__plan_range run = {.extent = index};
	uint64_t first = hoist__round_down(extent->begin, extent->align);
	uint64_t at = first;
	int err = 0;
	while (err == 0 && can_map(extent) && at < extent->end) {
		uint64_t lot = skew(plan) + extent->image + (at - first);
		uint64_t end = hoist__min_u64(
			at + HOIST__HUGE_PAGE_BYTES - lot % HOIST__HUGE_PAGE_BYTES, extent->end);
		uint64_t resident = 0;
		bool hot = hoist__file_resident_ahead(file, &window, at, end - at, extent->end,
						      &resident) == 0 &&
			   resident >= end - at;
		if (hot && run.end != at) {
			err = add(runs, &run);
			run.begin = at;
		}
		if (hot)
			run.end = end;
		at = end;
	}
	return err < 0 ? err : add(runs, &run);
}

static int compare_bytes(const void *a, const void *b)
{
	const struct hoist__plan_range *p = a;
	const struct hoist__plan_range *q = b;
	uint64_t first = p->end - p->begin;
	uint64_t second = q->end - q->begin;
	return (first < second) - (first > second);
}

static int compare_place(const void *a, const void *b)
{
	const struct hoist__plan_range *p = a;
	const struct hoist__plan_range *q = b;
	if (p->extent != q->extent)
		return p->extent < q->extent ? -1 : 1;
	return (p->begin > q->begin) - (p->begin < q->begin);
}

/* Keeps the longest runs. */
static void keep_longest(struct runs *runs)
{
	if (runs->n <= MOST_MAPS)
		return;
	qsort(runs->list, runs->n, sizeof *runs->list, compare_bytes);
	runs->n = MOST_MAPS;
	qsort(runs->list, runs->n, sizeof *runs->list, compare_place);
}

int hoist__adaptive_find(const hoist_checkpoint *checkpoint, struct hoist__plan *plan,
			 size_t *ret_maps)
{
	struct runs runs = {0};
	int err = plan->n_extents > 1 ? spread(plan) : 0;
	*ret_maps = 0;
	for (size_t e = 0; err == 0 && e < plan->n_extents; e++)
		err = look(checkpoint, plan, e, &runs);
	if (err == 0 && runs.n > 0) {
		keep_longest(&runs);
		err = hoist__plan_split(plan, runs.list, runs.n);
		*ret_maps = runs.n;
	}
	free(runs.list);
	return err;
}

int hoist__adaptive_allocate(const hoist_checkpoint *checkpoint, struct hoist__plan *plan,
			     hoist_device *device, size_t *n_maps, struct hoist__storage **ret)
{
	struct hoist__storage *made;
	uint64_t mapped = 0;
	int err = hoist__patchwork_create(device, (size_t)plan->lots[0].bytes, skew(plan), &made);
	if (err < 0)
		return err;
	for (size_t e = 0; e < plan->n_extents; e++) {
		struct hoist__plan_extent *extent = &plan->extents[e];
		uint64_t first = hoist__round_down(extent->begin, extent->align);
		if (!extent->mapped)
			continue;
		size_t bytes = (size_t)(extent->end - first);
		const struct hoist__file *file = checkpoint->files[extent->file].file;
		extent->mapped =
			hoist__patchwork_map(made, (size_t)extent->image, file, first, bytes) == 0;
		mapped += extent->mapped ? bytes : 0;
		*n_maps -= !extent->mapped;
		if (!extent->mapped)
			hoist__log(load, "reading what cannot be mapped: %s", hoist__error_text());
	}
	/* Pages that are read take memory now; those of a map are the page cache's. */
	err = hoist__pools_make_room(plan->lots[0].bytes - mapped, "host memory");
	if (err < 0) {
		hoist__storage_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}
