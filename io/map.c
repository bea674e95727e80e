/* SPDX-License-Identifier: MIT */
/* Maps files, by an opened file or by path, and extends files to be written.
 * The contract is in io/map.h. */
#include "config.h"

#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/limit.h"

/* The range must lie within the file as it was opened, and as it is now. */
static int check_range(const struct hoist__file *file, uint64_t offset, size_t bytes)
{
	uint64_t end;
	if (bytes == 0 || hoist__add_overflow(offset, bytes, &end))
		return hoist__fail(-EINVAL, "mapping %zu bytes at %llu of %s", bytes,
				   (unsigned long long)offset, file->path);
	uint64_t size = file->bytes;
	struct stat st;
	if (hoist__file_stat(file->fd, &st) == 0 && S_ISREG(st.st_mode))
		size = hoist__min_u64(size, (uint64_t)st.st_size);
	if (end > size)
		return hoist__fail(
			-ENODATA,
			"mapping %zu bytes at byte %llu of %s: the file ends at byte %llu", bytes,
			(unsigned long long)offset, file->path, (unsigned long long)size);
	return 0;
}

/* A read-only map is shared: it is the page cache itself, which a driver can pin without copying
 * it.  NORESERVE: otherwise the kernel refuses a private map of a file larger than memory, though
 * hardly any page of it is ever copied. */
static int map_range(int fd, const char *path, enum hoist__file_map_mode mode, uint64_t offset,
		     size_t bytes, struct hoist__file_map *ret)
{
	bool private = mode == HOIST__MAP_COPY_ON_WRITE;
	int prot = mode == HOIST__MAP_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
	uint64_t start = hoist__round_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));
	size_t lead = (size_t)(offset - start);
	void *base = mmap(NULL, bytes + lead, prot, flags, fd, (off_t)start);
	if (base == MAP_FAILED)
		return hoist__fail_errno(-errno, "mapping %zu bytes at %llu of %s", bytes,
					 (unsigned long long)offset, path);
	ret->base = base;
	ret->mapped_bytes = bytes + lead;
	ret->data = (unsigned char *)base + lead;
	ret->bytes = bytes;
	return 0;
}

static int writing_failed(const char *path, int err)
{
	if (err == -ENOENT)
		return hoist__fail(-ENOTSUP,
				   "opening %s for writing: /proc is not mounted, so the file "
				   "cannot be opened again",
				   path);
	return hoist__fail_errno(err,
				 "opening %s for writing, as a map that writes to the file needs "
				 "(a copy-on-write map keeps its writes private)",
				 path);
}

/* Opens the same inode again, since the path may lead to another file by now. */
static int map_writable(const struct hoist__file *file, uint64_t offset, size_t bytes,
			struct hoist__file_map *ret)
{
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return writing_failed(file->path, -errno);
	int err = map_range(fd, file->path, HOIST__MAP_READ_WRITE, offset, bytes, ret);
	close(fd);
	return err;
}

int hoist__file_map_open(const struct hoist__file *file, enum hoist__file_map_mode mode,
			 uint64_t offset, size_t bytes, struct hoist__file_map *ret)
{
	int err = check_range(file, offset, bytes);
	if (err != 0)
		return err;
	switch (mode) {
	case HOIST__MAP_READ_ONLY:
	case HOIST__MAP_COPY_ON_WRITE:
		return map_range(file->fd, file->path, mode, offset, bytes, ret);
	case HOIST__MAP_READ_WRITE:
		return map_writable(file, offset, bytes, ret);
	case HOIST__MAP_WRITE:
		break;
	}
	return hoist__fail(-EINVAL, "%d is no way to map a file opened for reading", (int)mode);
}

/* --- by path --- */

/* O_NONBLOCK only keeps a FIFO from holding the caller in open(2): the file turns out to be
 * none. */
static int open_path(const char *path, enum hoist__file_map_mode mode, int *ret)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	if (mode == HOIST__MAP_WRITE)
		flags |= O_RDWR | O_CREAT;
	else
		flags |= mode == HOIST__MAP_READ_WRITE ? O_RDWR : O_RDONLY;
	int fd = open(path, flags, 0666);
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening %s", path);
	struct stat st;
	int err = 0;
	if (fstat(fd, &st) < 0)
		err = hoist__fail_errno(-errno, "asking for the size of %s", path);
	else if (!S_ISREG(st.st_mode))
		err = hoist__fail(-EINVAL, "%s is not a regular file", path);
	else if (mode == HOIST__MAP_WRITE && ftruncate(fd, 0) < 0)
		err = hoist__fail_errno(-errno, "emptying %s", path);
	if (err < 0) {
		close(fd);
		return err;
	}
	*ret = fd;
	return 0;
}

/* Allocates blocks now where the file system can: a write to a page without a block would raise
 * SIGBUS once the disk is full.  Some file systems (tmpfs of older kernels) stop at any signal and
 * give all blocks back, so a program with a timer would never get them: after EINTR the file is
 * extended without blocks. */
static int extend(int fd, const char *path, uint64_t end)
{
	int err = hoist__check_file_bytes(end, path);
	if (err < 0)
		return err;
	err = fallocate(fd, 0, 0, (off_t)end) < 0 ? -errno : 0;
	if (err == -EOPNOTSUPP || err == -ENOSYS || err == -EINTR)
		err = ftruncate(fd, (off_t)end) < 0 ? -errno : 0;
	return err < 0 ? hoist__fail_errno(err, "making %s longer, to %llu bytes", path,
					   (unsigned long long)end)
		       : 0;
}

static int fit_file(int fd, const char *path, enum hoist__file_map_mode mode, uint64_t end)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return hoist__fail_errno(-errno, "asking for the size of %s", path);
	uint64_t size = (uint64_t)st.st_size;
	bool writes = mode == HOIST__MAP_READ_WRITE || mode == HOIST__MAP_WRITE;
	if (size < end && writes)
		return extend(fd, path, end);
	if (size == 0)
		return hoist__fail(-EINVAL, "%s is empty; an empty file cannot be mapped", path);
	if (size < end)
		return hoist__fail(-ENODATA, "%s has %llu bytes, a map up to byte %llu is longer",
				   path, (unsigned long long)size, (unsigned long long)end);
	return 0;
}

/* A map of no bytes still opens the file, so that a missing or unsuitable file is an error. */
int hoist__file_map_path(const char *path, enum hoist__file_map_mode mode, uint64_t offset,
			 size_t bytes, struct hoist__file_map *ret, int *ret_fd)
{
	uint64_t end;
	int fd = -1;
	if (hoist__add_overflow(offset, bytes, &end) || end > INT64_MAX)
		return hoist__fail(
			-EOVERFLOW,
			"mapping %zu bytes at byte %llu of %s: the end does not fit in 63 bits",
			bytes, (unsigned long long)offset, path);
	int err = open_path(path, mode, &fd);
	if (err < 0)
		return err;
	struct hoist__file_map map = {0};
	err = fit_file(fd, path, mode, end);
	if (err == 0 && bytes > 0)
		err = map_range(fd, path, mode, offset, bytes, &map);
	if (err == 0) {
		*ret = map;
		if (ret_fd != NULL)
			*ret_fd = fd;
	}
	if (err < 0 || ret_fd == NULL)
		close(fd);
	return err;
}

void hoist__file_map_close(struct hoist__file_map *map)
{
	if (map->base == NULL)
		return;
	/* Unmaps whole pages, as the kernel does anyway.  ThreadSanitizer forgets only the bytes
	 * that it is told of: it would take the next mapping at this address, maybe a ring, for the
	 * rest of this one. */
	munmap(map->base, hoist__round_up(map->mapped_bytes, (uint64_t)sysconf(_SC_PAGESIZE)));
	*map = (struct hoist__file_map){0};
}
