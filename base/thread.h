/* SPDX-License-Identifier: MIT */
/* base/thread.h - the library's own threads.
 *
 * Signals belong to the program: its handlers run in its threads, so the library's threads block
 * every signal. */
#ifndef HOIST_BASE_THREAD_H
#define HOIST_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct hoist__thread_options {
	size_t stack_bytes; /* 0: the program's default.  The program's thread-local variables lie
			     * in the stack, too: if they do not fit, the size counts as 0 */
	bool detached;
};

/* Starts a thread.  @options may be NULL for none.
 * Returns: 0; the error of pthread_create(3), negative, without a text: hoist__fail_thread() makes
 *   the text. */
int hoist__thread_start(const struct hoist__thread_options *options, void *(*run)(void *argument),
			void *argument, pthread_t *ret);

#endif
