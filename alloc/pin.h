/* SPDX-License-Identifier: MIT */
/* alloc/pin.h - page-locking a region: registered with a driver, in pieces, or by mlock(2). */
#ifndef HOIST_ALLOC_PIN_H
#define HOIST_ALLOC_PIN_H

#include <stdbool.h>
#include <stddef.h>

#include "alloc/calls.h"
#include "device/device.h"

struct hoist__pin {
	struct hoist__dev *dev; /* NULL or the CPU: mlock(2), which knows no pieces */
	char *base;
	size_t bytes;
	size_t piece_bytes;	    /* of the pieces at most; see region.h */
	struct hoist__calls *calls; /* may be NULL */
};

/* False for NULL and the CPU: their memory is mlock'ed. */
bool hoist__pinned_by_driver(const struct hoist__dev *dev);

/* All of it, or nothing.  pin->piece_bytes then says what came out: the size of each piece
 * but the last, `bytes` if there is one.  Where they had to be smaller than asked for, @why
 * (of @why_bytes) has what the driver said; else it is left alone.
 * Returns: 0; -EPERM (memlock limit, with the remedy); -ENOMEM; the driver's. */
int hoist__pin(struct hoist__pin *pin, char *why, size_t why_bytes);

/* What hoist__pin() left; failures are logged, and no piece is skipped for them. */
void hoist__unpin(const struct hoist__pin *pin);

#endif
