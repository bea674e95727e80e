/* SPDX-License-Identifier: MIT */
/* lib/device/device.h - a hoist_device as the rooms above see it.
 *
 * A device object is interned for the life of the process: a pointer to it needs no reference. */
#ifndef HOIST_LIB_DEVICE_DEVICE_H
#define HOIST_LIB_DEVICE_DEVICE_H

#include <stdbool.h>

#include "device/device.h"
#include "hoist/device.h"

struct hoist__dev *hoist__device_dev(const hoist_device *device);
bool hoist__device_is_cpu(const hoist_device *device);

/* Gives the CPU's device, borrowed.
 * Returns: as hoist_device_open(). */
int hoist__device_cpu(hoist_device **ret);

/* Returns the NUMA node near the device, if memory can be asked for on that node; -1 if there is
 * none, or it is unknown. */
int hoist__device_node(const hoist_device *device);
/* True if this machine has NUMA node @node. */
bool hoist__device_has_node(int node);

/* Gives a new reference to a stream of the device's own.  Only waits are queued on that stream. */
int hoist__device_returns(hoist_device *device, hoist_stream **ret);

#endif
