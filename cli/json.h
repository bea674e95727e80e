/* SPDX-License-Identifier: MIT */
/* cli/json.h - the one JSON object that --json prints.
 *
 * Objects are built with json_pack(), which fails as a whole, and takes over the values given to it
 * ("o") in either case.  So only its result has to be checked. */
#ifndef HOIST_CLI_JSON_H
#define HOIST_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns a JSON string of any bytes; bytes that are not UTF-8 become U+FFFD (a path may contain
 * them, JSON may not).  NULL without memory. */
json_t *json_text(const char *text);

/* Returns an integer; a number beyond JSON's usual 63 bits becomes a real. */
json_t *json_count(uint64_t n);

/* Prints @object, which it takes over, and a newline on stdout, indented if people may read it,
 * too.  NULL means that the object could not be built for lack of memory.
 * Returns: STATUS_OK; STATUS_FAILED with the message printed. */
int json_print(json_t *object, bool indented);

#endif
