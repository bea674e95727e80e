/* SPDX-License-Identifier: MIT */
/* io/staging-private.h - the staging's internals, shared by staging.c (making and ending, slots)
 * and staging-copy.c (copies and fetches).
 *
 *     slot i's events   events[i * n_streams .. + n_streams), on each stream one behind the slot's
 *                       copies
 *     queued            a bit for each stream: copies of the slot are queued there
 *     bare              a bit for each stream: no event is behind these copies, so that only
 *                       synchronising the stream shows their end
 *
 * Equation: n_free + n_copying + n_fetching + (READING and FULL ones, with their owner) == n_made.
 *
 * Telling: when the owner asks, the driver is asked to call `moved` behind the events of one slot,
 * on separate streams of the staging's.  So these calls, which may take a driver longer than a
 * slot's copy, do not hold up the copy streams.  Until that slot has come back, the driver is asked
 * about no other slot of the same list (asked_copy, asked_fetch).  A driver that failed may call
 * late, after the staging has ended.  Each call therefore holds a reference to the teller, and the
 * staging silences the teller when it settles.
 */
#ifndef HOIST_IO_STAGING_PRIVATE_H
#define HOIST_IO_STAGING_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "io/staging.h"

/* Referenced by the staging and by every call that the driver has not made yet. */
struct hoist__teller {
	_Atomic unsigned refs;
	pthread_mutex_t lock;
	void (*moved)(void *context); /* NULL: silenced */
	void *context;
};

void hoist__teller_unref(struct hoist__teller *teller); /* takes NULL */

struct hoist__staging_slot {
	struct hoist__slot slot;
	uintptr_t address; /* set when the slot is made */
	uint32_t queued;
	uint32_t bare;
	struct hoist__lap lap; /* from the acquire on */
};

struct hoist__staging {
	struct hoist__dev_stream *streams[HOIST__STAGING_MAX_STREAMS];
	/* One for each copy stream, for the calls of `moved`; NULL: the driver does not tell. */
	struct hoist__dev_stream *telling[HOIST__STAGING_MAX_STREAMS];
	struct hoist__teller *teller;
	unsigned n_streams;
	bool tells; /* the driver can call `moved` on all streams */
	const struct hoist__slot *asked_copy; /* NULL: none of the list */
	const struct hoist__slot *asked_fetch;
	struct hoist__pool *pool;
	struct hoist__timeline *timeline; /* the owner's */
	struct hoist__budget *budget;
	size_t charged; /* bytes, to the budget */
	size_t slot_bytes;
	unsigned n_slots; /* the most */
	size_t n_events;
	unsigned n_made;  /* the first of them: only these have memory */
	unsigned n_step;
	unsigned n_making; /* charged, not made yet; 0: no part is being made */
	uintptr_t making;  /* its memory: the maker's, until hoist__staging_made() */
	uintptr_t *parts;  /* the memory of each that is made: n_made / n_step, rounded up */
	unsigned n_free;
	unsigned n_copying;
	unsigned n_fetching;
	unsigned n_busy_peak;
	uint64_t copied; /* hoist__staging_take_copied() */
	int failed;	 /* the device's first error: from then on the staging only drains */
	struct hoist__list free;
	struct hoist__list copying; /* oldest first */
	struct hoist__list fetching;
	struct hoist__staging_slot *slots;
	struct hoist__dev_event **events;
};

static inline struct hoist__slot *hoist__slot_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__slot, node);
}

/* True if the counts are those of the slots' states, and exactly the slots that are
 * COPYING or FETCHING have copies queued.  After a failure the staging only drains. */
HOIST__CONDITION static inline bool hoist__staging_adds_up(const struct hoist__staging *staging)
{
	unsigned n[HOIST__SLOT_FETCHING + 1] = {0};
	for (unsigned i = 0; i < staging->n_made; i++) {
		const struct hoist__staging_slot *own = &staging->slots[i];
		enum hoist__slot_state state = own->slot.state;
		bool moves = state == HOIST__SLOT_COPYING || state == HOIST__SLOT_FETCHING;
		n[state]++;
		if (staging->failed == 0 && (moves != (own->queued != 0) || (own->bare & ~own->queued)))
			return false;
	}
	return n[HOIST__SLOT_FREE] == staging->n_free && n[HOIST__SLOT_COPYING] == staging->n_copying &&
	       n[HOIST__SLOT_FETCHING] == staging->n_fetching;
}

/* Makes the slot FREE. */
void hoist__slot_make_free(struct hoist__staging *staging, struct hoist__slot *slot);

/* Blocks until all copies that are queued for @slot have ended.  Returns: 0; a device's error. */
int hoist__slot_finish(struct hoist__staging *staging, struct hoist__slot *slot);

#endif
