/* SPDX-License-Identifier: MIT */
/* tests/support/patience.h - waiting for what comes by itself: a thread's end, a stream's, a
 * signal.  How soon depends on the machine, so no test fails because it came late, only because it
 * never did.
 *
 *     for (uint64_t until = 0; !has_come() && patience(&until);)
 *             continue;
 *     CHECK(has_come());
 */
#ifndef HOIST_TESTS_PATIENCE_H
#define HOIST_TESTS_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define PATIENCE_SECONDS 60 /* after this time the test hangs */

static inline uint64_t patience_now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Sleeps for a millisecond.  @until: 0 at first.  Returns: false once PATIENCE_SECONDS are over. */
static inline bool patience(uint64_t *until)
{
	uint64_t now = patience_now();
	if (*until == 0)
		*until = now + UINT64_C(1000000000) * PATIENCE_SECONDS;
	(void)nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
	return now < *until;
}

#endif
