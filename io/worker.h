/* SPDX-License-Identifier: MIT */
/* io/worker.h - threads of this folder, and waits with a deadline.
 *
 * Workers block every signal (they are the host program's business), carry the
 * name "hoist-io" and have a small stack.  Deadlines are of the real
 * CLOCK_MONOTONIC, never of the clock hook: they end real waits.
 */
#ifndef HOIST_IO_WORKER_H
#define HOIST_IO_WORKER_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Returns: 0; -EAGAIN or -ENOMEM as pthread_create(3), without a text. */
int hoist__worker_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* CPUs that the calling thread may run on, at least 1. */
unsigned hoist__worker_cpus(void);

/* A condition that waits by CLOCK_MONOTONIC.
 * Returns: 0; -ENOMEM, -EAGAIN, without a text. */
int hoist__condition_init(pthread_cond_t *condition);

/* The time @timeout_ns from now; UINT64_MAX stays "never". */
uint64_t hoist__deadline(uint64_t timeout_ns);

/* Nanoseconds until @deadline, 0 if it has passed; UINT64_MAX for "never". */
uint64_t hoist__deadline_left(uint64_t deadline);

/* Waits for @condition until @deadline.  Returns: 0 (look again); -ETIMEDOUT. */
int hoist__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline);

#endif
