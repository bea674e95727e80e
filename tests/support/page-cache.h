/* SPDX-License-Identifier: MIT */
/* tests/support/page-cache.h - files in the page cache, or out of it.
 *
 * Cached pages may leave at any moment, where memory is short or the host takes memory back; what
 * the library reads meanwhile brings them in again, so a look behind a load tells nothing.  A test
 * whose outcome needs cached pages therefore fills the cache and tries again until the outcome
 * came:
 *
 *     uint64_t until = 0;
 *     do
 *             page_cache_fill(path);
 *     while (!has_outcome() && patience(&until));
 */
#ifndef HOIST_TESTS_PAGE_CACHE_H
#define HOIST_TESTS_PAGE_CACHE_H

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/check.h"

/* Reads all of the file into the page cache, without reading ahead. */
static inline void page_cache_fill(const char *path)
{
	static char block[1 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	ssize_t n;
	while ((n = read(fd, block, sizeof block)) > 0)
		continue;
	CHECK(n == 0);
	close(fd);
}

/* Drops a range of the file, which is written to its disk first; @bytes 0: to the end.  A tmpfs
 * keeps all pages. */
static inline void page_cache_drop(const char *path, off_t offset, off_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fsync(fd) == 0);
	CHECK(posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED) == 0);
	close(fd);
}

#endif
