/* SPDX-License-Identifier: MIT */
/* tools/args-load.h - the options of loads whose values have a grammar of their own. */
#ifndef HOIST_TOOLS_ARGS_LOAD_H
#define HOIST_TOOLS_ARGS_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include <hoist/load.h>

/* A value of --target. */
struct target_args {
	const char *device;
	size_t first_slice; /* it has target_slices[first_slice .. first_slice + n_slices) */
	size_t n_slices;
};

/* The options that were given, in the order of the command line. */
struct load_args {
	const char *given;	  /* the first of these options; NULL: none */
	hoist_load_slice *slices; /* room for all words of the command line */
	size_t n_slices;
	const char **replicas;	/* likewise */
	const char *timeline;	/* NULL: none is drawn */
	const char *group;	/* NULL: the load is alone */
	unsigned rank, n_ranks; /* n_ranks 0: --rank was not given */
	unsigned timeout_s;	/* 0: the library's */
	size_t n_replicas;
	hoist_dtype dtype;
	enum hoist_map map;
	const char *of_map; /* "map" or "populate", if given: only maps have these */
	size_t chunk_bytes;
	unsigned depth;
	unsigned flags; /* HOIST_LOAD_* */
	bool into;
	size_t window_bytes;
	const char **order; /* names and globs of --order */
	size_t n_order;
	struct target_args *targets; /* room for all words */
	size_t n_targets;
	hoist_load_slice *target_slices; /* of all targets */
	size_t n_target_slices;
};

/* Makes room for @words words.  Returns: true; false without memory, and nothing is owed. */
bool args_load_make(struct load_args *load, size_t words);
void args_load_free(struct load_args *load);

/* Takes option @name with its value (NULL if it has none).  @value may be cut into pieces, and
 * stays in use.
 * Returns: NULL; otherwise a description of a good value: "f32, f16 or bf16". */
const char *args_load_take(struct load_args *load, const char *name, char *value);

#endif
