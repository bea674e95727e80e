/* SPDX-License-Identifier: MIT */
/* device/driver.h - texts and numbers for both drivers; private to device/.  The operations that
 * both drivers share are in driver-ops.inc.h. */
#ifndef HOIST_DEVICE_DRIVER_H
#define HOIST_DEVICE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "device/device-ops.h"

/* Spells a PCI address as sysfs does: "0000:65:00.0", lower case.  Drivers also
 * say "65:00.0", upper case, or a domain of 8 digits.  An address that cannot be
 * read gives "". */
void hoist__driver_pci(const char *said, char *buffer, size_t bytes);

/* Says why an allocation of @bytes failed.  @err is the backend's verdict, its text
 * set.  Returns @err. */
int hoist__driver_fail_alloc(struct hoist__dev *dev, int err, size_t bytes);

/* The same for a registration, which lacks host memory or the right to lock it:
 * -ENOSPC becomes -ENOMEM. */
int hoist__driver_fail_register(int err, size_t bytes);

/* -ENOTSUP: the driver has no such function, or says that the device has no @what. */
int hoist__driver_fail_lacks(const struct hoist__dev *dev, const char *what);
/* The same where the driver was asked, and gave the error @number. */
int hoist__driver_fail_refuses(const struct hoist__dev *dev, int number, const char *what);

/* For pools: -ENOSPC of a pool with a limit names the limit, not the device's free memory. */
int hoist__driver_fail_pool_alloc(const struct hoist__dev_pool *pool, int err, size_t bytes);

/* Milliseconds as the drivers measure them, in ns; never below 0. */
uint64_t hoist__driver_ns(float ms);

#endif
