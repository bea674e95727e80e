/* SPDX-License-Identifier: MIT */
/* tests/format/gguf-bytes.h - the pieces that GGUF files are made of. */
#ifndef HOIST_TESTS_FORMAT_GGUF_BYTES_H
#define HOIST_TESTS_FORMAT_GGUF_BYTES_H

#include <string.h>

#include "tests/support/format-bytes.h"

/* Numbers below 256, with a byte given as a string. */
#define N4(byte) byte "\0\0\0"
#define N8(byte) byte "\0\0\0\0\0\0\0"

static inline void put_string(struct bytes *file, const char *text)
{
	put_number(file, strlen(text), 8);
	put_text(file, text);
}

static inline void begin_gguf(struct bytes *file, uint64_t n_tensors, uint64_t n_pairs)
{
	file->n = 0;
	put_text(file, "GGUF");
	put_number(file, 3, 4);
	put_number(file, n_tensors, 8);
	put_number(file, n_pairs, 8);
}

#endif
