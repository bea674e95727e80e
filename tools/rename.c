/* SPDX-License-Identifier: MIT */
/* tools/rename.c - other names for tensors.
 * The contract is in tools/rename.h. */
#include "config.h"

#include "tools/rename.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD "s/PATTERN/TEXT/ or s/PATTERN/TEXT/g, with any other delimiter, too"
#define N_GROUPS 10

/* --- reading --- */

/* Copies what lies before the next @delimiter.  Returns: the character behind the delimiter; NULL:
 * there is none. */
static const char *take_field(const char *at, char delimiter, char *ret)
{
	for (; *at != '\0' && *at != delimiter; at++) {
		if (*at == '\\' && at[1] != '\0') {
			if (at[1] != delimiter)
				*ret++ = *at;
			at++;
		}
		*ret++ = *at;
	}
	*ret = '\0';
	return *at == delimiter ? at + 1 : NULL;
}

/* The highest number of a group in the text; 0: none. */
static size_t highest_group(const char *to)
{
	size_t highest = 0;
	for (; *to != '\0'; to++)
		if (*to == '\\' && to[1] != '\0' && *++to >= '1' && *to <= '9' &&
		    (size_t)(*to - '0') > highest)
			highest = (size_t)(*to - '0');
	return highest;
}

static const char *compile(struct rename *ret, const char *pattern)
{
	static char expected[160];
	char why[100];
	int err = regcomp(&ret->pattern, pattern, REG_EXTENDED);
	if (err != 0) {
		(void)regerror(err, &ret->pattern, why, sizeof why);
		(void)snprintf(expected, sizeof expected,
			       "with an extended regular expression (%s)", why);
		return expected;
	}
	if (highest_group(ret->to) <= ret->pattern.re_nsub)
		return NULL;
	(void)snprintf(
		expected, sizeof expected, "without \\%zu in its text: the pattern has %zu group%s",
		highest_group(ret->to), ret->pattern.re_nsub, ret->pattern.re_nsub == 1 ? "" : "s");
	regfree(&ret->pattern);
	return expected;
}

const char *rename_parse(struct rename *ret, const char *text)
{
	if (text[0] != 's' || text[1] == '\0' || text[1] == '\\')
		return GOOD;
	char *pattern = malloc(strlen(text) + 1);
	*ret = (struct rename){.whole = text, .to = malloc(strlen(text) + 1)};
	const char *expected = "shorter: there is no memory for it";
	if (pattern != NULL && ret->to != NULL) {
		const char *at = take_field(text + 2, text[1], pattern);
		at = at != NULL ? take_field(at, text[1], ret->to) : NULL;
		ret->global = at != NULL && strcmp(at, "g") == 0;
		bool good = at != NULL && pattern[0] != '\0' && (at[0] == '\0' || ret->global);
		expected = good ? compile(ret, pattern) : GOOD;
	}
	free(pattern);
	if (expected != NULL)
		free(ret->to);
	return expected;
}

void rename_free(struct rename *rename)
{
	regfree(&rename->pattern);
	free(rename->to);
}

/* --- applying --- */

static void put(FILE *out, const char *name, const regmatch_t *match)
{
	if (match->rm_so >= 0)
		(void)fwrite(name + match->rm_so, 1, (size_t)(match->rm_eo - match->rm_so), out);
}

static void put_text(FILE *out, const char *to, const char *name, const regmatch_t *matches)
{
	for (; *to != '\0'; to++) {
		bool escaped = *to == '\\' && to[1] != '\0';
		to += escaped;
		if (escaped && *to >= '1' && *to <= '9')
			put(out, name, &matches[*to - '0']);
		else if (!escaped && *to == '&')
			put(out, name, &matches[0]);
		else
			(void)fputc(*to, out);
	}
}

/* Writes the name as one rename leaves it.  As in sed, no empty match directly follows another
 * match, and behind an empty match one character passes as it is. */
static void replace(struct rename *rename, const char *name, FILE *out)
{
	regmatch_t matches[N_GROUPS];
	const char *last = NULL; /* the end of the last match */
	int flags = 0;
	while (regexec(&rename->pattern, name, N_GROUPS, matches, flags) == 0) {
		const char *begin = name + matches[0].rm_so;
		const char *end = name + matches[0].rm_eo;
		rename->used = true;
		(void)fwrite(name, 1, (size_t)(begin - name), out);
		if (begin != end || begin != last)
			put_text(out, rename->to, name, matches);
		name = last = end;
		flags = REG_NOTBOL;
		if (!rename->global || *name == '\0')
			break;
		if (begin == end)
			(void)fputc(*name++, out);
	}
	(void)fputs(name, out);
}

int rename_apply(struct rename *renames, size_t n, const char *name, char **ret)
{
	char *now = strdup(name);
	for (size_t i = 0; now != NULL && i < n; i++) {
		char *next = NULL;
		size_t bytes;
		FILE *out = open_memstream(&next, &bytes);
		if (out != NULL) {
			replace(&renames[i], now, out);
			bool failed = ferror(out) != 0;
			if (fclose(out) != 0 || failed) {
				free(next);
				next = NULL;
			}
		}
		free(now);
		now = next;
	}
	if (now == NULL)
		return -ENOMEM;
	*ret = now;
	return 0;
}
