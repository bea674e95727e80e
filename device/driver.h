/* SPDX-License-Identifier: MIT */
/* device/driver.h - texts and numbers of both drivers; private to device/.  The operations that
 * both share are driver-ops.inc.h. */
#ifndef HOIST_DEVICE_DRIVER_H
#define HOIST_DEVICE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "device/device-ops.h"

/* A PCI address as sysfs spells it: "0000:65:00.0", lower case.  Drivers also
 * say "65:00.0", upper case, or a domain of 8 digits.  An address that cannot be
 * read gives "". */
void hoist__driver_pci(const char *said, char *buffer, size_t bytes);

/* Says what an allocation of @bytes failed on; @err is the backend's verdict
 * with its text set.  Returns @err. */
int hoist__driver_fail_alloc(struct hoist__dev *dev, int err, size_t bytes);

/* The same for a registration.  What is short is host memory, or the right to
 * lock it: -ENOSPC becomes -ENOMEM. */
int hoist__driver_fail_register(int err, size_t bytes);

/* -ENOTSUP: the driver has not the function, or says that the device cannot. */
int hoist__driver_fail_lacks(const struct hoist__dev *dev, const char *what);
/* The same where the driver was asked, and gave @number. */
int hoist__driver_fail_refuses(const struct hoist__dev *dev, int number, const char *what);

/* For pools: -ENOSPC of one with a limit says so instead of what the device has free. */
int hoist__driver_fail_pool_alloc(const struct hoist__dev_pool *pool, int err, size_t bytes);

/* Milliseconds as the drivers measure them, in ns; never below 0. */
uint64_t hoist__driver_ns(float ms);

#endif
