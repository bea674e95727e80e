/* SPDX-License-Identifier: MIT */
/* lib/device/device-private.h - shared by the files of the Device.
 *
 *   device.c       the objects: interning, properties, streams
 *   device-spec.c  "cuda:1": from text to a device
 *
 * lib/memory fills the slots of the memory that a device keeps.
 *
 * A device object is made once per (api, ordinal) and never freed.  So buffers, streams and memory
 * resources point to a device without holding a reference, and an unref too many does no harm.  The
 * objects that belong to a device are made when first asked for, and published with one
 * compare-and-swap: if two threads make one at once, the later thread discards its own.
 */
#ifndef HOIST_LIB_DEVICE_DEVICE_PRIVATE_H
#define HOIST_LIB_DEVICE_DEVICE_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hoist/memory.h"
#include "lib/core/user.h"
#include "lib/device/device.h"

enum hoist__device_memory {
	HOIST__BUFFERS,
	HOIST__PINNED_BUFFERS,
	HOIST__STAGING,
	HOIST__GRAPHS, /* the CPU has none */
	HOIST__N_USES
};

struct hoist_device {
	hoist_device *next; /* next in the list of all devices; this and the fields up to xrefs are
			     * constant once listed */
	struct hoist__dev *dev;
	char spec[32];
	int node;		/* nearest NUMA node, -1 unknown */
	bool placed;		/* memory can be asked for on that node */
	uint64_t memory_limit;	/* as the first opening asked; 0: by the free memory */
	_Atomic unsigned xrefs; /* counts the user's references, only to notice an unref too many */
	hoist_memory *_Atomic xmemories[HOIST__N_USES];
	struct hoist__budget *_Atomic xbudget; /* limits the device's memory */
	hoist_stream *_Atomic xstream;	       /* the default stream */
	hoist_stream *_Atomic xreturns;	       /* the stream on which exports come back */
	_Atomic size_t xparked_bytes;	       /* lib/memory/parked.c */
	struct hoist__lanes *_Atomic xlanes;   /* idle lanes: lib/memory/lane.c */
	struct hoist__user user;
};

/* Returns the device's default stream, borrowed.  NULL if nobody in this process has asked for the
 * stream yet: then it has no work.  A child of fork has none of the work that its parent queued. */
hoist_stream *hoist__device_known_stream(const hoist_device *device);

/* Gives the object for @dev, borrowed.  If there is none yet, makes one with @memory_limit.
 * Returns: 0; -ENOMEM. */
int hoist__device_intern(struct hoist__dev *dev, uint64_t memory_limit, hoist_device **ret);

#endif
