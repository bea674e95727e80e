/* SPDX-License-Identifier: MIT */
/* tools/tool.h - shared by every command of `hoist`.
 *
 *   exit status   0 done; 1 it failed: one line on stderr names the action, the reason and the
 *                 remedy; 2 it was called wrongly, with a hint to --help
 *   stdout        results only: text for people, or with --json one JSON object
 *   stderr        the one line of a failure, and progress on a terminal
 *
 * A command is one file, cmd-NAME.c, and one row of the table in main.c.  It gets its parsed
 * arguments, frees the objects it made, and returns its exit status.
 */
#ifndef HOIST_TOOLS_TOOL_H
#define HOIST_TOOLS_TOOL_H

#include <stddef.h>

#include "cli/fail.h"

struct args;

struct command {
	const char *name;
	const char *operands; /* as the usage line shows them: "PATH TENSOR" */
	const char *summary;  /* one line for `hoist --help` */
	const char *details;  /* the paragraph of `hoist NAME --help` */
	unsigned options;     /* the OPTION_* of args.h that it takes */
	int min_operands;
	int max_operands;
	int (*run)(const struct args *args);
};

/* The @index-th command of `hoist --help`; NULL: there are fewer. */
const struct command *tool_command(size_t index);

int cmd_bench(const struct args *args);
int cmd_cache(const struct args *args);
int cmd_cat(const struct args *args);
int cmd_completion(const struct args *args);
int cmd_cp(const struct args *args);
int cmd_devices(const struct args *args);
int cmd_digest(const struct args *args);
int cmd_doctor(const struct args *args);
int cmd_emulate(const struct args *args);
int cmd_explain(const struct args *args);
int cmd_group(const struct args *args);
int cmd_load(const struct args *args);
int cmd_ls(const struct args *args);

#endif
