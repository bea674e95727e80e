/* SPDX-License-Identifier: MIT */
/* bench/hot.h - the peers for a file that lies in the page cache: loops by hand, with threads. */
#ifndef HOIST_BENCH_HOT_H
#define HOIST_BENCH_HOT_H

#include <stddef.h>
#include <stdint.h>

enum hot_way {
	HOT_MEMCPY, /* from a mapping of the file that is populated already, which costs it nothing
		     */
	HOT_PREAD,  /* in pieces of 2 MiB */
};

/* Rows of a file, to be packed. */
struct hot_rows {
	uint64_t offset;
	uint64_t stride;
	size_t bytes; /* of a row */
	size_t n;
};

/* Seconds for the whole file, hot, into memory in a process of its own: huge pages that were never
 * touched, or with @warm populated before the clock starts.  Each of @n_threads has its share, in
 * one piece. */
double hot_run(const char *path, enum hot_way way, int n_threads, int warm);

/* The same with one pread for each of the rows, into huge pages that were never touched. */
double hot_run_rows(const char *path, const struct hot_rows *rows, int n_threads);

#endif
