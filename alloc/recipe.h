/* SPDX-License-Identifier: MIT */
/* alloc/recipe.h - how host regions are made, shared by region.c, recipe.c and recipe-populate.c.
 *
 * region.h describes the steps.  Memory of our own goes through all of them.  Memory that others
 * give is only verified and pinned.
 */
#ifndef HOIST_ALLOC_RECIPE_H
#define HOIST_ALLOC_RECIPE_H

#include <stdbool.h>

#include "alloc/map.h"
#include "alloc/region.h"
#include "base/clock.h"
#include "base/error.h"

/* A region, with the fields that its owner need not see. */
struct hoist__region_storage {
	struct hoist__region region; /* first */
	struct hoist__map map;	     /* the mapping of host memory of our own */
	bool not_in_children;	     /* the map has MADV_DONTFORK */
	unsigned generation;	     /* the process that made it: hoist__fork_now() */
	uintptr_t taken;	     /* from a driver or source: the address as it was given, */
	size_t taken_bytes;	     /* and as it goes back */
};

/* The state of one creation. */
struct hoist__maker {
	struct hoist__region_storage *storage;
	struct hoist__region *region;	    /* in the storage */
	const struct hoist__nodeset *nodes; /* asked for; NULL: none, or not ours to place */
	const struct hoist__nodeset *cpus;  /* where populating runs; NULL: anywhere */
	struct hoist__nodeset one;	    /* may be what @cpus points to */
	struct hoist__topology *topology;   /* loaded where @nodes or @cpus is set */
	bool hugetlb;			    /* hugetlb pages are (still) to be tried */
	enum hoist__region_step step;	    /* the step that failed */
};

/* The populate step, in recipe-populate.c. */
int hoist__step_populate(struct hoist__maker *maker);

/* True for strictly bound memory that is populated here: it is bound only once all of it is there
 * (numa/place.h). */
bool hoist__recipe_binds_late(const struct hoist__region *region);

/* Maps the memory and runs all steps.  Returns: as hoist__region_create(); on failure nothing is
 * left. */
int hoist__recipe_make(struct hoist__region_storage *storage);

/* The same for host memory that exists already: region.base and .bytes say where. */
int hoist__recipe_adopt(struct hoist__region_storage *storage);

/* Undoes either: unpins, then unmaps the map if it is ours. */
void hoist__recipe_undo(struct hoist__region_storage *storage);

void hoist__region_note(struct hoist__region *region, enum hoist__region_step step,
			const char *format, ...) HOIST__PRINTF(3, 4);

/* Counts a call that began at @start_ns and has ended. */
static inline void hoist__called(struct hoist__calls *calls, enum hoist__call call,
				 uint64_t start_ns)
{
	if (calls != NULL)
		hoist__calls_add(calls, call, hoist__now_ns() - start_ns);
}

#endif
