/* SPDX-License-Identifier: MIT */
/* Builds files in memory, and reads them as the parsers read a file. */
#include "config.h"

#include "tests/support/format-bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

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

void put_format(struct bytes *bytes, const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof text)
		abort();
	put(bytes, text, (size_t)n);
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
	static const unsigned char zeros[4096];
	for (size_t take; n > 0; n -= take) {
		take = n < sizeof zeros ? n : sizeof zeros;
		put(bytes, zeros, take);
	}
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
	struct bytes *bytes = context;
	if (offset > bytes->n || n > bytes->n - offset) {
		fprintf(stderr, "%zu bytes at %llu were asked for, of %zu\n", n,
			(unsigned long long)offset, bytes->n);
		abort();
	}
	if (bytes->fail_at > 0 && --bytes->fail_at == 0)
		return hoist__fail(-EIO, "reading failed");
	bytes->read += n;
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

int bytes_parse_as(const struct bytes *bytes, size_t n, enum hoist__format format, bool lenient,
		   struct hoist__manifest **ret)
{
	struct bytes copy = {.p = malloc(n > 0 ? n : 1), .n = n};
	if (copy.p == NULL)
		abort();
	memcpy(copy.p, bytes->p, n);
	struct hoist__reader reader = reader_of(&copy, "f");
	reader.lenient = lenient;
	int err = hoist__format_parse(&reader, format, ret);
	free(copy.p);
	return err;
}

int bytes_parse(const struct bytes *bytes, size_t n, enum hoist__format format,
		struct hoist__manifest **ret)
{
	return bytes_parse_as(bytes, n, format, false, ret);
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

bool bytes_load_data(struct bytes *bytes, const char *name)
{
	const char *folder = getenv("srcdir");
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/data/%s", folder != NULL ? folder : ".", name);
	return bytes_load(bytes, path);
}
