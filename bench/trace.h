/* SPDX-License-Identifier: MIT */
/* bench/trace.h - a recorded sequence of allocations and frees, read from CSV.
 *
 * The columns are those that hoist_memory_trace() writes and RMM logs:
 *
 *     Thread,Time,Action,Pointer,Size,Stream
 *     140202,10:19:12:133246,allocate,0x7f3e2ea00000,1048576,0
 *
 * Action is allocate, free (or deallocate), or "allocate failure", which is passed over.
 * Threads and streams become indices; pointers become blocks, since an address may live many
 * times.  A free of what was allocated before the recording began is passed over and counted.
 */
#ifndef HOIST_BENCH_TRACE_H
#define HOIST_BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event {
	uint32_t line;
	uint32_t thread;
	uint32_t stream; /* 0: none, else an index from 1 */
	uint32_t block;
	size_t bytes; /* 0: it frees */
};

struct trace {
	struct event *events;
	size_t n_events;
	uint32_t n_threads;
	uint32_t n_streams; /* without "none" */
	uint32_t n_blocks;
	size_t n_unknown; /* frees that were passed over */
	size_t peak;	  /* the event after which most bytes are live */
};

/* Returns a STATUS_*, with the message (which names the line) printed. */
int trace_read(const char *path, struct trace *ret);
void trace_free(struct trace *trace);

#endif
