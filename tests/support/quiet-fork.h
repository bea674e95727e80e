/* SPDX-License-Identifier: MIT */
/* tests/support/quiet-fork.h - fork() while other threads allocate, also under AddressSanitizer.
 *
 * Its malloc (gcc 12, LLVM before 17) has no fork handlers: what lock another thread holds in the
 * moment of the fork stays locked in the child, which then waits for ever.  There, a thread that
 * allocates does it inside quiet_begin() and quiet_end(), and forks come between; without
 * AddressSanitizer they do nothing, and forks come in the middle of everything. */
#ifndef HOIST_TESTS_QUIET_FORK_H
#define HOIST_TESTS_QUIET_FORK_H

#include <pthread.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define QUIET_FORKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUIET_FORKS 1
#endif
#endif

#ifdef QUIET_FORKS
static pthread_mutex_t quiet_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void quiet_begin(void)
{
	(void)pthread_mutex_lock(&quiet_mutex);
}

static inline void quiet_end(void)
{
	(void)pthread_mutex_unlock(&quiet_mutex);
}
#else
static inline void quiet_begin(void)
{
}

static inline void quiet_end(void)
{
}
#endif

/* As fork(2). */
static inline pid_t quiet_fork(void)
{
	quiet_begin();
	pid_t pid = fork();
	quiet_end();
	return pid;
}

#endif
