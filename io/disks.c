/* SPDX-License-Identifier: MIT */
/* Follows a file's device to its disk, through sysfs.
 * The contract is in io/disks.h. */
#include "config.h"

#include "io/disks.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"

/* Volumes may lie on volumes, this deep. */
#define MAX_LEVELS 8

/* --- one device --- */

/* Reads "MAJOR:MINOR" from @path.  False: @path cannot be read, or holds something else. */
static bool read_number(const char *path, uint64_t *ret)
{
	FILE *file = fopen(path, "re");
	unsigned numbers[2];
	if (file == NULL)
		return false;
	bool good = fscanf(file, "%u:%u", &numbers[0], &numbers[1]) == 2;
	(void)fclose(file);
	if (good)
		*ret = makedev(numbers[0], numbers[1]);
	return good;
}

/* The name of the only entry of the folder @path; false: there are several, or none. */
static bool only_entry(const char *path, char ret[static NAME_MAX + 1])
{
	DIR *folder = opendir(path);
	unsigned n = 0;
	if (folder == NULL)
		return false;
	for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
		if (entry->d_name[0] != '.' && n++ == 0)
			(void)snprintf(ret, NAME_MAX + 1, "%s", entry->d_name);
	(void)closedir(folder);
	return n == 1;
}

/* The device below @dev: the disk that a partition is part of, or the only device that a volume
 * lies on.  False: there is none, or there are several. */
static bool below(const char *sys, uint64_t dev, uint64_t *ret)
{
	char at[PATH_MAX];
	char path[PATH_MAX + NAME_MAX + 32];
	char name[NAME_MAX + 1];
	(void)snprintf(at, sizeof at, "%s/dev/block/%u:%u", sys, major(dev), minor(dev));
	(void)snprintf(path, sizeof path, "%s/partition", at);
	if (access(path, F_OK) == 0) {
		(void)snprintf(path, sizeof path, "%s/../dev", at);
		return read_number(path, ret);
	}
	(void)snprintf(path, sizeof path, "%s/slaves", at);
	if (!only_entry(path, name))
		return false;
	(void)snprintf(path, sizeof path, "%s/slaves/%s/dev", at, name);
	return read_number(path, ret);
}

uint64_t hoist__disk_of_device(const char *sys, uint64_t dev)
{
	uint64_t next = dev;
	for (int i = 0; i < MAX_LEVELS && major(dev) != 0 && below(sys, dev, &next); i++)
		dev = next;
	return dev;
}

/* --- files --- */

/* The node of a block device that is read itself lies in /dev, whose st_dev says nothing. */
static uint64_t device_of(const struct hoist__file *file)
{
	struct stat st;
	bool block = file->fs != NULL && file->fs->block && fstat(file->fd, &st) == 0;
	return block ? st.st_rdev : file->dev;
}

static const struct hoist__disks_row *find_row(const struct hoist__disks *disks, uint64_t dev)
{
	for (unsigned i = 0; i < disks->n_rows; i++)
		if (disks->rows[i].dev == dev)
			return &disks->rows[i];
	return NULL;
}

/* Rows of one disk get one number. */
static void number_rows(struct hoist__disks *disks)
{
	for (unsigned i = 0; i < disks->n_rows; i++) {
		struct hoist__disks_row *row = &disks->rows[i];
		row->disk = disks->n_rows > 1 ? hoist__disk_of_device("/sys", row->dev) : row->dev;
		unsigned k = 0;
		while (k < i && disks->rows[k].disk != row->disk)
			k++;
		row->index = k < i			   ? disks->rows[k].index
			     : disks->n < HOIST__MAX_DISKS ? disks->n++
							   : disks->n - 1;
		HOIST__ASSERT(row->index < disks->n && disks->n <= HOIST__MAX_DISKS);
	}
}

void hoist__disks_find(const struct hoist__file *const *files, unsigned n_files,
		       struct hoist__disks *ret)
{
	ret->n = 0;
	ret->n_rows = 0;
	for (unsigned i = 0; i < n_files; i++) {
		uint64_t dev = device_of(files[i]);
		if (find_row(ret, dev) == NULL && ret->n_rows < HOIST__ARRAY_SIZE(ret->rows))
			ret->rows[ret->n_rows++].dev = dev;
	}
	number_rows(ret);
	if (ret->n == 0)
		ret->n = 1;
}

unsigned hoist__disk_of(const struct hoist__disks *disks, const struct hoist__file *file)
{
	if (disks->n == 1)
		return 0;
	const struct hoist__disks_row *row = find_row(disks, device_of(file));
	HOIST__ASSERT(row == NULL || row->index < disks->n);
	return row != NULL ? row->index : disks->n - 1;
}
