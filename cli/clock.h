/* SPDX-License-Identifier: MIT */
/* cli/clock.h - the time, in nanoseconds. */
#ifndef HOIST_CLI_CLOCK_H
#define HOIST_CLI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns_of(clockid_t clock)
{
	struct timespec now = {0};
	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The monotonic clock. */
static inline uint64_t clock_ns(void)
{
	return clock_ns_of(CLOCK_MONOTONIC);
}

#endif
