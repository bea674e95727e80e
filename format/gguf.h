/* SPDX-License-Identifier: MIT */
/* format/gguf.h - what the files that read and write GGUF share.
 *
 * How long a header is, only reading it says: it is fetched in pieces that double, and never
 * further than twice what was needed (or the first piece). */
#ifndef HOIST_FORMAT_GGUF_H
#define HOIST_FORMAT_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "format/manifest.h"
#include "format/quote.h"

#define HOIST__GGUF_PREFIX_BYTES 24
#define HOIST__GGUF_VERSION 3

/* Types of values, as they are in the file. */
enum hoist__gguf_type {
	HOIST__GGUF_U8,
	HOIST__GGUF_I8,
	HOIST__GGUF_U16,
	HOIST__GGUF_I16,
	HOIST__GGUF_U32,
	HOIST__GGUF_I32,
	HOIST__GGUF_F32,
	HOIST__GGUF_BOOL,
	HOIST__GGUF_STRING,
	HOIST__GGUF_ARRAY,
	HOIST__GGUF_U64,
	HOIST__GGUF_I64,
	HOIST__GGUF_F64,
	HOIST__GGUF_N_TYPES
};

struct hoist__gguf {
	const struct hoist__reader *reader;
	char file[HOIST__QUOTED_BYTES]; /* its name for messages */
	struct hoist__manifest_box *box;
	unsigned char *bytes; /* of the header, as far as it is read; moves when it grows */
	size_t n;
	size_t at; /* what comes next */
	uint64_t alignment;
	const char *kind;    /* "tensor": what is being read, for messages; or NULL, */
	const char *subject; /* and what it is called */
	size_t subject_bytes;
};

/* Makes sure of @bytes at the cursor; @what needs them.
 * Returns: 0; -EBADMSG the file, or the limit, ends before; -ENOMEM; what reading says. */
int hoist__gguf_need(struct hoist__gguf *gguf, uint64_t bytes, const char *what);

/* Takes a number of @n bytes. */
int hoist__gguf_take(struct hoist__gguf *gguf, unsigned n, const char *what, uint64_t *ret);

/* Takes the name of something: UTF-8 without a NUL, kept with the manifest. */
int hoist__gguf_take_name(struct hoist__gguf *gguf, const char *what, const char **ret,
			  size_t *ret_bytes);

/* Fails on the byte @at: `<file>: <kind> "<subject>": <what is wrong> (byte <at>)`; returns @err.
 */
int hoist__gguf_fail(const struct hoist__gguf *gguf, int err, size_t at, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* The @n pairs at the cursor: into the manifest's metadata, as text, and the alignment. */
int hoist__gguf_pairs(struct hoist__gguf *gguf, uint64_t n);

/* The bytes of the pair that begins there, which has been read before. */
size_t hoist__gguf_pair_bytes(const unsigned char *pair);

#endif
