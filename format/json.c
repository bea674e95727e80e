/* SPDX-License-Identifier: MIT */
/* format/json.c - a strict JSON reader.
 * The contract is in format/json.h. */
#include "config.h"

#include "format/json.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "format/quote.h"

#define MAX_DEPTH 64

char hoist__json_peek(struct hoist__json *json)
{
	while (json->at < json->bytes) {
		char c = json->text[json->at];
		if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
			return c;
		json->at++;
	}
	return '\0';
}

/* Fails with "expected <what>, found <the byte here>". */
static int fail_expected(struct hoist__json *json, const char *what)
{
	char c = hoist__json_peek(json);
	if (json->at == json->bytes)
		return hoist__json_fail(json, json->at, "not valid JSON: expected %s, but it ends",
					what);
	if (c > ' ' && c < 0x7f)
		return hoist__json_fail(json, json->at, "not valid JSON: expected %s, found '%c'",
					what, c);
	return hoist__json_fail(json, json->at, "not valid JSON: expected %s, found byte 0x%02x",
				what, (unsigned)(unsigned char)c);
}

int hoist__json_open(struct hoist__json *json, char bracket, const char *what)
{
	if (hoist__json_peek(json) != bracket)
		return hoist__json_fail(json, json->at, "%s is not an %s", what,
					bracket == '{' ? "object" : "array");
	json->at++;
	return 0;
}

int hoist__json_next(struct hoist__json *json, char close, size_t n)
{
	char c = hoist__json_peek(json);
	if (json->at < json->bytes && c == close) {
		json->at++;
		return 0;
	}
	if (n == 0)
		return 1;
	if (c != ',')
		return fail_expected(json, close == '}' ? "',' or '}'" : "',' or ']'");
	json->at++;
	return 1;
}

static int hex4(const char *p)
{
	int value = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int digit = c >= '0' && c <= '9'   ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
			    : c >= 'A' && c <= 'F' ? c - 'A' + 10
						   : -1;
		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* Returns the code point of the escape \uXXXX (or a pair of them) at @p, where @n bytes remain;
 * *used is its bytes.  -1: not hexadecimal; -2: half a surrogate pair. */
static int unicode_escape(const char *p, size_t n, size_t *used)
{
	int high = n >= 6 ? hex4(p + 2) : -1;
	if (high < 0)
		return -1;
	*used = 6;
	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (high > 0xdbff || n < 12 || p[6] != '\\' || p[7] != 'u')
		return -2;
	int low = hex4(p + 8);
	if (low < 0xdc00 || low > 0xdfff)
		return -2;
	*used = 12;
	return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* Checks the escape at json->at and passes over it. */
static int check_escape(struct hoist__json *json, struct hoist__json_string *string)
{
	const char *p = json->text + json->at;
	size_t n = json->bytes - json->at;
	string->escaped = true;
	if (n >= 2 && p[1] != '\0' && strchr("\"\\/bfnrt", p[1]) != NULL) {
		json->at += 2;
		return 0;
	}
	if (n < 2 || p[1] != 'u')
		return hoist__json_fail(json, json->at,
					"not valid JSON: unknown escape in a string");
	size_t used = 0;
	int code = unicode_escape(p, n, &used);
	if (code == -1)
		return hoist__json_fail(
			json, json->at,
			"not valid JSON: \\u is not followed by 4 hexadecimal digits");
	if (code == -2)
		return hoist__json_fail(json, json->at,
					"not valid JSON: an escape is half a surrogate pair");
	if (code == 0)
		string->nul = true;
	json->at += used;
	return 0;
}

/* True if none of these 8 bytes needs a closer look: a control character, '"', '\\', or one of
 * UTF-8. */
static bool all_plain(const char *text)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	const uint64_t tops = ones << 7;
	uint64_t word;
	memcpy(&word, text, sizeof word);
	uint64_t quote = word ^ ones * '"';
	uint64_t slash = word ^ ones * '\\';
	/* A byte's top bit is set if it was set, or if the byte was below the amount taken away.
	 * The bit may be set wrongly in a byte above one that is set rightly, so that a result of 0
	 * is always right. */
	return ((word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & tops) == 0;
}

/* Passes over characters that stand for themselves. */
static void skip_plain(struct hoist__json *json)
{
	while (json->bytes - json->at >= sizeof(uint64_t) && all_plain(json->text + json->at))
		json->at += sizeof(uint64_t);
}

/* Escapes and UTF-8 are checked here, so that hoist__json_decode() cannot fail. */
int hoist__json_string(struct hoist__json *json, const char *what, struct hoist__json_string *ret)
{
	if (hoist__json_peek(json) != '"')
		return fail_expected(json, what);
	struct hoist__json_string string = {.at = json->at, .raw = json->text + json->at + 1};
	json->at++;
	skip_plain(json);
	while (json->at < json->bytes) {
		unsigned char c = (unsigned char)json->text[json->at];
		if (c == '"') {
			string.bytes = json->at - string.at - 1;
			json->at++;
			*ret = string;
			return 0;
		}
		if (c == '\\') {
			int err = check_escape(json, &string);
			if (err < 0)
				return err;
		} else if (c < 0x20) {
			return hoist__json_fail(
				json, json->at,
				"not valid JSON: control character 0x%02x in a string",
				(unsigned)c);
		} else if (c < 0x80) {
			json->at++;
		} else {
			size_t n =
				hoist__utf8_length(json->text + json->at, json->bytes - json->at);
			if (n == 0)
				return hoist__json_fail(json, json->at,
							"not valid UTF-8: byte 0x%02x",
							(unsigned)c);
			json->at += n;
		}
	}
	return hoist__json_fail(json, string.at, "not valid JSON: a string that is never closed");
}

int hoist__json_key(struct hoist__json *json, struct hoist__json_string *ret)
{
	struct hoist__json_string key;
	int err = hoist__json_string(json, "a key in quotes", &key);
	if (err < 0)
		return err;
	if (hoist__json_peek(json) != ':')
		return fail_expected(json, "':' after a key");
	json->at++;
	*ret = key;
	return 0;
}

/* Passes over digits; false if there is none. */
static bool skip_digits(struct hoist__json *json)
{
	size_t first = json->at;
	while (json->at < json->bytes && json->text[json->at] >= '0' && json->text[json->at] <= '9')
		json->at++;
	return json->at > first;
}

static bool next_is(const struct hoist__json *json, char one, char other)
{
	char c = json->at < json->bytes ? json->text[json->at] : '\0';
	return c == one || c == other;
}

static int64_t to_natural(const char *digits, size_t n, enum hoist__json_number *kind)
{
	int64_t value = 0;
	for (size_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, digits[i] - '0', &value)) {
			*kind = HOIST__JSON_TOO_BIG;
			return 0;
		}
	return value;
}

/* Takes JSON's numbers alone: no "+" in front, no leading zero, digits on both sides of a point.
 * Only a natural number gets a value; other numbers are just classified. */
int hoist__json_number(struct hoist__json *json, const char *what, enum hoist__json_number *kind,
		       int64_t *value)
{
	char c = hoist__json_peek(json);
	if (c != '-' && (c < '0' || c > '9'))
		return hoist__json_fail(json, json->at, "%s is not a number", what);
	enum hoist__json_number found = HOIST__JSON_NATURAL;
	size_t at = json->at;
	if (c == '-') {
		found = HOIST__JSON_NEGATIVE;
		json->at++;
	}
	size_t digits = json->at;
	if (!skip_digits(json))
		return fail_expected(json, "a digit");
	size_t n = json->at - digits;
	if (n > 1 && json->text[digits] == '0')
		return hoist__json_fail(json, at, "not valid JSON: a number begins with 0");
	if (next_is(json, '.', '.')) {
		json->at++;
		found = HOIST__JSON_NOT_INTEGER;
		if (!skip_digits(json))
			return fail_expected(json, "a digit after the point");
	}
	if (next_is(json, 'e', 'E')) {
		json->at++;
		found = HOIST__JSON_NOT_INTEGER;
		if (next_is(json, '+', '-'))
			json->at++;
		if (!skip_digits(json))
			return fail_expected(json, "a digit in the exponent");
	}
	if (found == HOIST__JSON_NATURAL) {
		int64_t natural = to_natural(json->text + digits, n, &found);
		if (found == HOIST__JSON_NATURAL)
			*value = natural;
	}
	*kind = found;
	return 0;
}

static int skip_word(struct hoist__json *json)
{
	static const char *const words[] = {"true", "false", "null"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t n = strlen(words[i]);
		if (json->bytes - json->at >= n &&
		    memcmp(json->text + json->at, words[i], n) == 0) {
			json->at += n;
			return 0;
		}
	}
	return fail_expected(json, "a value");
}

/* Calls itself for each level: the limit of the depth keeps a hostile file from exhausting the
 * stack. */
static int skip_value(struct hoist__json *json, int depth)
{
	char c = hoist__json_peek(json);
	if (c == '"') {
		struct hoist__json_string string;
		return hoist__json_string(json, "a string", &string);
	}
	if (c == '-' || (c >= '0' && c <= '9')) {
		enum hoist__json_number kind;
		int64_t value;
		return hoist__json_number(json, "the value", &kind, &value);
	}
	if (c != '{' && c != '[')
		return skip_word(json);
	if (depth == MAX_DEPTH)
		return hoist__json_fail(json, json->at, "values are nested more than %d deep",
					MAX_DEPTH);
	json->at++;
	char close = c == '{' ? '}' : ']';
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, close, n)) > 0; n++) {
		struct hoist__json_string key;
		int err = c == '{' ? hoist__json_key(json, &key) : 0;
		if (err == 0)
			err = skip_value(json, depth + 1);
		if (err < 0)
			return err;
	}
	return more;
}

int hoist__json_skip(struct hoist__json *json)
{
	return skip_value(json, 0);
}

int hoist__json_end(struct hoist__json *json)
{
	(void)hoist__json_peek(json);
	if (json->at == json->bytes)
		return 0;
	return fail_expected(json, "nothing but spaces behind the last '}'");
}

/* Decodes one escape of a checked string; returns the bytes it takes in @p. */
static size_t decode_escape(const char *p, size_t n, char **out)
{
	static const char from[] = "\"\\/bfnrt";
	static const char to[] = "\"\\/\b\f\n\r\t";
	if (p[1] != 'u') {
		*(*out)++ = to[strchr(from, p[1]) - from];
		return 2;
	}
	size_t used = 0;
	int code = unicode_escape(p, n, &used);
	*out += hoist__utf8_encode((unsigned)code, *out);
	return used;
}

size_t hoist__json_decode(const struct hoist__json_string *string, char *out)
{
	char *end = out;
	size_t i = 0;
	if (!string->escaped) {
		memcpy(out, string->raw, string->bytes);
		out[string->bytes] = '\0';
		return string->bytes;
	}
	while (i < string->bytes) {
		if (string->raw[i] == '\\')
			i += decode_escape(string->raw + i, string->bytes - i, &end);
		else
			*end++ = string->raw[i++];
	}
	*end = '\0';
	return (size_t)(end - out);
}

bool hoist__json_is(const struct hoist__json_string *string, const char *expected)
{
	char decoded[16 * 6 + 1]; /* an escape takes at most 6 bytes for each character */
	if (!string->escaped)
		return string->bytes == strlen(expected) &&
		       memcmp(string->raw, expected, string->bytes) == 0;
	if (string->bytes >= sizeof decoded)
		return false;
	size_t n = hoist__json_decode(string, decoded);
	return n == strlen(expected) && memcmp(decoded, expected, n) == 0;
}

int hoist__json_fail(const struct hoist__json *json, size_t at, const char *format, ...)
{
	char what[512];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(what, sizeof what, format, args);
	va_end(args);
	char file[HOIST__QUOTED_BYTES];
	char subject[HOIST__QUOTED_BYTES] = "";
	if (json->subject != NULL)
		(void)hoist__quoted(json->subject, json->subject_bytes, subject);
	return hoist__fail(-EBADMSG, "%s: %s%s%s%s (%s %llu)", hoist__file_quoted(json->file, file),
			   json->subject != NULL ? "tensor " : "", subject,
			   json->subject != NULL ? ": " : "", what, json->unit,
			   (unsigned long long)(json->base + at));
}
