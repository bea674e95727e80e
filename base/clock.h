/* SPDX-License-Identifier: MIT */
/* base/clock.h - monotonic time behind a hook.
 *
 * Production code reads CLOCK_MONOTONIC.  A test may install its own clock, so that time passes
 * without sleeping.  The hook is not synchronised: set it before the code under test starts
 * threads, and reset it after they have ended.
 */
#ifndef HOIST_BASE_CLOCK_H
#define HOIST_BASE_CLOCK_H

#include <stdint.h>

#define HOIST__NS_PER_S UINT64_C(1000000000)

/* Nanoseconds since an arbitrary point; never goes back. */
uint64_t hoist__now_ns(void);

/* CPU time (user + system) of the whole process and of this thread, in ns. */
uint64_t hoist__cpu_ns(void);
uint64_t hoist__thread_cpu_ns(void);

/* Replaces the clock behind hoist__now_ns(); NULL restores the real one. */
void hoist__clock_hook(uint64_t (*now_ns)(void *context), void *context);

#endif
