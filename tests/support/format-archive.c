/* SPDX-License-Identifier: MIT */
/* Writes zip archives, with or without Zip64, entry by entry. */
#include "config.h"

#include "tests/support/format-archive.h"

#include <stdlib.h>
#include <string.h>

/* The part that both headers of an entry share, from "version needed" to the sizes. */
static void put_common(struct bytes *to, const struct archive *archive, uint64_t bytes, bool zip64)
{
	put_number(to, zip64 ? 45 : 20, 2);
	put_number(to, (uint64_t)archive->flags | (archive->descriptors ? 8u : 0u), 2);
	put_number(to, archive->method, 2);
	put_number(to, 0, 4);	       /* time */
	put_number(to, 0x12345678, 4); /* checksum: nobody looks at it */
	put_number(to, zip64 ? UINT32_MAX : bytes, 4);
	put_number(to, zip64 ? UINT32_MAX : bytes, 4);
}

size_t archive_add(struct archive *archive, const char *name, const void *data, size_t n)
{
	struct bytes *file = &archive->file;
	struct bytes *directory = &archive->directory;
	size_t header = file->n;
	size_t extra = 0;
	while (archive->align > 0 && (header + 30 + strlen(name) + extra) % archive->align != 0)
		extra++;
	put_text(file, "PK\3\4");
	put_common(file, archive, archive->descriptors ? 0 : n, false);
	put_number(file, strlen(name), 2);
	put_number(file, extra, 2);
	put_text(file, name);
	for (size_t i = 0; i < extra; i++)
		put(file, i == 0 ? "F" : i == 1 ? "B" : "Z", 1);
	size_t at = file->n;
	put(file, data, n);
	if (archive->descriptors) {
		put_text(file, "PK\7\10");
		put_number(file, 0x12345678, 4);
		put_number(file, n, 4);
		put_number(file, n, 4);
	}
	put_text(directory, "PK\1\2");
	put_number(directory, 20, 2);
	put_common(directory, archive, n, archive->zip64);
	put_number(directory, strlen(name), 2);
	put_number(directory, archive->zip64 ? 28 + 6 : 0, 2);
	put_number(directory, 0, 2); /* comment */
	put_number(directory, 0, 2); /* disk */
	put_number(directory, 0, 6);
	put_number(directory, archive->zip64 ? UINT32_MAX : header, 4);
	put_text(directory, name);
	if (archive->zip64) {
		put_number(directory, 0xcafe, 2); /* another field comes first */
		put_number(directory, 2, 2);
		put_number(directory, 0, 2);
		put_number(directory, 1, 2);
		put_number(directory, 24, 2);
		put_number(directory, n, 8);
		put_number(directory, n, 8);
		put_number(directory, header, 8);
	}
	archive->n++;
	return at;
}

void archive_end(struct archive *archive, const char *comment)
{
	struct bytes *file = &archive->file;
	bool zip64 = archive->zip64;
	archive->directory_at = file->n;
	put(file, archive->directory.p, archive->directory.n);
	archive->end64_at = file->n;
	if (zip64) {
		put_text(file, "PK\6\6");
		put_number(file, 44, 8);
		put_number(file, 45, 2);
		put_number(file, 45, 2);
		put_number(file, 0, 8);
		put_number(file, archive->n, 8);
		put_number(file, archive->n, 8);
		put_number(file, archive->directory.n, 8);
		put_number(file, archive->directory_at, 8);
		put_text(file, "PK\6\7");
		put_number(file, 0, 4);
		put_number(file, archive->end64_at, 8);
		put_number(file, 1, 4);
	}
	archive->end_at = file->n;
	put_text(file, "PK\5\6");
	put_number(file, 0, 4);
	put_number(file, zip64 ? UINT16_MAX : archive->n, 2);
	put_number(file, zip64 ? UINT16_MAX : archive->n, 2);
	put_number(file, zip64 ? UINT32_MAX : archive->directory.n, 4);
	put_number(file, zip64 ? UINT32_MAX : archive->directory_at, 4);
	put_number(file, strlen(comment), 2);
	put_text(file, comment);
	/* Exact, so that a sanitizer sees each byte too many. */
	unsigned char *exact = malloc(file->n);
	if (exact == NULL)
		abort();
	memcpy(exact, file->p, file->n);
	free(file->p);
	file->p = exact;
	file->room = file->n;
}

void archive_free(struct archive *archive)
{
	bytes_free(&archive->file);
	bytes_free(&archive->directory);
	*archive = (struct archive){.n = 0};
}
