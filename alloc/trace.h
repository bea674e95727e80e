/* SPDX-License-Identifier: MIT */
/* alloc/trace.h - a pool's allocations and frees as lines of CSV, in the columns of RMM's log.
 *
 *   Thread,Time,Action,Pointer,Size,Stream
 *   4711,09:30:00.000123,allocate,0x7f12c0000040,4096,0
 *
 *   Thread   the kernel's number of the thread Time     local time of day, microseconds Action
 *   allocate, free, or "allocate failure" Pointer  hexadecimal; (nil) for a failure Size     in
 *   bytes, as asked for Stream   the driver's handle, hexadecimal; 0 for none and for the default
 *   stream
 *
 * The order of the lines is one in which the calls could have happened: a free writes its line
 * before another thread can get the memory, and an allocation writes its line when it has the
 * block.
 *
 * Lines are buffered and written many at a time, always whole.  After a failed write nothing more
 * is written, and the part of the failed write that is in the file is cut off, where the file
 * allows. A child of fork writes nothing.
 *
 * Threads: one at a time; the pool has a lock for the trace.
 */
#ifndef HOIST_ALLOC_TRACE_H
#define HOIST_ALLOC_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__trace;

/* Creates the file, or truncates it.  Returns: 0; -ENOMEM; the error of open(2). */
int hoist__trace_open(const char *path, struct hoist__trace **ret);

/* Writes a line.  @address 0: no address.  @stream NULL: no stream. */
void hoist__trace_line(struct hoist__trace *trace, const char *action, uintptr_t address,
		       size_t bytes, const void *stream);

/* Takes NULL.  Writes the buffered lines.  Returns: 0; the error of the first write that failed. */
int hoist__trace_close(struct hoist__trace *trace);

#endif
