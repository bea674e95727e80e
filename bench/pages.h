/* SPDX-License-Identifier: MIT */
/* bench/pages.h - files in the page cache or not, and memory that was touched just before.
 *
 * Functions return a STATUS_*, with the message printed. */
#ifndef HOIST_BENCH_PAGES_H
#define HOIST_BENCH_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Drops a file from the page cache; its dirty pages are written first. */
int pages_drop(int fd);

/* Reads a part of a file, so that the part lies in the page cache. */
int pages_read(int fd, uint64_t offset, uint64_t bytes);

/* Makes a part of a file half-cached: of every 32 MiB of the file the first 16 lie in the page
 * cache.  All are read, and the others dropped, so that the cache has pages as large as those of a
 * hot file: reads without readahead leave small pages, which take twice the time to touch in a map.
 */
int pages_halve(int fd, uint64_t offset, uint64_t bytes);

/* Adds to *ret the bytes of the pages of a part of a file that lie in the page cache. */
int pages_count(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret);

/* @bytes of fresh memory, huge pages if possible, all of it touched; munmap() gives it back.  A
 * virtual machine whose host takes free memory back pays for the first touch of it, several times
 * what the kernel itself takes: that would measure the host, and whichever subject comes first. */
int pages_touch(size_t bytes, void **ret);

#define PAGES_TOUCHED_LEAST ((size_t)1 << 30)
#define PAGES_OF_TESTS ((size_t)16 << 20)
/* The bytes to be touched for a subject that will take @bytes of memory: PAGES_TOUCHED_LEAST at
 * least, since the kernel does not always give the pages that were freed last.  A subject below
 * PAGES_OF_TESTS is a test's, whose figures nobody compares: touching a GiB takes half a second. */
static inline size_t pages_to_touch(uint64_t bytes)
{
	return bytes > PAGES_TOUCHED_LEAST || bytes < PAGES_OF_TESTS ? (size_t)bytes
								     : PAGES_TOUCHED_LEAST;
}

#endif
