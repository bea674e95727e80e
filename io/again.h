/* SPDX-License-Identifier: MIT */
/* io/again.h - calls that did not fail, but are to be made again.
 *
 * A file on a disk is never interrupted.  One on a network, or that another process serves (FUSE),
 * may be: by a signal of the program's, to each call that waits for an answer, opening it and
 * asking for its size included; and some servers say EINTR or EAGAIN of their own accord.  Whoever
 * says so for ever is an error, and not a loop without an end.
 *
 * Threads: any. */
#ifndef HOIST_IO_AGAIN_H
#define HOIST_IO_AGAIN_H

#include <errno.h>
#include <stdbool.h>

/* What answers so this often in a row is not going to stop. */
#define HOIST__MAX_AGAIN 1000u

/* After a call that failed with @err, an errno value: is it to be made again?  *n counts those in
 * a row. */
static inline bool hoist__again(int err, unsigned *n)
{
	return (err == EINTR || err == EAGAIN) && ++*n < HOIST__MAX_AGAIN;
}

/* @call, which gives -1 and errno, until it is not interrupted.  For calls that may be made twice.
 */
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
