/* SPDX-License-Identifier: MIT */
/* base/utf8.h - characters of UTF-8 (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF). */
#ifndef HOIST_FORMAT_UTF8_H
#define HOIST_FORMAT_UTF8_H

#include <stddef.h>

/* Bytes of the character that begins at text[0], of which @n exist; 0 if it is
 * not valid. */
size_t hoist__utf8_length(const char *text, size_t n);

/* Writes @code (a valid code point) to @out; returns its bytes, 1 to 4. */
size_t hoist__utf8_encode(unsigned code, char *out);

/* How many bytes of @text, from its beginning, are UTF-8 and no NUL: what a C string can hold. */
size_t hoist__utf8_text(const char *text, size_t n);

#endif
