/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/utf8.h"

#include <stdint.h>

size_t hoist__utf8_length(const char *text, size_t n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (n == 0)
		return 0;
	unsigned char c = (unsigned char)text[0];
	if (c < 0x80)
		return 1;
	size_t length = c >= 0xc2 && c <= 0xdf	 ? 2
			: c >= 0xe0 && c <= 0xef ? 3
			: c >= 0xf0 && c <= 0xf4 ? 4
						 : 0;
	if (length == 0 || length > n)
		return 0;
	uint32_t code = c & (0xffu >> (length + 1));
	for (size_t i = 1; i < length; i++) {
		unsigned char next = (unsigned char)text[i];
		if ((next & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (next & 0x3f);
	}
	if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return length;
}

size_t hoist__utf8_text(const char *text, size_t n)
{
	size_t at = 0;
	while (at < n && text[at] != '\0') {
		size_t length = hoist__utf8_length(text + at, n - at);
		if (length == 0)
			break;
		at += length;
	}
	return at;
}

size_t hoist__utf8_encode(unsigned code, char *out)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = length; i-- > 1; code >>= 6)
		out[i] = (char)(0x80 | (code & 0x3f));
	out[0] = (char)((0xf00u >> length & 0xff) | code);
	return length;
}
