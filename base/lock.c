/* SPDX-License-Identifier: MIT */
/* base/lock.c - waits for a lock that is taken: first looks, then sleeps.
 * The contract is in base/lock.h. */
#include "config.h"

#include "base/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS 100 /* some ten nanoseconds each */

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static void futex(struct hoist__lock *lock, int operation, uint32_t value)
{
	/* The wait may have been interrupted, or the value may have changed: the caller looks again
	 * in any case. */
	(void)syscall(SYS_futex, &lock->state, operation, value, NULL);
}

void hoist__lock_wait(struct hoist__lock *lock)
{
	for (int i = 0; i < LOOKS; i++) {
		uint32_t free = 0;
		if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_weak_explicit(
			    &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed))
			return;
		relax();
	}
	/* Others may sleep, too: the thread that wakes up must assume so. */
	while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
		futex(lock, FUTEX_WAIT_PRIVATE, 2);
}

void hoist__lock_wake(struct hoist__lock *lock)
{
	futex(lock, FUTEX_WAKE_PRIVATE, 1);
}
