/* SPDX-License-Identifier: MIT */
/* device/query.h - asking drivers about addresses, also drivers that hoist has not opened; private
 * to device/. */
#ifndef HOIST_DEVICE_QUERY_H
#define HOIST_DEVICE_QUERY_H

#include "device/device.h"

/* The names of drivers' libraries begin with these, also where a framework brings the library. */
#define HOIST__CUDA_PREFIX "libcuda.so"
#define HOIST__HIP_PREFIX "libamdhip64"

/* The library of @api whose file's name begins with @prefix and that somebody else has loaded into
 * this process; NULL if there is none.  Costs a walk over the loaded libraries whenever there are
 * new ones. */
void *hoist__loaded(enum hoist__api api, const char *prefix);

/* Asks the driver in @library about @address; NULL means the driver that hoist opened.
 * Returns: 0; -ENOENT without a text (the driver does not know the address, or is not in use);
 * -EREMOTEIO. */
int hoist__cuda_pointer(void *library, uintptr_t address, struct hoist__pointer *ret);
int hoist__hip_pointer(void *library, uintptr_t address, struct hoist__pointer *ret);

#endif
