/* SPDX-License-Identifier: MIT */
/* cli/format.c - formats figures and names for people.
 * The contract is in cli/format.h. */
#include "config.h"

#include "cli/format.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

const char *format_bytes(uint64_t bytes, struct text *ret)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	if (bytes == 0)
		return strcpy(ret->chars, "0");
	if (bytes < 1024) {
		(void)snprintf(ret->chars, sizeof ret->chars, "%" PRIu64 " B", bytes);
		return ret->chars;
	}
	double value = (double)bytes / 1024;
	size_t unit = 0;
	while (value >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]) {
		value /= 1024;
		unit++;
	}
	uint64_t one = UINT64_C(1) << (10 * (unit + 1));
	int digits = bytes % one == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	(void)snprintf(ret->chars, sizeof ret->chars, "%.*f %s", digits, value, units[unit]);
	return ret->chars;
}

const char *format_rate(double bytes_per_s, struct text *ret)
{
	double value = bytes_per_s / 1e9;
	const char *unit = "GB/s";
	if (value < 0.1) {
		value *= 1e3;
		unit = "MB/s";
	}
	(void)snprintf(ret->chars, sizeof ret->chars, "%.*f %s",
		       value >= 99.95	? 0
		       : value >= 9.995 ? 1
					: 2,
		       value, unit);
	return ret->chars;
}

const char *format_seconds(double seconds, struct text *ret)
{
	if (seconds < 0.0995)
		(void)snprintf(ret->chars, sizeof ret->chars, "%.1f ms", seconds * 1e3);
	else if (seconds < 59.95)
		(void)snprintf(ret->chars, sizeof ret->chars, seconds < 9.995 ? "%.2f s" : "%.1f s",
			       seconds);
	else if (seconds < 1e9) {
		uint64_t s = (uint64_t)(seconds + 0.5);
		if (s < 3600)
			(void)snprintf(ret->chars, sizeof ret->chars,
				       "%" PRIu64 ":%02" PRIu64 " min", s / 60, s % 60);
		else
			(void)snprintf(ret->chars, sizeof ret->chars,
				       "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " h", s / 3600,
				       s / 60 % 60, s % 60);
	} else {
		return strcpy(ret->chars, "years");
	}
	return ret->chars;
}

const char *format_count(uint64_t n, struct text *ret)
{
	char digits[24];
	int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
	char *out = ret->chars;
	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			*out++ = ',';
		*out++ = digits[i];
	}
	*out = '\0';
	return ret->chars;
}

double rate_of(uint64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes / seconds : 0;
}

/* By RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
size_t utf8_length(const char *text, uint32_t *code)
{
	const unsigned char *s = (const unsigned char *)text;
	*code = s[0];
	if (s[0] < 0x80)
		return 1;
	size_t n = s[0] >= 0xc2 && s[0] < 0xe0	 ? 2
		   : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
		   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						 : 0;
	if (n == 0)
		return 0;
	uint32_t value = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0u) != 0x80) /* also true for the terminating 0 */
			return 0;
		value = value << 6 | (s[i] & 0x3fu);
	}
	bool overlong = (n == 3 && value < 0x800) || (n == 4 && value < 0x10000);
	if (overlong || (value >= 0xd800 && value < 0xe000) || value > 0x10ffff)
		return 0;
	*code = value;
	return n;
}

/* Controls, line separators, and the marks that change the reading direction. */
static bool must_escape(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
	       code == 0xfeff;
}

/* Returns the escape of one character, or "" if the character is shown as it is; *ret is its
 * length. */
static const char *escape_of(const char *text, size_t *ret, struct text *buffer)
{
	uint32_t code = 0;
	size_t length = utf8_length(text, &code);
	*ret = length == 0 ? 1 : length;
	if (length == 0)
		(void)snprintf(buffer->chars, sizeof buffer->chars, "\\x%02x", code);
	else if (code == '\n')
		return "\\n";
	else if (code == '\t')
		return "\\t";
	else if (code == '\r')
		return "\\r";
	else if (!must_escape(code))
		return "";
	else
		(void)snprintf(buffer->chars, sizeof buffer->chars,
			       code < 0x80 ? "\\x%02x" : "\\u%04x", code);
	return buffer->chars;
}

/* Returns how many ASCII characters that are shown as they are come next: most names have no
 * others. */
static size_t plain_length(const char *text)
{
	size_t n = 0;
	while (text[n] >= ' ' && text[n] < 0x7f)
		n++;
	return n;
}

void print_escaped(FILE *out, const char *text)
{
	struct text buffer;
	size_t length;
	for (; *text != '\0'; text += length) {
		length = plain_length(text);
		if (length > 0) {
			(void)fwrite(text, 1, length, out);
			continue;
		}
		const char *escape = escape_of(text, &length, &buffer);
		if (escape[0] != '\0')
			(void)fputs(escape, out);
		else
			(void)fwrite(text, 1, length, out);
	}
}

size_t escaped_width(const char *text)
{
	struct text buffer;
	size_t length;
	size_t width = 0;
	for (; *text != '\0'; text += length) {
		length = plain_length(text);
		if (length > 0) {
			width += length;
			continue;
		}
		const char *escape = escape_of(text, &length, &buffer);
		width += escape[0] != '\0' ? strlen(escape) : 1;
	}
	return width;
}

const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}
