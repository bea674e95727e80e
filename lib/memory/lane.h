/* SPDX-License-Identifier: MIT */
/* lib/memory/lane.h - streams and pinned slots for copies that the caller waits for.
 *
 * Streams and events are costly to make, so a device keeps a few idle sets of them, its lanes.
 * A lane serves one copy, or one batch of them, at a time.
 *
 * Slots come from the device's staging pool, or from a resource of the caller's.  Both slots are
 * always taken, of full size, so that every copy of a device reuses the region of the copy before.
 *
 * Threads: any; lanes of one device work beside each other.
 */
#ifndef HOIST_LIB_MEMORY_LANE_H
#define HOIST_LIB_MEMORY_LANE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "device/device.h"
#include "hoist/device.h"
#include "hoist/memory.h"

#define HOIST__SLOT_BYTES (4 * HOIST__MIB)
#define HOIST__N_SLOTS 2u

struct hoist__lane {
	struct hoist__lane *next;
	struct hoist__dev_stream *stream;
	struct hoist__dev_event *done[HOIST__N_SLOTS]; /* the last copy from or into the slot */
};

/* The idle lanes of a device. */
struct hoist__lanes {
	pthread_mutex_t lock;
	struct hoist__lane *idle;
	unsigned n_idle;
};

/* Gives the lanes of @device, made on first use; borrowed.  Returns: 0; -ENOMEM. */
int hoist__lanes_of(hoist_device *device, struct hoist__lanes **ret);

/* Ends the idle lanes. */
void hoist__lanes_drain(hoist_device *device);

/* Returns: 0; -ESTALE in a child of fork; -ENOMEM, -ENOSPC, -EREMOTEIO. */
int hoist__lane_acquire(hoist_device *device, struct hoist__lane **ret);

/* Waits for all of the lane's work, also after a failure (@err), and gives the lane back.
 * Returns: the first failure, with its text. */
int hoist__lane_release(hoist_device *device, struct hoist__lane *lane, int err);

struct hoist__slots {
	struct hoist__pool *pool;
	hoist_memory *memory; /* instead of the pool, if the caller named one; borrowed */
	uintptr_t address;    /* N_SLOTS slots of SLOT_BYTES, one behind the other */
};

/* @through: the resource that the slots come from, whose memory the driver of @device knows; NULL:
 * the device's staging pool. */
int hoist__slots_acquire(hoist_device *device, hoist_memory *through, struct hoist__slots *ret);
void hoist__slots_release(struct hoist__slots *slots);

#endif
