/* SPDX-License-Identifier: MIT */
/* lib/memory/device-memory.h - the memory resources, the budget and the lanes that a device keeps.
 *
 * They are created on first use and live as long as the device object, which is interned for the
 * life of the process: buffers may therefore outlive every other handle of the user's.
 */
#ifndef HOIST_LIB_MEMORY_DEVICE_MEMORY_H
#define HOIST_LIB_MEMORY_DEVICE_MEMORY_H

#include <stdbool.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "hoist/device.h"
#include "hoist/memory.h"

/* Where Buffers of this device live: DEVICE memory, for the CPU HOST memory; @pinned: PINNED memory
 * on the device's NUMA node.  Borrowed. */
int hoist__device_buffers(hoist_device *device, bool pinned, hoist_memory **ret);

/* PINNED memory (the CPU: HOST) for staging slots: keeps its region between loads (trimmed to the
 * budget by the load).  Borrowed. */
int hoist__device_staging_pool(hoist_device *device, struct hoist__pool **ret);

/* What all resources of the device's memory share; borrowed.  Made when first asked for, with
 * the device's context.  Returns: 0; -ENOMEM; what the driver says. */
int hoist__device_budget(hoist_device *device, struct hoist__budget **ret);

/* Gives back what is only kept for reuse: idle lanes, empty regions of the pools.  For tests: nobody
 * else may be using the device. */
void hoist__device_trim(hoist_device *device);

#endif
