/* SPDX-License-Identifier: MIT */
/* Opens, identifies and reads one file.
 * The contract is in io/file.h. */
#include "config.h"

#include "io/file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/again.h"
#include "io/direct.h"
#include "io/proc-path.h"
#include "io/rescue.h"
#include "io/snapshot.h"

/* O_NONBLOCK: a FIFO must not hang the open. identify() clears the flag once the file is known to
 * be none. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* Linux 6.14 */
#endif

/* --- opening beneath a folder --- */

static int check_beneath(int dir_fd, int fd)
{
	char folder[4096], file[4096];
	int err = hoist__proc_path(dir_fd, folder, sizeof folder);
	if (err == 0)
		err = hoist__proc_path(fd, file, sizeof file);
	if (err != 0)
		return err;
	size_t n = strlen(folder);
	bool root = n == 1;
	bool beneath = strncmp(folder, file, n) == 0 && (root || file[n] == '/');
	return beneath ? 0 : -EXDEV;
}

/* Opens the file that @path leads to, links followed, if that file lies beneath @dir_fd.  The file
 * is found with O_PATH first, since opening a device can have an effect, and exactly the found file
 * is opened. -ENOSYS: the file's place cannot be known, without /proc. */
static int open_and_compare(int dir_fd, const char *path)
{
	int found = HOIST__UNINTERRUPTED(openat(dir_fd, path, O_PATH | O_CLOEXEC));
	if (found < 0)
		return -errno;
	int fd = check_beneath(dir_fd, found);
	if (fd == 0)
		fd = hoist__proc_reopen(found, OPEN_FLAGS);
	else if (fd == -ENOENT && access("/proc/self/fd", X_OK) < 0)
		fd = -ENOSYS;
	close(found);
	return fd;
}

/* Opens @path where openat2(2) is missing (before Linux 5.6) or refused by a filter.  Most paths
 * name a file in the folder itself, which needs no comparison. */
static int open_without_openat2(int dir_fd, const char *path)
{
	if (path[0] == '/')
		return -EXDEV;
	if (strchr(path, '/') == NULL && strcmp(path, "..") != 0) {
		int fd = HOIST__UNINTERRUPTED(openat(dir_fd, path, OPEN_FLAGS | O_NOFOLLOW));
		if (fd >= 0 || errno != ELOOP)
			return fd >= 0 ? fd : -errno;
	}
	return open_and_compare(dir_fd, path);
}

static int open_beneath(int dir_fd, const char *path)
{
	struct open_how how = {
		.flags = OPEN_FLAGS,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	/* EAGAIN: a rename raced with the resolution of a "..". */
	long fd;
	unsigned n = 0;
	do
		fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
	while (fd < 0 && hoist__again(errno, &n));
	if (fd >= 0)
		return (int)fd;
	return errno == ENOSYS || errno == EPERM ? open_without_openat2(dir_fd, path) : -errno;
}

/* -EXDEV and -ENOSYS come from open_beneath(): their texts name the option that trusts links. */
static int open_fd(int dir_fd, const char *path, unsigned flags, const char *display, int *ret)
{
	int fd;
	if ((flags & HOIST__FILE_BENEATH) != 0) {
		fd = open_beneath(dir_fd, path);
		if (fd == -EXDEV)
			fd = hoist__snapshot_open(dir_fd, path, OPEN_FLAGS);
	} else {
		fd = HOIST__UNINTERRUPTED(openat(dir_fd, path, OPEN_FLAGS));
		if (fd < 0)
			fd = -errno;
	}
	if (fd == -EXDEV)
		return hoist__fail(
			fd,
			"opening %s: this is a link that leads out of its folder; if you trust the "
			"link, use --follow-links (HOIST_OPEN_FOLLOW_LINKS)",
			display);
	if (fd == -ENOSYS)
		return hoist__fail(
			-ENOTSUP,
			"opening %s: hoist cannot tell whether a link leads out of the folder: the "
			"kernel refuses openat2, and /proc is not mounted; if you trust the path, "
			"use --follow-links (HOIST_OPEN_FOLLOW_LINKS)",
			display);
	if (fd < 0)
		return hoist__fail_errno(fd, "opening %s", display);
	*ret = fd;
	return 0;
}

/* --- identity --- */

int64_t hoist__file_time_ns(const struct timespec *time)
{
	return (int64_t)time->tv_sec * (int64_t)HOIST__NS_PER_S + time->tv_nsec;
}

static int stat_anew(int fd, const char *path, int flags, struct stat *ret)
{
	struct statx stx;
	int sync = flags | AT_STATX_FORCE_SYNC;
	int err = HOIST__UNINTERRUPTED(statx(fd, path, sync, STATX_BASIC_STATS, &stx)) < 0 ? -errno
											   : 0;
	/* statx(2) is missing, or a filter refuses it. glibc's emulation of statx does not know the
	 * flag and gives EINVAL. */
	if (err == -ENOSYS || err == -EPERM || err == -EINVAL)
		return HOIST__UNINTERRUPTED(fstatat(fd, path, ret, flags)) < 0 ? -errno : 0;
	if (err < 0)
		return err;
	*ret = (struct stat){
		.st_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.st_ino = stx.stx_ino,
		.st_nlink = stx.stx_nlink,
		.st_mode = stx.stx_mode,
		.st_uid = stx.stx_uid,
		.st_gid = stx.stx_gid,
		.st_size = (off_t)stx.stx_size,
		.st_mtim = {.tv_sec = stx.stx_mtime.tv_sec, .tv_nsec = stx.stx_mtime.tv_nsec},
		.st_ctim = {.tv_sec = stx.stx_ctime.tv_sec, .tv_nsec = stx.stx_ctime.tv_nsec},
	};
	return 0;
}

int hoist__file_stat(int fd, struct stat *ret)
{
	return stat_anew(fd, "", AT_EMPTY_PATH, ret);
}

int hoist__path_stat(const char *path, struct stat *ret)
{
	return stat_anew(AT_FDCWD, path, 0, ret);
}

/* The present size.  A block device's size is not in its stat. */
static int bytes_now(int fd, const struct stat *st, uint64_t *ret)
{
	if (!S_ISBLK(st->st_mode)) {
		*ret = (uint64_t)st->st_size;
		return 0;
	}
	uint64_t bytes = 0;
	if (ioctl(fd, BLKGETSIZE64, &bytes) < 0)
		return -errno;
	*ret = bytes;
	return 0;
}

/* Tries the flag at the end of the file, where a read transfers nothing. */
static bool takes_dontcache(const struct hoist__file *file)
{
	char byte;
	struct iovec one = {.iov_base = &byte, .iov_len = 1};
	return preadv2(file->fd, &one, 1, (off_t)file->bytes, RWF_DONTCACHE) == 0;
}

static int identify(struct hoist__file *file)
{
	struct stat st;
	int err = hoist__file_stat(file->fd, &st);
	if (err < 0)
		return hoist__fail_errno(err, "looking at %s", file->path);
	if (S_ISDIR(st.st_mode))
		return hoist__fail(-EINVAL, "opening %s: this is a folder, not a file", file->path);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return hoist__fail(-EINVAL, "opening %s: this is neither a file nor a block device",
				   file->path);
	err = bytes_now(file->fd, &st, &file->bytes);
	if (err != 0)
		return hoist__fail_errno(err, "asking for the size of %s", file->path);
	/* Clears O_NONBLOCK, with which io_uring would behave differently. */
	if (fcntl(file->fd, F_SETFL, 0) < 0)
		return hoist__fail_errno(-errno, "opening %s", file->path);
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	file->mtime_ns = hoist__file_time_ns(&st.st_mtim);
	file->ctime_ns = hoist__file_time_ns(&st.st_ctim);
	file->n_links = st.st_nlink;
	file->mode = st.st_mode;
	file->uid = st.st_uid;
	file->gid = st.st_gid;
	file->fs = hoist__fs_of_fd(file->fd);
	file->in_memory = file->fs->memory;
	file->dontcache = !file->in_memory && takes_dontcache(file);
	return 0;
}

/* The file's ctime moved and its mtime did not.  Returns: true if a change that leaves the bytes as
 * they are explains that: another owner, mode or link count, or another name. */
static bool only_renamed(const struct hoist__file *file, const struct stat *now)
{
	struct stat named;
	if (now->st_nlink != file->n_links || now->st_mode != file->mode ||
	    now->st_uid != file->uid || now->st_gid != file->gid)
		return true;
	return hoist__path_stat(file->path, &named) < 0 || named.st_ino != file->ino ||
	       named.st_dev != file->dev;
}

static int check_times(const struct hoist__file *file, const struct stat *now)
{
	if (hoist__file_time_ns(&now->st_mtim) != file->mtime_ns)
		return hoist__fail(-EBADMSG,
				   "%s changed while hoist had the file open: the file "
				   "was written to; replace files by rename instead",
				   file->path);
	if (hoist__file_time_ns(&now->st_ctim) != file->ctime_ns && !only_renamed(file, now))
		return hoist__fail(-EBADMSG,
				   "%s changed while hoist had the file open: the file "
				   "was written to and its time of last write set back, or its "
				   "attributes were changed; replace files by rename instead",
				   file->path);
	return 0;
}

int hoist__file_changed(const struct hoist__file *file)
{
	struct stat st;
	if (file->absent)
		return 0;
	int err = hoist__file_stat(file->fd, &st);
	if (err < 0)
		return hoist__fail_errno(err, "looking at %s", file->path);
	uint64_t bytes = 0;
	err = bytes_now(file->fd, &st, &bytes);
	if (err != 0)
		return hoist__fail_errno(err, "asking for the size of %s", file->path);
	if (bytes != file->bytes)
		return hoist__fail(-EBADMSG,
				   "%s changed while hoist had the file open: the file had %llu "
				   "bytes, and has %llu now",
				   file->path, (unsigned long long)file->bytes,
				   (unsigned long long)bytes);
	return S_ISBLK(st.st_mode) ? 0 : check_times(file, &st);
}

/* --- the object --- */

int hoist__file_open(int dir_fd, const char *path, const char *display, unsigned flags,
		     struct hoist__file **ret)
{
	if (display == NULL)
		display = path;
	struct hoist__file *file = calloc(1, sizeof *file);
	if (file == NULL)
		return hoist__fail_nomem("a file", sizeof *file);
	file->fd = -1;
	file->direct_fd = -1;
	file->memory_align = 1;
	file->offset_align = 1;
	int err = -ENOMEM;
	file->path = strdup(display);
	if (file->path == NULL) {
		hoist__fail_nomem("a path", strlen(display) + 1);
		goto fail;
	}
	err = open_fd(dir_fd, path, flags, display, &file->fd);
	if (err == 0)
		err = identify(file);
	if (err != 0)
		goto fail;
	hoist__direct_open(file, (flags & HOIST__FILE_NO_DIRECT) == 0);
	hoist__log(io, "%s: %llu bytes on %s, %s%s", file->path, (unsigned long long)file->bytes,
		   file->fs->name,
		   file->direct_fd >= 0 ? "direct" : "not direct: ", file->direct_note);
	*ret = file;
	return 0;
fail:
	hoist__file_close(file);
	return err;
}

void hoist__file_close(struct hoist__file *file)
{
	if (file == NULL)
		return;
	if (file->direct_fd >= 0)
		close(file->direct_fd);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
}

/* The flag is the only part of a file that changes after open, so that readers may have the file
 * const. */
void hoist__file_stop_readahead(const struct hoist__file *file)
{
	struct hoist__file *own = (struct hoist__file *)(uintptr_t)file;
	if (!atomic_load_explicit(&own->no_readahead, memory_order_relaxed) &&
	    !atomic_exchange_explicit(&own->no_readahead, true, memory_order_relaxed))
		(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
}

int hoist__file_read_failed(int err, const char *path, uint64_t offset)
{
	if (err == EINTR || err == EAGAIN)
		return hoist__fail(-EIO, "reading %s at byte %llu: %s %u times in a row", path,
				   (unsigned long long)offset, strerrorname_np(err),
				   HOIST__MAX_AGAIN);
	/* The block layer reports an NVMe medium error as ENODATA, which means a short file to our
	 * callers. */
	return hoist__fail_errno(err == ENODATA ? -EIO : -err, "reading %s at byte %llu", path,
				 (unsigned long long)offset);
}

/* A bad sector can make a whole folio unreadable: such a read goes on past the page cache, block by
 * block (rescue.h). */
int hoist__file_read(const struct hoist__file *file, uint64_t offset, void *buffer, size_t bytes)
{
	unsigned char *to = buffer;
	size_t done = 0;
	unsigned n_again = 0;
	while (done < bytes) {
		int64_t n = pread(file->fd, to + done, bytes - done, (off_t)(offset + done));
		int err = n < 0 ? errno : 0;
		if (hoist__rescuable(err)) {
			n = hoist__file_rescue(file, offset + done, to + done, bytes - done);
			err = n < 0 ? (int)-n : 0;
		}
		if (n > 0) {
			done += (size_t)n;
			n_again = 0;
		} else if (n == 0) {
			return hoist__fail(
				-ENODATA,
				"reading %zu bytes at byte %llu of %s: the file ends at byte %llu",
				bytes, (unsigned long long)offset, file->path,
				(unsigned long long)(offset + done));
		} else if (!hoist__again(err, &n_again)) {
			return hoist__file_read_failed(err, file->path, offset + done);
		}
	}
	return 0;
}
