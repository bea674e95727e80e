/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "format/quote.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Appends the character at @p to @out so that no terminal acts on it: control
 * characters as escapes, bytes that are no UTF-8 as '?'.  Returns
 * the bytes of @p that it took. */
static size_t append_shown(const char *p, size_t n, char *out, size_t *used)
{
	size_t length = hoist__utf8_length(p, n);
	unsigned char c = (unsigned char)p[0];
	/* U+0080 .. U+009F, the other control characters, are 0xc2 0x80 .. 0x9f. */
	unsigned code = length == 2 && c == 0xc2 ? (unsigned char)p[1] : c;
	if (length == 0) {
		out[(*used)++] = '?';
		return 1;
	}
	if (code < 0x20 || code == 0x7f || (length == 2 && c == 0xc2 && code < 0xa0)) {
		*used += (size_t)snprintf(out + *used, 7, "\\u%04x", code & 0xff);
	} else {
		memcpy(out + *used, p, length);
		*used += length;
	}
	return length;
}

/* What one character can become, and what is kept free for the end of a text. */
#define SHOWN_BYTES 7
#define END_BYTES 36

const char *hoist__quoted(const char *name, size_t bytes, char out[HOIST__QUOTED_BYTES])
{
	size_t used = 0;
	size_t i = 0;
	out[used++] = '"';
	while (i < bytes && used + SHOWN_BYTES + END_BYTES < HOIST__QUOTED_BYTES) {
		if (name[i] == '"')
			out[used++] = '\\';
		i += append_shown(name + i, bytes - i, out, &used);
	}
	if (i == bytes)
		(void)snprintf(out + used, HOIST__QUOTED_BYTES - used, "\"");
	else
		(void)snprintf(out + used, HOIST__QUOTED_BYTES - used, "...\" (%zu bytes)", bytes);
	return out;
}

const char *hoist__file_quoted(const char *file, char out[HOIST__QUOTED_BYTES])
{
	size_t bytes = strlen(file);
	size_t used = 0;
	size_t i = 0;
	const size_t shown = HOIST__QUOTED_BYTES - END_BYTES;
	if (bytes > shown) {
		/* Its end says more than its beginning; start on a character. */
		for (i = bytes - shown; i < bytes && (file[i] & 0xc0) == 0x80; i++)
			;
		memcpy(out, "...", 3);
		used = 3;
	}
	while (i < bytes && used + SHOWN_BYTES < HOIST__QUOTED_BYTES)
		i += append_shown(file + i, bytes - i, out, &used);
	out[used] = '\0';
	return out;
}
