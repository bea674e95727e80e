/* SPDX-License-Identifier: MIT */
/* cli/json.c - prints the one JSON object of --json.
 * The contract is in cli/json.h. */
#include "config.h"

#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/fail.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* jansson takes only UTF-8, but the name of a file may have any bytes. */
json_t *json_text(const char *text)
{
	json_t *plain = json_string(text);
	if (plain != NULL)
		return plain;
	char *fixed = malloc(strlen(text) * strlen(REPLACEMENT) + 1);
	if (fixed == NULL)
		return NULL;
	char *out = fixed;
	for (const char *in = text; *in != '\0';) {
		uint32_t code;
		size_t length = utf8_length(in, &code);
		if (length == 0) {
			out = stpcpy(out, REPLACEMENT);
			in++;
		} else {
			out = mempcpy(out, in, length);
			in += length;
		}
	}
	*out = '\0';
	plain = json_string(fixed);
	free(fixed);
	return plain;
}

json_t *json_count(uint64_t n)
{
	return n <= INT64_MAX ? json_integer((json_int_t)n) : json_real((double)n);
}

int json_print(json_t *object, bool indented)
{
	if (object == NULL)
		return fail_memory();
	size_t flags = JSON_REAL_PRECISION(9) | (indented ? JSON_INDENT(2) : 0);
	char *text = json_dumps(object, flags);
	json_decref(object);
	if (text == NULL)
		return fail_memory();
	(void)puts(text);
	bool failed = output_failed();
	free(text);
	return failed ? STATUS_FAILED : STATUS_OK;
}
