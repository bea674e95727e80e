/* SPDX-License-Identifier: MIT */
/* lib/device/device-private.h - what the files of the Device share.
 *
 *   device.c         the objects: interning, what is known of them, their stream
 *   device-spec.c    "cuda:1": from text to a device
 *   device-memory.c  the memory resources and the budget that a device keeps
 *
 * A device object is made once per (api, ordinal) and never freed: buffers, streams and
 * memory resources point to it without holding it, and an unref too many does no harm.
 * What belongs to it is made when first asked for and published with one
 * compare-and-swap: of two threads that make it at once, the later discards his.
 */
#ifndef HOIST_LIB_DEVICE_PRIVATE_H
#define HOIST_LIB_DEVICE_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hoist/memory.h"
#include "lib/memory/objects.h"
#include "lib/memory/transfer.h"
#include "lib/core/user.h"

enum hoist__device_memory {
	HOIST__BUFFERS,
	HOIST__PINNED_BUFFERS,
	HOIST__STAGING,
	HOIST__GRAPHS, /* not the CPU's */
	HOIST__N_USES
};

struct hoist_device {
	hoist_device *next; /* in the list of all; constant once it is there, as is what follows */
	struct hoist__dev *dev;
	char spec[32];
	int node;		/* nearest NUMA node, -1 unknown */
	bool placed;		/* memory can be asked for on that node */
	uint64_t memory_limit;	/* of the first opening; 0: by what is free */
	_Atomic unsigned xrefs; /* the user's; only to notice an unref too many */
	hoist_memory *_Atomic xmemories[HOIST__N_USES];
	struct hoist__budget *_Atomic xbudget; /* of the device's memory */
	hoist_stream *_Atomic xstream;	       /* the default one */
	hoist_stream *_Atomic xreturns;	       /* where exports come back: dlpack-export.c */
	_Atomic size_t xparked_bytes;	       /* of storages: storage-parked.c */
	struct hoist__lanes lanes;
	struct hoist__user user;
};

/* The default stream, borrowed; NULL if nobody in this process asked for it yet, so that it has no
 * work: a child of fork has none of what its parent queued. */
hoist_stream *hoist__device_known_stream(const hoist_device *device);

/* The object for @dev; made with that limit if there is none yet.  Borrowed.
 * Returns: 0; -ENOMEM. */
int hoist__device_intern(struct hoist__dev *dev, uint64_t memory_limit, hoist_device **ret);

#endif
