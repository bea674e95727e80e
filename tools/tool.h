/* SPDX-License-Identifier: MIT */
/* tools/tool.h - what every command of `hoist` shares.
 *
 *   exit status   0 done; 1 it failed, one line on stderr says what, why and the
 *                 remedy; 2 it was called wrongly, with a hint to --help
 *   stdout        results only: text for people, or with --json one JSON object
 *   stderr        the one line of a failure, and progress on a terminal
 *
 * A command is one file, cmd-NAME.c, and one row of the table in main.c.  It
 * gets its parsed arguments, frees what it made, and returns its exit status.
 */
#ifndef HOIST_TOOLS_TOOL_H
#define HOIST_TOOLS_TOOL_H

#include <stdbool.h>

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

struct args;

struct command {
	const char *name;
	const char *operands; /* as the usage line shows them: "PATH TENSOR" */
	const char *summary;  /* one line for `hoist --help` */
	const char *details;  /* the paragraph of `hoist NAME --help` */
	unsigned options;     /* OPTION_* of args.h that it takes */
	int min_operands;
	int max_operands;
	int (*run)(const struct args *args);
};

int cmd_bench(const struct args *args);
int cmd_cache(const struct args *args);
int cmd_cat(const struct args *args);
int cmd_cp(const struct args *args);
int cmd_devices(const struct args *args);
int cmd_digest(const struct args *args);
int cmd_doctor(const struct args *args);
int cmd_load(const struct args *args);
int cmd_ls(const struct args *args);

/* Prints "hoist: <formatted>" as one line on stderr, whatever the text holds (a
 * file's name may hold a newline), and returns STATUS_FAILED. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same with hoist_error(), the text of the library call that just failed. */
int fail_library(void);

/* The same for a call that returned @err, with a remedy where the text has none ("why;
 * remedy") and the kind of error has an obvious one. */
int fail_call(int err);

/* "host memory is exhausted". */
int fail_memory(void);

/* True once something could not be printed on stdout; main() will say so.  Asked
 * after each line of long output, it ends that early and keeps the reason. */
bool output_failed(void);

#endif
