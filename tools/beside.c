/* SPDX-License-Identifier: MIT */
/* tools/beside.c - the files beside a folder's weights.
 * The contract is in tools/beside.h. */
#include "config.h"

#include "tools/beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/fail.h"
#include "cli/interrupt.h"
#include "tools/config-dtype.h"
#include "tools/fd.h"

#define MOST_BYTES ((off_t)64 << 20)
#define PIECE_BYTES ((size_t)8 << 10)

static const char *const names[] = {
	"config.json",	     "*_config.json", /* generation_, preprocessor_, processor_ */
	"tokenizer*",	     "special_tokens_map.json",
	"added_tokens.json", "vocab.*",
	"merges.txt",	     "chat_template*",
	"*.jinja",	     "*.model", /* sentencepiece */
	"*.tiktoken",
};

static bool is_wanted(const char *name)
{
	for (size_t i = 0; name[0] != '.' && i < sizeof names / sizeof names[0]; i++)
		if (fnmatch(names[i], name, 0) == 0)
			return true;
	return false;
}

/* --- the files of the folder --- */

static int add_name(struct beside *beside, const char *name)
{
	struct beside_file *more =
		reallocarray(beside->files, beside->n_files + 1, sizeof *beside->files);
	if (more == NULL)
		return fail_memory();
	beside->files = more;
	more[beside->n_files] = (struct beside_file){.name = strdup(name), .fd = -1};
	if (more[beside->n_files].name == NULL)
		return fail_memory();
	beside->n_files++;
	return STATUS_OK;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct beside_file *)a)->name, ((const struct beside_file *)b)->name);
}

static int list(struct beside *beside, const char *from)
{
	int status = STATUS_OK;
	DIR *folder = opendir(from);
	if (folder == NULL)
		return fail("listing %s: %s", from, strerror(errno));
	for (errno = 0; status == STATUS_OK; errno = 0) {
		const struct dirent *entry = readdir(folder);
		if (entry == NULL && errno != 0)
			status = fail("listing %s: %s", from, strerror(errno));
		if (entry == NULL)
			break;
		if (is_wanted(entry->d_name))
			status = add_name(beside, entry->d_name);
	}
	(void)closedir(folder);
	if (beside->n_files > 0)
		qsort(beside->files, beside->n_files, sizeof *beside->files, by_name);
	return status;
}

/* --- links --- */

/* A FIFO would block. */
#define READ_FLAGS (O_RDONLY | O_NONBLOCK | O_CLOEXEC)

/* Opens what a link within the folder leads to.  Returns: a descriptor; -1, with errno: EXDEV, the
 * link leads out. */
static int open_beneath(const struct beside *beside, const char *name)
{
	struct open_how how = {.flags = READ_FLAGS,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	return (int)syscall(SYS_openat2, beside->from_fd, name, &how, sizeof how);
}

/* The path of an open folder.  False: /proc does not say. */
static bool path_of(int fd, char *ret, size_t bytes)
{
	char link[32];
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, ret, bytes - 1);
	ret[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* True if the two folders are models--NAME/snapshots/REVISION and models--NAME/blobs. */
static bool are_of_one_model(int snapshot, int blobs)
{
	char of_snapshot[PATH_MAX], of_blobs[PATH_MAX];
	if (!path_of(snapshot, of_snapshot, sizeof of_snapshot) ||
	    !path_of(blobs, of_blobs, sizeof of_blobs))
		return false;
	const char *revision = strrchr(of_snapshot, '/');
	size_t n = (size_t)(revision - of_snapshot);
	if (revision == NULL || n < strlen("/snapshots") ||
	    strncmp(revision - strlen("/snapshots"), "/snapshots", strlen("/snapshots")) != 0)
		return false;
	n -= strlen("/snapshots");
	const char *name = memrchr(of_snapshot, '/', n);
	return name != NULL && strncmp(name, "/models--", strlen("/models--")) == 0 &&
	       strncmp(of_blobs, of_snapshot, n) == 0 && strcmp(of_blobs + n, "/blobs") == 0;
}

/* Opens the blob of Hugging Face's cache that a snapshot's link leads to: directly in the model's
 * blobs, no link itself, of the process's user or root.  Returns: a descriptor; -1: the link is
 * another. */
static int open_blob(const struct beside *beside, const char *name)
{
	static const char where[] = "../../blobs/";
	char text[PATH_MAX];
	struct stat st;
	ssize_t n = readlinkat(beside->from_fd, name, text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	const char *blob = text + sizeof where - 1;
	if (strncmp(text, where, sizeof where - 1) != 0 || strchr(blob, '/') != NULL)
		return -1;
	int blobs = openat(beside->from_fd, "../../blobs",
			   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (blobs < 0)
		return -1;
	int fd = are_of_one_model(beside->from_fd, blobs)
			 ? openat(blobs, blob, READ_FLAGS | O_NOFOLLOW)
			 : -1;
	(void)close(blobs);
	if (fd >= 0 && (fstat(fd, &st) < 0 || (st.st_uid != geteuid() && st.st_uid != 0))) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

static int open_link(const struct beside *beside, const char *from, const char *name, int *ret)
{
	*ret = open_beneath(beside, name);
	if (*ret < 0 && errno == EXDEV)
		*ret = open_blob(beside, name);
	if (*ret >= 0)
		return STATUS_OK;
	return fail("%s/%s is a link to outside of its folder, or to nothing; if you trust the "
		    "folder, give --follow-links, or leave the file with --only-weights",
		    from, name);
}

/* *ret: a descriptor of the regular file; -1: it is left. */
static int open_source(const struct beside *beside, const char *from, const char *name,
		       unsigned flags, int *ret)
{
	bool follow = (flags & BESIDE_FOLLOW_LINKS) != 0;
	int status = STATUS_OK;
	struct stat st;
	int fd = openat(beside->from_fd, name, READ_FLAGS | (follow ? 0 : O_NOFOLLOW));
	int err = errno;
	if (fd < 0 && err == ELOOP && !follow)
		status = open_link(beside, from, name, &fd);
	else if (fd < 0 && err != ENXIO)
		status = fail("opening %s/%s: %s", from, name, strerror(err));
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > MOST_BYTES)) {
		(void)close(fd);
		fd = -1;
	}
	*ret = fd;
	return status;
}

/* --- copies without a name --- */

/* True if the file system, or an old kernel, has no files without a name. */
static bool needs_name(int error)
{
	return error == EOPNOTSUPP || error == EISDIR || error == ENOENT || error == EINVAL;
}

/* Names are given by way of /proc.  Without it, or on a file system without files without a name,
 * the copy has a hidden name until it is whole. */
static int create(const struct beside *beside, struct beside_file *file)
{
	if (access("/proc/self/fd", X_OK) == 0) {
		file->fd = openat(beside->to_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
		if (file->fd >= 0)
			return STATUS_OK;
		if (!needs_name(errno))
			return fail("creating a file in %s: %s", beside->to, strerror(errno));
	}
	if (asprintf(&file->hidden, "%s/.%s.hoist-XXXXXX", beside->to, file->name) < 0) {
		file->hidden = NULL;
		return fail_memory();
	}
	file->fd = mkostemp(file->hidden, O_CLOEXEC);
	if (file->fd < 0) {
		int status = fail("creating %s: %s", file->hidden, strerror(errno));
		free(file->hidden);
		file->hidden = NULL;
		return status;
	}
	(void)fchmod(file->fd, fd_new_mode());
	return STATUS_OK;
}

static int copy_content(const struct beside *beside, const struct beside_file *file, int source)
{
	unsigned char piece[PIECE_BYTES];
	ssize_t n;
	while ((n = fd_read(source, piece, sizeof piece)) > 0) {
		if (interrupted())
			return fail("cancelled");
		if (fd_write(file->fd, piece, (size_t)n) < 0)
			return fail("writing %s/%s: %s", beside->to, file->name, strerror(errno));
	}
	if (n < 0)
		return fail("reading %s: %s", file->name, strerror(errno));
	if (beside->sync && fsync(file->fd) < 0)
		return fail("writing %s/%s: %s", beside->to, file->name, strerror(errno));
	return STATUS_OK;
}

/* --- files that are there already --- */

/* Returns: 1: both have the same bytes; 0: they do not; -1, with errno. */
static int compare(int a, int b)
{
	unsigned char of_a[PIECE_BYTES], of_b[PIECE_BYTES];
	for (;;) {
		ssize_t n = fd_read(a, of_a, sizeof of_a);
		ssize_t m = fd_read(b, of_b, sizeof of_b);
		if (n < 0 || m < 0)
			return -1;
		if (n != m || memcmp(of_a, of_b, (size_t)n) != 0)
			return 0;
		if (n == 0)
			return 1;
	}
}

static int refuse_other(const struct beside *beside, const char *name)
{
	return fail("%s/%s is there already, with other content; it is not replaced: remove it, or "
		    "copy with --only-weights",
		    beside->to, name);
}

/* *there: the other folder has the file, with the same content. */
static int look(const struct beside *beside, const char *name, int source, bool *there)
{
	struct stat st;
	*there = false;
	if (fstatat(beside->to_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? STATUS_OK
			       : fail("looking at %s/%s: %s", beside->to, name, strerror(errno));
	/* A link's file may be read for the comparison: nothing of it is written. */
	int fd = openat(beside->to_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return fail("opening %s/%s: %s", beside->to, name, strerror(errno));
	int same = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? compare(source, fd) : 0;
	int err = errno;
	(void)close(fd);
	*there = same > 0;
	if (same < 0)
		return fail("comparing with %s/%s: %s", beside->to, name, strerror(err));
	return same > 0 ? STATUS_OK : refuse_other(beside, name);
}

static int take(struct beside *beside, struct beside_file *file, const char *from,
		const char *dtype, unsigned flags)
{
	int source = -1;
	bool there = false;
	int status = open_source(beside, from, file->name, flags, &source);
	if (source < 0) {
		file->state = BESIDE_LEFT;
		return status;
	}
	if (dtype != NULL && strcmp(file->name, "config.json") == 0)
		status = config_dtype_set(&source, dtype, file->name, &file->changed);
	if (status == STATUS_OK)
		status = look(beside, file->name, source, &there);
	file->state = there ? BESIDE_THERE : BESIDE_TAKEN;
	if (status == STATUS_OK && !there)
		status = create(beside, file);
	if (status == STATUS_OK && !there)
		status = copy_content(beside, file, source);
	(void)close(source);
	return status;
}

/* --- the calls --- */

static int open_folder(const char *path, int *ret)
{
	*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret >= 0 ? STATUS_OK : fail("opening the folder %s: %s", path, strerror(errno));
}

static bool is_same(const struct beside *beside)
{
	struct stat a, b;
	return fstat(beside->from_fd, &a) == 0 && fstat(beside->to_fd, &b) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int beside_find(struct beside *beside, const char *from, const char *to, const char *dtype,
		unsigned flags)
{
	*beside = (struct beside){.to = strdup(to), .from_fd = -1, .to_fd = -1};
	beside->sync = (flags & BESIDE_NO_SYNC) == 0;
	if (beside->to == NULL)
		return fail_memory();
	for (size_t n = strlen(to); n > 1 && beside->to[n - 1] == '/'; n--)
		beside->to[n - 1] = '\0';
	int status = open_folder(from, &beside->from_fd);
	if (status == STATUS_OK)
		status = open_folder(to, &beside->to_fd);
	if (status != STATUS_OK || is_same(beside))
		return status;
	status = list(beside, from);
	for (size_t i = 0; status == STATUS_OK && i < beside->n_files; i++)
		status = take(beside, &beside->files[i], from, dtype, flags);
	return status;
}

static int publish(const struct beside *beside, const struct beside_file *file)
{
	char proc[32];
	(void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
	int err = file->hidden != NULL
			  ? renameat2(AT_FDCWD, file->hidden, beside->to_fd, file->name,
				      RENAME_NOREPLACE)
			  : linkat(AT_FDCWD, proc, beside->to_fd, file->name, AT_SYMLINK_FOLLOW);
	if (err < 0)
		return errno == EEXIST
			       ? refuse_other(beside, file->name)
			       : fail("naming %s/%s: %s", beside->to, file->name, strerror(errno));
	return STATUS_OK;
}

int beside_publish(struct beside *beside)
{
	int status = STATUS_OK;
	for (size_t i = 0; status == STATUS_OK && i < beside->n_files; i++)
		if (beside->files[i].fd >= 0)
			status = publish(beside, &beside->files[i]);
	if (status == STATUS_OK && beside->n_files > 0 && beside->sync && fsync(beside->to_fd) < 0)
		status = fail("writing the folder %s: %s", beside->to, strerror(errno));
	return status;
}

void beside_close(struct beside *beside)
{
	for (size_t i = 0; i < beside->n_files; i++) {
		struct beside_file *file = &beside->files[i];
		if (file->fd >= 0)
			(void)close(file->fd);
		if (file->hidden != NULL)
			(void)unlink(file->hidden);
		free(file->hidden);
		free(file->name);
	}
	free(beside->files);
	if (beside->from_fd >= 0)
		(void)close(beside->from_fd);
	if (beside->to_fd >= 0)
		(void)close(beside->to_fd);
	free(beside->to);
	*beside = (struct beside){.from_fd = -1, .to_fd = -1};
}
