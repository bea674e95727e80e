/* SPDX-License-Identifier: MIT */
/* tests/format/nomem.h - counts hoist's allocations, and lets one of them fail (--wrap for malloc
 * and its like, see format/build.am).  One thread. */
#ifndef HOIST_TESTS_FORMAT_NOMEM_H
#define HOIST_TESTS_FORMAT_NOMEM_H

#include <stdbool.h>
#include <stddef.h>

/* Allocations are counted from here on, and call @fail_at, counted from 0, fails; -1: none. */
void count_begin(long fail_at);
/* Nothing that was allocated since is left. */
void count_end(void);

/* The most bytes that were allocated at once between the two; the processor's time between them. */
extern size_t counted_peak;
double counted_seconds(void);

/* Runs @once again and again, each time with another allocation that fails: each gives -ENOMEM,
 * says so, and leaves nothing behind.  The last run, in which none fails, gives @expected.  More
 * than @least runs. */
void fail_each(int (*once)(void *context), void *context, int expected, long least);

/* nomem-zip.c */
void test_archives(void);

#endif
