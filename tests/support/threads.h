/* SPDX-License-Identifier: MIT */
/* tests/support/threads.h - threads that do the same work at once. */
#ifndef HOIST_TESTS_THREADS_H
#define HOIST_TESTS_THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST_THREADS = 16 };

/* Runs @work in @n threads at once, and waits for all.  Thread i, from 0 on, gets @contexts + i *
 * @size, or i itself where @contexts is NULL. */
static inline void run_threads(size_t n, void *(*work)(void *context), void *contexts, size_t size)
{
	pthread_t threads[MOST_THREADS];
	for (size_t i = 0; i < n; i++) {
		void *context =
			contexts != NULL ? (char *)contexts + i * size : (void *)(uintptr_t)i;
		if (i == MOST_THREADS || pthread_create(&threads[i], NULL, work, context) != 0)
			abort();
	}
	for (size_t i = 0; i < n; i++)
		if (pthread_join(threads[i], NULL) != 0)
			abort();
}

#endif
