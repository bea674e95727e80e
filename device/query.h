/* SPDX-License-Identifier: MIT */
/* device/query.h - asking drivers about addresses, also such that hoist has not opened; private
 * to device/. */
#ifndef HOIST_DEVICE_QUERY_H
#define HOIST_DEVICE_QUERY_H

#include "device/device.h"

/* What the names of drivers' libraries begin with, whoever brings them. */
#define HOIST__CUDA_PREFIX "libcuda.so"
#define HOIST__HIP_PREFIX "libamdhip64"

/* The library of @api that somebody else has loaded into this process, whose file's name begins
 * with @prefix; NULL if nobody has.  Costs a walk over the loaded libraries whenever there
 * are new ones. */
void *hoist__loaded(enum hoist__api api, const char *prefix);

/* What the driver in @library, or if NULL hoist's own, says of @address.
 * Returns: 0; -ENOENT without a text (it knows nothing of it, or is not in use); -EREMOTEIO. */
int hoist__cuda_pointer(void *library, uintptr_t address, struct hoist__pointer *ret);
int hoist__hip_pointer(void *library, uintptr_t address, struct hoist__pointer *ret);

#endif
