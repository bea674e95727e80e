/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-numa.c and doctor-network.c on machines this test does not run on. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "hoist/doctor.h"
#include "lib/doctor/doctor.h"
#include "tests/support/lib-unit.h"
#include "tests/support/numa-tree.h"

/* Runs the doctor on @tree's machine for a path on disk @disk, and copies the detail of the
 * check @name to @detail. */
static void examine(const char *tree_name, dev_t disk, const char *name, char detail[1024])
{
	struct tree tree;
	hoist_doctor *doctor = calloc(1, sizeof *doctor);
	cr_assert_not_null(doctor);
	cr_assert_eq(tree_unpack(&tree, tree_name), 0, "cannot unpack sysfs/%s.txt", tree_name);
	doctor->path = "/models";
	doctor->path_dev = disk;
	OK(hoist__doctor_numa(doctor, tree.root));
	detail[0] = '\0';
	for (size_t i = 0; i < doctor->n_checks; i++)
		if (strcmp(doctor->checks[i].name, name) == 0)
			(void)snprintf(detail, 1024, "%s", doctor->checks[i].detail);
	hoist_doctor_destroy(doctor);
	tree_remove(&tree);
}

Test(doctor, gives_its_advice_as_far_as_the_caller_knows_it)
{
	hoist_doctor *doctor = NULL;
	hoist_advice advice = {.size = sizeof advice};
	OK(hoist_doctor_create("/proc/self/fdinfo", &doctor));
	OK(hoist_doctor_advice(doctor, &advice));
	cr_expect_str_eq(advice.text, "");
	cr_expect_not_null(strstr(advice.skipped, "/proc/self/fdinfo has no file"), "%s",
			   advice.skipped);
	cr_expect_eq(advice.io, HOIST_IO_AUTO);
	cr_expect_eq(advice.chunk_bytes, 0);
	cr_expect_eq(advice.bytes, 0);
	advice = (hoist_advice){.size = offsetof(hoist_advice, io), .depth = 7};
	OK(hoist_doctor_advice(doctor, &advice));
	cr_expect_eq(advice.depth, 7, "beyond the size that was given");
	for (size_t size = 0; size <= sizeof advice + 1; size += sizeof advice + 1) {
		advice.size = size;
		cr_expect_eq(hoist_doctor_advice(doctor, &advice), -EINVAL);
	}
	hoist_doctor_destroy(doctor);
}

Test(doctor, says_on_which_node_the_disk_is)
{
	char detail[1024];
	examine("2-nodes", makedev(259, 8), "numa", detail);
	cr_expect_not_null(strstr(detail, "; the disk of /models is on node 0"), "%s", detail);
	cr_expect_not_null(strstr(detail, "node 1: 4 CPUs"), "%s", detail);
	examine("2-nodes", makedev(253, 0), "numa", detail);
	cr_expect_not_null(strstr(detail, "; the disk of /models is on node 1"), "%s", detail);
}

Test(doctor, says_nothing_of_a_disk_whose_node_is_unknown)
{
	char detail[1024];
	static const unsigned disks[][2] = {{254, 0}, {0, 41}, {0, 0}, {9, 1}};
	for (size_t i = 0; i < sizeof disks / sizeof disks[0]; i++) {
		examine("2-nodes", makedev(disks[i][0], disks[i][1]), "numa", detail);
		cr_expect_not_null(strstr(detail, "node 1"), "%s", detail);
		cr_expect_null(strstr(detail, "disk"), "%s", detail);
	}
	examine("1-node", makedev(0, 41), "numa", detail);
	cr_expect_not_null(strstr(detail, "; nothing to place"), "%s", detail);
	examine("no-nodes", makedev(0, 41), "numa", detail);
	cr_expect_str_eq(detail, "one node (the kernel lists none)");
}

Test(doctor, counts_huge_pages_of_all_nodes)
{
	char detail[1024];
	examine("2-nodes", 0, "huge page pool", detail);
	cr_expect_str_eq(detail, "7 of 12 pages of 2 MiB are free");
	examine("gaps", 0, "huge page pool", detail);
	cr_expect_str_eq(detail, "empty");
}

/* --- RDMA --- */

enum { DEVICE = 1, NODE = 2, MODULE = 4, TRANSPORT = 8, LOCKS = 16 };

/* Makes a file, and its folders, beneath @root. */
static void put(const char *root, const char *name)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
		*at = '\0';
		cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	}
	FILE *file = fopen(path, "w");
	cr_assert_not_null(file);
	(void)fclose(file);
}

Test(doctor, says_what_rdma_lacks)
{
	static const struct {
		unsigned has;
		bool ok;
		const char *detail, *remedy;
	} cases[] = {
		{0, true, "no RDMA device", ""},
		{MODULE | TRANSPORT, true, "no RDMA device", ""},
		{DEVICE | MODULE | TRANSPORT | LOCKS, false, "not in /dev/infiniband", "--device"},
		{DEVICE | NODE | LOCKS, false, "no module libuct_ib", "libucx0"},
		{DEVICE | NODE | MODULE | LOCKS, false, "takes none of", "UCX_NET_DEVICES"},
		{DEVICE | NODE | MODULE | TRANSPORT, false, "cannot be locked", "memlock"},
		{DEVICE | NODE | MODULE | TRANSPORT | LOCKS, true, "UCX uses mlx5_0", ""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct hoist__fabric_facts facts = {.rdma = (cases[i].has & TRANSPORT) != 0};
		hoist_doctor *doctor = calloc(1, sizeof *doctor);
		char root[] = "/tmp/hoist-rdma-XXXXXX";
		char command[64];
		cr_assert_not_null(doctor);
		cr_assert_not_null(mkdtemp(root));
		if ((cases[i].has & DEVICE) != 0)
			put(root, "sys/class/infiniband/mlx5_0");
		if ((cases[i].has & NODE) != 0)
			put(root, "dev/infiniband/uverbs0");
		if ((cases[i].has & MODULE) != 0)
			put(root, "ucx/libuct_ib.so.0");
		(void)snprintf(facts.library, sizeof facts.library, "%s/libucp.so.0", root);
		OK(hoist__doctor_rdma(doctor, &facts, root, (cases[i].has & LOCKS) != 0));
		const struct hoist__check *check = &doctor->checks[0];
		cr_expect_eq(doctor->n_checks, 1);
		cr_expect(check->ok == cases[i].ok && strstr(check->detail, cases[i].detail) &&
				  strstr(check->remedy, cases[i].remedy) &&
				  (check->remedy[0] == '\0') == check->ok,
			  "case %zu: %s; %s", i, check->detail, check->remedy);
		hoist_doctor_destroy(doctor);
		(void)snprintf(command, sizeof command, "rm -rf %s", root);
		cr_expect_eq(system(command), 0);
	}
}
