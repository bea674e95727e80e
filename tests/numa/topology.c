/* SPDX-License-Identifier: MIT */
/* The topology that is read from trees of /sys: captured ones of real machines, made ones with
 * damage, and that of this machine. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/sysmacros.h>

#include "numa/topology.h"
#include "tests/support/numa-tree.h"

static struct hoist__topology *load(struct tree *tree, const char *name)
{
	struct hoist__topology *topology = NULL;
	cr_assert_eq(tree_unpack(tree, name), 0, "cannot unpack sysfs/%s.txt", name);
	cr_assert_eq(hoist__topology_load(tree->root, &topology), 0);
	return topology;
}

static void unload(struct tree *tree, struct hoist__topology *topology)
{
	hoist__topology_destroy(topology);
	tree_remove(tree);
}

static int block_node(const struct tree *tree, const struct hoist__topology *topology,
		      unsigned major_number, unsigned minor_number)
{
	return hoist__topology_block_node(topology, tree->root,
					  makedev(major_number, minor_number));
}

Test(numa_topology, reads_one_node)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "1-node");
	cr_assert_eq(t->n_nodes, 1);
	cr_assert_not(t->synthetic);
	cr_assert_eq(t->nodes[0].id, 0);
	cr_assert_eq(t->nodes[0].n_cpus, 2);
	cr_assert_eq(t->nodes[0].total_bytes, UINT64_C(479996) * 1024);
	cr_assert_eq(t->nodes[0].free_bytes, UINT64_C(435176) * 1024);
	cr_assert_eq(t->nodes[0].reclaimable_bytes, UINT64_C(9328) * 1024);
	/* Anonymous, shared, slabs, stacks, page tables; four huge pages. */
	cr_assert_eq(t->nodes[0].kept_bytes,
		     UINT64_C(1024) * (276 + 8360 + 7172 + 960 + 88 + 4 * 2048));
	cr_assert_eq(t->nodes[0].distances[0], 10);
	cr_assert_eq(t->nodes[0].hugepages_2m, 4);
	unload(&tree, t);
}

Test(numa_topology, gives_the_only_node_to_devices_that_say_minus_one)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "1-node");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:00:02.0"), 0);
	cr_assert_eq(block_node(&tree, t, 254, 0), -1, "a disk has no list of CPUs");
	cr_assert_eq(block_node(&tree, t, 254, 1), -1);
	cr_assert_eq(block_node(&tree, t, 259, 0), -1, "nor has NVMe");
	unload(&tree, t);
	t = load(&tree, "1-node-cloud");
	cr_assert_eq(t->n_nodes, 1);
	cr_assert_eq(t->nodes[0].free_hugepages_2m, 64);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:00:02.0"), 0);
	cr_assert_eq(block_node(&tree, t, 254, 0), -1);
	cr_assert_eq(block_node(&tree, t, 253, 0), -1, "a zram");
	unload(&tree, t);
}

Test(numa_topology, reads_two_nodes_with_their_huge_pages)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	cr_assert_eq(t->n_nodes, 2);
	cr_assert_eq(t->nodes[1].n_cpus, 4);
	cr_assert_eq(t->nodes[1].cpus[0], 2);
	cr_assert_eq(t->nodes[1].cpus[1], 3);
	cr_assert_eq(t->nodes[1].cpus[2], 6);
	cr_assert_eq(t->nodes[1].cpus[3], 7);
	cr_assert_eq(t->nodes[1].distances[0], 21);
	cr_assert_eq(t->nodes[1].distances[1], 10);
	cr_assert_eq(t->nodes[0].free_hugepages_2m, 4);
	cr_assert_eq(t->nodes[1].hugepages_2m, 8);
	cr_assert_eq(t->nodes[1].free_hugepages_2m, 3);
	cr_assert_null(hoist__topology_node(t, 2));
	cr_assert_null(hoist__topology_node(t, -1));
	unload(&tree, t);
}

Test(numa_topology, reads_many_cpus)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "made-devices");
	cr_assert_eq(t->nodes[1].n_cpus, 64);
	cr_assert_eq(t->nodes[1].cpus[0], 32);
	cr_assert_eq(t->nodes[1].cpus[31], 63);
	cr_assert_eq(t->nodes[1].cpus[32], 96);
	cr_assert_eq(t->nodes[1].cpus[63], 127);
	cr_assert_eq(t->nodes[0].free_hugepages_2m, 512);
	cr_assert_eq(t->nodes[1].free_hugepages_2m, 3);
	unload(&tree, t);
}

Test(numa_topology, finds_the_node_of_a_pci_device_however_it_is_written)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:81:00.0"), 1);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "00000000:81:00.0"), 1);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "81:00.0"), 1);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:41:00.0"), 0);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:81:00.1"), -1);
	unload(&tree, t);
	t = load(&tree, "4-nodes");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:A1:00.0"), 2);
	unload(&tree, t);
}

Test(numa_topology, falls_back_on_the_cpus_of_a_pci_device)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "made-devices");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:21:00.0"), 0);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:22:00.0"), -1, "spans both");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:23:00.0"), 0, "node 7 is none");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:24:00.0"), -1, "no CPUs");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:0b:00.0"), 2, "no memory");
	unload(&tree, t);
	t = load(&tree, "2-nodes");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:00:03.0"), -1, "spans both");
	unload(&tree, t);
}

Test(numa_topology, refuses_a_text_that_is_no_pci_address)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	static const char *const odd[] = {
		"",	      "cpu", "../../x",	 "0000:81:00.0/../0000:81:00.0", "0000:81:00.0 ",
		"0000:81:00", "::.", "1:2:3:4.5"};
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
		cr_assert_eq(hoist__topology_pci_node(t, tree.root, odd[i]), -1, "%s", odd[i]);
	unload(&tree, t);
}

Test(numa_topology, finds_the_node_of_disks_and_partitions)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	cr_assert_eq(block_node(&tree, t, 259, 8), 0);
	cr_assert_eq(block_node(&tree, t, 259, 9), 1);
	cr_assert_eq(block_node(&tree, t, 259, 11), 1, "a partition");
	cr_assert_eq(block_node(&tree, t, 254, 1), -1, "a partition of a disk that says -1");
	cr_assert_eq(block_node(&tree, t, 7, 0), -1, "a loop device");
	cr_assert_eq(block_node(&tree, t, 0, 41), -1, "btrfs and overlay have no device");
	unload(&tree, t);
}

Test(numa_topology, looks_through_device_mapper_and_md)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	cr_assert_eq(block_node(&tree, t, 253, 0), 1, "dm on a partition");
	cr_assert_eq(block_node(&tree, t, 9, 0), 1, "md on one node");
	cr_assert_eq(block_node(&tree, t, 259, 14), 1, "a partition of it");
	cr_assert_eq(block_node(&tree, t, 253, 1), 1, "dm on md");
	cr_assert_eq(block_node(&tree, t, 9, 1), -1, "md across nodes");
	unload(&tree, t);
	t = load(&tree, "made-devices");
	cr_assert_eq(block_node(&tree, t, 253, 7), -1, "a broken link");
	cr_assert_eq(block_node(&tree, t, 253, 8), -1, "a cycle ends");
	unload(&tree, t);
}

Test(numa_topology, looks_through_nvme_multipath)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "2-nodes");
	cr_assert_eq(block_node(&tree, t, 259, 1), 1);
	cr_assert_eq(block_node(&tree, t, 259, 6), -1, "paths on two nodes");
	unload(&tree, t);
}

Test(numa_topology, takes_nodes_without_cpus_or_without_memory)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "4-nodes");
	cr_assert_eq(t->n_nodes, 4);
	cr_assert_eq(t->nodes[2].n_cpus, 2);
	cr_assert_eq(t->nodes[2].total_bytes, 0);
	cr_assert_eq(t->nodes[3].n_cpus, 0);
	cr_assert_eq(t->nodes[3].total_bytes, UINT64_C(223568) * 1024);
	cr_assert_eq(t->nodes[3].free_hugepages_2m, 8);
	cr_assert_eq(t->nodes[1].distances[3], 28);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:a1:00.0"), 2, "no memory");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:c1:00.0"), 3, "no CPUs");
	cr_assert_eq(block_node(&tree, t, 259, 0), 3);
	cr_assert_eq(block_node(&tree, t, 259, 1), 2);
	unload(&tree, t);
}

Test(numa_topology, reads_eight_nodes)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "8-nodes");
	static const uint64_t free_kib[] = {241140, 83480,  65356,  112424,
					    104780, 137132, 153092, 168052};
	cr_assert_eq(t->n_nodes, 8);
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(t->nodes[i].id, i);
		cr_assert_eq(t->nodes[i].n_cpus, 2);
		cr_assert_eq(t->nodes[i].cpus[0], 2 * i);
		cr_assert_eq(t->nodes[i].free_bytes, free_kib[i] * 1024);
		cr_assert_eq(t->nodes[i].free_hugepages_2m, (uint64_t)i);
		cr_assert_eq(t->nodes[i].distances[i], 10);
		cr_assert_eq(t->nodes[i].distances[i ^ 1], 12);
		cr_assert_eq(t->nodes[i].distances[(i + 4) % 8], 32);
	}
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:c1:00.0"), 5);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:41:00.0"), 0);
	unload(&tree, t);
}

Test(numa_topology, keeps_ids_with_gaps)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "gaps");
	cr_assert_eq(t->n_nodes, 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(t->nodes[i].id, 2 * i);
	cr_assert_null(hoist__topology_node(t, 1));
	cr_assert_null(hoist__topology_node(t, 3));
	cr_assert_eq(hoist__topology_node(t, 2)->cpus[0], 1);
	cr_assert_eq(hoist__topology_node(t, 2)->distances[2], 34, "to node 4");
	cr_assert_eq(hoist__topology_node(t, 4)->n_cpus, 0);
	cr_assert_eq(hoist__topology_node(t, 4)->distances[0], 14);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:a1:00.0"), 2);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:41:00.0"), 4);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:c1:00.0"), -1, "node 1 is off");
	cr_assert_eq(block_node(&tree, t, 259, 1), 2);
	cr_assert_eq(block_node(&tree, t, 259, 3), -1);
	unload(&tree, t);
}

Test(numa_topology, keeps_the_ids_of_gpu_memory)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "made-gpu-nodes");
	static const int ids[] = {0, 8, 252, 253, 254, 255};
	cr_assert_eq(t->n_nodes, 6);
	for (size_t i = 0; i < 6; i++)
		cr_assert_eq(t->nodes[i].id, ids[i]);
	cr_assert_eq(hoist__topology_node(t, 8)->cpus[0], 88);
	cr_assert_eq(hoist__topology_node(t, 255)->n_cpus, 0);
	cr_assert_eq(hoist__topology_node(t, 8)->distances[0], 40);
	cr_assert_null(hoist__topology_node(t, 1));
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0035:03:00.0"), 8);
	unload(&tree, t);
}

Test(numa_topology, reads_a_tree_without_nodes_as_one_node)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "no-nodes");
	cr_assert_eq(t->n_nodes, 1);
	cr_assert(t->synthetic);
	cr_assert_eq(t->nodes[0].id, 0);
	cr_assert_eq(t->nodes[0].n_cpus, 4);
	cr_assert_eq(t->nodes[0].cpus[3], 5);
	cr_assert_gt(t->nodes[0].total_bytes, 0);
	cr_assert_eq(t->nodes[0].free_hugepages_2m, 2);
	cr_assert_null(t->nodes[0].distances);
	cr_assert_eq(block_node(&tree, t, 254, 0), -1);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:00:01.0"), -1,
		     "its list has CPUs that are offline");
	unload(&tree, t);
}

Test(numa_topology, gives_the_one_node_to_devices_of_a_tree_without_nodes)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "made-no-nodes");
	cr_assert(t->synthetic);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:01:00.0"), 0);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:02:00.0"), 0);
	unload(&tree, t);
}

Test(numa_topology, reads_a_root_that_is_not_there_as_one_node)
{
	struct hoist__topology *t = NULL;
	cr_assert_eq(hoist__topology_load("/nonexistent", &t), 0);
	cr_assert_eq(t->n_nodes, 1);
	cr_assert(t->synthetic);
	cr_assert_geq(t->nodes[0].n_cpus, 1);
	cr_assert_eq(hoist__topology_pci_node(t, "/nonexistent", "0000:01:00.0"), -1);
	cr_assert_eq(hoist__topology_block_node(t, "/nonexistent", makedev(8, 0)), -1);
	hoist__topology_destroy(t);
	hoist__topology_destroy(NULL);
}

Test(numa_topology, reads_damaged_files_as_far_as_they_make_sense)
{
	struct tree tree;
	struct hoist__topology *t = load(&tree, "made-malformed");
	cr_assert_eq(t->n_nodes, 4, "only node0 to node3 are names of nodes");
	cr_assert_eq(t->nodes[0].n_cpus, 4, "0-3 comes before the damage");
	cr_assert_eq(t->nodes[0].total_bytes, 0);
	cr_assert_eq(t->nodes[0].free_bytes, 0);
	cr_assert_null(t->nodes[0].distances);
	cr_assert_eq(t->nodes[0].hugepages_2m, 0);
	cr_assert_eq(t->nodes[0].free_hugepages_2m, 0);
	cr_assert_eq(t->nodes[1].n_cpus, 0, "7-4 is no range");
	cr_assert_null(t->nodes[1].distances, "three distances for four nodes");
	cr_assert_eq(t->nodes[2].n_cpus, 1, "5,4 does not ascend");
	cr_assert_eq(t->nodes[3].n_cpus, 0, "no machine has so many");
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:01:00.0"), 0);
	cr_assert_eq(hoist__topology_pci_node(t, tree.root, "0000:02:00.0"), 0);
	cr_assert_eq(block_node(&tree, t, 8, 0), -1);
	unload(&tree, t);
}

/* The next line of a manifest that is no comment; false at its end. */
static bool next_entry(FILE *manifest, char *line, int bytes)
{
	while (fgets(line, bytes, manifest) != NULL)
		if (line[0] != '#')
			return true;
	return false;
}

/* A captured tree is what capture.sh sees in the tree that it unpacks to. */
static void check_capture(const char *name)
{
	struct tree tree;
	char path[PATH_MAX], command[3 * PATH_MAX], expected[16384], line[16384];
	const char *srcdir = getenv("srcdir") != NULL ? getenv("srcdir") : ".";
	cr_assert_eq(tree_unpack(&tree, name), 0);
	(void)snprintf(path, sizeof path, "%s/sysfs/%s.txt", srcdir, name);
	(void)snprintf(command, sizeof command, "sh '%s/sysfs/capture.sh' '%s'", srcdir, tree.root);
	FILE *manifest = fopen(path, "r");
	FILE *capture = popen(command, "r");
	cr_assert(manifest != NULL && capture != NULL);
	while (next_entry(manifest, expected, sizeof expected)) {
		cr_assert(next_entry(capture, line, sizeof line), "%s: no %s", name, expected);
		cr_assert_str_eq(line, expected);
	}
	cr_assert_not(next_entry(capture, line, sizeof line), "%s: %s", name, line);
	cr_assert_eq(pclose(capture), 0);
	fclose(manifest);
	tree_remove(&tree);
}

Test(numa_topology, captured_trees_match_the_script)
{
	static const char *const names[] = {"2-nodes", "gaps", "no-nodes"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		check_capture(names[i]);
}

Test(numa_topology, reads_this_machine)
{
	struct hoist__topology *t = NULL;
	struct stat info;
	cr_assert_eq(hoist__topology_load("/sys", &t), 0);
	cr_assert_geq(t->n_nodes, 1);
	cr_assert_eq(stat("/", &info), 0);
	int node = hoist__topology_block_node(t, "/sys", info.st_dev);
	cr_assert(node == -1 || hoist__topology_node(t, node) != NULL);
	hoist__topology_destroy(t);
}
