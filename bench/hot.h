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

/* A part of a file, or rows of it. */
struct hot_source {
	int fd;
	uint64_t offset;
	size_t bytes;
	const struct hot_rows *rows; /* NULL: the part */
};

/* Seconds for copying @source, which is hot, into huge pages that were never touched, or with @warm
 * populated before the clock starts.  So is the map that bytes come from.  Each of @n_threads has
 * its share, in one piece. */
double hot_copy(const struct hot_source *source, enum hot_way way, int n_threads, int warm);

/* The same of the whole file, which is made hot, in a process of its own. */
double hot_run(const char *path, enum hot_way way, int n_threads, int warm);

/* The same of rows, with one pread for each, into huge pages that were never touched. */
double hot_run_rows(const char *path, const struct hot_rows *rows, int n_threads);

#endif
