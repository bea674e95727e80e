/* SPDX-License-Identifier: MIT */
/* format/json.h - a strict JSON reader over bytes in memory.
 *
 * A cursor, not a tree: the caller walks objects and arrays in place, and takes the keys it knows.
 * The reader exists because a file's header has demands that a general library need not meet.  The
 * reader allocates nothing, so that running out of memory cannot change the result.  The position
 * of each value is at hand for the message.  A header of 100 MB needs no tree of many times its
 * size.  And the caller sees every key, so that it can refuse duplicates.
 *
 * RFC 8259 is accepted exactly, in UTF-8 without a byte order mark.  Every failure is -EBADMSG with
 * a text made by hoist__json_fail():
 *
 *   <file>: tensor "<subject>": <what is wrong> (<unit> <byte>)
 */
#ifndef HOIST_FORMAT_JSON_H
#define HOIST_FORMAT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct hoist__json {
	const char *file; /* for messages */
	const char *unit; /* the unit of a position: "header byte", "byte" */
	const char *text; /* [0, bytes): the JSON */
	size_t bytes;
	size_t at;	     /* the next byte to read */
	uint64_t base;	     /* where text[0] is in the file */
	const char *subject; /* the tensor that is being read, or NULL */
	size_t subject_bytes;
};

/* A string as it is in the text, checked but not decoded. */
struct hoist__json_string {
	const char *raw; /* between the quotes */
	size_t bytes;	 /* of raw; the decoded string is never longer */
	size_t at;	 /* of the opening quote */
	bool escaped;	 /* contains a backslash, and must be decoded */
	bool nul;	 /* contains \u0000, and fits no C string */
};

enum hoist__json_number {
	HOIST__JSON_NATURAL,	 /* an integer in 0 .. 2^63-1 */
	HOIST__JSON_NEGATIVE,	 /* it begins with '-' */
	HOIST__JSON_TOO_BIG,	 /* an integer above 2^63-1 */
	HOIST__JSON_NOT_INTEGER, /* has a fraction or an exponent */
};

/* Enters an object ('{') or an array ('['); @what names it in the message. */
int hoist__json_open(struct hoist__json *json, char bracket, const char *what);

/* Moves to the next member of the object or array that @close ends; @n members were read before it.
 * Returns: 1 if there is one; 0 if it is closed; -EBADMSG. */
int hoist__json_next(struct hoist__json *json, char close, size_t n);

/* Returns the first byte of the next value, which tells its type; '\0' at the end. */
char hoist__json_peek(struct hoist__json *json);

/* Read a string; a string and the ':' behind it. */
int hoist__json_string(struct hoist__json *json, const char *what, struct hoist__json_string *ret);
int hoist__json_key(struct hoist__json *json, struct hoist__json_string *ret);

/* Reads a number; *value is set for HOIST__JSON_NATURAL only. */
int hoist__json_number(struct hoist__json *json, const char *what, enum hoist__json_number *kind,
		       int64_t *value);

/* Checks any value and passes over it; nested at most 64 deep. */
int hoist__json_skip(struct hoist__json *json);

/* Checks that only white space remains. */
int hoist__json_end(struct hoist__json *json);

/* Writes the decoded string and a NUL to @out (string->bytes + 1 bytes).
 * Returns the decoded length. */
size_t hoist__json_decode(const struct hoist__json_string *string, char *out);

/* True if the decoded string is @expected, which is ASCII and at most 16 bytes. */
bool hoist__json_is(const struct hoist__json_string *string, const char *expected);

/* Sets the message for the byte text[@at]; returns -EBADMSG. */
int hoist__json_fail(const struct hoist__json *json, size_t at, const char *format, ...)
	HOIST__PRINTF(3, 4);

#endif
