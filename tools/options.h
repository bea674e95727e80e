/* SPDX-License-Identifier: MIT */
/* tools/options.h - all options of all commands: one table.
 *
 * A command says by OPTION_* of args.h which rows it takes.  Parsing, --help and completion follow
 * the table, so that they cannot disagree.
 */
#ifndef HOIST_TOOLS_OPTIONS_H
#define HOIST_TOOLS_OPTIONS_H

#include <assert.h>
#include <stddef.h>

struct option_row {
	unsigned bit; /* OPTION_* */
	const char *name;
	const char *value; /* the value's name in --help; NULL if there is no value */
	const char
		*words; /* values that completion offers, spaces between; "@": a file; NULL: none */
	const char *help;
};

#define MOST_OPTION_ROWS 96

extern const struct option_row option_rows[];
extern const size_t n_option_rows;

#endif
