/* SPDX-License-Identifier: MIT */
/* alloc/calls.h - counts the calls of the system and of the drivers, and their time.
 *
 * There is one counter per kind of call, in the order of HOIST_CALL_* (hoist/memory.h).
 * Threads: counting is atomic; the figures of one kind may be of different moments.
 */
#ifndef HOIST_ALLOC_CALLS_H
#define HOIST_ALLOC_CALLS_H

#include <stdatomic.h>
#include <stdint.h>

enum hoist__call {
	HOIST__CALL_MAP,      /* reserving, placing and populating host memory; unmapping */
	HOIST__CALL_REGISTER, /* pinning, unpinning */
	HOIST__CALL_ALLOC,    /* a driver's (or source's) allocation and free */
	HOIST__CALL_EVENT,    /* recording an event */
	HOIST__CALL_QUERY,    /* asking for an event, or whether a stream captures */
	HOIST__CALL_WAIT,     /* waiting for an event, or for a budget */
	HOIST__N_CALLS
};

struct hoist__calls {
	struct hoist__call_counter {
		_Atomic uint64_t n;
		_Atomic uint64_t ns;
		_Atomic uint64_t longest_ns;
	} of[HOIST__N_CALLS];
};

static inline void hoist__calls_add(struct hoist__calls *calls, enum hoist__call call, uint64_t ns)
{
	struct hoist__call_counter *counter = &calls->of[call];
	atomic_fetch_add_explicit(&counter->n, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&counter->ns, ns, memory_order_relaxed);
	uint64_t longest = atomic_load_explicit(&counter->longest_ns, memory_order_relaxed);
	while (ns > longest &&
	       !atomic_compare_exchange_weak_explicit(&counter->longest_ns, &longest, ns,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

/* Adds to a counter that only this thread writes. */
static inline void hoist__count_own(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

#endif
