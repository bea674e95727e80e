/* SPDX-License-Identifier: MIT */
/* format/gguf.h - shared by the files that read and write GGUF.
 *
 * Only reading tells how long a header is.  It is fetched in pieces that double, and never further
 * than twice the needed bytes (or the first piece). */
#ifndef HOIST_FORMAT_GGUF_H
#define HOIST_FORMAT_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "format/manifest.h"
#include "format/quote.h"

#define HOIST__GGUF_PREFIX_BYTES 24
#define HOIST__GGUF_VERSION 3

/* Types of values, with their numbers in the file. */
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
	unsigned char *bytes; /* of the header as far as it is read; moves when it grows */
	size_t n;
	size_t at; /* the next byte */
	uint64_t alignment;
	const char *kind;    /* of the object being read, for messages ("tensor"); NULL: none */
	const char *subject; /* the name of that object */
	size_t subject_bytes;
};

/* Makes sure that @bytes are there at the cursor; @what needs them.
 * Returns: 0; -EBADMSG if the file, or the limit, ends before; -ENOMEM; the reader's error. */
int hoist__gguf_need(struct hoist__gguf *gguf, uint64_t bytes, const char *what);

/* Takes a number of @n bytes. */
int hoist__gguf_take(struct hoist__gguf *gguf, unsigned n, const char *what, uint64_t *ret);

/* Takes a name: UTF-8 without a NUL, kept with the manifest. */
int hoist__gguf_take_name(struct hoist__gguf *gguf, const char *what, const char **ret,
			  size_t *ret_bytes);

/* Fails on the byte @at: `<file>: <kind> "<subject>": <what is wrong> (byte <at>)`; returns @err.
 */
int hoist__gguf_fail(const struct hoist__gguf *gguf, int err, size_t at, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* Takes the @n pairs at the cursor: into the manifest's metadata, as text.  Also takes the
 * alignment. */
int hoist__gguf_pairs(struct hoist__gguf *gguf, uint64_t n);

/* Returns the bytes of the pair at @pair, which has been read before. */
size_t hoist__gguf_pair_bytes(const unsigned char *pair);

#endif
