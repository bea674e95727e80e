/* SPDX-License-Identifier: MIT */
/* Starts worker threads, and counts the CPUs for them.
 * The contract is in io/worker.h. */
#include "config.h"

#include "io/worker.h"

#include <sched.h>
#include <stddef.h>
#include <unistd.h>

#include "base/thread.h"

#define STACK_BYTES ((size_t)256 << 10)

int hoist__worker_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	const struct hoist__thread_options options = {.stack_bytes = STACK_BYTES};
	int err = hoist__thread_start(&options, run, argument, thread);
	if (err == 0)
		pthread_setname_np(*thread, "hoist-io");
	return err;
}

unsigned hoist__worker_cpus(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	/* The machine has more CPUs than a cpu_set_t holds. */
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : (unsigned)n;
}
