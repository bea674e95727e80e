/* SPDX-License-Identifier: MIT */
/* base/utf8.h - characters of UTF-8 (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF). */
#ifndef HOIST_BASE_UTF8_H
#define HOIST_BASE_UTF8_H

#include <stddef.h>

/* Returns the bytes of the character that begins at text[0]; 0 if it is not valid.  @text has @n
 * bytes. */
size_t hoist__utf8_length(const char *text, size_t n);

/* Writes @code (a valid code point) to @out; returns its bytes, 1 to 4. */
size_t hoist__utf8_encode(unsigned code, char *out);

/* Returns how many bytes of @text, from its beginning, are UTF-8 without NUL: a C string can hold
 * these. */
size_t hoist__utf8_text(const char *text, size_t n);

#endif
