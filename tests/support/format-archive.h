/* SPDX-License-Identifier: MIT */
/* tests/support/format-archive.h - files in memory, read as a parser reads them; and zip archives, written
 * byte by byte without hoist's code. */
#ifndef TESTS_FORMAT_ARCHIVE_H
#define TESTS_FORMAT_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"

/* Bytes that grow; running out of memory ends the test. */
struct bytes {
	unsigned char *p;
	size_t n;
	size_t room;
};
void put(struct bytes *bytes, const void *from, size_t n);
void put_text(struct bytes *bytes, const char *text);
void put_number(struct bytes *bytes, uint64_t value, unsigned n); /* little-endian */
void put_zeros(struct bytes *bytes, size_t n);
void set_number(struct bytes *bytes, size_t at, uint64_t value, unsigned n);
void bytes_free(struct bytes *bytes);

/* A reader of @bytes under the name @name.  Reading beyond them ends the program: parsers must
 * check first. */
struct hoist__reader reader_of(const struct bytes *bytes, const char *name);

/* A file of this machine as bytes.  Returns: found. */
bool bytes_load(struct bytes *bytes, const char *path);

struct archive {
	struct bytes file;
	struct bytes directory;
	size_t n;
	size_t directory_at; /* known at the end, as are: */
	size_t end64_at;
	size_t end_at;
	/* Set before an entry is added: */
	bool zip64;	  /* each number in 64 bits, as for large files */
	bool descriptors; /* sizes come behind the bytes, as PyTorch has it */
	size_t align;	  /* of the bytes, by an extra field of the local header; 0: none */
	uint16_t method;
	uint16_t flags;
};

/* Returns where its bytes begin. */
size_t archive_add(struct archive *archive, const char *name, const void *data, size_t n);
void archive_end(struct archive *archive, const char *comment);
void archive_free(struct archive *archive);

#endif
