/* SPDX-License-Identifier: MIT */
/* alloc/recipe.c - runs the recipe's steps for host memory, and undoes them.
 * The contract is in alloc/recipe.h and alloc/region.h. */
#include "config.h"

#include "alloc/recipe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc/pin.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/figure.h"
#include "base/log.h"
#include "numa/group.h"

#define VERIFY_SAMPLES 64

void hoist__region_note(struct hoist__region *region, enum hoist__region_step step,
			const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)vsnprintf(region->step_note[step], sizeof region->step_note[step], format, args);
	va_end(args);
}

/* --- reserve, huge, place --- */

static uint64_t huge_pages_free_on(const struct hoist__maker *maker)
{
	uint64_t sum = 0;
	bool first_only = maker->region->options.placement.policy == HOIST__POLICY_PREFER;
	for (size_t i = 0; i < maker->topology->n_nodes; i++) {
		const struct hoist__node *node = &maker->topology->nodes[i];
		if (!hoist__nodeset_has(maker->nodes, node->id))
			continue;
		sum += node->free_hugepages_2m;
		if (first_only)
			break;
	}
	return sum;
}

/* True if the region is now in hugetlb pages.  If not, a note says why. */
static bool map_hugetlb(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	size_t bytes = hoist__round_up(region->options.bytes, HOIST__HUGE_PAGE_BYTES);
	if (maker->nodes != NULL) {
		uint64_t n_free = huge_pages_free_on(maker);
		if (n_free < bytes / HOIST__HUGE_PAGE_BYTES) {
			hoist__region_note(
				region, HOIST__STEP_HUGE,
				"hugetlb: %zu pages needed, %llu free on the nodes asked for",
				bytes / HOIST__HUGE_PAGE_BYTES, (unsigned long long)n_free);
			return false;
		}
	}
	if (hoist__map_hugetlb(bytes, &maker->storage->map) != 0) {
		hoist__region_note(region, HOIST__STEP_HUGE, "%s", hoist__error_text());
		return false;
	}
	region->pages = HOIST__PAGES_HUGETLB;
	return true;
}

/* Keeps the map from children of fork.  A child's copy of memory that a driver pins is of no use,
 * and old kernels would move the parent's pages away from under the device.  The address space
 * around the memory goes with it, so a child has nothing of the region, and nothing to unmap.  For
 * memory that others gave, the owners decide whether their children see it. */
static void keep_from_children(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	storage->not_in_children =
		madvise(storage->map.start, storage->map.start_bytes, MADV_DONTFORK) == 0;
	if (!storage->not_in_children)
		hoist__region_note(region, HOIST__STEP_RESERVE, "MADV_DONTFORK: %s",
				   strerror(errno));
}

static int reserve(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	struct hoist__map *map = &maker->storage->map;
	region->pages = HOIST__PAGES_SMALL;
	if (!maker->hugetlb || !map_hugetlb(maker)) {
		/* Pages beyond the control group's limit would end the process when they are
		 * touched, so the limit is checked before there is a mapping. */
		size_t bytes = hoist__round_up(region->options.bytes, hoist__page_bytes());
		/* hugetlb pages are charged elsewhere. */
		int err = region->options.unpopulated
				  ? 0
				  : hoist__group_check(bytes, region->options.spare_bytes,
						       "host memory");
		if (err == 0)
			err = hoist__map_anonymous(bytes, map);
		if (err != 0)
			return err;
	}
	HOIST__ASSERT(map->bytes >= region->options.bytes &&
		      (uintptr_t)map->base >= (uintptr_t)map->start);
	region->base = (uintptr_t)map->base;
	region->bytes = map->bytes;
	if (region->options.kind == HOIST__MEMORY_PINNED &&
	    hoist__pinned_by_driver(region->options.dev))
		keep_from_children(maker->storage);
	return 0;
}

static int step_reserve(struct hoist__maker *maker)
{
	uint64_t start = hoist__now_ns();
	int err = reserve(maker);
	hoist__called(maker->region->options.calls, HOIST__CALL_MAP, start);
	return err;
}

static int step_huge(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	void *base = maker->storage->map.base;
	if (region->pages == HOIST__PAGES_HUGETLB)
		return 0;
	if (region->options.no_thp) {
		/* A system that gives huge pages to all (Debian's kernels) must be told.  A kernel
		 * without huge pages refuses the call. */
		(void)madvise(base, region->bytes, MADV_NOHUGEPAGE);
		return 0;
	}
	if (region->bytes < HOIST__HUGE_PAGE_BYTES)
		return 0;
	if (madvise(base, region->bytes, MADV_HUGEPAGE) == 0) {
		region->pages = HOIST__PAGES_THP;
		return 0;
	}
	/* A note on hugetlb says more, and stays. */
	if (region->step_note[HOIST__STEP_HUGE][0] == '\0')
		hoist__region_note(region, HOIST__STEP_HUGE, "MADV_HUGEPAGE: %s", strerror(errno));
	return 0;
}

bool hoist__recipe_binds_late(const struct hoist__region *region)
{
	return region->options.placement.policy == HOIST__POLICY_BIND &&
	       region->placed == HOIST__PLACED_KERNEL && !region->options.unpopulated &&
	       region->pages != HOIST__PAGES_HUGETLB;
}

/* A node that cannot have room is refused here.  Strictly bound memory that is populated only
 * prefers its nodes until all of it is there (hoist__recipe_binds_late()). */
static int step_place(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	const struct hoist__placement *placement = &region->options.placement;
	if (placement->policy == HOIST__POLICY_LOCAL)
		return 0;
	uint64_t start = hoist__now_ns();
	void *base = maker->storage->map.base;
	int err = hoist__place(base, region->bytes, placement, &region->placed);
	if (err == 0 && !region->options.unpopulated && region->pages != HOIST__PAGES_HUGETLB)
		err = hoist__place_has_room(maker->topology, placement, region->bytes);
	if (err == 0 && hoist__recipe_binds_late(region))
		hoist__place_softly(base, region->bytes, placement);
	hoist__called(region->options.calls, HOIST__CALL_MAP, start);
	if (err != 0 || region->placed != HOIST__PLACED_FIRST_TOUCH)
		return err;
	if (!hoist__nodes_allowed(&placement->nodes))
		hoist__region_note(
			region, HOIST__STEP_PLACE,
			"this process's cpuset has none of these nodes: others are used");
	else
		hoist__region_note(region, HOIST__STEP_PLACE, "the kernel refused mbind: %s",
				   region->options.unpopulated
					   ? "pages go to the nodes that touch them"
					   : "touched first from the nodes' CPUs");
	return err;
}

/* --- verify --- */

static int verify_strict(const struct hoist__region *region, size_t n_elsewhere, size_t n_sampled,
			 int node)
{
	if (n_elsewhere == 0 || region->options.placement.policy != HOIST__POLICY_BIND)
		return 0;
	return hoist__fail(-ENOMEM,
			   "binding %s to node %d: %zu of %zu sampled pages are elsewhere, on "
			   "node %d%s",
			   hoist__figure(region->bytes).text,
			   hoist__nodeset_first(&region->options.placement.nodes), n_elsewhere,
			   n_sampled, node,
			   region->placed == HOIST__PLACED_FIRST_TOUCH
				   ? "; the kernel refuses mbind here (allow it, or prefer the "
				     "node instead)"
				   : "");
}

static void note_whereabouts(struct hoist__maker *maker, const struct hoist__whereabouts *where,
			     size_t n_elsewhere, int elsewhere)
{
	if (n_elsewhere != 0)
		hoist__region_note(maker->region, HOIST__STEP_VERIFY,
				   "%zu of %zu sampled pages are on other nodes (%d)", n_elsewhere,
				   where->n_sampled, elsewhere);
	else if (where->n_unknown + where->n_absent != 0 && maker->storage->map.start != NULL)
		hoist__region_note(maker->region, HOIST__STEP_VERIFY,
				   "%zu of %zu sampled pages: the kernel does not say",
				   where->n_unknown + where->n_absent, where->n_sampled);
}

/* The kernel may not tell where pages are.  That is noted, and is no failure. */
static int step_verify(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	region->node = -1;
	if (region->options.unpopulated)
		return 0;
	struct hoist__whereabouts where;
	int err = hoist__whereabouts((void *)region->base, region->bytes, VERIFY_SAMPLES, &where);
	if (err == -ENOMEM)
		return err;
	if (err != 0) {
		hoist__region_note(region, HOIST__STEP_VERIFY, "%s", hoist__error_text());
		return 0;
	}
	size_t n_elsewhere = 0;
	int elsewhere = -1;
	/* Pages that move at this moment (the kernel compacts, balances) are not counted. */
	size_t n_known = where.n_sampled - where.n_unknown;
	for (int node = 0; node < HOIST__MAX_NODES; node++) {
		if (n_known != 0 && where.per_node[node] == n_known)
			region->node = node;
		if (maker->nodes != NULL && !hoist__nodeset_has(maker->nodes, node) &&
		    where.per_node[node] != 0) {
			n_elsewhere += where.per_node[node];
			elsewhere = node;
		}
	}
	note_whereabouts(maker, &where, n_elsewhere, elsewhere);
	return verify_strict(region, n_elsewhere, where.n_sampled, elsewhere);
}

/* --- pin --- */

static struct hoist__pin pin_of(const struct hoist__region *region)
{
	return (struct hoist__pin){
		.dev = region->options.dev,
		.base = (char *)region->base,
		.bytes = region->bytes,
		.piece_bytes = region->piece_bytes,
		.calls = region->options.calls,
	};
}

static int step_pin(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	region->piece_bytes = region->bytes;
	if (region->options.kind != HOIST__MEMORY_PINNED)
		return 0;
	char why[HOIST__ERROR_BYTES] = "";
	struct hoist__pin pin = pin_of(region);
	pin.piece_bytes = region->options.piece_bytes;
	int err = hoist__pin(&pin, why, sizeof why);
	if (err != 0)
		return err;
	HOIST__ASSERT(!region->pinned && pin.piece_bytes <= region->bytes);
	region->pinned = true;
	region->piece_bytes = pin.piece_bytes;
	if (why[0] != '\0')
		hoist__region_note(region, HOIST__STEP_PIN, "pieces of %s only: %s",
				   hoist__figure(pin.piece_bytes).text, why);
	return 0;
}

/* --- all of them --- */

static int (*const steps[HOIST__N_STEPS])(struct hoist__maker *) = {
	[HOIST__STEP_RESERVE] = step_reserve, [HOIST__STEP_HUGE] = step_huge,
	[HOIST__STEP_PLACE] = step_place,     [HOIST__STEP_POPULATE] = hoist__step_populate,
	[HOIST__STEP_VERIFY] = step_verify,   [HOIST__STEP_PIN] = step_pin,
};

/* Runs the steps from @first on.  On failure nothing of ours is mapped or pinned: pinning is the
 * last step, so a region that failed is never pinned. */
static int run_steps(struct hoist__maker *maker, enum hoist__region_step first)
{
	for (int step = (int)first; step < HOIST__N_STEPS; step++) {
		uint64_t start = hoist__now_ns();
		int err = steps[step](maker);
		maker->region->step_ns[step] += hoist__now_ns() - start;
		if (err != 0) {
			maker->step = (enum hoist__region_step)step;
			HOIST__ASSERT(!maker->region->pinned);
			hoist__recipe_undo(maker->storage);
			return err;
		}
	}
	return 0;
}

static int make(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	int err = run_steps(maker, HOIST__STEP_RESERVE);
	bool no_such_pages =
		region->pages == HOIST__PAGES_HUGETLB && err == -ENOMEM &&
		(maker->step == HOIST__STEP_POPULATE || maker->step == HOIST__STEP_VERIFY);
	if (!no_such_pages)
		return err;
	/* The hugetlb pool had the pages when they were mapped, but not on the node or for the
	 * cgroup. */
	memset(region->step_note, 0, sizeof region->step_note);
	hoist__region_note(region, HOIST__STEP_HUGE, "hugetlb: %s", hoist__error_text());
	maker->hugetlb = false;
	return run_steps(maker, HOIST__STEP_RESERVE);
}

int hoist__recipe_make(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	struct hoist__maker maker = {.storage = storage, .region = region};
	int err = 0;
	maker.hugetlb = region->options.hugetlb;
	if (region->options.placement.policy != HOIST__POLICY_LOCAL) {
		maker.nodes = &region->options.placement.nodes;
		err = hoist__topology_load("/sys", &maker.topology);
	}
	if (err == 0)
		err = make(&maker);
	hoist__topology_destroy(maker.topology);
	return err;
}

int hoist__recipe_adopt(struct hoist__region_storage *storage)
{
	struct hoist__maker maker = {.storage = storage, .region = &storage->region};
	return run_steps(&maker, HOIST__STEP_VERIFY);
}

void hoist__recipe_undo(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	/* In a child of fork the driver's registration is the parent's, and memory that was kept
	 * from the child is not mapped: something else may be there by now. */
	bool child = hoist__pinned_by_driver(region->options.dev) &&
		     storage->generation != hoist__fork_now();
	if (region->pinned && !child) {
		struct hoist__pin pin = pin_of(region);
		hoist__unpin(&pin);
	}
	region->pinned = false;
	if (storage->map.start == NULL || (child && storage->not_in_children))
		return;
	uint64_t start = hoist__now_ns();
	hoist__map_release(&storage->map);
	hoist__called(region->options.calls, HOIST__CALL_MAP, start);
}
