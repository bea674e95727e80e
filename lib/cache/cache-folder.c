/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-folder.c - the folder that the holder's socket and the locks are in.
 *
 * It is the user's alone: what lies there was put there by him.  It is opened once and used by its
 * descriptor, so that nobody can put another in its place. */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "lib/cache/cache.h"

struct place {
	char text[PATH_MAX];
};

/* 1, 0; or what the system says that may say something else the next time: then another folder
 * would be another cache. */
static int is_own_folder(const char *path)
{
	struct stat status;
	if (stat(path, &status) == 0)
		return S_ISDIR(status.st_mode) && status.st_uid == geteuid();
	if (errno == ENOMEM || errno == EIO || errno == EINTR)
		return hoist__fail_errno(-errno, "looking for the cache's folder in %s", path);
	return 0;
}

/* Where it is to be.  $XDG_RUNTIME_DIR of another user (sudo keeps it) is passed over. */
static int choose(struct place *ret)
{
	const char *given = secure_getenv("XDG_RUNTIME_DIR");
	char usual[64];
	int n;
	(void)snprintf(usual, sizeof usual, "/run/user/%u", (unsigned)geteuid());
	int own = given != NULL && given[0] == '/' ? is_own_folder(given) : 0;
	if (own == 0) {
		given = usual;
		own = is_own_folder(usual);
	}
	if (own < 0)
		return own;
	if (own > 0)
		n = snprintf(ret->text, sizeof ret->text, "%s/hoist", given);
	else
		n = snprintf(ret->text, sizeof ret->text, "/tmp/hoist-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= sizeof ret->text)
		return hoist__fail(-ENAMETOOLONG, "the cache's folder, $XDG_RUNTIME_DIR/hoist, has "
						  "too long a path");
	return 0;
}

static int check(int fd, const char *path)
{
	struct stat status;
	if (fstat(fd, &status) < 0)
		return hoist__fail_errno(-errno, "the cache's folder %s", path);
	if (status.st_uid != geteuid())
		return hoist__fail(-EPERM,
				   "the cache's folder %s belongs to user %u, not to %u; set "
				   "XDG_RUNTIME_DIR to a folder of your own",
				   path, (unsigned)status.st_uid, (unsigned)geteuid());
	if ((status.st_mode & 077) != 0)
		return hoist__fail(-EPERM,
				   "the cache's folder %s is open to others (mode %04o); make it "
				   "0700, or remove it",
				   path, (unsigned)status.st_mode & 07777);
	return 0;
}

int hoist__cache_folder(bool create, int *ret)
{
	struct place place;
	int err = choose(&place);
	if (err < 0)
		return err;
	if (create && mkdir(place.text, 0700) < 0 && errno != EEXIST)
		return hoist__fail_errno(-errno, "making the cache's folder %s", place.text);
	int fd = open(place.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return hoist__fail(-EPERM, "the cache's folder %s is a link, or no folder",
				   place.text);
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening the cache's folder %s", place.text);
	err = check(fd, place.text);
	if (err < 0)
		(void)close(fd);
	else
		*ret = fd;
	return err;
}

/* --- locks --- */

/* FNV-1a: two paths with one number wait for each other, no more. */
struct hoist__lock_name hoist__cache_lock_name(const char *path)
{
	struct hoist__lock_name name;
	uint64_t hash = UINT64_C(14695981039346656037);
	for (; *path != '\0'; path++)
		hash = (hash ^ (unsigned char)*path) * UINT64_C(1099511628211);
	(void)snprintf(name.text, sizeof name.text, "add-%016" PRIx64, hash);
	return name;
}

static int lock_file(int fd)
{
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK)
			return -EAGAIN;
		if (errno != EINTR)
			return hoist__fail_errno(-errno, "locking a file of the cache's folder");
	}
	return 0;
}

/* The file that was locked may have been removed, and another made, before it was. */
static bool is_still_there(int folder, const char *name, int fd)
{
	struct stat locked;
	struct stat present;
	return fstat(fd, &locked) == 0 &&
	       fstatat(folder, name, &present, AT_SYMLINK_NOFOLLOW) == 0 &&
	       locked.st_ino == present.st_ino && locked.st_dev == present.st_dev;
}

int hoist__cache_lock(int folder, const char *name, int *ret)
{
	for (;;) {
		int fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return hoist__fail_errno(-errno, "making the lock %s in the cache's folder",
						 name);
		int err = lock_file(fd);
		if (err == 0 && is_still_there(folder, name, fd)) {
			*ret = fd;
			return 0;
		}
		(void)close(fd);
		if (err < 0)
			return err;
	}
}

/* --- paths --- */

int hoist__cache_path(const char *path, char **ret)
{
	if (path == NULL)
		return hoist__fail(-EINVAL, "the path of a checkpoint is NULL");
	char *resolved = realpath(path, NULL);
	if (resolved == NULL && errno == ENOMEM)
		return hoist__fail_nomem("a path", strlen(path));
	if (resolved == NULL)
		return hoist__fail_errno(-errno, "%s", path);
	if (strlen(resolved) >= HOIST__CACHE_PATH_BYTES) {
		free(resolved);
		return hoist__fail(-ENAMETOOLONG, "%s: the path is longer than %d bytes", path,
				   HOIST__CACHE_PATH_BYTES - 1);
	}
	*ret = resolved;
	return 0;
}
