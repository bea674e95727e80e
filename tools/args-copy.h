/* SPDX-License-Identifier: MIT */
/* tools/args-copy.h - the options of `hoist cp` alone. */
#ifndef HOIST_TOOLS_ARGS_COPY_H
#define HOIST_TOOLS_ARGS_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/rename.h"

struct copy_metadata {
	const char *key;
	const char *value;
};

struct copy_args {
	const char *format; /* NULL: by the path */
	size_t shard_bytes; /* 0: one file */
	bool digest;
	bool no_sync;
	bool no_replace;
	bool only_weights;
	struct copy_metadata *metadata; /* room for all words of the command line */
	size_t n_metadata;
	struct rename *renames; /* likewise */
	size_t n_renames;
};

/* Makes room for @words words.  Returns: true; false without memory, and nothing is owed. */
bool args_copy_make(struct copy_args *copy, size_t words);
void args_copy_free(struct copy_args *copy);

/* Takes option @name with its value (NULL if it has none).  @value may be cut into pieces, and
 * stays in use.
 * Returns: NULL; otherwise a description of a good value: "KEY=VALUE". */
const char *args_copy_take(struct copy_args *copy, const char *name, char *value);

#endif
