/* SPDX-License-Identifier: MIT */
/* tools/fd.h - descriptors of files that the command reads and writes itself. */
#ifndef HOIST_TOOLS_FD_H
#define HOIST_TOOLS_FD_H

#include <stddef.h>
#include <sys/types.h>

/* Reads up to @n bytes, less only at the end of the file.  Returns: how many; -1, with errno. */
ssize_t fd_read(int fd, void *to, size_t n);

/* Writes all.  Returns: 0; -1, with errno. */
int fd_write(int fd, const void *from, size_t n);

/* The rights of a new file: to read and write, as far as the umask leaves them. */
mode_t fd_new_mode(void);

#endif
