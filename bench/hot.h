/* SPDX-License-Identifier: MIT */
/* bench/hot.h - the peers for a file that lies in the page cache: loops by hand, with threads. */
#ifndef HOIST_BENCH_HOT_H
#define HOIST_BENCH_HOT_H

enum hot_way {
	HOT_MEMCPY, /* from a mapping of the file that is populated already, which costs it nothing
		     */
	HOT_PREAD,  /* in pieces of 256 KiB */
};

/* Seconds for the whole file, hot, into memory in a process of its own: huge pages that were never
 * touched, or with @warm populated before the clock starts.  Each of @n_threads has its share, in
 * one piece. */
double hot_run(const char *path, enum hot_way way, int n_threads, int warm);

#endif
