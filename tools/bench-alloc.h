/* SPDX-License-Identifier: MIT */
/* tools/bench-alloc.h - `hoist bench alloc`: the allocator beside others. */
#ifndef HOIST_TOOLS_BENCH_ALLOC_H
#define HOIST_TOOLS_BENCH_ALLOC_H

#include "tools/args.h"

int bench_alloc(const struct args *args); /* a STATUS_* */

/* The names that --work takes, each with its labels, as lines of text on stdout. */
void bench_alloc_list(void);

#endif
