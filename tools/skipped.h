/* SPDX-License-Identifier: MIT */
/* tools/skipped.h - shows which values --skip-unsupported left out of a checkpoint. */
#ifndef HOIST_TOOLS_SKIPPED_H
#define HOIST_TOOLS_SKIPPED_H

#include <jansson.h>

#include <hoist/checkpoint.h>

/* Prints a table of them to standard output; nothing if there are none. */
void skipped_print(const hoist_checkpoint *checkpoint);

/* Returns the list for --json; NULL without memory. */
json_t *skipped_json(const hoist_checkpoint *checkpoint);

/* Prints one line to stderr that counts them; nothing if there are none. */
void skipped_note(const hoist_checkpoint *checkpoint);

#endif
