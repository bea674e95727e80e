/* SPDX-License-Identifier: MIT */
/* numa/place.h - asks the kernel for memory on a node, and finds out where it is.
 *
 * The order matters: bind, then touch, then verify, and pin last, as pinned pages cannot move.
 * mbind(2) is used on the range alone; a thread's policy is never changed.  If the kernel refuses
 * (EPERM in containers, EINVAL outside the cpuset, ENOSYS), the placement is FIRST_TOUCH: it then
 * depends on which CPU touches a page first, so that the caller must populate from threads that
 * called hoist__run_on_node().
 */
#ifndef HOIST_NUMA_PLACE_H
#define HOIST_NUMA_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "numa/topology.h"

enum hoist__policy {
	HOIST__POLICY_LOCAL,      /* the node of the CPU that touches: the kernel's default */
	HOIST__POLICY_PREFER,     /* the first node of the set; spill when it is full */
	HOIST__POLICY_BIND,       /* only these nodes; fail when they are full */
	HOIST__POLICY_INTERLEAVE  /* page by page over the set */
};

struct hoist__placement {
	enum hoist__policy policy;
	struct hoist__nodeset nodes; /* ignored for LOCAL */
};

enum hoist__placed {
	HOIST__PLACED_DEFAULT,     /* nothing was asked for */
	HOIST__PLACED_KERNEL,      /* mbind accepted it */
	HOIST__PLACED_FIRST_TOUCH  /* mbind refused: touch from CPUs of the node */
};

/* Returns the lowest node of the set; -1 if it is empty. */
int hoist__nodeset_first(const struct hoist__nodeset *set);

/* Applies @placement to untouched, page-aligned memory.  A refusal for lack of permission is
 * FIRST_TOUCH for every policy; hoist__whereabouts() finds out later.
 * Returns: 0, and how in *ret; -EINVAL for an empty set if one is needed, or (BIND only) if the
 *   kernel refuses because a node does not exist or is outside the cpuset: strict placement fails
 *   instead of spilling. */
int hoist__place(void *address, size_t bytes, const struct hoist__placement *placement,
		 enum hoist__placed *ret);

/* False if this process's cpuset has none of these nodes.  True also if the kernel does not say. */
bool hoist__nodes_allowed(const struct hoist__nodeset *nodes);

/* Strict placement that fails instead of killing.  The kernel has no error for a process that
 * touches memory bound to a full node: its OOM killer acts.  So for BIND, if hoist__place() gave
 * KERNEL: let the memory only prefer its nodes, populate it, then bind it again.  Binding moves the
 * pages that went elsewhere, or fails.  Not for hugetlb pages: no process is killed for those. */

/* Checks whether the nodes have room for @bytes, even with all that the kernel might give back,
 * by the figures of the topology when it was loaded.
 * Returns: 0; -ENOMEM if not: populating would only fill other nodes.  0 for any policy but
 *   BIND. */
int hoist__place_has_room(const struct hoist__topology *topology,
			  const struct hoist__placement *placement, size_t bytes);
void hoist__place_softly(void *address, size_t bytes, const struct hoist__placement *placement);
/* @n_before counts the calls before this one.
 * Returns: 0 if all pages are in place; 1 if pages were moved, and may be gone, so that the caller
 *   must populate and call again; -ENOMEM with the figures of the nodes; the kernel's error. */
int hoist__place_strictly(void *address, size_t bytes, const struct hoist__placement *placement,
			  unsigned n_before);

/* Pins the calling thread to the node's CPUs.
 * Returns: 0; -ENODEV if the node has no CPUs or is unknown; the kernel's error. */
int hoist__run_on_node(const struct hoist__topology *topology, int node);

/* Where the pages of a range really are. */
struct hoist__whereabouts {
	size_t n_sampled;
	size_t n_absent;                  /* not populated */
	/* the kernel would not say: of the shared page of zeros, and of pages that NUMA balancing
	 * is watching just now */
	size_t n_unknown;
	size_t per_node[HOIST__MAX_NODES];
};

/* Looks at @n_samples pages spread evenly over the range (at all, if the range has no more) with
 * move_pages(2), or else with get_mempolicy(2).
 * Returns: 0; -EPERM or -ENOSYS if the kernel answers neither; -ENOMEM. */
int hoist__whereabouts(const void *address, size_t bytes, size_t n_samples,
		       struct hoist__whereabouts *ret);

#endif
