/* SPDX-License-Identifier: MIT */
/* alloc/pin.h - page-locking a region, by a driver or by mlock(2). */
#ifndef HOIST_ALLOC_PIN_H
#define HOIST_ALLOC_PIN_H

#include <stddef.h>

#include "device/device.h"

/* One driver call registers at most this much: it holds the process's memory
 * map, and so stalls every other thread's faults, while it runs. */
#define HOIST__PIN_PIECE_BYTES ((size_t)256 << 20)

/* All of it or nothing.  @dev NULL or the CPU: mlock(2).
 * Returns: 0; -EPERM (memlock limit, with the remedy); -ENOMEM; the driver's. */
int hoist__pin(struct hoist__dev *dev, void *base, size_t bytes);
void hoist__unpin(struct hoist__dev *dev, void *base, size_t bytes);

#endif
