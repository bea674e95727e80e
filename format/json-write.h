/* SPDX-License-Identifier: MIT */
/* format/json-write.h - JSON text that grows as it is written.
 *
 * The first failure is kept.  Callers continue to write, and check `err` once, at the end. */
#ifndef HOIST_FORMAT_JSON_WRITE_H
#define HOIST_FORMAT_JSON_WRITE_H

#include <stddef.h>

#include "base/error.h"

struct hoist__json_text {
	char *text; /* from malloc */
	size_t bytes;
	size_t room;
	int err; /* 0; -ENOMEM */
};

void hoist__json_put(struct hoist__json_text *json, const char *text, size_t bytes);
void hoist__json_printf(struct hoist__json_text *json, const char *format, ...) HOIST__PRINTF(2, 3);

/* Writes @string in quotes.  Bytes that are not UTF-8 become U+FFFD. */
void hoist__json_put_string(struct hoist__json_text *json, const char *string);

#endif
