/* SPDX-License-Identifier: MIT */
/* alloc/pin.h - page-locks a region: registers it with a driver, in pieces, or calls mlock(2). */
#ifndef HOIST_ALLOC_PIN_H
#define HOIST_ALLOC_PIN_H

#include <stdbool.h>
#include <stddef.h>

#include "alloc/calls.h"
#include "device/device.h"

struct hoist__pin {
	struct hoist__dev *dev; /* NULL or the CPU: mlock(2), which takes the region as a whole */
	char *base;
	size_t bytes;
	size_t piece_bytes;	    /* the most bytes of a piece; see region.h */
	struct hoist__calls *calls; /* may be NULL */
};

/* False for NULL and the CPU: their memory is mlock'ed. */
bool hoist__pinned_by_driver(const struct hoist__dev *dev);

/* Pins all of the region, or nothing.  On success pin->piece_bytes is the size of each piece but
 * the last, or `bytes` if there is one piece.  If the pieces had to be smaller than asked for, @why
 * (of @why_bytes) gets the driver's message; else @why is left alone.
 * Returns: 0; -EPERM (memlock limit, with the remedy); -ENOMEM; the driver's. */
int hoist__pin(struct hoist__pin *pin, char *why, size_t why_bytes);

/* Unpins what hoist__pin() pinned.  A failure is logged, and the other pieces are still
 * unpinned. */
void hoist__unpin(const struct hoist__pin *pin);

#endif
