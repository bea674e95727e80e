/* SPDX-License-Identifier: MIT */
/* io/worker.h - starts the threads of this folder.
 *
 * Workers (base/thread.h) have the name "hoist-io" and a small stack.
 */
#ifndef HOIST_IO_WORKER_H
#define HOIST_IO_WORKER_H

#include <pthread.h>

/* Returns: 0; the error of pthread_create(3): -EAGAIN, or -EPERM by a filter.  Sets no text:
 * hoist__fail_thread() does. */
int hoist__worker_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* The number of CPUs that the calling thread may run on, at least 1. */
unsigned hoist__worker_cpus(void);

#endif
