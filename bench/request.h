/* SPDX-License-Identifier: MIT */
/* bench/request.h - the measurements that `hoist bench` offers, and its options for them.
 *
 * Each function measures, prints a table or JSON on stdout, and returns a STATUS_*. */
#ifndef HOIST_BENCH_REQUEST_H
#define HOIST_BENCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

struct bench_request {
	const char *path;   /* FILE; NULL for alloc and copy */
	const char *device; /* one, or for a load several with commas */
	const char *const *works;
	size_t n_works;	     /* 0: all of them */
	unsigned runs;	     /* 0: the measurement's default */
	unsigned open_flags; /* of hoist_checkpoint_open() */
	const char *svg;     /* NULL: no image */
	const char *to;	     /* where a save goes; NULL: beside the file that was read */
	bool save;
	bool quick;
	bool bars; /* in the table: those of hoist's developers */
	bool json;
};

/* The allocator beside others; only @works of it. */
int bench_alloc(const struct bench_request *request);
bool bench_alloc_has(const char *work);

/* The names of the works, each with its labels, as lines of text on stdout. */
void bench_alloc_list(void);

/* Runs in a child of bench_alloc().  @spec is "MEASUREMENT,SUBJECT,QUICK" as numbers; behind the
 * last MEASUREMENT it only sees whether the subject is there.  Prints "result EMULATED VALUE..."
 * on stdout, or "missing FILE" where malloc is FILE's. */
int bench_alloc_worker(const char *spec, const char *device);

/* The allocations and frees that a file recorded. */
int bench_replay(const struct bench_request *request);

/* Copies in host memory beside loops by hand, and what views and buffers cost.  A failure ends the
 * process. */
int bench_copy(const struct bench_request *request);

/* Reads of every size and depth, by either engine, direct, through an empty page cache and through
 * a full one; beside them what the library chooses by itself. */
int bench_io(const struct bench_request *request);

/* A load by four processes together, through shared memory and as a group of several machines. */
int bench_group(const struct bench_request *request);

/* Whole loads by either engine, cold and hot; with @save saves too. */
int bench_load(const struct bench_request *request);

#endif
