/* SPDX-License-Identifier: MIT */
/* lib/memory/device-memory.h - the memory resources, the budget and the lanes that a device keeps.
 *
 * The resources are created on first use and live as long as the device object, which is interned
 * for the life of the process.  So buffers may outlive every other handle of the user's.
 */
#ifndef HOIST_LIB_MEMORY_DEVICE_MEMORY_H
#define HOIST_LIB_MEMORY_DEVICE_MEMORY_H

#include <stdbool.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "hoist/device.h"
#include "hoist/memory.h"

/* Gives the resource of this device's Buffers: DEVICE memory, for the CPU HOST memory; @pinned:
 * PINNED memory on the device's NUMA node.  Borrowed. */
int hoist__device_buffers(hoist_device *device, bool pinned, hoist_memory **ret);

/* Gives the pool of PINNED memory (the CPU: HOST) for staging slots, which keeps its region between
 * loads (the load trims it to the budget).  Borrowed. */
int hoist__device_staging_pool(hoist_device *device, struct hoist__pool **ret);

/* Gives the budget that all resources of the device's memory share; borrowed.  Made when first
 * asked for, together with the device's context.  Returns: 0; -ENOMEM; the driver's error. */
int hoist__device_budget(hoist_device *device, struct hoist__budget **ret);

/* Gives back everything that is only kept for reuse: idle lanes, empty regions of the pools.  For
 * tests: no other thread may be using the device. */
void hoist__device_trim(hoist_device *device);

#endif
