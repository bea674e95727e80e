/* SPDX-License-Identifier: MIT */
/* bench/ranks.h - a checkpoint that four processes load together, cold.  `hoist bench group`
 * measures all of this, `hoist bench load` all but the groups of several machines.
 *
 *   one process, plain     one load of everything, cold: what the disk gives
 *   4 processes, hot       each preads everything from the page cache at once, with one thread, in
 *                          pieces of 2 MiB, into huge pages that were never touched: what the
 *                          processors and the memory give
 *   a quarter each         of the rows of every tensor; time beside the plain load's
 *   everything each        time beside the longer of the plain load's and the hot copies'
 *   over UCX               everything each, as a group of several machines ("tcp:", over loopback)
 *   read                   bytes that the kernel read from storage for all ranks (/proc/self/io),
 *                          for each byte that is loaded */
#ifndef HOIST_BENCH_RANKS_H
#define HOIST_BENCH_RANKS_H

#include "bench/group-watch.h"
#include "bench/io-file.h"
#include "bench/results.h"

/* Measures what is selected of @file, @runs times.  @watch, if not NULL: groups of several
 * machines, too; it then has the last one's course.  This process has one thread, and has opened no
 * device: the ranks are its forks. Returns a STATUS_*. */
int bench_ranks(struct bench_file *file, unsigned runs, struct group_watch *watch,
		struct results *results);

#endif
