/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "format/json-write.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static bool reserve(struct hoist__json_text *json, size_t bytes)
{
	if (json->err < 0)
		return false;
	if (json->room - json->bytes >= bytes)
		return true;
	size_t room = json->room < 4096 ? 4096 : json->room;
	while (room - json->bytes < bytes)
		room *= 2;
	char *text = realloc(json->text, room);
	if (text == NULL) {
		json->err = hoist__fail_nomem("a header", room);
		return false;
	}
	json->text = text;
	json->room = room;
	return true;
}

void hoist__json_put(struct hoist__json_text *json, const char *text, size_t bytes)
{
	if (!reserve(json, bytes))
		return;
	memcpy(json->text + json->bytes, text, bytes);
	json->bytes += bytes;
}

void hoist__json_printf(struct hoist__json_text *json, const char *format, ...)
{
	char piece[128];
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(piece, sizeof piece, format, arguments);
	va_end(arguments);
	if (n >= (int)sizeof piece)
		n = (int)sizeof piece - 1;
	if (n > 0)
		hoist__json_put(json, piece, (size_t)n);
}

void hoist__json_put_string(struct hoist__json_text *json, const char *string)
{
	size_t n = strlen(string);
	hoist__json_put(json, "\"", 1);
	for (size_t at = 0; at < n;) {
		unsigned char c = (unsigned char)string[at];
		size_t length = hoist__utf8_length(string + at, n - at);
		if (length == 0)
			hoist__json_put(json, "\xef\xbf\xbd", 3);
		else if (c == '"' || c == '\\')
			hoist__json_printf(json, "\\%c", c);
		else if (c < 0x20)
			hoist__json_printf(json, "\\u%04x", c);
		else
			hoist__json_put(json, string + at, length);
		at += length == 0 ? 1 : length;
	}
	hoist__json_put(json, "\"", 1);
}
