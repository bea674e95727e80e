/* SPDX-License-Identifier: MIT */
/* io/worker.h - threads of this folder.
 *
 * Workers (base/thread.h) carry the name "hoist-io" and have a small stack.
 */
#ifndef HOIST_IO_WORKER_H
#define HOIST_IO_WORKER_H

#include <pthread.h>

/* Returns: 0; what pthread_create(3) said, -EAGAIN or, by a filter, -EPERM, without a text:
 * hoist__fail_thread() has it. */
int hoist__worker_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* CPUs that the calling thread may run on, at least 1. */
unsigned hoist__worker_cpus(void);

#endif
