/* SPDX-License-Identifier: MIT */
/* Sizes, allocates and opens for direct writes the file that is to be written.
 * The contract is in io/output-blocks.h. */
#include "config.h"

#include "io/output-blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/limit.h"
#include "base/log.h"
#include "io/again.h"
#include "io/direct.h"

static int fail_full(const struct hoist__file *file, int err, uint64_t bytes)
{
	struct statvfs fs;
	if (fstatvfs(file->fd, &fs) < 0)
		return hoist__fail_errno(err, "writing %s: allocating %" PRIu64 " bytes",
					 file->path, bytes);
	return hoist__fail_errno(err,
				 "writing %s: the file needs %" PRIu64
				 " bytes, and the file system has "
				 "%" PRIu64 " free",
				 file->path, bytes, (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize);
}

static int allocate(const struct hoist__file *file, uint64_t bytes)
{
	if (bytes == 0)
		return 0;
	if (bytes > INT64_MAX)
		return hoist__fail(-EFBIG, "writing %s: %" PRIu64 " bytes are too many for a file",
				   file->path, bytes);
	int err = HOIST__UNINTERRUPTED(fallocate(file->fd, 0, 0, (off_t)bytes)) < 0 ? -errno : 0;
	if (err == -ENOSPC || err == -EDQUOT)
		return fail_full(file, err, bytes);
	if (err == -EFBIG)
		return hoist__fail_errno(err, "writing %s: %" PRIu64 " bytes", file->path, bytes);
	/* Any other error: the file system cannot allocate ahead.  A lack of room then shows at a
	 * write. */
	if (err < 0)
		hoist__log(io, "%s: not allocated ahead: %s", file->path, strerrorname_np(-err));
	return 0;
}

/* hoist__direct_open() finds the alignment with a descriptor for reading; writes need one of their
 * own. */
static void open_direct(struct hoist__file *file, bool wanted)
{
	hoist__direct_open(file, wanted);
	if (file->direct_fd < 0)
		return;
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
	int fd = HOIST__UNINTERRUPTED(open(path, O_WRONLY | O_CLOEXEC | O_DIRECT));
	close(file->direct_fd);
	file->direct_fd = fd;
	if (fd >= 0)
		return;
	(void)snprintf(file->direct_note, sizeof file->direct_note,
		       "opening the file with O_DIRECT: %s", strerrorname_np(errno));
	file->memory_align = 1;
	file->offset_align = 1;
}

int hoist__output_lay_out(struct hoist__file *file, bool direct, uint64_t bytes)
{
	int err = hoist__check_file_bytes(bytes, file->path);
	if (err < 0)
		return err;
	struct stat st;
	if (HOIST__UNINTERRUPTED(fstat(file->fd, &st)) < 0)
		return hoist__fail_errno(-errno, "looking at %s", file->path);
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	file->bytes = bytes;
	bool padded = hoist__round_up(bytes, HOIST__FILE_MAX_ALIGN) <= hoist__file_limit();
	file->fs = hoist__fs_of_fd(file->fd);
	file->in_memory = file->fs->memory;
	open_direct(file, direct && padded);
	HOIST__ASSERT(hoist__is_power_of_two(file->offset_align) &&
		      file->offset_align <= HOIST__FILE_MAX_ALIGN);
	HOIST__ASSERT(file->direct_fd >= 0 || file->offset_align == 1);
	return allocate(file, hoist__round_up(bytes, file->offset_align));
}
