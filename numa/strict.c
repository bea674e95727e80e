/* SPDX-License-Identifier: MIT */
/* numa/strict.c - strict placement that fails instead of killing.
 * The contract is in numa/place.h.
 *
 * A process that touches memory bound to a node without room gets no error.  The kernel's OOM
 * killer ends a process to make room, most likely this one.  A move to that node does fail, after
 * the kernel has given back all that it would there.  So bound memory is populated while it only
 * prefers its nodes.  Then it is bound, and pages that went elsewhere are moved. */
#include "config.h"

#include <errno.h>
#include <numaif.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"
#include "numa/place-private.h"

#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5 /* Linux 5.15 */
#endif

/* The memory is populated again after each move. */
#define MAX_MOVES 4

/* The memory of some nodes, summed. */
struct room {
	uint64_t total;
	uint64_t free;
	uint64_t reclaimable;
	uint64_t kept;
};

static struct room room_of(const struct hoist__topology *topology,
			   const struct hoist__nodeset *nodes)
{
	struct room room = {0};
	for (size_t i = 0; i < topology->n_nodes; i++) {
		const struct hoist__node *node = &topology->nodes[i];
		if (!hoist__nodeset_has(nodes, node->id))
			continue;
		room.total += node->total_bytes;
		room.free += node->free_bytes;
		room.reclaimable += node->reclaimable_bytes;
		room.kept += node->kept_bytes;
	}
	return room;
}

/* Writes "node 1", or "nodes 0, 2, 3", with as many as fit. */
static void name_nodes(const struct hoist__nodeset *nodes, char *text, size_t bytes)
{
	int first = hoist__nodeset_first(nodes);
	int used = snprintf(text, bytes, "node %d", first);
	bool several = false;
	for (int node = first + 1; node < HOIST__MAX_NODES && used + 8 < (int)bytes; node++) {
		if (!hoist__nodeset_has(nodes, node))
			continue;
		if (!several)
			used = snprintf(text, bytes, "nodes %d", first);
		several = true;
		used += snprintf(text + used, bytes - (size_t)used, ", %d", node);
	}
}

static int fail_full(const struct hoist__topology *topology,
		     const struct hoist__placement *placement, size_t bytes)
{
	struct room room = room_of(topology, &placement->nodes);
	char names[64];
	name_nodes(&placement->nodes, names, sizeof names);
	return hoist__fail(-ENOMEM,
			   "binding %s to %s: there is no room: of %s, %s are free, and %s page "
			   "cache and the like; free some, or prefer the node instead",
			   hoist__figure(bytes).text, names, hoist__figure(room.total).text,
			   hoist__figure(room.free).text, hoist__figure(room.reclaimable).text);
}

/* Counts memory that could be swapped out: the kernel would do so to make room. */
static uint64_t free_swap(void)
{
	struct sysinfo info;
	return sysinfo(&info) == 0 ? (uint64_t)info.freeswap * info.mem_unit : 0;
}

int hoist__place_has_room(const struct hoist__topology *topology,
			  const struct hoist__placement *placement, size_t bytes)
{
	if (placement->policy != HOIST__POLICY_BIND)
		return 0;
	struct room room = room_of(topology, &placement->nodes);
	/* No memory at all: the node does not exist, or the tree does not say; mbind() will
	 * tell. */
	if (room.total == 0)
		return 0;
	/* All memory that might be given back: that includes memory under none of the counters. */
	uint64_t most = room.total > room.kept ? room.total - room.kept : 0;
	if (bytes <= most + free_swap())
		return 0;
	return fail_full(topology, placement, bytes);
}

void hoist__place_softly(void *address, size_t bytes, const struct hoist__placement *placement)
{
	struct hoist__kernel_mask mask;
	hoist__kernel_mask(&placement->nodes, &mask);
	if (mbind(address, bytes, MPOL_PREFERRED_MANY, mask.bits, HOIST__KERNEL_MASK_BITS, 0) == 0)
		return;
	/* An older kernel knows only one preferred node, the first of several.  The move does not
	 * mind, as any of the nodes will do. */
	if (mbind(address, bytes, MPOL_PREFERRED, mask.bits, HOIST__KERNEL_MASK_BITS, 0) != 0)
		hoist__log(numa, "bound memory is populated as such: %m");
}

static bool bind_now(void *address, size_t bytes, const struct hoist__placement *placement,
		     unsigned flags)
{
	struct hoist__kernel_mask mask;
	hoist__kernel_mask(&placement->nodes, &mask);
	return mbind(address, bytes, MPOL_BIND, mask.bits, HOIST__KERNEL_MASK_BITS, flags) == 0;
}

/* Huge pages that are moved may be split.  Linux 6.12 then drops those of their pages that hold
 * only zeros: in memory that was just populated, that is all of them. */
int hoist__place_strictly(void *address, size_t bytes, const struct hoist__placement *placement,
			  unsigned n_before)
{
	struct hoist__topology *topology = NULL;
	if (bind_now(address, bytes, placement, MPOL_MF_STRICT))
		return 0;
	if (n_before < MAX_MOVES &&
	    bind_now(address, bytes, placement, MPOL_MF_MOVE | MPOL_MF_STRICT)) {
		hoist__place_softly(address, bytes, placement);
		return 1;
	}
	int err = -errno;
	if (err != -EIO && err != -ENOMEM)
		return hoist__fail_errno(err, "binding %s to node %d", hoist__figure(bytes).text,
					 hoist__nodeset_first(&placement->nodes));
	err = hoist__topology_load("/sys", &topology); /* read again, as the figures have changed */
	if (err == 0)
		err = fail_full(topology, placement, bytes);
	hoist__topology_destroy(topology);
	return err;
}
