/* SPDX-License-Identifier: MIT */
/* device/virtual.h - devices of a stand-in driver that the program asked for, not the
 * environment.
 *
 * An api is virtual while its count is not 0: its devices are then those of the stand-in, as many
 * as the count says, whatever HOIST_EMULATE does.  The driver of an api is opened once in
 * a process: who opened the real one cannot become virtual, and who opened the
 * stand-in never reaches the real one.
 */
#ifndef HOIST_DEVICE_VIRTUAL_H
#define HOIST_DEVICE_VIRTUAL_H

#include "device/device.h"

#define HOIST__MAX_VIRTUAL 64
#define HOIST__ARCHITECTURE_BYTES 32

/* @count 0 ends it.  @architecture "" leaves the stand-in's own; devices that were made
 * before keep theirs.
 * Returns: 0; -EBUSY (the real driver is open); -ENOENT (no stand-in, with the folders); -ENODEV
 * (it is an old one); -ESTALE; -ENOMEM. */
int hoist__virtual_set(enum hoist__api api, const char *architecture, int count);

/* Returns: 0; -ESTALE. */
int hoist__virtual_get(enum hoist__api api, char architecture[HOIST__ARCHITECTURE_BYTES],
		       int *count);

/* The count; a load. */
int hoist__virtual_count(enum hoist__api api);

/* Made while its api was virtual. */
bool hoist__dev_is_virtual(const struct hoist__dev *dev);

#endif
