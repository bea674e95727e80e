/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-numa.c - examines the nodes, their pools of huge pages, and where a disk is.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/figure.h"
#include "hoist/doctor.h"
#include "lib/doctor/doctor.h"
#include "numa/place.h"
#include "numa/topology.h"

static int check_hugetlb(hoist_doctor *doctor, const struct hoist__topology *topology)
{
	uint64_t n = 0;
	uint64_t n_free = 0;
	for (size_t i = 0; i < topology->n_nodes; i++) {
		n += topology->nodes[i].hugepages_2m;
		n_free += topology->nodes[i].free_hugepages_2m;
	}
	if (n_free > 0)
		return hoist__doctor_yes(doctor, "huge page pool",
					 "%" PRIu64 " of %" PRIu64 " pages of 2 MiB are free",
					 n_free, n);
	return hoist__doctor_no(doctor, "huge page pool",
				"none is needed where transparent pages work; to have them: "
				"sysctl vm.nr_hugepages=128",
				"%s", n == 0 ? "empty" : "all its pages are in use");
}

/* Asks the kernel to place one page, and gives how it was placed, or an error with its text. */
static int try_placing(int node, enum hoist__placed *ret)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return hoist__fail_nomem("a page to place", bytes);
	struct hoist__placement placement = {.policy = HOIST__POLICY_PREFER};
	hoist__nodeset_add(&placement.nodes, node);
	int err = hoist__place(page, bytes, &placement, ret);
	(void)munmap(page, bytes);
	return err;
}

/* Lists as many nodes as fit: "node 0: 64 CPUs, 252 GiB (190 GiB free)". */
static void list_nodes(const struct hoist__topology *topology, char *text, size_t bytes)
{
	size_t used = 0;
	text[0] = '\0';
	for (size_t i = 0; i < topology->n_nodes; i++) {
		const struct hoist__node *node = &topology->nodes[i];
		int n = snprintf(text + used, bytes - used, "%snode %d: %zu CPU%s, %s (%s free)",
				 i > 0 ? "; " : "", node->id, node->n_cpus,
				 node->n_cpus == 1 ? "" : "s",
				 hoist__figure(node->total_bytes).text,
				 hoist__figure(node->free_bytes).text);
		if (n < 0 || (size_t)n >= bytes - used) {
			text[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

/* Returns "; the disk of PATH is on node 1", or "" if the kernel does not say. */
static char *describe_disk(const hoist_doctor *doctor, const struct hoist__topology *topology,
			   const char *sysfs_root)
{
	char *text = NULL;
	int node = hoist__topology_block_node(topology, sysfs_root, doctor->path_dev);
	if (node < 0)
		return strdup("");
	return asprintf(&text, "; the disk of %s is on node %d", doctor->path, node) < 0 ? NULL
											 : text;
}

static int check_placing(hoist_doctor *doctor, const struct hoist__topology *topology,
			 const char *disk)
{
	static const char name[] = "numa";
	static const char remedy[] =
		"in a container: --cap-add SYS_NICE, or a seccomp profile that allows mbind; until "
		"then hoist places memory by touching it first from the right CPUs";
	char nodes[512];
	enum hoist__placed placed = HOIST__PLACED_DEFAULT;
	list_nodes(topology, nodes, sizeof nodes);
	if (topology->synthetic)
		return hoist__doctor_yes(doctor, name, "one node (the kernel lists none)");
	if (topology->n_nodes == 1)
		return hoist__doctor_yes(doctor, name, "%s%s; nothing to place", nodes, disk);
	if (try_placing(topology->nodes[0].id, &placed) < 0)
		return hoist__doctor_error(doctor, name, remedy);
	if (placed != HOIST__PLACED_KERNEL)
		return hoist__doctor_no(doctor, name, remedy,
					"%s%s; but the kernel refuses to place memory", nodes,
					disk);
	return hoist__doctor_yes(doctor, name, "%s%s", nodes, disk);
}

static int check_numa(hoist_doctor *doctor, const struct hoist__topology *topology,
		      const char *sysfs_root)
{
	char *disk = describe_disk(doctor, topology, sysfs_root);
	if (disk == NULL)
		return hoist__fail_nomem("the doctor's findings", strlen(doctor->path));
	int err = check_placing(doctor, topology, disk);
	free(disk);
	return err;
}

int hoist__doctor_numa(hoist_doctor *doctor, const char *sysfs_root)
{
	struct hoist__topology *topology = NULL;
	int err = hoist__topology_load(sysfs_root, &topology);
	if (err < 0)
		return err;
	err = check_hugetlb(doctor, topology);
	if (err == 0)
		err = check_numa(doctor, topology, sysfs_root);
	hoist__topology_destroy(topology);
	return err;
}
