/* SPDX-License-Identifier: MIT */
/* Writes small files of several formats by hand. */
#include "config.h"

#include "tests/support/load-files.h"

#include <string.h>

#include "tests/support/format-bytes.h"
#include "tests/support/load-support.h"

const char *in_folder(const char *name)
{
	static char path[512];
	snprintf(path, sizeof path, "%s/%s", support_folder(), name);
	return path;
}

static void put_string(struct bytes *file, const char *text)
{
	put_number(file, strlen(text), 8);
	put(file, text, strlen(text));
}

static void write_file(const char *name, const struct bytes *content)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", support_folder(), name);
	FILE *file = fopen(path, "wb");
	CHECK(file != NULL);
	CHECK(content->n == 0 || fwrite(content->p, 1, content->n, file) == content->n);
	CHECK(fclose(file) == 0);
}

void write_text(const char *name, const char *text)
{
	struct bytes content = {.n = 0};
	put(&content, text, strlen(text));
	write_file(name, &content);
	bytes_free(&content);
}

void write_gguf(const char *name, const char *tensor, unsigned no, unsigned count,
		unsigned n_tensors)
{
	struct bytes content = {.n = 0};
	put(&content, "GGUF\3\0\0\0", 8);
	put_number(&content, 1, 8);
	put_number(&content, count > 0 ? 4 : 1, 8);
	put_string(&content, "general.name");
	put_number(&content, 8, 4);
	put_string(&content, "small");
	if (count > 0) {
		put_string(&content, "split.no");
		put_number(&content, 2, 4);
		put_number(&content, no, 2);
		put_string(&content, "split.count");
		put_number(&content, 2, 4);
		put_number(&content, count, 2);
		put_string(&content, "split.tensors.count");
		put_number(&content, 5, 4);
		put_number(&content, n_tensors, 4);
	}
	put_string(&content, tensor);
	put_number(&content, 1, 4);
	put_number(&content, 2, 8);
	put_number(&content, 24, 4);
	put_number(&content, 0, 8);
	put_zeros(&content, (32 - content.n % 32) % 32);
	put(&content, "ab", 2);
	write_file(name, &content);
	bytes_free(&content);
}

void write_npy(const char *name)
{
	struct bytes content = {.n = 0};
	static const char dict[] = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }";
	put(&content, "\x93NUMPY\1\0", 8);
	put_number(&content, 118, 2);
	put(&content, dict, sizeof dict - 1);
	while (content.n < 127)
		put(&content, " ", 1);
	put(&content, "\n", 1);
	put_zeros(&content, 12);
	write_file(name, &content);
	bytes_free(&content);
}
