/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-path.c - examines the file system at a path: direct reads and the page cache.
 * The contract is in lib/doctor/doctor.h. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hoist/doctor.h"
#include "io/file.h"
#include "lib/doctor/doctor.h"

#define TRIAL_BYTES ((size_t)64 << 10)

/* --- a file to try reads on --- */

static bool try_file(int folder, const char *name, const char *display, struct hoist__file **ret)
{
	struct stat info;
	return fstatat(folder, name, &info, 0) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
	       hoist__file_open(folder, name, display, 0, ret) == 0;
}

/* Finds the largest file of the folder that can be read; *ret stays NULL if there is none. */
static void find_file(int folder, struct hoist__file **ret)
{
	int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = copy >= 0 ? fdopendir(copy) : NULL;
	if (listing == NULL) {
		if (copy >= 0)
			(void)close(copy);
		return;
	}
	const struct dirent *entry;
	while ((entry = readdir(listing)) != NULL) {
		struct stat info;
		struct hoist__file *file;
		if (*ret != NULL && (fstatat(folder, entry->d_name, &info, 0) != 0 ||
				     (uint64_t)info.st_size <= (*ret)->bytes))
			continue;
		if (!try_file(folder, entry->d_name, NULL, &file))
			continue;
		hoist__file_close(*ret);
		*ret = file;
	}
	(void)closedir(listing);
}

/* Makes a nameless file of a few blocks, which is gone when it is closed. */
static void make_file(int folder, const char *path, struct hoist__file **ret)
{
	static const char zeros[TRIAL_BYTES];
	char name[32];
	int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	(void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	if (write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros)
		(void)try_file(AT_FDCWD, name, path, ret);
	(void)close(fd);
}

/* *ret is NULL if the folder has no file to read and none can be made. */
static int open_trial(const char *path, struct hoist__file **ret)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret = NULL;
	if (folder < 0) {
		if (errno == ENOTDIR)
			return hoist__file_open(AT_FDCWD, path, path, 0, ret);
		return hoist__fail_errno(-errno, "opening %s", path);
	}
	find_file(folder, ret);
	if (*ret == NULL)
		make_file(folder, path, ret);
	(void)close(folder);
	return 0;
}

/* --- the checks --- */

/* Cuts the parts out of one line of mountinfo, if it begins with @id: "ID parent major:minor root
 * FOLDER options... - TYPE SOURCE ...". */
static bool take_mount(char *line, unsigned long long id, const char **type, const char **source,
		       const char **folder)
{
	char *rest = NULL;
	if (strtoull(line, &rest, 10) != id)
		return false;
	char *tail = strstr(rest, " - ");
	if (tail == NULL)
		return false;
	*tail = '\0';
	char *save = NULL;
	*type = strtok_r(tail + 3, " \n", &save);
	*source = strtok_r(NULL, " \n", &save);
	*folder = NULL;
	char *field = strtok_r(rest, " ", &save); /* parent */
	for (int i = 0; i < 3 && field != NULL; i++)
		field = strtok_r(NULL, " ", &save);
	*folder = field;
	return *type != NULL && *source != NULL && *folder != NULL;
}

/* The mount is found by its id: a path may cross symbolic links and mounts over mounts. */
static int check_file_system(hoist_doctor *doctor, const char *path)
{
	static const char name[] = "file system";
	struct statx info = {0};
	FILE *mounts = NULL;
	char *line = NULL;
	size_t room = 0;
	const char *type = NULL;
	const char *source = NULL;
	const char *folder = NULL;
	if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &info) == 0 && (info.stx_mask & STATX_MNT_ID))
		mounts = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	while (mounts != NULL && !found && getline(&line, &room, mounts) > 0)
		found = take_mount(line, info.stx_mnt_id, &type, &source, &folder);
	int err = found ? hoist__doctor_yes(doctor, name, "%s, %s mounted at %s", type, source,
					    folder)
			: hoist__doctor_no(
				  doctor, name,
				  "mount /proc, allow statx (Linux 5.8 or newer); reading works "
				  "without",
				  "the mount of %s is not known", path);
	free(line);
	if (mounts != NULL)
		(void)fclose(mounts);
	return err;
}

static int check_direct(hoist_doctor *doctor, const char *path, const struct hoist__file *file)
{
	static const char name[] = "direct reads";
	if (file == NULL)
		return hoist__doctor_no(
			doctor, name, "name a file, or a folder with a file that can be read",
			"not tried: %s has no file that can be read, and takes none", path);
	if (file->in_memory)
		return hoist__doctor_yes(doctor, name, "none are needed: files at %s are in memory",
					 path);
	if (file->direct_fd < 0)
		return hoist__doctor_no(
			doctor, name,
			strstr(file->direct_note, "/proc") != NULL
				? "mount /proc; until then reads go through the page cache"
				: "keep the files on a local ext4, xfs or btrfs; until then reads "
				  "go through the page cache",
			"%s: %s", file->path, file->direct_note);
	return hoist__doctor_yes(doctor, name,
				 "O_DIRECT, addresses at multiples of %u, offsets of %u",
				 file->memory_align, file->offset_align);
}

static int check_page_cache(hoist_doctor *doctor, const struct hoist__file *file)
{
	static const char name[] = "page cache";
	uint64_t resident = 0;
	/* check_direct() has reported already that there is no file. */
	if (file == NULL)
		return 0;
	int err = hoist__file_resident(file, 0, file->bytes, &resident);
	int uncounted = hoist__file_counts_resident(file);
	if (err == 0 && uncounted < 0 && !file->in_memory)
		return hoist__doctor_yes(
			doctor, name,
			"samples say how much of a file is in memory; cachestat, which "
			"counts, is refused: %s",
			strerrorname_np(-uncounted));
	if (err == 0)
		return hoist__doctor_yes(doctor, name,
					 "cachestat says which bytes of a file are in memory");
	return hoist__doctor_no(doctor, name,
				"use Linux 6.5 or newer, and a seccomp profile that allows "
				"cachestat; or choose the way with --io",
				"the kernel does not say which bytes of a file are in memory (%s)",
				strerror(-err));
}

int hoist__doctor_path(hoist_doctor *doctor, const char *path)
{
	struct hoist__file *file = NULL;
	struct stat info;
	int err = open_trial(path, &file);
	if (err < 0)
		return err;
	doctor->path = path;
	if (stat(path, &info) == 0)
		doctor->path_dev = info.st_dev;
	err = check_file_system(doctor, path);
	if (err == 0)
		err = check_direct(doctor, path, file);
	if (err == 0)
		err = check_page_cache(doctor, file);
	if (err == 0)
		hoist__doctor_probe(doctor, path, file);
	hoist__file_close(file);
	return err;
}
