/* SPDX-License-Identifier: MIT */
/* Makes a file under no name or a hidden one, and gives it its name at the end.
 * The contract is in io/output.h. */
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
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/again.h"
#include "io/output-blocks.h"
#include "io/output-mode.h"

#define NAME_TRIES 64
#define SUFFIX ".hoist-"
#define N_RANDOM 6
#define TEMP_BYTES (NAME_MAX + 1)

struct hoist__output {
	struct hoist__file file; /* its path is the caller's */
	unsigned flags;
	int folder_fd;
	const char *name;      /* the last component of the path */
	char temp[TEMP_BYTES]; /* the file's name until it is published; "": nameless */
	struct hoist__output_mode mode;
};

/* --- the old file --- */

/* All later calls name the file relative to this descriptor: a folder that is renamed meanwhile
 * still gets the file, and no other folder does. */
static int open_folder(struct hoist__output *output)
{
	char *path = output->file.path;
	char *slash = strrchr(path, '/');
	output->name = slash == NULL ? path : slash + 1;
	if (output->name[0] == '\0' || strcmp(output->name, ".") == 0 ||
	    strcmp(output->name, "..") == 0)
		return hoist__fail(-EISDIR,
				   "writing %s: this is a folder; name a file in the folder", path);
	if (strlen(output->name) > NAME_MAX)
		return hoist__fail(
			-ENAMETOOLONG,
			"writing %s: the name has more than %d bytes; choose a shorter one", path,
			NAME_MAX);
	char *folder = slash == NULL   ? strdup(".")
		       : slash == path ? strdup("/")
				       : strndup(path, (size_t)(slash - path));
	if (folder == NULL)
		return hoist__fail_nomem("a path", strlen(path) + 1);
	/* Not O_PATH, since the folder's descriptor goes to fsync(2). */
	output->folder_fd = HOIST__UNINTERRUPTED(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int err = 0;
	if (output->folder_fd < 0)
		err = hoist__fail_errno(-errno, "writing %s: opening the folder %s", path, folder);
	free(folder);
	return err;
}

/* Inspects the file called @name; -ENOENT, without a text, if there is none, or a link that leads
 * nowhere. */
static int look_at(const struct hoist__output *output, const char *name, const char *path,
		   struct stat *ret, bool *ret_link)
{
	struct stat st;
	if (HOIST__UNINTERRUPTED(fstatat(output->folder_fd, name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
		return errno == ENOENT
			       ? -ENOENT
			       : hoist__fail_errno(-errno, "writing %s: looking at the old file",
						   path);
	if ((output->flags & HOIST__OUTPUT_NO_REPLACE) != 0)
		return hoist__fail(-EEXIST,
				   "writing %s: this file exists already; choose another name, or "
				   "let the save replace the file",
				   path);
	*ret_link = S_ISLNK(st.st_mode);
	if (*ret_link && HOIST__UNINTERRUPTED(fstatat(output->folder_fd, name, &st, 0)) < 0)
		return -ENOENT; /* the link leads nowhere */
	if (S_ISDIR(st.st_mode))
		return hoist__fail(-EISDIR,
				   "writing %s: this is a folder; name a file in the folder", path);
	if (!S_ISREG(st.st_mode))
		return hoist__fail(-EINVAL,
				   "writing %s: this is no regular file, and hoist replaces only "
				   "regular files; choose another name",
				   path);
	*ret = st;
	return 0;
}

static int look_at_old(struct hoist__output *output)
{
	struct stat st;
	bool link = false;
	int err = look_at(output, output->name, output->file.path, &st, &link);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	if (!link)
		hoist__output_mode_of(output->folder_fd, output->name, &st, &output->mode);
	return 0;
}

int hoist__output_check_old(const struct hoist__output *output, const char *name)
{
	struct stat st;
	bool link = false;
	int err = look_at(output, name, name, &st, &link);
	return err == -ENOENT ? 0 : err;
}

bool hoist__output_has(const struct hoist__output *output, const char *name)
{
	struct stat st;
	return HOIST__UNINTERRUPTED(fstatat(output->folder_fd, name, &st, AT_SYMLINK_NOFOLLOW)) ==
		       0 ||
	       errno != ENOENT;
}

/* --- a file without a name, or with a hidden one --- */

static void make_temp_name(const struct hoist__output *output, char temp[TEMP_BYTES])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char random[N_RANDOM];
	char text[N_RANDOM + 1] = {0};
	/* The name only has to differ from other names; nothing depends on its being secret. */
	if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
		for (unsigned i = 0; i < N_RANDOM; i++)
			random[i] = (unsigned char)(hoist__now_ns() >> (3 * i));
	for (unsigned i = 0; i < N_RANDOM; i++)
		text[i] = letters[random[i] % (sizeof letters - 1)];
	int room = (int)(TEMP_BYTES - 1 - 1 - (sizeof SUFFIX - 1) - N_RANDOM);
	(void)snprintf(temp, TEMP_BYTES, ".%.*s" SUFFIX "%s", room, output->name, text);
	HOIST__ASSERT(strlen(temp) <= NAME_MAX && strchr(temp, '/') == NULL);
}

static int open_nameless(const struct hoist__output *output)
{
	/* Without /proc the file could not be given a name later. */
	if (access("/proc/self/fd", X_OK) < 0)
		return -EOPNOTSUPP;
	int fd = HOIST__UNINTERRUPTED(openat(output->folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC,
					     hoist__output_mode_first(&output->mode)));
	return fd < 0 ? -errno : fd;
}

static int open_hidden(struct hoist__output *output)
{
	HOIST__ASSERT(output->temp[0] == '\0');
	int err = -EEXIST;
	for (int i = 0; i < NAME_TRIES && (err == -EEXIST || err == -EINTR); i++) {
		char temp[TEMP_BYTES];
		make_temp_name(output, temp);
		int fd = openat(output->folder_fd, temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC,
				hoist__output_mode_first(&output->mode));
		if (fd >= 0) {
			memcpy(output->temp, temp, sizeof temp);
			return fd;
		}
		err = -errno;
		/* The file may have been created before the open failed. */
		if (err != -EEXIST)
			(void)unlinkat(output->folder_fd, temp, 0);
	}
	return err;
}

static int open_either(struct hoist__output *output)
{
	int fd = open_nameless(output);
	/* File systems without nameless files return one of these errors. */
	if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL || fd == -ENOENT || fd == -ENOSYS) {
		hoist__log(io, "%s: no nameless file: %s", output->file.path, strerrorname_np(-fd));
		fd = open_hidden(output);
	}
	return fd;
}

static void unlink_hidden(struct hoist__output *output)
{
	if (output->temp[0] != '\0')
		(void)unlinkat(output->folder_fd, output->temp, 0);
	output->temp[0] = '\0';
}

/* The group of a new file is known only once the file exists: the first one is created narrow, and
 * created again if it may have more rights. */
static int open_file(struct hoist__output *output)
{
	int fd = open_either(output);
	if (fd >= 0 && hoist__output_mode_widens(&output->mode, fd)) {
		unlink_hidden(output);
		close(fd);
		fd = open_either(output);
	}
	if (fd < 0)
		return hoist__fail_errno(fd, "writing %s: making a file in its folder",
					 output->file.path);
	HOIST__ASSERT(output->file.fd < 0);
	output->file.fd = fd;
	return 0;
}

/* --- the object --- */

/* The old file is inspected before the new one is made: its mode limits the new file's. */
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
		err = hoist__output_lay_out(&output->file,
					    (output->flags & HOIST__OUTPUT_NO_DIRECT) == 0, bytes);
	if (err < 0) {
		hoist__output_destroy(output);
		return err;
	}
	HOIST__ASSERT(output->file.bytes == bytes && output->file.fd >= 0);
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
	unlink_hidden(output);
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

/* Some file systems (NFS; object stores behind FUSE) report the bytes that they could not keep only
 * when a descriptor of the file is closed.  So a duplicate is closed while there is still an old
 * file.  If the process has no room for a duplicate and @fd is @spare, *@fd is closed itself and
 * becomes -1. */
static int ask_at_close(const struct hoist__output *output, int *fd, bool spare)
{
	HOIST__ASSERT(*fd >= 0);
	int err = 0;
	unsigned n_again = 0;
	do {
		int copy = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
		if (copy < 0 && !spare)
			return hoist__fail_errno(
				-errno,
				"writing %s: opening a second descriptor of the file (to see, when "
				"it is closed, whether the file system kept all bytes; ulimit -n "
				"raises the limit on open files)",
				output->file.path);
		if (copy < 0) {
			copy = *fd;
			*fd = -1;
		}
		err = close(copy) < 0 ? -errno : 0;
	} while (err == -EINTR && *fd >= 0 && hoist__again(EINTR, &n_again));
	return err < 0 ? hoist__fail_errno(err, "writing %s: closing the file", output->file.path)
		       : 0;
}

/* Never repeated after a failure: the kernel reports a lost write only once, so a second fsync
 * would succeed. */
static int sync_file(const struct hoist__file *file)
{
	if (HOIST__UNINTERRUPTED(fsync(file->fd)) < 0)
		return hoist__fail_errno(-errno, "writing %s: fsync", file->path);
	return 0;
}

int hoist__output_finish(struct hoist__output *output)
{
	struct hoist__file *file = &output->file;
	if (HOIST__UNINTERRUPTED(ftruncate(file->fd, (off_t)file->bytes)) < 0)
		return hoist__fail_errno(-errno,
					 "writing %s: cutting the file to %" PRIu64 " bytes",
					 file->path, file->bytes);
	hoist__output_mode_set(&output->mode, file->fd, file->path);
	/* No direct write follows, so the direct descriptor may be closed. */
	int err = file->direct_fd >= 0 ? ask_at_close(output, &file->direct_fd, true) : 0;
	if (err == 0)
		err = ask_at_close(output, &file->fd, false);
	if (err < 0 || (output->flags & HOIST__OUTPUT_NO_SYNC) != 0)
		return err;
	return sync_file(file);
}

int hoist__output_sync(struct hoist__output *output)
{
	if ((output->flags & HOIST__OUTPUT_NO_SYNC) == 0)
		return 0;
	output->flags &= ~HOIST__OUTPUT_NO_SYNC;
	return sync_file(&output->file);
}

/* --- its name --- */

/* Gives the nameless file the name @name.  Returns: 0; a negative errno value, no text. */
static int link_as(const struct hoist__output *output, const char *name)
{
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", output->file.fd);
	return linkat(AT_FDCWD, path, output->folder_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* No call puts a nameless file over an existing name, so the file gets a hidden name first, which
 * rename(2) can move. */
static int link_hidden(struct hoist__output *output)
{
	HOIST__ASSERT(output->temp[0] == '\0' && output->file.fd >= 0);
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
	HOIST__ASSERT(output->temp[0] != '\0' && strcmp(output->temp, output->name) != 0);
	if (replace) {
		err = renameat(fd, output->temp, fd, output->name) < 0 ? -errno : 0;
	} else {
		err = renameat2(fd, output->temp, fd, output->name, RENAME_NOREPLACE) < 0 ? -errno
											  : 0;
		/* NFS and FUSE know no flags of renameat2(2); a link never replaces a file. */
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
	HOIST__ASSERT(err != 0 || output->temp[0] == '\0');
	if (err < 0)
		return hoist__fail_errno(err, "writing %s: giving the finished file its name",
					 output->file.path);
	return 0;
}

int hoist__output_sync_folder(const struct hoist__output *output)
{
	HOIST__ASSERT(output->temp[0] == '\0');
	if ((output->flags & HOIST__OUTPUT_NO_SYNC) != 0)
		return 0;
	/* Some file systems have no fsync of folders. */
	if (HOIST__UNINTERRUPTED(fsync(output->folder_fd)) < 0 && errno != EINVAL &&
	    errno != EOPNOTSUPP)
		return hoist__fail_errno(-errno,
					 "writing %s: the file has its name, but a crash may undo "
					 "that: fsync of the folder",
					 output->file.path);
	return 0;
}

int hoist__output_remove(const struct hoist__output *output, const char *name)
{
	unsigned n_again = 0;
	int err;
	/* An interrupted call may have removed the name; the repeated call then finds none. */
	do
		err = unlinkat(output->folder_fd, name, 0) == 0 ? 0 : -errno;
	while (err < 0 && hoist__again(-err, &n_again));
	if (err == 0 || (err == -ENOENT && n_again > 0))
		return 1;
	if (err == -ENOENT)
		return 0;
	hoist__log(io, "%s stays: %s", name, strerrorname_np(-err));
	return err;
}
