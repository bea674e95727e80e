/* SPDX-License-Identifier: MIT */
/* alloc/pin.h - page-locking a region, by a driver or by mlock(2). */
#ifndef HOIST_ALLOC_PIN_H
#define HOIST_ALLOC_PIN_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

/* False for NULL and the CPU: their memory is mlock'ed. */
bool hoist__pinned_by_driver(const struct hoist__dev *dev);

/* In one registration, whatever the size: a driver refuses a copy that runs from
 * one registration into the next.
 * Returns: 0; -EPERM (memlock limit, with the remedy); -ENOMEM; the driver's. */
int hoist__pin(struct hoist__dev *dev, void *base, size_t bytes);
void hoist__unpin(struct hoist__dev *dev, void *base, size_t bytes);

#endif
