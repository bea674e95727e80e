/* SPDX-License-Identifier: MIT */
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

static void put_string(struct file_bytes *file, const char *text)
{
	put_number(file, 8, strlen(text));
	put_bytes(file, text, strlen(text));
}

static void write_file(const char *name, const struct file_bytes *content)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", support_folder(), name);
	FILE *file = fopen(path, "wb");
	CHECK(file != NULL);
	CHECK(content->n == 0 || fwrite(content->bytes, 1, content->n, file) == content->n);
	CHECK(fclose(file) == 0);
}

void write_text(const char *name, const char *text)
{
	struct file_bytes content = {.n = 0};
	put_bytes(&content, text, strlen(text));
	write_file(name, &content);
	free(content.bytes);
}

void write_gguf(const char *name, const char *tensor, unsigned no, unsigned count,
		unsigned n_tensors)
{
	struct file_bytes content = {.n = 0};
	put_bytes(&content, "GGUF\3\0\0\0", 8);
	put_number(&content, 8, 1);
	put_number(&content, 8, count > 0 ? 4 : 1);
	put_string(&content, "general.name");
	put_number(&content, 4, 8);
	put_string(&content, "small");
	if (count > 0) {
		put_string(&content, "split.no");
		put_number(&content, 4, 2);
		put_number(&content, 2, no);
		put_string(&content, "split.count");
		put_number(&content, 4, 2);
		put_number(&content, 2, count);
		put_string(&content, "split.tensors.count");
		put_number(&content, 4, 5);
		put_number(&content, 4, n_tensors);
	}
	put_string(&content, tensor);
	put_number(&content, 4, 1);
	put_number(&content, 8, 2);
	put_number(&content, 4, 24);
	put_number(&content, 8, 0);
	put_zeros(&content, (32 - content.n % 32) % 32);
	put_bytes(&content, "ab", 2);
	write_file(name, &content);
	free(content.bytes);
}

void write_npy(const char *name)
{
	struct file_bytes content = {.n = 0};
	static const char dict[] = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }";
	put_bytes(&content, "\x93NUMPY\1\0", 8);
	put_number(&content, 2, 118);
	put_bytes(&content, dict, sizeof dict - 1);
	while (content.n < 127)
		put_bytes(&content, " ", 1);
	put_bytes(&content, "\n", 1);
	put_zeros(&content, 12);
	write_file(name, &content);
	free(content.bytes);
}
