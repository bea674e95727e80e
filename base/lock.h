/* SPDX-License-Identifier: MIT */
/* base/lock.h - a lock for what takes tens of nanoseconds.
 *
 * A futex with three states (Drepper, "Futexes Are Tricky", 2011): 0 free, 1 taken, 2 taken and
 * somebody may sleep.  Taking and giving back are one atomic instruction each, inline; who finds
 * it taken looks on for a microsecond, which is longer than any holder needs that is not
 * preempted, and then sleeps.
 *
 * Not recursive, not fair, not for sharing between processes.  All zero is free.
 */
#ifndef HOIST_BASE_LOCK_H
#define HOIST_BASE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct hoist__lock {
	_Atomic uint32_t state;
};

void hoist__lock_wait(struct hoist__lock *lock);
void hoist__lock_wake(struct hoist__lock *lock);

static inline void hoist__lock(struct hoist__lock *lock)
{
	uint32_t free = 0;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0))
		hoist__lock_wait(lock);
}

static inline void hoist__unlock(struct hoist__lock *lock)
{
	if (__builtin_expect(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2,
			     0))
		hoist__lock_wake(lock);
}

#endif
