/* SPDX-License-Identifier: MIT */
/* base/lock.h - a lock for work of tens of nanoseconds.
 *
 * A futex with three states (Drepper, "Futexes Are Tricky", 2011): 0 free, 1 taken, 2 taken and a
 * thread may sleep.  Taking and giving back are one atomic instruction each, inline.  A thread that
 * finds the lock taken looks at it again for a microsecond, which is longer than any holder needs
 * unless it is preempted.  Then the thread sleeps.
 *
 * Not recursive, not fair, not for sharing between processes.  All zero is free.
 *
 * A build with assertions knows the holder.  There, taking a lock twice and giving back another
 * thread's lock abort.
 */
#ifndef HOIST_BASE_LOCK_H
#define HOIST_BASE_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/assert.h"

struct hoist__lock {
	_Atomic uint32_t state;
#ifdef HOIST_ASSERTIONS
	_Atomic uintptr_t holder; /* pthread_self(), which is the same in a child of fork; 0: free */
#endif
};

/* True if the calling thread holds the lock. */
HOIST__CONDITION static inline bool hoist__lock_held(const struct hoist__lock *lock)
{
#ifdef HOIST_ASSERTIONS
	return atomic_load_explicit(&lock->holder, memory_order_relaxed) ==
	       (uintptr_t)pthread_self();
#else
	return atomic_load_explicit(&lock->state, memory_order_relaxed) != 0;
#endif
}

static inline void hoist__lock_note(struct hoist__lock *lock, bool held)
{
#ifdef HOIST_ASSERTIONS
	atomic_store_explicit(&lock->holder, held ? (uintptr_t)pthread_self() : 0,
			      memory_order_relaxed);
#else
	(void)lock;
	(void)held;
#endif
}

void hoist__lock_wait(struct hoist__lock *lock);
void hoist__lock_wake(struct hoist__lock *lock);

static inline void hoist__lock(struct hoist__lock *lock)
{
	HOIST__ASSERT(!hoist__lock_held(lock));
	uint32_t free = 0;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0))
		hoist__lock_wait(lock);
	hoist__lock_note(lock, true);
}

static inline void hoist__unlock(struct hoist__lock *lock)
{
	HOIST__ASSERT(hoist__lock_held(lock));
	hoist__lock_note(lock, false);
	if (__builtin_expect(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2,
			     0))
		hoist__lock_wake(lock);
}

#endif
