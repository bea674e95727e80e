/* SPDX-License-Identifier: MIT */
/* base/wait.c - waits with a deadline.
 * The contract is in base/wait.h. */
#include "config.h"

#include "base/wait.h"

#include <time.h>

#include "base/clock.h"

int hoist__condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	int err = pthread_condattr_init(&attributes);
	if (err != 0)
		return -err;
	err = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (err == 0)
		err = pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
	return -err;
}

static uint64_t real_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * HOIST__NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t hoist__deadline(uint64_t timeout_ns)
{
	if (timeout_ns == UINT64_MAX)
		return UINT64_MAX;
	uint64_t now = real_now_ns();
	return timeout_ns > UINT64_MAX - 1 - now ? UINT64_MAX : now + timeout_ns;
}

uint64_t hoist__deadline_left(uint64_t deadline)
{
	if (deadline == UINT64_MAX)
		return UINT64_MAX;
	uint64_t now = real_now_ns();
	return now < deadline ? deadline - now : 0;
}

int hoist__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline)
{
	/* A deadline beyond the range of any kernel's timespec is as good as never. */
	if (deadline / HOIST__NS_PER_S >= INT32_MAX) {
		pthread_cond_wait(condition, mutex);
		return 0;
	}
	struct timespec until = {
		.tv_sec = (time_t)(deadline / HOIST__NS_PER_S),
		.tv_nsec = (long)(deadline % HOIST__NS_PER_S),
	};
	return -pthread_cond_timedwait(condition, mutex, &until);
}
