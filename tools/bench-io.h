/* SPDX-License-Identifier: MIT */
/* tools/bench-io.h - `hoist bench io PATH` and `hoist bench load PATH`. */
#ifndef HOIST_TOOLS_BENCH_IO_H
#define HOIST_TOOLS_BENCH_IO_H

#include "tools/args.h"

/* Reads of every size and depth, by either engine, direct, through an empty page cache and through
 * a full one; beside them what the library chooses by itself. */
int bench_io(const struct args *args, const char *path); /* a STATUS_* */

/* Whole loads to --device, by either engine, cold and hot; with --save saves too. */
int bench_load(const struct args *args, const char *path); /* a STATUS_* */

#endif
