/* SPDX-License-Identifier: MIT */
/* format/gguf-value.c - turns GGUF's key-value pairs into text.
 * The contract is in format/gguf.h.
 *
 * A value is walked twice: first to check it and to learn how many bytes its text takes at most,
 * then to write the text.  The first walk looks only at strings; a number gets room for the longest
 * one of its type. */
#include "config.h"

#include "format/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/utf8.h"
#include "format/little.h"

#define MAX_DEPTH 16
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes in the file (0: they differ), and bytes of the longest text, with the comma behind it. */
static const struct type {
	const char *name;
	unsigned char bytes;
	unsigned char text;
} types[HOIST__GGUF_N_TYPES] = {
	[HOIST__GGUF_U8] = {"u8", 1, 4},	 [HOIST__GGUF_I8] = {"i8", 1, 5},
	[HOIST__GGUF_U16] = {"u16", 2, 6},	 [HOIST__GGUF_I16] = {"i16", 2, 7},
	[HOIST__GGUF_U32] = {"u32", 4, 11},	 [HOIST__GGUF_I32] = {"i32", 4, 12},
	[HOIST__GGUF_F32] = {"f32", 4, 16},	 [HOIST__GGUF_BOOL] = {"bool", 1, 6},
	[HOIST__GGUF_STRING] = {"string", 0, 0}, [HOIST__GGUF_ARRAY] = {"array", 0, 0},
	[HOIST__GGUF_U64] = {"u64", 8, 21},	 [HOIST__GGUF_I64] = {"i64", 8, 21},
	[HOIST__GGUF_F64] = {"f64", 8, 25},
};

/* --- checking and measuring --- */

/* Returns how many bytes a character takes in a JSON string, or in a plain text. */
static size_t character_bytes(unsigned char c, size_t length, bool json)
{
	if (length == 0 || c == '\0')
		return sizeof REPLACEMENT - 1;
	if (!json || c >= 0x20)
		return length + (json && (c == '"' || c == '\\'));
	return c == '\n' || c == '\t' || c == '\r' ? 2 : 6;
}

/* True for a character that is itself in JSON, and one byte. */
static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static size_t string_bytes(const char *text, size_t n, bool json)
{
	size_t bytes = 0;
	for (size_t i = 0; i < n;) {
		if (is_plain((unsigned char)text[i])) {
			bytes++;
			i++;
			continue;
		}
		size_t length = hoist__utf8_length(text + i, n - i);
		bytes += character_bytes((unsigned char)text[i], length, json);
		i += length > 0 ? length : 1;
	}
	return bytes;
}

static int measure_string(struct hoist__gguf *gguf, bool json, uint64_t *ret)
{
	uint64_t n;
	int err = hoist__gguf_take(gguf, 8, "the length of a string", &n);
	if (err == 0)
		err = hoist__gguf_need(gguf, n, "a string");
	if (err < 0)
		return err;
	*ret += string_bytes((const char *)gguf->bytes + gguf->at, n, json) + (json ? 3 : 0);
	gguf->at += n;
	return 0;
}

static int check_bools(const struct hoist__gguf *gguf, uint64_t n)
{
	for (size_t i = 0; i < n; i++)
		if (gguf->bytes[gguf->at + i] > 1)
			return hoist__gguf_fail(gguf, -EBADMSG, gguf->at + i,
						"a value of type bool is %u, neither 0 nor 1",
						gguf->bytes[gguf->at + i]);
	return 0;
}

/* Adds the text of @n values of a type of fixed size. */
static int measure_numbers(struct hoist__gguf *gguf, uint64_t type, uint64_t n, uint64_t *ret)
{
	/* n is at most the file's bytes divided by the type's: see check_array(). */
	uint64_t bytes = n * types[type].bytes;
	int err = hoist__gguf_need(gguf, bytes, "a value");
	if (err == 0 && type == HOIST__GGUF_BOOL)
		err = check_bools(gguf, n);
	if (err < 0)
		return err;
	gguf->at += bytes;
	*ret += n * types[type].text;
	return 0;
}

static int take_type(struct hoist__gguf *gguf, const char *what, uint64_t *ret)
{
	size_t at = gguf->at;
	int err = hoist__gguf_take(gguf, 4, what, ret);
	if (err == 0 && *ret >= HOIST__GGUF_N_TYPES)
		return hoist__gguf_fail(gguf, -EBADMSG, at, "%s is %llu; the types are 0 to %d",
					what, (unsigned long long)*ret, HOIST__GGUF_N_TYPES - 1);
	return err;
}

/* Reads the head of an array. */
static int take_array(struct hoist__gguf *gguf, uint64_t *type, uint64_t *n)
{
	int err = take_type(gguf, "the type of an array's elements", type);
	size_t at = gguf->at;
	if (err == 0)
		err = hoist__gguf_take(gguf, 8, "the length of an array", n);
	if (err < 0)
		return err;
	unsigned least = *type == HOIST__GGUF_STRING  ? 8
			 : *type == HOIST__GGUF_ARRAY ? 12
						      : types[*type].bytes;
	uint64_t left = gguf->reader->bytes - gguf->at;
	if (*n > left / least)
		return hoist__gguf_fail(gguf, -EBADMSG, at,
					"an array says that it has %llu elements of type %s, but "
					"%llu bytes are left for them",
					(unsigned long long)*n, types[*type].name,
					(unsigned long long)left);
	return 0;
}

/* NOLINTNEXTLINE(misc-no-recursion): at most MAX_DEPTH deep. */
static int measure_array(struct hoist__gguf *gguf, int depth, uint64_t *ret)
{
	uint64_t type, n;
	size_t at = gguf->at;
	if (depth == MAX_DEPTH)
		return hoist__gguf_fail(gguf, -EBADMSG, at, "arrays are nested more than %d deep",
					MAX_DEPTH);
	int err = take_array(gguf, &type, &n);
	if (err < 0)
		return err;
	*ret += 3; /* for the brackets and a comma */
	if (types[type].bytes > 0)
		return measure_numbers(gguf, type, n, ret);
	for (uint64_t i = 0; err == 0 && i < n; i++)
		err = type == HOIST__GGUF_STRING ? measure_string(gguf, true, ret)
						 : measure_array(gguf, depth + 1, ret);
	return err;
}

/* --- writing; the values have been checked --- */

static char *put(char *out, const char *text, size_t n)
{
	memcpy(out, text, n);
	return out + n;
}

static char *put_natural(char *out, uint64_t value)
{
	char digits[20];
	size_t n = sizeof digits;
	do
		digits[--n] = (char)('0' + value % 10);
	while ((value /= 10) > 0);
	return put(out, digits + n, sizeof digits - n);
}

static char *put_integer(char *out, int64_t value)
{
	if (value < 0)
		*out++ = '-';
	return put_natural(out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* Prints enough digits to read the number back: @most digits are always enough.  Printing and
 * reading use the program's locale, whose decimal point may have several bytes. */
static char *put_digits(char *out, double value, int least, int most)
{
	char text[48];
	bool point = false;
	for (int digits = least;; digits++) {
		(void)snprintf(text, sizeof text, "%.*g", digits, value);
		if (digits >= most ||
		    (most <= 9 ? (double)strtof(text, NULL) : strtod(text, NULL)) == value)
			break;
	}
	for (const char *p = text; *p != '\0'; p++) {
		if ((*p >= '0' && *p <= '9') || *p == '+' || *p == '-' || *p == 'e')
			*out++ = *p;
		else if (!point)
			*out++ = '.';
		point = point || out[-1] == '.';
	}
	return out;
}

/* Whole numbers are written without a point.  JSON has no word for infinities and NaNs: they become
 * null.  In arrays, which may be long, no search for the shortest form is made. */
static char *put_float(char *out, uint64_t type, double value, bool json)
{
	const int most = type == HOIST__GGUF_F32 ? 9 : 17;
	if (!isfinite(value)) {
		const char *word = json		  ? "null"
				   : isnan(value) ? "nan"
				   : value > 0	  ? "inf"
						  : "-inf";
		return put(out, word, strlen(word));
	}
	if (fabs(value) < 1e9 && value == (double)(int64_t)value && !(value == 0 && signbit(value)))
		return put_integer(out, (int64_t)value);
	return put_digits(out, value, json ? most : 6, most);
}

static char *put_number(char *out, uint64_t type, const unsigned char *bytes, bool json)
{
	uint64_t value = hoist__little(bytes, types[type].bytes);
	float f32;
	double f64;
	switch ((enum hoist__gguf_type)type) {
	case HOIST__GGUF_I8:
		return put_integer(out, (int8_t)value);
	case HOIST__GGUF_I16:
		return put_integer(out, (int16_t)value);
	case HOIST__GGUF_I32:
		return put_integer(out, (int32_t)value);
	case HOIST__GGUF_I64:
		return put_integer(out, (int64_t)value);
	case HOIST__GGUF_BOOL:
		return value ? put(out, "true", 4) : put(out, "false", 5);
	case HOIST__GGUF_F32:
		memcpy(&f32, bytes, sizeof f32);
		return put_float(out, type, f32, json);
	case HOIST__GGUF_F64:
		memcpy(&f64, bytes, sizeof f64);
		return put_float(out, type, f64, json);
	case HOIST__GGUF_U8:
	case HOIST__GGUF_U16:
	case HOIST__GGUF_U32:
	case HOIST__GGUF_U64:
	case HOIST__GGUF_STRING:
	case HOIST__GGUF_ARRAY:
	case HOIST__GGUF_N_TYPES:
		break;
	}
	return put_natural(out, value);
}

/* Writes one character that is not plain. */
static char *put_character(char *out, const char *text, size_t length, bool json)
{
	unsigned char c = (unsigned char)text[0];
	if (length == 0 || c == '\0')
		return put(out, REPLACEMENT, sizeof REPLACEMENT - 1);
	if (!json || (c >= 0x20 && c != '"' && c != '\\'))
		return put(out, text, length);
	*out++ = '\\';
	if (c >= 0x20)
		*out++ = (char)c;
	else if (c == '\n' || c == '\t' || c == '\r')
		*out++ = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
	else
		out = put(put(put(out, "u00", 3), c < 0x10 ? "0" : "1", 1),
			  &"0123456789abcdef"[c % 16], 1);
	return out;
}

static char *put_string(struct hoist__gguf *gguf, char *out, bool json)
{
	size_t n = hoist__little(gguf->bytes + gguf->at, 8);
	const char *text = (const char *)gguf->bytes + gguf->at + 8;
	gguf->at += 8 + n;
	if (json)
		*out++ = '"';
	for (size_t i = 0; i < n;) {
		if (is_plain((unsigned char)text[i])) {
			*out++ = text[i++];
			continue;
		}
		size_t length = hoist__utf8_length(text + i, n - i);
		out = put_character(out, text + i, length, json);
		i += length > 0 ? length : 1;
	}
	if (json)
		*out++ = '"';
	return out;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as measure_array(). */
static char *put_value(struct hoist__gguf *gguf, uint64_t type, char *out, bool json)
{
	if (type == HOIST__GGUF_STRING)
		return put_string(gguf, out, json);
	if (type != HOIST__GGUF_ARRAY) {
		const unsigned char *bytes = gguf->bytes + gguf->at;
		gguf->at += types[type].bytes;
		return put_number(out, type, bytes, json);
	}
	uint64_t element = hoist__little(gguf->bytes + gguf->at, 4);
	uint64_t n = hoist__little(gguf->bytes + gguf->at + 4, 8);
	gguf->at += 12;
	*out++ = '[';
	for (uint64_t i = 0; i < n; i++) {
		if (i > 0)
			*out++ = ',';
		out = put_value(gguf, element, out, true);
	}
	*out++ = ']';
	return out;
}

/* --- pairs --- */

/* NOLINTNEXTLINE(misc-no-recursion): as deep as measure_array(). */
static size_t value_bytes(const unsigned char *value, uint64_t type)
{
	if (type == HOIST__GGUF_STRING)
		return 8 + hoist__little(value, 8);
	if (type != HOIST__GGUF_ARRAY)
		return types[type].bytes;
	uint64_t element = hoist__little(value, 4);
	uint64_t n = hoist__little(value + 4, 8);
	size_t bytes = 12;
	if (types[element].bytes > 0)
		return bytes + n * types[element].bytes;
	while (n-- > 0)
		bytes += value_bytes(value + bytes, element);
	return bytes;
}

size_t hoist__gguf_pair_bytes(const unsigned char *pair)
{
	size_t key = 8 + hoist__little(pair, 8);
	return key + 4 + value_bytes(pair + key + 4, hoist__little(pair + key, 4));
}

static int read_alignment(struct hoist__gguf *gguf, size_t at, uint64_t type)
{
	if (type != HOIST__GGUF_U32)
		return hoist__gguf_fail(gguf, -EBADMSG, at,
					"general.alignment is of type %s, not "
					"u32",
					types[type].name);
	gguf->alignment = hoist__little(gguf->bytes + at, 4);
	if (!hoist__is_power_of_two(gguf->alignment))
		return hoist__gguf_fail(gguf, -EBADMSG, at,
					"general.alignment is %llu, not a power of two",
					(unsigned long long)gguf->alignment);
	return 0;
}

/* Two passes: the first checks the value and measures its text, the second writes the text into
 * that much memory, without further checks. */
static int read_value(struct hoist__gguf *gguf, const char *key, const char **ret)
{
	uint64_t type;
	uint64_t room = 1;
	int err = take_type(gguf, "the type of a value", &type);
	if (err < 0)
		return err;
	size_t at = gguf->at;
	err = type == HOIST__GGUF_STRING  ? measure_string(gguf, false, &room)
	      : type == HOIST__GGUF_ARRAY ? measure_array(gguf, 0, &room)
					  : measure_numbers(gguf, type, 1, &room);
	if (err == 0 && strcmp(key, "general.alignment") == 0)
		err = read_alignment(gguf, at, type);
	if (err < 0)
		return err;
	char *text = hoist__arena_alloc(&gguf->box->arena, room, 1);
	if (text == NULL)
		return hoist__fail_nomem("a value of the metadata", room);
	gguf->at = at;
	*put_value(gguf, type, text, false) = '\0';
	*ret = text;
	return 0;
}

static int read_pair(struct hoist__gguf *gguf, struct hoist__metadata_list *list)
{
	struct hoist__metadata pair;
	size_t at = gguf->at;
	size_t n;
	int err = hoist__gguf_take_name(gguf, "a key of the metadata", &pair.key, &n);
	if (err < 0)
		return err;
	gguf->kind = "metadata";
	gguf->subject = pair.key;
	gguf->subject_bytes = n;
	err = read_value(gguf, pair.key, &pair.value);
	gguf->kind = NULL;
	return err == 0 ? hoist__metadata_push(list, &pair, at) : err;
}

int hoist__gguf_pairs(struct hoist__gguf *gguf, uint64_t n)
{
	struct hoist__metadata_list list = {0};
	struct hoist__manifest *manifest = &gguf->box->manifest;
	struct hoist__json json = {.file = gguf->reader->name, .unit = "byte"};
	int err = 0;
	for (uint64_t i = 0; err == 0 && i < n; i++)
		err = read_pair(gguf, &list);
	if (err == 0)
		err = hoist__metadata_finish(&json, &list, &manifest->metadata,
					     &manifest->n_metadata);
	hoist__metadata_drop(&list);
	return err;
}
