/* SPDX-License-Identifier: MIT */
/* base/json-out.c - writes JSON to a file descriptor.
 * The contract is in base/json-out.h. */
#include "config.h"

#include "base/json-out.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limit.h"
#include "base/utf8.h"

/* After an error all bytes are dropped, so that callers write on and look at the error once, at the
 * end. */
static void flush(struct hoist__json_out *out)
{
	const char *from = out->buffer;
	while (out->n > 0 && out->err == 0) {
		ssize_t n = hoist__write(out->fd, from, out->n);
		if (n == 0)
			out->err = hoist__fail(-EIO, "writing %zu bytes: none were", out->n);
		if (n < 0 && errno != EINTR)
			out->err = hoist__fail_errno(-errno, "writing %zu bytes", out->n);
		if (n > 0) {
			from += n;
			out->n -= (size_t)n;
		}
	}
	out->n = 0;
}

static void put(struct hoist__json_out *out, const char *text, size_t n)
{
	while (n > 0) {
		size_t room = sizeof out->buffer - out->n;
		size_t part = n < room ? n : room;
		memcpy(out->buffer + out->n, text, part);
		out->n += part;
		text += part;
		n -= part;
		if (out->n == sizeof out->buffer)
			flush(out);
	}
}

/* Call this before each value. */
static void begin(struct hoist__json_out *out)
{
	if (out->comma)
		put(out, ",", 1);
	out->comma = true;
}

void hoist__out_start(struct hoist__json_out *out, int fd)
{
	out->fd = fd;
	out->err = 0;
	out->comma = false;
	out->n = 0;
}

void hoist__out_open(struct hoist__json_out *out, const char *bracket)
{
	begin(out);
	put(out, bracket, 1);
	out->comma = false;
}

void hoist__out_close(struct hoist__json_out *out, const char *bracket)
{
	put(out, bracket, 1);
	out->comma = true;
}

void hoist__out_key(struct hoist__json_out *out, const char *key)
{
	begin(out);
	put(out, "\"", 1);
	put(out, key, strlen(key));
	put(out, "\":", 2);
	out->comma = false;
}

/* A snapshot is mostly numbers: printf would take most of the time. */
void hoist__out_u64(struct hoist__json_out *out, uint64_t value)
{
	char digits[20];
	char *first = digits + sizeof digits;
	do
		*--first = (char)('0' + value % 10);
	while ((value /= 10) != 0);
	begin(out);
	put(out, first, (size_t)(digits + sizeof digits - first));
}

void hoist__out_i64(struct hoist__json_out *out, int64_t value)
{
	char text[24];
	begin(out);
	put(out, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

void hoist__out_bool(struct hoist__json_out *out, bool value)
{
	begin(out);
	put(out, value ? "true" : "false", value ? 4 : 5);
}

void hoist__out_null(struct hoist__json_out *out)
{
	begin(out);
	put(out, "null", 4);
}

/* Prints whole millionths, so that the locale's decimal point does not matter. */
void hoist__out_share(struct hoist__json_out *out, double share)
{
	char text[24];
	unsigned millionths = (unsigned)(share * 1e6 + 0.5);
	begin(out);
	put(out, text,
	    (size_t)snprintf(text, sizeof text, "%u.%06u", millionths / 1000000,
			     millionths % 1000000));
}

static void quote(struct hoist__json_out *out, const char *text)
{
	put(out, "\"", 1);
	for (size_t left = strlen(text); left > 0;) {
		unsigned char c = (unsigned char)*text;
		size_t n = hoist__utf8_length(text, left);
		char escaped[8];
		if (n == 0) {
			put(out, "\xef\xbf\xbd", 3);
			n = 1;
		} else if (c < 0x20 || c == '"' || c == '\\') {
			put(out, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", c));
		} else {
			put(out, text, n);
		}
		text += n;
		left -= n;
	}
	put(out, "\"", 1);
}

void hoist__out_string(struct hoist__json_out *out, const char *text)
{
	begin(out);
	quote(out, text);
}

void hoist__out_name(struct hoist__json_out *out, const char *name)
{
	begin(out);
	quote(out, name);
	put(out, ":", 1);
	out->comma = false;
}

int hoist__out_end(struct hoist__json_out *out)
{
	put(out, "\n", 1);
	flush(out);
	return out->err;
}
