/* SPDX-License-Identifier: MIT */
/* numa/topology.c - reads the machine's nodes from sysfs.
 * The contract is in numa/topology.h. */
#include "config.h"

#include "numa/topology.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "numa/sysfs.h"

#define NODE_FOLDER "devices/system/node"

/* Returns the id in a folder name "node<id>"; -1 for any other name. */
static int node_id(const char *name)
{
	if (strncmp(name, "node", 4) != 0 || name[4] < '0' || name[4] > '9')
		return -1;
	char *end;
	errno = 0;
	long id = strtol(name + 4, &end, 10);
	if (*end != '\0' || errno != 0)
		return -1;
	if (id >= HOIST__MAX_NODES) {
		hoist__log(numa, "%s is beyond the %d nodes a kernel can have", name,
			   HOIST__MAX_NODES);
		return -1;
	}
	return (int)id;
}

/* Finds the nodes that have a folder: offline nodes have none.  An unreadable folder counts as one
 * without nodes. */
static int scan_nodes(const char *root, struct hoist__nodeset *set, size_t *n_nodes)
{
	char path[PATH_MAX];
	if ((size_t)snprintf(path, sizeof path, "%s/" NODE_FOLDER, root) >= sizeof path)
		return 0;
	DIR *folder = opendir(path);
	if (folder == NULL)
		return errno == ENOMEM ? hoist__fail_nomem("reading a folder", 0) : 0;
	struct dirent *entry;
	while ((entry = readdir(folder)) != NULL) {
		int id = node_id(entry->d_name);
		if (id >= 0 && !hoist__nodeset_has(set, id)) {
			hoist__nodeset_add(set, id);
			++*n_nodes;
		}
	}
	closedir(folder);
	return 0;
}

/* Returns the kilobytes behind @key in a node's meminfo, in bytes; 0 if absent or odd. */
static uint64_t meminfo_bytes(const char *text, const char *key, int node)
{
	const char *at = strstr(text, key);
	if (at == NULL) {
		hoist__log(numa, "node%d/meminfo has no %s", node, key);
		return 0;
	}
	at += strlen(key);
	at += strspn(at, " \t");
	bool digit = *at >= '0' && *at <= '9';
	errno = 0;
	unsigned long long kib = digit ? strtoull(at, NULL, 10) : 0;
	if (!digit || errno != 0 || kib > UINT64_MAX / 1024) {
		hoist__log(numa, "node%d/meminfo: %s is no size", node, key);
		return 0;
	}
	return (uint64_t)kib * 1024;
}

static uint64_t count_or_zero(int err, int64_t value)
{
	return err == 0 && value > 0 ? (uint64_t)value : 0;
}

static void read_hugepages(struct hoist__node *node, const char *root, const char *folder)
{
	int64_t value = 0;
	int err = hoist__sysfs_number(&value, root, "%s/hugepages-2048kB/nr_hugepages", folder);
	node->hugepages_2m = count_or_zero(err, value);
	err = hoist__sysfs_number(&value, root, "%s/hugepages-2048kB/free_hugepages", folder);
	node->free_hugepages_2m = count_or_zero(err, value);
}

/* Reads the list of CPUs in @text into the node. */
static int set_cpus(struct hoist__node *node, const char *text, const char *what)
{
	struct hoist__ids ids = {0};
	int err = hoist__ids_parse(&ids, text, what);
	if (err != 0) {
		free(ids.ids);
		return err;
	}
	node->cpus = ids.ids;
	node->n_cpus = ids.n_ids;
	return 0;
}

/* The kernel lists one distance for each online node, in ascending order.  The entries of a list of
 * any other length could not be attributed to nodes.  @text: as read_node(). */
static int read_distances(struct hoist__node *node, const char *root, size_t n_nodes, char *text)
{
	if (hoist__sysfs_read(text, HOIST__SYSFS_BYTES, root, NODE_FOLDER "/node%d/distance",
			      node->id))
		return 0;
	int *distances = calloc(n_nodes, sizeof *distances);
	if (distances == NULL)
		return hoist__fail_nomem("node distances", n_nodes * sizeof *distances);
	size_t n = 0;
	char *at = text;
	for (; n < n_nodes; n++) {
		char *end;
		long distance = strtol(at, &end, 10);
		if (end == at || distance <= 0 || distance > 65535)
			break;
		distances[n] = (int)distance;
		at = end;
	}
	at += strspn(at, " \n");
	if (n == n_nodes && *at == '\0') {
		node->distances = distances;
		return 0;
	}
	hoist__log(numa, "node%d/distance does not list %zu nodes", node->id, n_nodes);
	free(distances);
	return 0;
}

static void read_meminfo(struct hoist__node *node, const char *text)
{
	static const char *const reclaimable[] = {
		"Active(file):", "Inactive(file):", "SReclaimable:"};
	static const char *const kept[] = {
		"AnonPages:", "Shmem:", "SUnreclaim:", "KernelStack:", "PageTables:"};
	node->total_bytes = meminfo_bytes(text, "MemTotal:", node->id);
	node->free_bytes = meminfo_bytes(text, "MemFree:", node->id);
	for (size_t i = 0; i < sizeof reclaimable / sizeof *reclaimable; i++)
		node->reclaimable_bytes += meminfo_bytes(text, reclaimable[i], node->id);
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		node->kept_bytes += meminfo_bytes(text, kept[i], node->id);
}

/* @text: room for HOIST__SYSFS_BYTES. */
static int read_node(struct hoist__node *node, const char *root, size_t n_nodes, char *text)
{
	int id = node->id;
	if (hoist__sysfs_read(text, HOIST__SYSFS_BYTES, root, NODE_FOLDER "/node%d/meminfo", id) ==
	    0)
		read_meminfo(node, text);
	else
		hoist__log(numa, "node%d has no meminfo", id);
	char folder[64];
	(void)snprintf(folder, sizeof folder, NODE_FOLDER "/node%d/hugepages", id);
	read_hugepages(node, root, folder);
	node->kept_bytes += node->hugepages_2m << 21;
	int err = 0;
	if (hoist__sysfs_read(text, HOIST__SYSFS_BYTES, root, NODE_FOLDER "/node%d/cpulist", id) ==
	    0)
		err = set_cpus(node, text, "a node's cpulist");
	return err != 0 ? err : read_distances(node, root, n_nodes, text);
}

/* For a machine without NUMA: node 0 has everything.  @text: as read_node(). */
static int read_single_node(struct hoist__node *node, const char *root, char *text)
{
	struct sysinfo info;
	if (sysinfo(&info) == 0) {
		node->total_bytes = (uint64_t)info.totalram * info.mem_unit;
		node->free_bytes = (uint64_t)info.freeram * info.mem_unit;
	}
	read_hugepages(node, root, "kernel/mm/hugepages");
	if (hoist__sysfs_read(text, HOIST__SYSFS_BYTES, root, "devices/system/cpu/online") != 0) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);
		(void)snprintf(text, HOIST__SYSFS_BYTES, "0-%ld", n > 0 ? n - 1 : 0);
	}
	return set_cpus(node, text, "cpu/online");
}

/* Reads the nodes with the @n_ids ids; without ids, the one of a machine without NUMA. */
static int read_nodes(struct hoist__node *nodes, const struct hoist__nodeset *ids, size_t n_ids,
		      const char *root)
{
	/* Not on the stack, which may be small. */
	char *text = malloc(HOIST__SYSFS_BYTES);
	if (text == NULL)
		return hoist__fail_nomem("topology", HOIST__SYSFS_BYTES);
	int err = n_ids == 0 ? read_single_node(&nodes[0], root, text) : 0;
	size_t i = 0;
	for (int id = 0; id < HOIST__MAX_NODES && i < n_ids && err == 0; id++) {
		if (!hoist__nodeset_has(ids, id))
			continue;
		nodes[i].id = id;
		err = read_node(&nodes[i++], root, n_ids, text);
	}
	free(text);
	return err;
}

/* Calls free() for memory that the topology declares const. */
static void free_const(const void *memory)
{
	free((void *)(uintptr_t)memory);
}

void hoist__topology_destroy(struct hoist__topology *topology)
{
	if (topology == NULL)
		return;
	for (size_t i = 0; i < topology->n_nodes; i++) {
		free_const(topology->nodes[i].cpus);
		free_const(topology->nodes[i].distances);
	}
	free_const(topology->nodes);
	free(topology);
}

int hoist__topology_load(const char *sysfs_root, struct hoist__topology **ret)
{
	struct hoist__nodeset ids = {0};
	size_t n_found = 0;
	int err = scan_nodes(sysfs_root, &ids, &n_found);
	if (err != 0)
		return err;
	size_t n_nodes = n_found == 0 ? 1 : n_found;
	struct hoist__topology *topology = calloc(1, sizeof *topology);
	struct hoist__node *nodes = calloc(n_nodes, sizeof *nodes);
	if (topology == NULL || nodes == NULL) {
		free(topology);
		free(nodes);
		return hoist__fail_nomem("topology", n_nodes * sizeof *nodes);
	}
	topology->n_nodes = n_nodes;
	topology->nodes = nodes;
	topology->synthetic = n_found == 0;
	err = read_nodes(nodes, &ids, n_found, sysfs_root);
	if (err != 0) {
		hoist__topology_destroy(topology);
		return err;
	}
	*ret = topology;
	return 0;
}

const struct hoist__node *hoist__topology_node(const struct hoist__topology *topology, int id)
{
	for (size_t i = 0; i < topology->n_nodes; i++)
		if (topology->nodes[i].id == id)
			return &topology->nodes[i];
	return NULL;
}
