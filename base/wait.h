/* SPDX-License-Identifier: MIT */
/* base/wait.h - waits with a deadline.
 *
 * Deadlines are times of the real CLOCK_MONOTONIC, never of the clock hook: they end real waits. */
#ifndef HOIST_BASE_WAIT_H
#define HOIST_BASE_WAIT_H

#include <pthread.h>
#include <stdint.h>

/* Makes a condition that waits by CLOCK_MONOTONIC.
 * Returns: 0; -ENOMEM, -EAGAIN, without a text. */
int hoist__condition_init(pthread_cond_t *condition);

/* Returns the time @timeout_ns from now; UINT64_MAX stays "never". */
uint64_t hoist__deadline(uint64_t timeout_ns);

/* Returns the nanoseconds until @deadline, 0 if it has passed; UINT64_MAX for "never". */
uint64_t hoist__deadline_left(uint64_t deadline);

/* Waits for @condition until @deadline.
 * Returns: 0 (look again); -ETIMEDOUT. */
int hoist__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline);

#endif
