/* SPDX-License-Identifier: MIT */
/* tests/support/format-archive.h - zip archives, written byte by byte without hoist's code. */
#ifndef TESTS_FORMAT_ARCHIVE_H
#define TESTS_FORMAT_ARCHIVE_H

#include "tests/support/format-bytes.h"

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
