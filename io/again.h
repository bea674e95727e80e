/* SPDX-License-Identifier: MIT */
/* io/again.h - calls that were interrupted, and must be repeated.
 *
 * Calls on a local disk's file are never interrupted.  Calls on a network's file, or on one that
 * another process serves (FUSE), may be: a signal to the program ends each call that waits for an
 * answer, open(2) and stat(2) included, and some servers return EINTR or EAGAIN of their own
 * accord.  The number of repetitions is bounded: a server that never stops is an error, not an
 * endless loop.
 *
 * Threads: any. */
#ifndef HOIST_IO_AGAIN_H
#define HOIST_IO_AGAIN_H

#include <errno.h>
#include <stdbool.h>

/* A call that was interrupted this often in a row will not succeed. */
#define HOIST__MAX_AGAIN 1000u

/* Returns: true if the call that failed with @err, an errno value, is to be repeated.  *n counts
 * the repetitions in a row. */
static inline bool hoist__again(int err, unsigned *n)
{
	return (err == EINTR || err == EAGAIN) && ++*n < HOIST__MAX_AGAIN;
}

/* Repeats @call, which returns -1 and sets errno, until it is not interrupted.  Only for calls that
 * may be made twice. */
#define HOIST__UNINTERRUPTED(call)                                                                 \
	({                                                                                         \
		unsigned n_again_ = 0;                                                             \
		__typeof__(call) result_;                                                          \
		do                                                                                 \
			result_ = (call);                                                          \
		while (result_ < 0 && errno == EINTR && hoist__again(EINTR, &n_again_));           \
		result_;                                                                           \
	})

#endif
