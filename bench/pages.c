/* SPDX-License-Identifier: MIT */
/* The page cache, and memory that was touched.  The contract is in pages.h. */
#include "config.h"

#include "bench/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/fail.h"
#include "cli/interrupt.h"

#define PIECE_BYTES ((size_t)1 << 20)
#define HALF_BYTES ((uint64_t)16 << 20)

int pages_drop(int fd)
{
	/* Dirty pages stay: a file that was just written must be on the disk first. */
	if (fdatasync(fd) != 0 && errno != EINVAL && errno != EROFS)
		return fail("writing to the disk what is in the page cache: %s", strerror(errno));
	int err = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return err == 0 ? STATUS_OK : fail("dropping it from the page cache: %s", strerror(err));
}

int pages_read(int fd, uint64_t offset, uint64_t bytes)
{
	char *piece = malloc(PIECE_BYTES);
	if (piece == NULL)
		return fail_memory();
	int status = STATUS_OK;
	for (uint64_t done = 0; done < bytes && status == STATUS_OK;) {
		uint64_t left = bytes - done;
		ssize_t n = pread(fd, piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES,
				  (off_t)(offset + done));
		if (n <= 0)
			status = fail("reading ahead: %s",
				      n < 0 ? strerror(errno) : "the file has shrunk");
		else
			done += (uint64_t)n;
		if (interrupted())
			status = fail("stopped by a signal");
	}
	free(piece);
	return status;
}

int pages_halve(int fd, uint64_t offset, uint64_t bytes)
{
	int status = pages_drop(fd);
	if (status == STATUS_OK)
		status = pages_read(fd, offset, bytes);
	int err = 0;
	uint64_t at = offset / (2 * HALF_BYTES) * (2 * HALF_BYTES) + HALF_BYTES;
	for (; status == STATUS_OK && err == 0 && at < offset + bytes; at += 2 * HALF_BYTES)
		err = posix_fadvise(fd, (off_t)at, (off_t)HALF_BYTES, POSIX_FADV_DONTNEED);
	return err == 0 ? status : fail("dropping it from the page cache: %s", strerror(err));
}

int pages_count(int fd, uint64_t offset, uint64_t part_bytes, uint64_t *ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = offset / page * page;
	size_t bytes = (size_t)(offset + part_bytes - start);
	size_t n = (bytes + (size_t)page - 1) / (size_t)page;
	unsigned char *pages = malloc(n);
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)start);
	int status = STATUS_OK;
	if (pages == NULL || map == MAP_FAILED)
		status = fail_memory();
	else if (mincore(map, bytes, pages) != 0)
		status = fail("asking what is in the page cache: %s", strerror(errno));
	for (size_t i = 0; i < n && status == STATUS_OK; i++)
		*ret += (pages[i] & 1) * page;
	if (map != MAP_FAILED)
		(void)munmap(map, bytes);
	free(pages);
	return status;
}

int pages_touch(size_t bytes, void **ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return fail_memory();
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes; i += page)
		((volatile char *)memory)[i] = 1;
	*ret = memory;
	return STATUS_OK;
}
