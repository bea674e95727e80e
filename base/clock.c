/* SPDX-License-Identifier: MIT */
/* base/clock.c - reads monotonic and CPU time.
 * The contract is in base/clock.h. */
#include "config.h"

#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t (*hook)(void *context);
static void *hook_context;

static uint64_t read_clock(clockid_t clock)
{
	struct timespec t = {0};
	(void)clock_gettime(clock, &t); /* cannot fail for the clocks used here */
	return (uint64_t)t.tv_sec * HOIST__NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t hoist__now_ns(void)
{
	return hook != NULL ? hook(hook_context) : read_clock(CLOCK_MONOTONIC);
}

uint64_t hoist__cpu_ns(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t hoist__thread_cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void hoist__clock_hook(uint64_t (*now_ns)(void *context), void *context)
{
	hook = now_ns;
	hook_context = context;
}
