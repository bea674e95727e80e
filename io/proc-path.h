/* SPDX-License-Identifier: MIT */
/* io/proc-path.h - where a descriptor's file lies, and the file opened anew: by /proc/self/fd. */
#ifndef HOIST_IO_PROC_PATH_H
#define HOIST_IO_PROC_PATH_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "io/again.h"

#define HOIST__PROC_PATH_BYTES 32

/* The path that the file of @fd has now, links resolved.  AT_FDCWD: the process's folder.
 * Returns: 0; -ENOENT, without /proc, and the like. */
static inline int hoist__proc_path(int fd, char *path, size_t bytes)
{
	char link[HOIST__PROC_PATH_BYTES];
	if (fd == AT_FDCWD)
		return getcwd(path, bytes) == NULL ? -errno : 0;
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, bytes - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	return 0;
}

/* Opens exactly the file of @fd, which O_PATH found.  Returns: a descriptor; -errno of open(2). */
static inline int hoist__proc_reopen(int fd, int flags)
{
	char link[HOIST__PROC_PATH_BYTES];
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	int again = HOIST__UNINTERRUPTED(open(link, flags));
	return again < 0 ? -errno : again;
}

#endif
