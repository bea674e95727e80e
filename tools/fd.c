/* SPDX-License-Identifier: MIT */
/* Reads and writes descriptors.
 * The contract is in tools/fd.h. */
#include "config.h"

#include "tools/fd.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t fd_read(int fd, void *to, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = read(fd, (char *)to + done, n - done);
		if (got == 0)
			break;
		if (got < 0 && errno != EINTR)
			return -1;
		done += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)done;
}

int fd_write(int fd, const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = write(fd, (const char *)from + done, n - done);
		if (put < 0 && errno != EINTR)
			return -1;
		done += put > 0 ? (size_t)put : 0;
	}
	return 0;
}

mode_t fd_new_mode(void)
{
	mode_t mask = umask(0);
	(void)umask(mask);
	return 0666 & ~mask;
}
