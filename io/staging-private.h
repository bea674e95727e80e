/* SPDX-License-Identifier: MIT */
/* io/staging-private.h - the ring's own, shared by staging.c (making and ending, slots) and
 * staging-move.c (copies and fetches).
 *
 *     slot i's events   events[i * n_streams .. + n_streams), one behind what was queued on each
 *     queued, bare      bits of streams: something is queued there for the slot; and without
 *                       an event behind it, so that only the stream's end can tell
 *
 * Equation: n_free + n_copying + n_fetching + (READING and FULL ones, with their owner) == n_slots.
 *
 * Telling: behind each event, on a stream of the ring's own, the driver is asked to call `moved`.
 * The copy streams are not held up by those calls, which take a driver longer than a slot's copy
 * may.  A driver that failed may call late, when the ring is gone: each call holds a reference to
 * the teller, which the ring silences when it settles.
 */
#ifndef HOIST_IO_STAGING_PRIVATE_H
#define HOIST_IO_STAGING_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "io/staging.h"

/* Referenced by the ring and by every call that the driver has not made yet. */
struct hoist__teller {
	_Atomic unsigned refs;
	pthread_mutex_t lock;
	void (*moved)(void *context); /* NULL: nobody is told any more */
	void *context;
};

void hoist__teller_unref(struct hoist__teller *teller); /* takes NULL */

struct hoist__ring_slot {
	struct hoist__slot slot;
	uint32_t queued;
	uint32_t bare;
};

struct hoist__staging {
	struct hoist__dev_stream *streams[HOIST__STAGING_MAX_STREAMS];
	/* To be told on; NULL: does not tell. */
	struct hoist__dev_stream *telling[HOIST__STAGING_MAX_STREAMS];
	struct hoist__teller *teller;
	unsigned n_streams;
	bool tells; /* all of them do */
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	size_t charged; /* to it */
	uintptr_t address;
	size_t slot_bytes;
	unsigned n_slots;
	unsigned n_free;
	unsigned n_copying;
	unsigned n_fetching;
	unsigned n_busy_peak;
	uint64_t copied; /* hoist__staging_take_copied() */
	int failed; /* the device's first error: from then on the ring only drains */
	struct hoist__list free;
	struct hoist__list copying; /* oldest first */
	struct hoist__list fetching;
	struct hoist__ring_slot *slots;
	struct hoist__dev_event **events;
};

static inline struct hoist__slot *hoist__slot_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__slot, node);
}

/* Back to the free ones. */
void hoist__slot_make_free(struct hoist__staging *ring, struct hoist__slot *slot);

/* Blocks until the devices are past what is queued for @slot.  Returns: 0; a device's error. */
int hoist__slot_finish(struct hoist__staging *ring, struct hoist__slot *slot);

#endif
