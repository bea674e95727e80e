/* SPDX-License-Identifier: MIT */
/* base/lock-fork.h - keeps forks and the holders of a lock apart.
 *
 * A child of fork has the parent's memory, but none of its other threads.  A lock that another
 * thread held at the fork would never be free in the child, and the list under it may be half
 * changed.  So a fork takes the lock first, and parent and child give it back.
 *
 * Order: a fork takes the locks in the reverse order in which they were first watched.  So a thread
 * that holds a watched lock takes no other watched lock, nor one that another handler of fork takes
 * (pools, budgets, heaps).
 */
#ifndef HOIST_BASE_LOCK_FORK_H
#define HOIST_BASE_LOCK_FORK_H

#include <pthread.h>

#include "base/lock.h"
#include "base/log.h"

/* Defines watch_forks() for @lock, a static struct hoist__lock.  The first call takes effect, and
 * must precede the first use of what the lock guards.  Without memory for the handlers, a line of
 * the log of @module names @what, in which a child may hang. */
#define HOIST__WATCH_FORKS(lock, module, what)                                                     \
	static void lock_before_fork(void)                                                         \
	{                                                                                          \
		hoist__lock(&(lock));                                                              \
	}                                                                                          \
	static void unlock_after_fork(void)                                                        \
	{                                                                                          \
		hoist__unlock(&(lock));                                                            \
	}                                                                                          \
	static void add_fork_handlers(void)                                                        \
	{                                                                                          \
		if (pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork) != 0)   \
			hoist__log(module, "a child of fork may hang in " what ": no handlers");   \
	}                                                                                          \
	static void watch_forks(void)                                                              \
	{                                                                                          \
		static pthread_once_t once = PTHREAD_ONCE_INIT;                                    \
		(void)pthread_once(&once, add_fork_handlers);                                      \
	}

#endif
