/* SPDX-License-Identifier: MIT */
/* Follows a snapshot's link to its blob.
 * The contract is in io/snapshot.h. */
#include "config.h"

#include "io/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/again.h"
#include "io/proc-path.h"

#define UP "../"
#define BLOBS "blobs/"

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Cuts @path, a folder in a snapshot, to its model's folder.  Returns: how many folders up that is:
 * 2 for the snapshot's own; 0: @path is in no snapshot. */
static unsigned levels_up(char *path)
{
	unsigned up = 0;
	bool below = false; /* the component behind this one is "snapshots" */
	for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0', up++) {
		if (below && begins(slash + 1, "models--"))
			return up >= 2 ? up : 0;
		below = strcmp(slash + 1, "snapshots") == 0;
	}
	return 0;
}

/* The name that a link's text gives to a blob, @up folders above the link; NULL: none. */
static const char *blob_of(const char *text, unsigned up)
{
	for (; up > 0 && begins(text, UP); up--)
		text += strlen(UP);
	if (up > 0 || !begins(text, BLOBS))
		return NULL;
	const char *name = text + strlen(BLOBS);
	bool plain = name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
		     strcmp(name, "..") != 0;
	return plain ? name : NULL;
}

/* True if the folder is the @model's, and not of a place to which its snapshot was moved. */
static bool are_of(int blobs, const char *model)
{
	char path[PATH_MAX];
	size_t n = strlen(model);
	return hoist__proc_path(blobs, path, sizeof path) == 0 && strncmp(path, model, n) == 0 &&
	       strcmp(path + n, "/blobs") == 0;
}

/* Opens the folder of the @model's blobs, @length bytes of the link's @text. */
static int open_blobs(int dir_fd, const char *text, size_t length, const char *model)
{
	char folder[PATH_MAX];
	(void)snprintf(folder, sizeof folder, "%.*s", (int)length, text);
	int fd = HOIST__UNINTERRUPTED(
		openat(dir_fd, folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? -EXDEV : -errno;
	if (are_of(fd, model))
		return fd;
	close(fd);
	return -EXDEV;
}

static int open_blob(int blobs, const char *name, int flags)
{
	struct stat st;
	int found = HOIST__UNINTERRUPTED(openat(blobs, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (found < 0)
		return -errno;
	int fd = -EXDEV;
	if (fstat(found, &st) < 0)
		fd = -errno;
	else if (S_ISREG(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == 0))
		fd = hoist__proc_reopen(found, flags);
	close(found);
	return fd;
}

int hoist__snapshot_open(int dir_fd, const char *name, int flags)
{
	char path[PATH_MAX];
	char text[PATH_MAX];
	if (strchr(name, '/') != NULL || hoist__proc_path(dir_fd, path, sizeof path) < 0)
		return -EXDEV;
	ssize_t n = readlinkat(dir_fd, name, text, sizeof text - 1);
	if (n < 0)
		return -EXDEV;
	text[n] = '\0';
	unsigned up = levels_up(path);
	const char *blob = up > 0 ? blob_of(text, up) : NULL;
	if (blob == NULL)
		return -EXDEV;
	/* Without the slash before the blob's name: a folder's name that ends with one would be
	 * followed if it is a link. */
	int blobs = open_blobs(dir_fd, text, (size_t)(blob - text) - 1, path);
	if (blobs < 0)
		return blobs;
	int fd = open_blob(blobs, blob, flags);
	close(blobs);
	return fd;
}
