/* SPDX-License-Identifier: MIT */
/* base/thread.h - threads of the library's own.
 *
 * Signals are the program's: its handlers run in its threads, so ours block every one. */
#ifndef HOIST_BASE_THREAD_H
#define HOIST_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct hoist__thread_options {
	size_t stack_bytes; /* 0: as the program's.  Its thread-local variables lie in the stack,
			     * too: where they do not fit, this is as 0 */
	bool detached;
};

/* @options: NULL for none.
 * Returns: 0; what pthread_create(3) said, negative, without a text: hoist__fail_thread() has it.
 */
int hoist__thread_start(const struct hoist__thread_options *options, void *(*run)(void *argument),
			void *argument, pthread_t *ret);

#endif
