/* SPDX-License-Identifier: MIT */
/* tests/support/format-bytes.h - files in memory: bytes that are put together, and read as a parser
 * reads a file. */
#ifndef HOIST_TESTS_FORMAT_BYTES_H
#define HOIST_TESTS_FORMAT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"

/* Bytes that grow; running out of memory ends the test. */
struct bytes {
	unsigned char *p;
	size_t n;
	size_t room;
	uint64_t read; /* bytes that the reader gave */
	int fail_at;   /* the read that fails, counted from 1; 0: none */
};
void put(struct bytes *bytes, const void *from, size_t n);
void put_text(struct bytes *bytes, const char *text);
void put_format(struct bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_number(struct bytes *bytes, uint64_t value, unsigned n); /* little-endian */
void put_zeros(struct bytes *bytes, size_t n);
void set_number(struct bytes *bytes, size_t at, uint64_t value, unsigned n);
void bytes_free(struct bytes *bytes);

/* The bytes of a literal, without its end. */
#define PUT(bytes, literal) put(bytes, literal, sizeof(literal) - 1)

/* A reader of @bytes under the name @name.  Reading beyond the bytes ends the program: parsers must
 * check first. */
struct hoist__reader reader_of(const struct bytes *bytes, const char *name);

/* Parses a copy of the first @n bytes, in a block of that size: a sanitizer sees a read beyond it.
 * The file's name is "f". */
int bytes_parse_as(const struct bytes *bytes, size_t n, enum hoist__format format, bool lenient,
		   struct hoist__manifest **ret);
int bytes_parse(const struct bytes *bytes, size_t n, enum hoist__format format,
		struct hoist__manifest **ret);

/* A file of this machine as bytes; one of tests/data.  Returns: found. */
bool bytes_load(struct bytes *bytes, const char *path);
bool bytes_load_data(struct bytes *bytes, const char *name);

#endif
