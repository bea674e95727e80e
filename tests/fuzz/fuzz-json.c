/* SPDX-License-Identifier: MIT */
/* Splits a text into tokens of JSON, and changes some: members, numbers, strings and nesting. */
#include "config.h"

#include "tests/fuzz/fuzz-json.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* --- texts --- */

void fuzz_text_put(struct fuzz_text *text, const void *bytes, size_t n)
{
	if (n > text->room - text->n)
		n = text->room - text->n;
	if (n > 0)
		memcpy(text->p + text->n, bytes, n);
	text->n += n;
}

void fuzz_text_print(struct fuzz_text *text, const char *format, ...)
{
	char line[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fuzz_text_put(text, line,
		      n < 0			? 0
		      : (size_t)n < sizeof line ? (size_t)n
						: sizeof line - 1);
}

/* --- tokens --- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_mark(char c)
{
	return c != '\0' && strchr("{}[],:\"", c) != NULL;
}

static size_t end_of_string(const char *text, size_t n, size_t i)
{
	for (i++; i < n && text[i] != '"'; i++)
		i += text[i] == '\\' && i + 1 < n;
	return i < n ? i + 1 : n;
}

size_t fuzz_json_tokens(const char *text, size_t n, struct fuzz_token *ret)
{
	size_t count = 0;
	for (size_t i = 0; i < n && count < FUZZ_MOST_TOKENS;) {
		struct fuzz_token token = {i, i + 1, text[i]};
		if (is_space(text[i])) {
			i++;
			continue;
		}
		if (text[i] == '"') {
			token.end = end_of_string(text, n, i);
		} else if (!is_mark(text[i])) {
			token.kind =
				(text[i] >= '0' && text[i] <= '9') || text[i] == '-' ? '0' : 'w';
			while (token.end < n && !is_mark(text[token.end]) &&
			       !is_space(text[token.end]))
				token.end++;
		}
		ret[count++] = token;
		i = token.end;
	}
	return count;
}

size_t fuzz_json_behind(const struct fuzz_token *tokens, size_t n, size_t i)
{
	int depth = 0;
	for (; i < n; i++) {
		char kind = tokens[i].kind;
		depth += kind == '{' || kind == '[';
		depth -= kind == '}' || kind == ']';
		if (depth <= 0)
			return i + 1;
	}
	return n;
}

/* --- changes --- */

static size_t below(unsigned *random, size_t n)
{
	unsigned high = (unsigned)rand_r(random);
	return n == 0 ? 0 : ((size_t)high << 15 ^ (unsigned)rand_r(random)) % n;
}

#define SOME(array, random) (array)[below(random, HOIST__ARRAY_SIZE(array))]

static const char *const numbers[] = {"0",
				      "1",
				      "-1",
				      "-0",
				      "00",
				      "1.0",
				      "1e3",
				      "2147483648",
				      "4294967296",
				      "9007199254740993",
				      "9223372036854775807",
				      "9223372036854775808",
				      "18446744073709551615",
				      "18446744073709551616",
				      "3037000500",
				      "123456789012345678901234567890",
				      "1E400",
				      "-",
				      "0x10"};

static const char *const texts[] = {"\"F32\"",	      "\"BF16\"",
				    "\"U8\"",	      "\"BOOL\"",
				    "\"F4\"",	      "\"F8_E4M3\"",
				    "\"C64\"",	      "\"dtype\"",
				    "\"shape\"",      "\"data_offsets\"",
				    "\"\"",	      "\"__metadata__\"",
				    "\"\\u0000\"",    "\"\\ud83d\\ude00\"",
				    "\"\\ud800\"",    "\"\\udc00x\"",
				    "\"\\n\\\\\\/\"", "\"..\"",
				    "\"../x\"",	      "\"/x\"",
				    "\"a//./b\"",     "\"weight_map\"",
				    "\"metadata\"",   "\"\xc3\xa9\"",
				    "\"\xff\"",	      "\"\\q\"",
				    "\"\t\"",	      "\"dt\\u0079pe\""};

static const char *const words[] = {"null", "true", "false", "NaN",
				    "[]",   "{}",   "[[]]",  "{\"a\":{}}"};

/* The tokens of that kind; the @which'th of them, @n if there are none. */
static size_t pick(const struct fuzz_token *tokens, size_t n, const char *kinds, unsigned *random)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += strchr(kinds, tokens[i].kind) != NULL;
	size_t which = below(random, count);
	for (size_t i = 0; i < n; i++)
		if (strchr(kinds, tokens[i].kind) != NULL && which-- == 0)
			return i;
	return n;
}

struct change {
	size_t begin; /* of the text: what is between is replaced */
	size_t end;
	struct fuzz_text by;
};

static void change_value(const char *from, const struct fuzz_token *token, unsigned *random,
			 struct change *change)
{
	long long value = strtoll(from + token->begin, NULL, 10);
	if (token->kind == '0' && below(random, 2) == 0)
		fuzz_text_print(&change->by, "%lld",
				(long long)((unsigned long long)value + below(random, 9) - 4));
	else if (token->kind == '0')
		fuzz_text_print(&change->by, "%s", SOME(numbers, random));
	else if (token->kind == '"' && below(random, 8) != 0)
		fuzz_text_print(&change->by, "%s", SOME(texts, random));
	else
		fuzz_text_print(&change->by, "%s", SOME(words, random));
	change->begin = token->begin;
	change->end = token->end;
}

/* Around a value: as deep as what reads it will go, and some more. */
static void nest(const char *from, size_t begin, size_t end, unsigned *random,
		 struct change *change)
{
	size_t depth = below(random, 2) ? 1 + below(random, 4) : 55 + below(random, 20);
	bool array = below(random, 2) == 0;
	for (size_t i = 0; i < depth; i++)
		fuzz_text_print(&change->by, array ? "[" : "{\"a\":");
	fuzz_text_put(&change->by, from + begin, end - begin);
	for (size_t i = 0; i < depth; i++)
		fuzz_text_print(&change->by, array ? "]" : "}");
	change->begin = begin;
	change->end = end;
}

/* A member or an element, with its comma: twice, gone, in another place, deeper. */
static void change_member(const char *from, const struct fuzz_token *tokens, size_t n, size_t i,
			  unsigned *random, struct change *change)
{
	size_t last = fuzz_json_behind(tokens, n, i); /* the token behind it */
	bool member = tokens[i].kind == '"' && last < n && tokens[last].kind == ':';
	size_t value = member && last + 1 < n ? last + 1 : i;
	if (member && last + 1 < n)
		last = fuzz_json_behind(tokens, n, last + 1);
	size_t begin = tokens[i].begin;
	size_t end = tokens[last - 1].end;
	change->begin = change->end = end;
	switch (below(random, 5)) {
	case 0:
	case 1:
		fuzz_text_put(&change->by, ",", 1);
		fuzz_text_put(&change->by, from + begin, end - begin);
		break;
	case 2:
		change->begin = begin;
		change->end = last < n && tokens[last].kind == ',' ? tokens[last].end : end;
		break;
	case 3:
		nest(from, tokens[value].begin, end, random, change);
		break;
	default:
		fuzz_text_print(&change->by, ",%s", SOME(words, random));
		break;
	}
}

void fuzz_json_change(const char *from, size_t n, unsigned *random, struct fuzz_text *to)
{
	static struct fuzz_token tokens[FUZZ_MOST_TOKENS];
	static char room[65536];
	struct change change = {.by = {room, 0, sizeof room}};
	size_t n_tokens = fuzz_json_tokens(from, n, tokens);
	bool value = below(random, 2) == 0;
	size_t i = pick(tokens, n_tokens, value ? "\"0w" : "\"0{[", random);
	if (i == n_tokens)
		fuzz_text_print(&change.by, "{\"a\":1}");
	else if (value)
		change_value(from, &tokens[i], random, &change);
	else
		change_member(from, tokens, n_tokens, i, random, &change);
	fuzz_text_put(to, from, change.begin);
	fuzz_text_put(to, change.by.p, change.by.n);
	fuzz_text_put(to, from + change.end, n - change.end);
}
