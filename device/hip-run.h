/* SPDX-License-Identifier: MIT */
/* device/hip-run.h - calling the HIP runtime with a device current; private to
 * device/hip*.c.
 *
 * HIP keeps a current device per thread instead of a stack of contexts: each
 * call that needs one sets the device and sets the caller's back afterwards.
 * A failing call also sets the thread's last error, which the caller's own code
 * would find at its next hipGetLastError(): it is taken back.
 *
 * What a capture elsewhere would forbid runs RELAXED: see cuda-run.h.
 */
#ifndef HOIST_DEVICE_HIP_RUN_H
#define HOIST_DEVICE_HIP_RUN_H

#include "device/hip.h"
#include "device/hip-names.h"

/* What entering changed of the calling thread. */
struct hoist__hip_entered {
	int device; /* the caller's */
	bool relaxed;
	hoist__hip_capture_mode mode; /* the caller's, if relaxed */
};

/* Makes @dev current until leave(); between the two, nothing may return. */
int hoist__hip_enter(const struct hoist__dev *dev, bool relax, struct hoist__hip_entered *ret);

/* The work between is done whatever leaving says, so it is not undone for it. */
void hoist__hip_leave(const struct hoist__dev *dev, const struct hoist__hip_entered *entered);

/* --- names for the code that both drivers share: see cuda-run.h --- */

#define OURS(name) hoist__hip_##name
#define CALL(function) hoist__hip.hip##function
#define DEVICE_ID(dev) ((dev)->ordinal)

/* A failure that is no error to us is not the caller's last one. */
#define FORGET_ERROR() ((void)hoist__hip.hipGetLastError())

#include "device/driver-run.h"

#endif
