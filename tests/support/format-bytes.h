/* SPDX-License-Identifier: MIT */
/* tests/support/format-bytes.h - files in memory for tests of format/: a reader over a block of the file's
 * exact size, so that a sanitizer sees a read beyond it, and bytes that are put together. */
#ifndef HOIST_TESTS_FORMAT_BYTES_H
#define HOIST_TESTS_FORMAT_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/format.h"

struct file_bytes {
	unsigned char *bytes;
	size_t n;
	size_t room;
	uint64_t read;	/* that were asked for */
	int fail_after; /* reads that succeed; -1: all */
};

static inline void put_bytes(struct file_bytes *file, const void *bytes, size_t n)
{
	if (n > file->room - file->n) {
		file->room = 2 * (file->n + n);
		file->bytes = realloc(file->bytes, file->room);
		if (file->bytes == NULL)
			abort();
	}
	if (n > 0)
		memcpy(file->bytes + file->n, bytes, n);
	file->n += n;
}

static inline void put_number(struct file_bytes *file, unsigned n, uint64_t value)
{
	for (unsigned i = 0; i < n; i++)
		put_bytes(file, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static inline void put_zeros(struct file_bytes *file, size_t n)
{
	while (n-- > 0)
		put_bytes(file, "", 1);
}

static inline int read_bytes(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	struct file_bytes *file = context;
	if (offset > file->n || bytes > file->n - offset) {
		fprintf(stderr, "a read of %zu bytes at %llu of %zu\n", bytes,
			(unsigned long long)offset, file->n);
		abort();
	}
	if (file->fail_after == 0)
		return hoist__fail(-EIO, "reading failed");
	file->fail_after -= file->fail_after > 0;
	file->read += bytes;
	memcpy(buffer, file->bytes + offset, bytes);
	return 0;
}

/* Parses a copy of the first @n of its bytes. */
static inline int parse_bytes(const struct file_bytes *file, size_t n, enum hoist__format format,
			      struct hoist__manifest **ret)
{
	struct file_bytes copy = {.bytes = malloc(n > 0 ? n : 1), .n = n, .fail_after = -1};
	if (copy.bytes == NULL)
		abort();
	memcpy(copy.bytes, file->bytes, n);
	const struct hoist__reader reader = {
		.name = "f", .bytes = n, .read = read_bytes, .context = &copy};
	int err = hoist__format_parse(&reader, format, ret);
	free(copy.bytes);
	return err;
}

#endif
