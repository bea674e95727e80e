/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "tests/support/format-archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void put(struct bytes *bytes, const void *from, size_t n)
{
	if (bytes->room - bytes->n < n || bytes->p == NULL) {
		bytes->room = 2 * bytes->room + n + 64;
		bytes->p = realloc(bytes->p, bytes->room);
		if (bytes->p == NULL)
			abort();
	}
	if (n > 0)
		memcpy(bytes->p + bytes->n, from, n);
	bytes->n += n;
}

void put_text(struct bytes *bytes, const char *text)
{
	put(bytes, text, strlen(text));
}

void put_number(struct bytes *bytes, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)(value >> (8 * i));
		put(bytes, &byte, 1);
	}
}

void put_zeros(struct bytes *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(bytes, "", 1);
}

void set_number(struct bytes *bytes, size_t at, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		bytes->p[at + i] = (unsigned char)(value >> (8 * i));
}

void bytes_free(struct bytes *bytes)
{
	free(bytes->p);
	*bytes = (struct bytes){.n = 0};
}

static int read_bytes(void *context, uint64_t offset, void *buffer, size_t n)
{
	const struct bytes *bytes = context;
	if (offset > bytes->n || n > bytes->n - offset) {
		fprintf(stderr, "%zu bytes at %llu were asked for, of %zu\n", n,
			(unsigned long long)offset, bytes->n);
		abort();
	}
	if (n > 0)
		memcpy(buffer, bytes->p + offset, n);
	return 0;
}

struct hoist__reader reader_of(const struct bytes *bytes, const char *name)
{
	return (struct hoist__reader){
		.name = name,
		.bytes = bytes->n,
		.read = read_bytes,
		.context = (void *)(uintptr_t)bytes,
	};
}

bool bytes_load(struct bytes *bytes, const char *path)
{
	unsigned char piece[4096];
	size_t n;
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		return false;
	while ((n = fread(piece, 1, sizeof piece, file)) > 0)
		put(bytes, piece, n);
	bool whole = ferror(file) == 0;
	fclose(file);
	return whole;
}

/* --- zip --- */

/* What both headers of an entry have from "version needed" to the sizes. */
static void put_common(struct bytes *to, const struct archive *archive, uint64_t bytes, bool zip64)
{
	put_number(to, zip64 ? 45 : 20, 2);
	put_number(to, (uint64_t)archive->flags | (archive->descriptors ? 8u : 0u), 2);
	put_number(to, archive->method, 2);
	put_number(to, 0, 4);	       /* time */
	put_number(to, 0x12345678, 4); /* checksum: not looked at */
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
		put_number(directory, 0xcafe, 2); /* another field before it */
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
