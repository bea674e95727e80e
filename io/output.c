/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limit.h"
#include "base/log.h"
#include "io/again.h"
#include "io/direct.h"

#define NAME_TRIES 64
#define SUFFIX ".hoist-"
#define N_RANDOM 6
#define TEMP_BYTES (NAME_MAX + 1)

struct hoist__output {
	struct hoist__file file; /* its path is the one asked for */
	unsigned flags;
	int folder_fd;
	const char *name;      /* the last component of the path */
	char temp[TEMP_BYTES]; /* the file's name in the folder while it is not published; "": none
				*/
	bool has_old;	       /* a file is replaced */
	mode_t old_mode;       /* what of its mode the new one may have */
	gid_t old_group;
};

/* --- what is there --- */

static int open_folder(struct hoist__output *output)
{
	char *path = output->file.path;
	char *slash = strrchr(path, '/');
	output->name = slash == NULL ? path : slash + 1;
	if (output->name[0] == '\0' || strcmp(output->name, ".") == 0 ||
	    strcmp(output->name, "..") == 0)
		return hoist__fail(-EISDIR, "writing %s: it is a folder; name a file in it", path);
	if (strlen(output->name) > NAME_MAX)
		return hoist__fail(-ENAMETOOLONG, "writing %s: its name has more than %d bytes",
				   path, NAME_MAX);
	char *folder = slash == NULL   ? strdup(".")
		       : slash == path ? strdup("/")
				       : strndup(path, (size_t)(slash - path));
	if (folder == NULL)
		return hoist__fail_nomem("a path", strlen(path) + 1);
	/* Not O_PATH: the folder is synchronised. */
	output->folder_fd = HOIST__UNINTERRUPTED(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int err = 0;
	if (output->folder_fd < 0)
		err = hoist__fail_errno(-errno, "writing %s: opening the folder %s", path, folder);
	free(folder);
	return err;
}

/* What is called @name; -ENOENT, without a text, if nothing is. */
static int look_at(const struct hoist__output *output, const char *name, const char *path,
		   struct stat *ret, bool *ret_link)
{
	struct stat st;
	if (HOIST__UNINTERRUPTED(fstatat(output->folder_fd, name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
		return errno == ENOENT
			       ? -ENOENT
			       : hoist__fail_errno(-errno, "writing %s: looking at what is there",
						   path);
	if ((output->flags & HOIST__OUTPUT_NO_REPLACE) != 0)
		return hoist__fail(-EEXIST, "writing %s: it is there already", path);
	*ret_link = S_ISLNK(st.st_mode);
	if (*ret_link && HOIST__UNINTERRUPTED(fstatat(output->folder_fd, name, &st, 0)) < 0)
		return -ENOENT; /* it leads nowhere */
	if (S_ISDIR(st.st_mode))
		return hoist__fail(-EISDIR, "writing %s: it is a folder; name a file in it", path);
	if (!S_ISREG(st.st_mode))
		return hoist__fail(-EINVAL,
				   "writing %s: it is no file, and would be replaced by one", path);
	*ret = st;
	return 0;
}

/* The group that a new file in the folder gets. */
static gid_t next_group(const struct hoist__output *output)
{
	struct stat st;
	bool inherits = fstat(output->folder_fd, &st) == 0 && (st.st_mode & S_ISGID) != 0;
	return inherits ? st.st_gid : getegid();
}

/* What another group may do: no more than everybody. */
static mode_t narrowed(mode_t mode)
{
	return mode & (0606 | (mode & 06) << 3);
}

static int look_at_old(struct hoist__output *output)
{
	struct stat st;
	bool link = false;
	int err = look_at(output, output->name, output->file.path, &st, &link);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	output->has_old = !link;
	output->old_group = st.st_gid;
	output->old_mode = st.st_mode & 0666;
	if (next_group(output) != st.st_gid)
		output->old_mode = narrowed(output->old_mode);
	return 0;
}

int hoist__output_check_old(const struct hoist__output *output, const char *name)
{
	struct stat st;
	bool link = false;
	int err = look_at(output, name, name, &st, &link);
	return err == -ENOENT ? 0 : err;
}

/* --- a file without a name, or with a hidden one --- */

static void make_temp_name(const struct hoist__output *output, char temp[TEMP_BYTES])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char random[N_RANDOM];
	char text[N_RANDOM + 1] = {0};
	/* It only has to be another one. */
	if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
		for (unsigned i = 0; i < N_RANDOM; i++)
			random[i] = (unsigned char)(hoist__now_ns() >> (3 * i));
	for (unsigned i = 0; i < N_RANDOM; i++)
		text[i] = letters[random[i] % (sizeof letters - 1)];
	int room = (int)(TEMP_BYTES - 1 - 1 - (sizeof SUFFIX - 1) - N_RANDOM);
	(void)snprintf(temp, TEMP_BYTES, ".%.*s" SUFFIX "%s", room, output->name, text);
}

/* No more than the old file allows, so that nobody else opens the new one while it is written; the
 * kernel takes the umask from it.  The owner writes. */
static mode_t first_mode(const struct hoist__output *output)
{
	return output->has_old ? output->old_mode | 0600 : 0666;
}

static int open_nameless(const struct hoist__output *output)
{
	/* Without /proc it could not be given a name later. */
	if (access("/proc/self/fd", X_OK) < 0)
		return -EOPNOTSUPP;
	int fd = HOIST__UNINTERRUPTED(
		openat(output->folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, first_mode(output)));
	return fd < 0 ? -errno : fd;
}

static int open_hidden(struct hoist__output *output)
{
	int err = -EEXIST;
	for (int i = 0; i < NAME_TRIES && (err == -EEXIST || err == -EINTR); i++) {
		char temp[TEMP_BYTES];
		make_temp_name(output, temp);
		int fd = openat(output->folder_fd, temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC,
				first_mode(output));
		if (fd >= 0) {
			memcpy(output->temp, temp, sizeof temp);
			return fd;
		}
		err = -errno;
		/* It may have been made, and only then could not be opened. */
		if (err != -EEXIST)
			(void)unlinkat(output->folder_fd, temp, 0);
	}
	return err;
}

static int open_file(struct hoist__output *output)
{
	int fd = open_nameless(output);
	/* File systems that have no nameless files say so in one of these ways. */
	if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL || fd == -ENOENT || fd == -ENOSYS) {
		hoist__log(io, "%s: no nameless file: %s", output->file.path, strerrorname_np(-fd));
		fd = open_hidden(output);
	}
	if (fd < 0)
		return hoist__fail_errno(fd, "writing %s: making a file in its folder",
					 output->file.path);
	output->file.fd = fd;
	return 0;
}

/* --- its blocks --- */

static int fail_full(const struct hoist__output *output, int err, uint64_t bytes)
{
	struct statvfs fs;
	if (fstatvfs(output->file.fd, &fs) < 0)
		return hoist__fail_errno(err, "writing %s: allocating %" PRIu64 " bytes",
					 output->file.path, bytes);
	return hoist__fail_errno(err,
				 "writing %s: it needs %" PRIu64 " bytes, and the file system has "
				 "%" PRIu64 " free",
				 output->file.path, bytes,
				 (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize);
}

static int allocate(const struct hoist__output *output, uint64_t bytes)
{
	if (bytes == 0)
		return 0;
	if (bytes > INT64_MAX)
		return hoist__fail(-EFBIG, "writing %s: %" PRIu64 " bytes are too many for a file",
				   output->file.path, bytes);
	int err = HOIST__UNINTERRUPTED(fallocate(output->file.fd, 0, 0, (off_t)bytes)) < 0 ? -errno
											   : 0;
	if (err == -ENOSPC || err == -EDQUOT)
		return fail_full(output, err, bytes);
	if (err == -EFBIG)
		return hoist__fail_errno(err, "writing %s: %" PRIu64 " bytes", output->file.path,
					 bytes);
	/* Anything else: this file system has no such call; what it cannot hold shows later. */
	if (err < 0)
		hoist__log(io, "%s: not allocated ahead: %s", output->file.path,
			   strerrorname_np(-err));
	return 0;
}

/* The descriptor that finds out what the file system wants is for reading. */
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

static int identify(struct hoist__output *output, uint64_t bytes)
{
	struct hoist__file *file = &output->file;
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
	open_direct(file, (output->flags & HOIST__OUTPUT_NO_DIRECT) == 0 && padded);
	return allocate(output, hoist__round_up(bytes, file->offset_align));
}

/* --- the object --- */

int hoist__output_create(const char *path, uint64_t bytes, unsigned flags,
			 struct hoist__output **ret)
{
	struct hoist__output *output = calloc(1, sizeof *output);
	if (output == NULL)
		return hoist__fail_nomem("a file to write", sizeof *output);
	output->flags = flags;
	output->folder_fd = -1;
	output->file.fd = -1;
	output->file.direct_fd = -1;
	output->file.memory_align = 1;
	output->file.offset_align = 1;
	output->file.path = strdup(path);
	int err = output->file.path == NULL ? hoist__fail_nomem("a path", strlen(path) + 1) : 0;
	if (err == 0)
		err = open_folder(output);
	if (err == 0)
		err = look_at_old(output);
	if (err == 0)
		err = open_file(output);
	if (err == 0)
		err = identify(output, bytes);
	if (err < 0) {
		hoist__output_destroy(output);
		return err;
	}
	hoist__log(
		io, "%s: to be written, %" PRIu64 " bytes, %s%s", path, bytes,
		output->file.direct_fd >= 0 ? "direct" : "not direct: ", output->file.direct_note);
	*ret = output;
	return 0;
}

const struct hoist__file *hoist__output_file(const struct hoist__output *output)
{
	return &output->file;
}

void hoist__output_destroy(struct hoist__output *output)
{
	if (output == NULL)
		return;
	if (output->temp[0] != '\0')
		(void)unlinkat(output->folder_fd, output->temp, 0);
	if (output->file.direct_fd >= 0)
		close(output->file.direct_fd);
	if (output->file.fd >= 0)
		close(output->file.fd);
	if (output->folder_fd >= 0)
		close(output->folder_fd);
	free(output->file.path);
	free(output);
}

int hoist__output_write(const struct hoist__output *output, uint64_t offset, const void *from,
			size_t bytes)
{
	const unsigned char *bytes_left = from;
	unsigned n_again = 0;
	while (bytes > 0) {
		ssize_t n = pwrite(output->file.fd, bytes_left, bytes, (off_t)offset);
		if (n < 0 && hoist__again(errno, &n_again))
			continue;
		if (n <= 0)
			return hoist__fail_errno(n < 0 ? -errno : -EIO,
						 "writing %s at byte %" PRIu64, output->file.path,
						 offset);
		n_again = 0;
		bytes_left += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Of the old file's mode, what the umask has left of it.  A file system without modes does not keep
 * the old file's either. */
static void take_mode(const struct hoist__output *output)
{
	struct stat st;
	if (fstat(output->file.fd, &st) < 0)
		return;
	mode_t mode = st.st_mode & output->old_mode;
	if (st.st_gid != output->old_group)
		mode = narrowed(mode);
	if (fchmod(output->file.fd, mode) < 0)
		hoist__log(io, "%s: not mode %o: %s", output->file.path, (unsigned)mode,
			   strerrorname_np(errno));
}

/* Some file systems (NFS; what keeps objects behind FUSE) say what they could not keep when a file
 * is closed, and then only: to each descriptor of the open file.  So one more is closed while there
 * is still an old file. */
static int ask_at_close(const struct hoist__output *output, int fd)
{
	int err = 0;
	unsigned n_again = 0;
	do {
		int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
		err = copy >= 0 && close(copy) < 0 ? -errno : 0;
	} while (err == -EINTR && hoist__again(EINTR, &n_again));
	return err < 0 ? hoist__fail_errno(err, "writing %s: closing it", output->file.path) : 0;
}

int hoist__output_finish(struct hoist__output *output)
{
	const struct hoist__file *file = &output->file;
	if (HOIST__UNINTERRUPTED(ftruncate(file->fd, (off_t)file->bytes)) < 0)
		return hoist__fail_errno(-errno, "writing %s: cutting it to %" PRIu64 " bytes",
					 file->path, file->bytes);
	if (output->has_old)
		take_mode(output);
	int err = ask_at_close(output, file->direct_fd);
	if (err == 0)
		err = ask_at_close(output, file->fd);
	if (err < 0 || (output->flags & HOIST__OUTPUT_NO_SYNC) != 0)
		return err;
	/* Once it has failed, a second one may say that all is well: the kernel reports what it
	 * could not write once. */
	if (HOIST__UNINTERRUPTED(fsync(file->fd)) < 0)
		return hoist__fail_errno(-errno, "writing %s: fsync", file->path);
	return 0;
}

/* --- its name --- */

/* Gives the nameless file the name @name.  Returns: 0; a negative errno value, no text. */
static int link_as(const struct hoist__output *output, const char *name)
{
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", output->file.fd);
	return linkat(AT_FDCWD, path, output->folder_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* No call puts a nameless file over a name that is there: it gets a hidden one first. */
static int link_hidden(struct hoist__output *output)
{
	int err = -EEXIST;
	for (int i = 0; i < NAME_TRIES && err == -EEXIST; i++) {
		char temp[TEMP_BYTES];
		make_temp_name(output, temp);
		err = link_as(output, temp);
		if (err == 0)
			memcpy(output->temp, temp, sizeof temp);
	}
	return err;
}

static int rename_hidden(struct hoist__output *output, bool replace)
{
	int fd = output->folder_fd;
	int err;
	if (replace) {
		err = renameat(fd, output->temp, fd, output->name) < 0 ? -errno : 0;
	} else {
		err = renameat2(fd, output->temp, fd, output->name, RENAME_NOREPLACE) < 0 ? -errno
											  : 0;
		/* NFS and FUSE know no flags; a link never replaces anything. */
		if (err == -EINVAL || err == -ENOSYS) {
			err = linkat(fd, output->temp, fd, output->name, 0) < 0 ? -errno : 0;
			if (err == 0)
				(void)unlinkat(fd, output->temp, 0);
		}
	}
	if (err == 0)
		output->temp[0] = '\0';
	return err;
}

int hoist__output_publish(struct hoist__output *output)
{
	bool replace = (output->flags & HOIST__OUTPUT_NO_REPLACE) == 0;
	int err = -EEXIST;
	if (output->temp[0] == '\0') {
		err = link_as(output, output->name);
		if (err == -EEXIST && replace)
			err = link_hidden(output);
	}
	if (output->temp[0] != '\0')
		err = rename_hidden(output, replace);
	if (err < 0)
		return hoist__fail_errno(err, "writing %s: giving the finished file its name",
					 output->file.path);
	return 0;
}

int hoist__output_sync_folder(const struct hoist__output *output)
{
	if ((output->flags & HOIST__OUTPUT_NO_SYNC) != 0)
		return 0;
	/* Some file systems have no such call for folders. */
	if (HOIST__UNINTERRUPTED(fsync(output->folder_fd)) < 0 && errno != EINVAL &&
	    errno != EOPNOTSUPP)
		return hoist__fail_errno(-errno, "writing %s: it is there, but fsync of its folder",
					 output->file.path);
	return 0;
}

void hoist__output_remove(const struct hoist__output *output, const char *name)
{
	if (unlinkat(output->folder_fd, name, 0) < 0 && errno != ENOENT)
		hoist__log(io, "%s stays: %s", name, strerrorname_np(errno));
}
