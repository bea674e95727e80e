/* SPDX-License-Identifier: MIT */
/* numa/near.c - finds the node that a PCI or block device is near to.
 * The contract is in numa/topology.h.
 *
 * The kernel gives most devices a numa_node; this file is mainly about the exceptions. */
#include "config.h"

#include "numa/topology.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/log.h"
#include "numa/sysfs.h"

#define NO_LINKS (-2) /* a folder of links is absent or empty: look elsewhere */
#define MAX_DEPTH 8   /* dm on md on dm ...; a damaged tree may hold a cycle */

/* Returns the number from a numa_node file if such a node exists; otherwise -1. */
static int known_node(const struct hoist__topology *topology, int64_t id)
{
	bool fits = id >= 0 && id < HOIST__MAX_NODES;
	return fits && hoist__topology_node(topology, (int)id) != NULL ? (int)id : -1;
}

static int compare_ids(const void *a, const void *b)
{
	const int *x = a;
	const int *y = b;
	return (*x > *y) - (*x < *y);
}

static bool has_cpu(const struct hoist__node *node, int cpu)
{
	return node->n_cpus > 0 &&
	       bsearch(&cpu, node->cpus, node->n_cpus, sizeof cpu, compare_ids) != NULL;
}

/* Returns the node that has all of @cpus; -1 if there is none, or if there are no CPUs. */
static int node_of_cpus(const struct hoist__topology *topology, const struct hoist__ids *cpus)
{
	for (size_t i = 0; i < topology->n_nodes && cpus->n_ids > 0; i++) {
		size_t n = 0;
		while (n < cpus->n_ids && has_cpu(&topology->nodes[i], cpus->ids[n]))
			n++;
		if (n == cpus->n_ids)
			return topology->nodes[i].id;
	}
	return -1;
}

/* Writes @pci as sysfs names it: full domain, lower case.  Drivers differ in case and in the digits
 * of the domain, and some leave the domain out. */
static bool pci_name(const char *pci, char *name, size_t bytes)
{
	if (pci[strspn(pci, "0123456789abcdefABCDEF:.")] != '\0')
		return false;
	unsigned domain = 0, bus, device, function;
	int end = 0;
	if (sscanf(pci, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4) {
		domain = 0;
		if (sscanf(pci, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3)
			return false;
	}
	if (pci[end] != '\0')
		return false;
	(void)snprintf(name, bytes, "%04x:%02x:%02x.%x", domain, bus, device, function);
	return true;
}

int hoist__topology_pci_node(const struct hoist__topology *topology, const char *sysfs_root,
			     const char *pci)
{
	char name[32];
	if (!pci_name(pci, name, sizeof name)) {
		hoist__log(numa, "'%.32s' is no PCI address", pci);
		return -1;
	}
	int64_t id = -1;
	/* Some machines give -1 here, or no such file.  Then the CPUs near the device tell the
	 * node. */
	(void)hoist__sysfs_number(&id, sysfs_root, "bus/pci/devices/%s/numa_node", name);
	int node = known_node(topology, id);
	if (node >= 0)
		return node;
	char *text = malloc(HOIST__SYSFS_BYTES);
	struct hoist__ids cpus = {0};
	if (text != NULL &&
	    hoist__sysfs_read(text, HOIST__SYSFS_BYTES, sysfs_root,
			      "bus/pci/devices/%s/local_cpulist", name) == 0 &&
	    hoist__ids_parse(&cpus, text, name) == 0)
		node = node_of_cpus(topology, &cpus);
	free(cpus.ids);
	free(text);
	return node;
}

static int node_of_folder(const struct hoist__topology *topology, const char *root, char *path,
			  int depth);

/* True for a controller of an NVMe multipath subsystem.  The subsystem links to its controllers,
 * "nvme0" and so on; "nvme0n1" beside them is the disk itself. */
static bool is_controller(const char *name)
{
	if (strncmp(name, "nvme", 4) != 0 || name[4] == '\0')
		return false;
	return name[4 + strspn(name + 4, "0123456789")] == '\0';
}

/* Follows the links in @folder.
 * Returns: the node on which all agree; -1 if they do not; NO_LINKS if there are none. */
static int node_of_links(const struct hoist__topology *topology, const char *root,
			 const char *folder, bool controllers_only, int depth)
{
	DIR *dir = opendir(folder);
	if (dir == NULL)
		return NO_LINKS;
	int node = NO_LINKS;
	struct dirent *entry;
	while (node != -1 && (entry = readdir(dir)) != NULL) {
		char link[PATH_MAX], target[PATH_MAX];
		bool wanted =
			controllers_only ? is_controller(entry->d_name) : entry->d_name[0] != '.';
		if (!wanted)
			continue;
		int n = snprintf(link, sizeof link, "%s/%s", folder, entry->d_name);
		int found = -1;
		if (n > 0 && (size_t)n < sizeof link && realpath(link, target) != NULL)
			found = node_of_folder(topology, root, target, depth + 1);
		node = node == NO_LINKS || node == found ? found : -1;
	}
	closedir(dir);
	return node;
}

static int node_of_stack(const struct hoist__topology *topology, const char *root, const char *path,
			 int depth)
{
	char slaves[PATH_MAX];
	int n = snprintf(slaves, sizeof slaves, "%s/slaves", path);
	if (n < 0 || (size_t)n >= sizeof slaves)
		return NO_LINKS;
	int node = node_of_links(topology, root, slaves, false, depth);
	const char *name = strrchr(path, '/');
	if (node == NO_LINKS && name != NULL && strncmp(name, "/nvme-subsys", 12) == 0 &&
	    isdigit((unsigned char)name[12]))
		node = node_of_links(topology, root, path, true, depth);
	return node;
}

/* Walks from the device's folder up to the root.  @path is resolved, and is modified. */
static int node_of_folder(const struct hoist__topology *topology, const char *root, char *path,
			  int depth)
{
	size_t root_length = strlen(root);
	if (depth > MAX_DEPTH || strncmp(path, root, root_length) != 0)
		return -1;
	while (strlen(path) > root_length) {
		int node = node_of_stack(topology, root, path, depth);
		if (node != NO_LINKS)
			return node;
		int64_t id = -1;
		(void)hoist__sysfs_number(&id, path, "numa_node");
		if (known_node(topology, id) >= 0)
			return (int)id;
		*strrchr(path, '/') = '\0';
	}
	return -1;
}

int hoist__topology_block_node(const struct hoist__topology *topology, const char *sysfs_root,
			       uint64_t dev)
{
	char root[PATH_MAX], link[PATH_MAX], path[PATH_MAX];
	if (realpath(sysfs_root, root) == NULL)
		return -1;
	int n = snprintf(link, sizeof link, "%s/dev/block/%u:%u", root, major((dev_t)dev),
			 minor((dev_t)dev));
	if (n < 0 || (size_t)n >= sizeof link || realpath(link, path) == NULL)
		return -1;
	return node_of_folder(topology, root, path, 0);
}
