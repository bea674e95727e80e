/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)256 << 10)

int hoist__worker_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	int err = pthread_attr_init(&attributes);
	if (err != 0)
		return -err;
	/* A refused stack size leaves the default, which is only larger. */
	(void)pthread_attr_setstacksize(&attributes, STACK_BYTES);

	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(thread, &attributes, run, argument);
	/* A program's thread-local variables lie in the stack too: they may not fit. */
	if (err == EINVAL)
		err = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (err != 0)
		return -err;
	pthread_setname_np(*thread, "hoist-io");
	return 0;
}

unsigned hoist__worker_cpus(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	/* More CPUs than a cpu_set_t holds. */
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : (unsigned)n;
}
