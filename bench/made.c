/* SPDX-License-Identifier: MIT */
/* Checkpoints in memory.  The contract is in made.h. */
#include "config.h"

#include "bench/made.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/fail.h"

/* Behind it the header is written, once its length is known. */
#define LENGTH_BYTES 8

static void write_header(FILE *out, size_t n, uint64_t rows, uint64_t columns)
{
	uint64_t bytes = rows * columns;
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out,
			      "%c\"t%zu\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 ",%" PRIu64
			      "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
			      i == 0 ? '{' : ',', i, rows, columns, i * bytes, (i + 1) * bytes);
	(void)fputc('}', out);
	/* The data begins at a multiple of 64, as that of other writers. */
	for (long at = ftell(out); at % 64 > 0; at++)
		(void)fputc(' ', out);
}

static void write_data(FILE *out, uint64_t bytes)
{
	static const char block[4096] = {1};
	for (uint64_t done = 0; done < bytes && ferror(out) == 0; done += sizeof block) {
		uint64_t left = bytes - done;
		(void)fwrite(block, 1, left < sizeof block ? (size_t)left : sizeof block, out);
	}
}

/* Writes all through @out.  Returns: false, errno: why not. */
static bool write_all(FILE *out, size_t n, uint64_t rows, uint64_t columns, struct made *made)
{
	unsigned char length[LENGTH_BYTES] = {0};
	(void)fwrite(length, 1, sizeof length, out);
	write_header(out, n, rows, columns);
	made->data_at = (uint64_t)ftell(out);
	for (size_t i = 0; i < sizeof length; i++)
		length[i] = (unsigned char)((made->data_at - LENGTH_BYTES) >> (8 * i));
	write_data(out, n * rows * columns);
	return fseek(out, 0, SEEK_SET) == 0 &&
	       fwrite(length, 1, sizeof length, out) == sizeof length && fflush(out) == 0 &&
	       ferror(out) == 0;
}

int made_open(size_t n, uint64_t rows, uint64_t columns, struct made *ret)
{
	ret->fd = memfd_create("hoist-bench", MFD_CLOEXEC);
	/* The stream has a descriptor of its own, which ends with it. */
	int copy = ret->fd < 0 ? -1 : fcntl(ret->fd, F_DUPFD_CLOEXEC, 0);
	FILE *out = copy < 0 ? NULL : fdopen(copy, "w+");
	bool written = out != NULL && write_all(out, n, rows, columns, ret);
	int err = errno;
	if (out != NULL)
		(void)fclose(out);
	else if (copy >= 0)
		(void)close(copy);
	(void)snprintf(ret->path, sizeof ret->path, "/proc/%ld/fd/%d", (long)getpid(), ret->fd);
	return written ? STATUS_OK : fail("a checkpoint in memory: %s", strerror(err));
}

void made_close(struct made *made)
{
	if (made->fd >= 0)
		(void)close(made->fd);
	made->fd = -1;
}
