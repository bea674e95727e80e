/* SPDX-License-Identifier: MIT */
/* base/assert.h - invariants, said where the code changes what they are about.
 *
 * HOIST__ASSERT(condition) aborts the process if the condition is false, in a build that was
 * configured with --enable-assertions (config.h defines HOIST_ASSERTIONS).  Every other build
 * compiles the condition and never evaluates it, so a condition must have no effect.  A function
 * that only conditions call (HOIST__CONDITION) is no part of the objects of such a build.
 *
 * assert() of <assert.h> is in every build.  It stands where going on after a bug of ours would give
 * memory to two owners, or write beside it, and in the functions that tests call to check a whole
 * structure.
 */
#ifndef HOIST_BASE_ASSERT_H
#define HOIST_BASE_ASSERT_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef HOIST_ASSERTIONS
#ifdef NDEBUG
#error "--enable-assertions and -DNDEBUG contradict each other; configure with one of them"
#endif
/* Not assert(), which would print the condition with its macros expanded. */
#define HOIST__ASSERT(condition)                                                                   \
	((condition) ? (void)0 : __assert_fail(#condition, __FILE__, __LINE__, __func__))
#else
#define HOIST__ASSERT(condition) ((void)(0 && (condition)))
#endif

/* Before a function that only conditions call. */
#define HOIST__CONDITION __attribute__((unused))

/* True if a thread, which should be the caller, holds the lock.  The mutex
 * must not be recursive.  A lock that nobody holds is taken, as the process aborts then. */
HOIST__CONDITION static inline bool hoist__mutex_held(const pthread_mutex_t *mutex)
{
	return pthread_mutex_trylock((pthread_mutex_t *)(uintptr_t)mutex) == EBUSY;
}

#endif
