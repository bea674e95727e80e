/* SPDX-License-Identifier: MIT */
/* tools/args.h - the command line.
 *
 * All options of all commands are one table (options.h); a command says which of
 * them it takes.
 */
#ifndef HOIST_TOOLS_ARGS_H
#define HOIST_TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <hoist/load.h>

#include "tools/args-copy.h"
#include "tools/args-emulate.h"
#include "tools/args-load.h"
#include "tools/options.h"
#include "tools/tool.h"

#define OPTION_DEVICE (1u << 0)
#define OPTION_TENSOR (1u << 1) /* --exclude, too: the selection */
#define OPTION_ENGINE (1u << 2)
#define OPTION_IO (1u << 3)
#define OPTION_BUDGET (1u << 4)
#define OPTION_VERIFY (1u << 5)
#define OPTION_FORCE (1u << 6)
#define OPTION_JSON (1u << 7)
#define OPTION_OPEN (1u << 8) /* the flags of hoist_checkpoint_open() */
#define OPTION_HELP (1u << 9) /* every command takes it */
#define OPTION_WORK (1u << 10)
#define OPTION_RUNS (1u << 11)
#define OPTION_QUICK (1u << 12)
#define OPTION_SVG (1u << 13)
#define OPTION_SAVE (1u << 20)
#define OPTION_TO (1u << 21)
#define OPTION_ALL (1u << 24)
#define OPTION_CACHE (1u << 25)
#define OPTION_NODE (1u << 26)
#define OPTION_PAGES (1u << 27)
#define OPTION_REPLACE (1u << 28)
#define OPTION_BARS (1u << 17)
#define OPTION_TREE (1u << 18)
#define OPTION_VERBOSE (1u << 23)
#define OPTION_COPY (1u << 14)	   /* the options of args-copy.h */
#define OPTION_CONVERT (1u << 15)  /* of args-load.h: a slice, a dtype */
#define OPTION_IO_FILES (1u << 19) /* --io for commands that map nothing */

#define OPTION_LOAD (1u << 22) /* the options of args-load.h */
#define OPTION_EMULATE                                                                             \
	(1u << 29) /* those of args-emulate.h; its operands are a command's words                  \
		    */

#define OPTION_RUN (1u << 30)
#define OPTION_KEEP (1u << 16)
#define OPTION_LOAD_ONLY (1u << 31) /* of args-load.h: options that explain does not take */

#define OPTIONS_LOADING (OPTION_DEVICE | OPTION_ENGINE | OPTION_IO | OPTION_BUDGET | OPTION_OPEN)

struct args {
	const struct command *command;
	bool given[MOST_OPTION_ROWS]; /* by row of the table */
	const char *operands[2];      /* NULL if not given */
	char **rest;		      /* OPTION_EMULATE: the words of another command, NULL ends */
	const char *device;	      /* "cpu" if not given */
	bool has_device;
	const char **patterns; /* of --tensor or --work, in their order */
	size_t n_patterns;
	const char **excludes; /* of --exclude */
	size_t n_excludes;
	enum hoist_engine engine;
	enum hoist_io io;
	size_t budget;	     /* 0: the library's default */
	unsigned open_flags; /* of hoist_checkpoint_open */
	unsigned runs;	     /* 0: the benchmark's default */
	const char *svg;     /* NULL: no image */
	const char *to;	     /* NULL: beside the file that was read */
	bool save;
	int node;  /* NUMA node; -1: none was given */
	int pages; /* HOIST_PAGES_... */
	bool all;
	bool cache;
	bool replace;
	struct load_args load;
	struct emulate_args emulate;
	struct copy_args copy;
	bool quick;
	bool verify;
	bool run;
	bool keep;
	bool force;
	bool json;
	bool verbose;
	bool tree;
	bool bars;
	bool help;
};

/* Parses the words after the command's name; argv[0] is that name.
 * Returns: STATUS_OK, and args_free() is owed; or STATUS_USAGE (STATUS_FAILED without memory), with
 *   the message printed and nothing owed. */
int args_parse(const struct command *command, int argc, char **argv, struct args *ret);
void args_free(struct args *args);

/* For a command that finds its arguments wrong: prints "<before><what><after>; see `hoist NAME
 * --help`", and returns STATUS_USAGE.  @what is the user's text, and is escaped. */
int args_refuse(const struct args *args, const char *before, const char *what, const char *after);

/* True if one of @options, OPTION_*, was given. */
bool args_given(const struct args *args, unsigned options);

/* For a command that does several things: refuses, by name, the first option that was given and is
 * not among @options, OPTION_*.  @what names the thing that is done: "list".
 * Returns: STATUS_OK; STATUS_USAGE. */
int args_only(const struct args *args, const char *what, unsigned options);

/* Prints the text of `hoist NAME --help`. */
void args_help(FILE *out, const struct command *command);

/* Reads "4096", "64K", "256M", "1G", "2T": powers of 1024, as are KiB, MiB, GiB and TiB; KB, MB, GB
 * and TB are powers of 1000.  No signs, no fractions.
 * Returns: 0; -EINVAL if @text is none of these; -EOVERFLOW. */
int args_bytes(const char *text, size_t *ret);

#endif
