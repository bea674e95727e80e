/* SPDX-License-Identifier: MIT */
/* bench/io-calls.h - `hoist bench load`: the calls that a chunk costs on its way to a device. */
#ifndef HOIST_BENCH_IO_CALLS_H
#define HOIST_BENCH_IO_CALLS_H

#include "bench/results.h"

/* Counts, for each chunk of 2 MiB of a hot file on its way to an emulated device: driver calls, as
 * the stand-in counts them, and system calls of the process, as a seccomp filter reports them,
 * except for waits of threads for each other, and for the stand-in's look at memory.  Two commands
 * load, one of them twice as much: a chunk costs the difference.  Returns a STATUS_*. */
int bench_calls(struct results *results);

#endif
