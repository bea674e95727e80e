/* SPDX-License-Identifier: MIT */
/* cli/json.h - the one JSON object that --json prints.
 *
 * Objects are built with json_pack(), which fails as a whole and takes the values
 * given to it ("o") in either case, so that only its result has to be looked at.
 */
#ifndef HOIST_CLI_JSON_H
#define HOIST_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A JSON string of any bytes: those that are not UTF-8 become U+FFFD (a path may
 * hold them, JSON may not).  NULL without memory. */
json_t *json_text(const char *text);

/* An integer; what exceeds JSON's usual 63 bits becomes a real. */
json_t *json_count(uint64_t n);

/* Prints @object (which it takes) and a newline on stdout, indented if it is for
 * reading too.  NULL says that building it failed for lack of memory.
 * Returns: STATUS_OK, STATUS_FAILED with the message printed. */
int json_print(json_t *object, bool indented);

#endif
