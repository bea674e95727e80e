/* SPDX-License-Identifier: MIT */
/* device/hip-run.h - calling the HIP runtime with a device current; private to
 * device/hip*.c.
 *
 * HIP keeps a current device per thread instead of a stack of contexts.  Each
 * call that needs a device sets it, and sets the caller's back afterwards.
 * Within a scope of the device (scope.h) the device is current already.  A
 * failing call also sets the thread's last error, which the caller's own code
 * would find at its next hipGetLastError().  So hoist takes that error back.
 *
 * Calls that a capture elsewhere would forbid run RELAXED: see cuda-run.h.
 */
#ifndef HOIST_DEVICE_HIP_RUN_H
#define HOIST_DEVICE_HIP_RUN_H

#include "device/hip.h"
#include "device/hip-names.h"
#include "device/scope.h"

/* Makes @dev current until leave().  The code between the two may not return. */
int hoist__hip_enter(struct hoist__dev *dev, bool relax, struct hoist__dev_switched *ret);

/* Logs a failure to leave.  The work between is done by then, and is not undone. */
void hoist__hip_leave(const struct hoist__dev *dev, const struct hoist__dev_switched *switched);

/* --- names for the code that both drivers share: see cuda-run.h --- */

#define OURS(name) hoist__hip_##name
#define CALL(function) hoist__hip.hip##function
#define DEVICE_ID(dev) ((dev)->ordinal)

/* Takes back the thread's last error, after a failure that is no error for hoist. */
#define FORGET_ERROR() ((void)hoist__hip.hipGetLastError())

#include "device/driver-run.h"

#endif
