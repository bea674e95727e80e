/* SPDX-License-Identifier: MIT */
/* numa/place.h - asking the kernel for memory on a node, and looking where it is.
 *
 * Order matters: bind, then touch, then verify, and pin last: pinned pages
 * cannot move.  mbind(2) is used on the range alone, never a thread's policy.
 * Where the kernel refuses (EPERM in containers, EINVAL outside the cpuset,
 * ENOSYS), the placement says FIRST_TOUCH: it then depends on which CPU touches
 * first, so the caller populates from threads that ran hoist__run_on_node().
 */
#ifndef HOIST_NUMA_PLACE_H
#define HOIST_NUMA_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "numa/topology.h"

enum hoist__policy {
	HOIST__POLICY_LOCAL,      /* the toucher's node: the kernel's default */
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
	HOIST__PLACED_KERNEL,      /* mbind took it */
	HOIST__PLACED_FIRST_TOUCH  /* refused: touch from CPUs of the node */
};

/* The lowest node of the set, -1 if empty. */
int hoist__nodeset_first(const struct hoist__nodeset *set);

/* Applies @placement to untouched, page-aligned memory.
 * Returns: 0 and how; -EINVAL for an empty set where one is needed, or (BIND
 *   only) when the kernel refuses because a node does not exist or is outside
 *   the cpuset: strict placement fails instead of spilling.  A refusal for lack of
 *   permission is FIRST_TOUCH for every policy; hoist__whereabouts() tells later. */
int hoist__place(void *address, size_t bytes, const struct hoist__placement *placement,
		 enum hoist__placed *ret);

/* False if this process's cpuset has none of these nodes; true also where the kernel does not say. */
bool hoist__nodes_allowed(const struct hoist__nodeset *nodes);

/* Strict placement that fails instead of killing: the kernel has no error for who touches memory
 * that is bound to a full node, but its OOM killer.  For BIND, and what hoist__place() answered with
 * KERNEL: let the memory prefer its nodes only; populate it; then bind it again, which moves what
 * went elsewhere, or fails.  Not for hugetlb pages, which nobody is killed for. */

/* Returns: 0; -ENOMEM if the nodes have less than that even with all that the kernel might give
 *   back, as the topology was when loaded: populating it would only fill other nodes.  0 for
 *   any other policy. */
int hoist__place_has_room(const struct hoist__topology *topology,
			  const struct hoist__placement *placement, size_t bytes);
void hoist__place_softly(void *address, size_t bytes, const struct hoist__placement *placement);
/* @n_before: calls before this one.
 * Returns: 0, all is there; 1: pages were moved, and may be gone, so populate again and call again;
 *   -ENOMEM with the figures of the nodes; the kernel's error. */
int hoist__place_strictly(void *address, size_t bytes, const struct hoist__placement *placement,
			  unsigned n_before);

/* Pins the calling thread to the node's CPUs.  Returns: 0; -ENODEV if the node has
 * no CPUs or is unknown; the kernel's error. */
int hoist__run_on_node(const struct hoist__topology *topology, int node);

/* Where the pages of a range really are. */
struct hoist__whereabouts {
	size_t n_sampled;
	size_t n_absent;                  /* not populated */
	size_t n_unknown;                 /* the kernel would not say: of the shared page of
					   * zeros, and what NUMA balancing looks at just now */
	size_t per_node[HOIST__MAX_NODES];
};

/* Looks at @n_samples pages spread evenly over the range (all, if the range has
 * no more) with move_pages(2), falling back on get_mempolicy(2).
 * Returns: 0; -EPERM or -ENOSYS if the kernel answers neither; -ENOMEM. */
int hoist__whereabouts(const void *address, size_t bytes, size_t n_samples,
		       struct hoist__whereabouts *ret);

#endif
