/* SPDX-License-Identifier: MIT */
/* numa/topology.h - the machine's nodes, and the devices near them.
 *
 * The topology is read from a sysfs tree whose root is a parameter, so that tests can show machines
 * they do not run on.  A tree without /devices/system/node (NUMA compiled out, /sys not mounted)
 * reads as one node, 0, with all online CPUs.  Node ids may have gaps.  A node may have CPUs and no
 * memory, or memory and no CPUs.  Unknown is always -1, never an error: in virtual machines and on
 * single-node boards the kernel itself says -1.
 *
 * Threads: a topology is immutable after loading.
 */
#ifndef HOIST_NUMA_TOPOLOGY_H
#define HOIST_NUMA_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__MAX_NODES 1024 /* the kernel's largest CONFIG_NODES_SHIFT (10) */

/* A set of node ids. */
struct hoist__nodeset {
	uint64_t bits[HOIST__MAX_NODES / 64];
};

static inline bool hoist__nodeset_has(const struct hoist__nodeset *set, int node)
{
	return node >= 0 && node < HOIST__MAX_NODES && (set->bits[node / 64] >> (node % 64) & 1u);
}

static inline void hoist__nodeset_add(struct hoist__nodeset *set, int node)
{
	if (node >= 0 && node < HOIST__MAX_NODES)
		set->bits[node / 64] |= UINT64_C(1) << (node % 64);
}

struct hoist__node {
	int id;
	uint64_t total_bytes;
	uint64_t free_bytes;    /* when the topology was loaded */
	uint64_t reclaimable_bytes; /* likewise: page cache and the like; the kernel would give back
				     * most of it */
	uint64_t kept_bytes;        /* likewise: memory that the kernel would only swap out; memory
				     * that is none of the three may be a file system's own cache
				     * (ZFS) */
	size_t n_cpus;
	const int *cpus;        /* ascending */
	const int *distances;   /* distances[i]: to nodes[i]; NULL if unknown */
	uint64_t hugepages_2m;      /* 2 MiB pages in the node's pool */
	uint64_t free_hugepages_2m; /* of these, free when loaded */
};

struct hoist__topology {
	size_t n_nodes; /* at least 1 */
	const struct hoist__node *nodes; /* ascending ids */
	bool synthetic; /* the tree had no nodes: this is the single-node fallback */
};

/* Loads the topology; @sysfs_root is "/sys" for the machine itself.  Malformed files are read as
 * far as they make sense, and logged.
 * Returns: 0; -ENOMEM. */
int hoist__topology_load(const char *sysfs_root, struct hoist__topology **ret);
void hoist__topology_destroy(struct hoist__topology *topology); /* takes NULL */

/* Returns the node with that id, or NULL. */
const struct hoist__node *hoist__topology_node(const struct hoist__topology *topology, int id);

/* Returns the node of a PCI device ("0000:65:00.0", in any case of letters).  If its numa_node is
 * -1: the one node that holds all of its local_cpulist; otherwise -1. */
int hoist__topology_pci_node(const struct hoist__topology *topology, const char *sysfs_root,
			     const char *pci);

/* Returns the node of a block device: the numa_node of the nearest parent that has one, or of the
 * slaves (dm, md) or paths (NVMe multipath) if all agree; otherwise -1.  @dev is a partition's or a
 * disk's, as st_dev in struct stat. */
int hoist__topology_block_node(const struct hoist__topology *topology, const char *sysfs_root,
			       uint64_t dev);

#endif
