/* SPDX-License-Identifier: MIT */
/* The disk that a device number means, in a /sys made here; and the files that share a disk. */
#include "config.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/disks.h"

static char sys[512];

/* Folders of "sys/PATH", up to its last slash. */
static void make_folders(char *path)
{
	for (char *at = strchr(path + strlen(sys) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
}

static void put(const char *path, const char *content)
{
	char full[1024];
	(void)snprintf(full, sizeof full, "%s/%s", sys, path);
	make_folders(full);
	if (strncmp(content, "-> ", 3) == 0) {
		cr_assert_eq(symlink(content + 3, full), 0, "%s", full);
		return;
	}
	FILE *file = fopen(full, "w");
	cr_assert(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void remove_sys(void)
{
	(void)nftw(sys, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Two disks with partitions; a volume over a partition, one over that, a stripe over both disks, a
 * loop device, and one whose description is broken. */
static void make_sys(void)
{
	static const struct {
		const char *name;
		const char *number;
		const char *disk; /* of a partition */
		const char *slaves[2];
	} devices[] = {
		{"sda", "8:0", NULL, {NULL}},
		{"sda1", "8:1", "sda", {NULL}},
		{"sda2", "8:2", "sda", {NULL}},
		{"nvme0n1", "259:0", NULL, {NULL}},
		{"nvme0n1p1", "259:1", "nvme0n1", {NULL}},
		{"dm-0", "253:0", NULL, {"sda2"}},
		{"dm-1", "253:1", NULL, {"dm-0"}},
		{"md0", "9:0", NULL, {"sda1", "nvme0n1p1"}},
		{"loop0", "7:0", NULL, {NULL}},
	};
	const char *base = getenv("TMPDIR");
	(void)snprintf(sys, sizeof sys, "%s/disks.XXXXXX", base != NULL ? base : "/tmp");
	cr_assert_not_null(mkdtemp(sys));
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		const char *disk = devices[i].disk;
		char folder[256];
		char path[512];
		char target[512];
		(void)snprintf(folder, sizeof folder, "devices/%s%s%s", disk != NULL ? disk : "",
			       disk != NULL ? "/" : "", devices[i].name);
		(void)snprintf(path, sizeof path, "dev/block/%s", devices[i].number);
		(void)snprintf(target, sizeof target, "-> ../../%s", folder);
		put(path, target);
		(void)snprintf(path, sizeof path, "%s/dev", folder);
		(void)snprintf(target, sizeof target, "%s\n", devices[i].number);
		put(path, target);
		(void)snprintf(path, sizeof path, "%s/partition", folder);
		if (disk != NULL)
			put(path, "1\n");
		for (unsigned s = 0; s < 2 && devices[i].slaves[s] != NULL; s++) {
			const char *slave = devices[i].slaves[s];
			const char *of = strncmp(slave, "sda", 3) == 0	  ? "sda/"
					 : strncmp(slave, "nvme", 4) == 0 ? "nvme0n1/"
									  : "";
			(void)snprintf(path, sizeof path, "%s/slaves/%s", folder, slave);
			(void)snprintf(target, sizeof target, "-> ../../%s%s", of, slave);
			put(path, target);
		}
	}
	put("devices/odd/partition", "1\n");
	put("devices/dev", "not a number\n");
	put("dev/block/8:16", "-> ../../devices/odd");
}

Test(io_disks, of_a_device, .init = make_sys, .fini = remove_sys)
{
	static const struct {
		const char *what;
		unsigned device[2];
		unsigned disk[2];
	} cases[] = {
		{"a disk", {8, 0}, {8, 0}},
		{"a partition", {8, 1}, {8, 0}},
		{"a partition of an NVMe disk", {259, 1}, {259, 0}},
		{"a volume over one partition", {253, 0}, {8, 0}},
		{"a volume over a volume", {253, 1}, {8, 0}},
		{"a stripe", {9, 0}, {9, 0}},
		{"a loop device", {7, 0}, {7, 0}},
		{"a network's file system", {0, 57}, {0, 57}},
		{"a number that /sys does not know", {8, 32}, {8, 32}},
		{"a partition of a disk that cannot be read", {8, 16}, {8, 16}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t disk =
			hoist__disk_of_device(sys, makedev(cases[i].device[0], cases[i].device[1]));
		cr_expect_eq(disk, makedev(cases[i].disk[0], cases[i].disk[1]), "%s: %u:%u",
			     cases[i].what, major(disk), minor(disk));
	}
	cr_expect_eq(hoist__disk_of_device("/nowhere", makedev(8, 1)), makedev(8, 1));
}

/* Numbers of no block device: each is a disk. */
Test(io_disks, of_files)
{
	enum { N = 5 * HOIST__MAX_DISKS };
	struct hoist__file files[N];
	const struct hoist__file *list[N];
	struct hoist__disks disks;
	hoist__disks_find(NULL, 0, &disks);
	cr_expect_eq(disks.n, 1);
	for (unsigned i = 0; i < N; i++) {
		files[i] = (struct hoist__file){.fd = -1, .dev = makedev(0, 1 + i / 2)};
		list[i] = &files[i];
	}
	cr_expect_eq(hoist__disk_of(&disks, &files[3]), 0);
	hoist__disks_find(list, 2, &disks);
	cr_expect_eq(disks.n, 1, "one st_dev");
	hoist__disks_find(list, 6, &disks);
	cr_expect_eq(disks.n, 3);
	for (unsigned i = 0; i < 6; i++)
		cr_expect_eq(hoist__disk_of(&disks, &files[i]), i / 2, "in the order of the files");
	cr_expect_eq(hoist__disk_of(&disks, &files[7]), 2, "unknown: the last");
	hoist__disks_find(list, N, &disks);
	cr_expect_eq(disks.n, HOIST__MAX_DISKS);
	for (unsigned i = 0; i < N; i++) {
		unsigned want = i / 2 < HOIST__MAX_DISKS ? i / 2 : HOIST__MAX_DISKS - 1;
		cr_expect_eq(hoist__disk_of(&disks, &files[i]), want);
	}
}
