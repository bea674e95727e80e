/* SPDX-License-Identifier: MIT */
/* tests/fuzz/fuzz-json.h - changes of JSON that leave it JSON, mostly: numbers, texts, members,
 * nesting. Works on tokens of whatever text there is. */
#ifndef HOIST_TESTS_FUZZ_JSON_H
#define HOIST_TESTS_FUZZ_JSON_H

#include <stddef.h>
#include <stdint.h>

/* A text that grows; what does not fit is left out. */
struct fuzz_text {
	char *p;
	size_t n;
	size_t room;
};

void fuzz_text_put(struct fuzz_text *text, const void *bytes, size_t n);
void fuzz_text_print(struct fuzz_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

struct fuzz_token {
	size_t begin;
	size_t end;
	char kind; /* '"', '0' a number, 'w' a word, or the character itself */
};

#define FUZZ_MOST_TOKENS 4096

/* Returns how many there are, at most FUZZ_MOST_TOKENS. */
size_t fuzz_json_tokens(const char *text, size_t n, struct fuzz_token *ret);

/* The token behind the value that begins at token @i. */
size_t fuzz_json_behind(const struct fuzz_token *tokens, size_t n, size_t i);

/* One change of @from, chosen by @random, written to @to. */
void fuzz_json_change(const char *from, size_t n, unsigned *random, struct fuzz_text *to);

#endif
