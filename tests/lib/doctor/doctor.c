/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-numa.c on machines this test does not run on. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
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
