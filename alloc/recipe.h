/* SPDX-License-Identifier: MIT */
/* alloc/recipe.h - how host regions are made: what region.c and recipe.c share.
 *
 * The steps are region.h's.  Memory of our own goes through all of them; what others give
 * is looked at (verify) and pinned.
 */
#ifndef HOIST_ALLOC_RECIPE_H
#define HOIST_ALLOC_RECIPE_H

#include <stdbool.h>

#include "alloc/map.h"
#include "alloc/region.h"
#include "base/clock.h"
#include "base/error.h"

/* A region with what its owner need not see. */
struct hoist__region_storage {
	struct hoist__region region; /* first */
	struct hoist__map map;	     /* host memory of our own */
	bool not_in_children;	     /* MADV_DONTFORK took the map */
	unsigned generation;	     /* the process that made it: hoist__fork_now() */
	uintptr_t taken;	     /* from a driver or source: as it was given, */
	size_t taken_bytes;	     /* and goes back */
};

/* What one creation works with. */
struct hoist__maker {
	struct hoist__region_storage *storage;
	struct hoist__region *region;	    /* in the storage */
	const struct hoist__nodeset *nodes; /* asked for; NULL: none, or not ours to place */
	const struct hoist__nodeset *cpus;  /* where populating runs; NULL: anywhere */
	struct hoist__nodeset one;	    /* may be what @cpus points to */
	struct hoist__topology *topology;   /* loaded where @nodes or @cpus is set */
	bool hugetlb;			    /* try it (still) */
	enum hoist__region_step step;	    /* where it failed */
};

/* One of the steps: recipe-populate.c. */
int hoist__step_populate(struct hoist__maker *maker);

/* Bound memory that is populated here: not bound before all of it is there (numa/place.h). */
bool hoist__recipe_binds_late(const struct hoist__region *region);

/* Maps and makes.  Returns what hoist__region_create() does; on failure nothing is left. */
int hoist__recipe_make(struct hoist__region_storage *storage);

/* The same for host memory that is there: region.base and .bytes say where. */
int hoist__recipe_adopt(struct hoist__region_storage *storage);

/* The end of either: unpins, then unmaps what is ours. */
void hoist__recipe_undo(struct hoist__region_storage *storage);

void hoist__region_note(struct hoist__region *region, enum hoist__region_step step,
			const char *format, ...) HOIST__PRINTF(3, 4);

/* A call that began at @start_ns has ended. */
static inline void hoist__called(struct hoist__calls *calls, enum hoist__call call,
				 uint64_t start_ns)
{
	if (calls != NULL)
		hoist__calls_add(calls, call, hoist__now_ns() - start_ns);
}

#endif
