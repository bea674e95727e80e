/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-folder.c - the folder of the holder's socket, and the locks in it.
 * The contract is in lib/cache/cache.h.
 *
 * The folder is the user's alone: only this user put files there.  The folder is opened once and
 * used by its descriptor, so that no process can put another in its place.  The first lock makes
 * the folder, and the last lock that is given back removes it. */
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

#define LOCK_TRIES 100 /* to take a lock whose file or folder another process removes just then */
#define REMEDY "set XDG_RUNTIME_DIR to a folder of your own"

/* Returns: 1; 0; an error of the system that may not occur the next time: choosing another folder
 * then would make a second cache. */
static int is_own_folder(const char *path)
{
	struct stat status;
	if (stat(path, &status) == 0)
		return S_ISDIR(status.st_mode) && status.st_uid == geteuid();
	if (errno == ENOMEM || errno == EIO || errno == EINTR)
		return hoist__fail_errno(-errno, "looking for the cache's folder in %s", path);
	return 0;
}

/* Chooses the path of the folder.  $XDG_RUNTIME_DIR of another user (sudo keeps it) is passed
 * over. */
static int choose(struct hoist__cache_place *ret)
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
		n = snprintf(ret->path, sizeof ret->path, "%s/hoist", given);
	else
		n = snprintf(ret->path, sizeof ret->path, "/tmp/hoist-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= sizeof ret->path)
		return hoist__fail(-ENAMETOOLONG, "the cache's folder, $XDG_RUNTIME_DIR/hoist, has "
						  "too long a path");
	return 0;
}

/* --- opening the folder --- */

/* Sets the text for @err of making or opening @path, with the reason as far as it can be found. */
static int fail_folder(int err, const char *doing, const char *path)
{
	struct stat status;
	bool there = lstat(path, &status) == 0;
	if (there && !S_ISDIR(status.st_mode))
		return hoist__fail(
			-EPERM,
			"the cache's folder %s is a link, or no folder; remove what lies "
			"there, or " REMEDY,
			path);
	if (there && status.st_uid != geteuid())
		return hoist__fail(-EPERM,
				   "the cache's folder %s belongs to user %u, not to %u; " REMEDY,
				   path, (unsigned)status.st_uid, (unsigned)geteuid());
	if (there && err == -EACCES)
		return hoist__fail(-EPERM,
				   "the cache's folder %s is closed to its own user (mode %04o); "
				   "make the mode 0700, or remove the folder",
				   path, (unsigned)status.st_mode & 07777);
	return hoist__fail(err, "%s the cache's folder %s: %s; " REMEDY, doing, path,
			   strerror(-err));
}

static int check(int fd, const char *path)
{
	struct stat status;
	if (fstat(fd, &status) < 0)
		return hoist__fail_errno(-errno, "the cache's folder %s", path);
	if (status.st_uid != geteuid())
		return fail_folder(-EPERM, "opening", path);
	if ((status.st_mode & 077) != 0)
		return hoist__fail(-EPERM,
				   "the cache's folder %s is open to others (mode %04o); make the "
				   "mode 0700, or remove the folder",
				   path, (unsigned)status.st_mode & 07777);
	return 0;
}

static int open_folder(const char *path, int *ret)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_folder(-errno, "opening", path);
	int err = check(fd, path);
	if (err < 0)
		(void)close(fd);
	else
		*ret = fd;
	return err;
}

int hoist__cache_folder(int *ret)
{
	struct hoist__cache_place place;
	int err = choose(&place);
	return err < 0 ? err : open_folder(place.path, ret);
}

static int make_folder(struct hoist__cache_place *place, int *ret)
{
	int err = choose(place);
	if (err < 0)
		return err;
	if (mkdir(place->path, 0700) < 0 && errno != EEXIST)
		return fail_folder(-errno, "making", place->path);
	return open_folder(place->path, ret);
}

/* rmdir(2) refuses if anything is in the folder.  A process that has opened the folder, and makes a
 * file in it only now, gets the error that the folder is gone, and makes another. */
static void remove_folder(int folder, const char *path)
{
	struct stat open;
	struct stat present;
	if (fstat(folder, &open) == 0 && lstat(path, &present) == 0 &&
	    open.st_ino == present.st_ino && open.st_dev == present.st_dev)
		(void)rmdir(path);
}

/* --- locks --- */

/* FNV-1a.  Two paths with the same number only wait for each other. */
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

/* True if @fd is still the file called @name: before it was locked, the file may have been removed
 * and another made. */
static bool is_still_there(int folder, const char *name, int fd)
{
	struct stat locked;
	struct stat present;
	return fstat(fd, &locked) == 0 &&
	       fstatat(folder, name, &present, AT_SYMLINK_NOFOLLOW) == 0 &&
	       locked.st_ino == present.st_ino && locked.st_dev == present.st_dev;
}

/* Returns: 0; -ENOENT if the folder or the lock was removed meanwhile; -EAGAIN, without a text; the
 * system's error. */
static int try_lock(const char *name, struct hoist__cache_lock *ret)
{
	struct hoist__cache_lock lock = {.name = name};
	int err = make_folder(&lock.place, &lock.folder);
	if (err < 0)
		return err;
	lock.fd = openat(lock.folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock.fd < 0)
		err = hoist__fail_errno(-errno, "making the lock %s in the cache's folder %s", name,
					lock.place.path);
	if (err == 0)
		err = lock_file(lock.fd);
	if (err == 0 && !is_still_there(lock.folder, name, lock.fd))
		err = hoist__fail(-ENOENT, "the lock %s goes from the cache's folder %s each time",
				  name, lock.place.path);
	if (err == 0)
		*ret = lock;
	else
		hoist__cache_lock_close(&lock);
	return err;
}

int hoist__cache_lock(const char *name, struct hoist__cache_lock *ret)
{
	int err = -ENOENT;
	for (int tries = 0; tries < LOCK_TRIES && err == -ENOENT; tries++)
		err = try_lock(name, ret);
	return err;
}

void hoist__cache_lock_close(struct hoist__cache_lock *lock)
{
	if (lock->fd >= 0)
		(void)close(lock->fd);
	(void)close(lock->folder);
}

/* The name goes before the lock: a process that waited for the lock then makes a new file. */
void hoist__cache_unlock(struct hoist__cache_lock *lock)
{
	if (is_still_there(lock->folder, lock->name, lock->fd))
		(void)unlinkat(lock->folder, lock->name, 0);
	remove_folder(lock->folder, lock->place.path);
	hoist__cache_lock_close(lock);
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
