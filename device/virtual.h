/* SPDX-License-Identifier: MIT */
/* device/virtual.h - devices of a stand-in driver that the program asked for, not the
 * environment.
 *
 * An api is virtual while its count is not 0.  Its devices are then those of the stand-in, as many
 * as the count says, whatever HOIST_EMULATE says.  A process opens the driver of an api once.  A
 * process that opened the real driver cannot make the api virtual.  A process that opened the
 * stand-in never reaches the real driver.
 */
#ifndef HOIST_DEVICE_VIRTUAL_H
#define HOIST_DEVICE_VIRTUAL_H

#include "device/device.h"

#define HOIST__MAX_VIRTUAL 64
#define HOIST__ARCHITECTURE_BYTES 32

/* Makes @api virtual, with @count devices; 0 ends that.  @architecture "" leaves the stand-in's
 * own.  Devices that were made before keep their architecture.
 * Returns: 0; -EBUSY (the real driver is open); -ENOENT (there is no stand-in; the text names the
 *   folders); -ENODEV (the stand-in is too old); -ESTALE; -ENOMEM. */
int hoist__virtual_set(enum hoist__api api, const char *architecture, int count);

/* Returns: 0; -ESTALE. */
int hoist__virtual_get(enum hoist__api api, char architecture[HOIST__ARCHITECTURE_BYTES],
		       int *count);

/* The count.  Costs a load. */
int hoist__virtual_count(enum hoist__api api);

/* True if @dev was made while its api was virtual. */
bool hoist__dev_is_virtual(const struct hoist__dev *dev);

#endif
