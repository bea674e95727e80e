/* SPDX-License-Identifier: MIT */
/* alloc/trace.h - a pool's allocations and frees as lines of CSV, in the columns of RMM's log.
 *
 *   Thread,Time,Action,Pointer,Size,Stream
 *   4711,09:30:00.000123,allocate,0x7f12c0000040,4096,0
 *
 *   Thread   the kernel's number of it
 *   Time     local time of day, microseconds
 *   Action   allocate, free, or "allocate failure"
 *   Pointer  hexadecimal; (nil) for a failure
 *   Size     in bytes, as asked for
 *   Stream   the driver's handle, hexadecimal; 0 for none and for the default stream
 *
 * The order of the lines is one in which it could have happened: who frees writes the line
 * before the memory can be another's, who allocates writes it when the block is his.
 *
 * Lines are collected and written many at a time, always whole.  After a write that fails nothing
 * more is written, and what was written of it is cut off where the file allows.  A child of
 * fork writes nothing.
 *
 * Threads: one at a time; the pool has a lock.
 */
#ifndef HOIST_ALLOC_TRACE_H
#define HOIST_ALLOC_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__trace;

/* The file is made anew.  Returns: 0; -ENOMEM; what open(2) says. */
int hoist__trace_open(const char *path, struct hoist__trace **ret);

/* @address 0 and @stream NULL are none. */
void hoist__trace_line(struct hoist__trace *trace, const char *action, uintptr_t address,
		       size_t bytes, const void *stream);

/* Takes NULL.  Writes what is left.  Returns: 0; the first failure of any write. */
int hoist__trace_close(struct hoist__trace *trace);

#endif
