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

/* Runs @call, which gives a hipError_t, with @dev current; evaluates to what
 * hoist__hip_judge() says of it, or to the failure to enter.  @tries: of entering. */
#define RUN_WITHIN(dev, relax, tries, what, call)                                                  \
	({                                                                                         \
		struct hoist__hip_entered entered_;                                                \
		int err_ = -EAGAIN;                                                                \
		for (int try_ = 0; err_ < 0 && try_ < (tries); try_++)                             \
			err_ = hoist__hip_enter(dev, relax, &entered_);                            \
		if (err_ == 0) {                                                                   \
			hoist__hip_error error_ = (call);                                          \
			err_ = hoist__hip_judge(dev, error_, what);                                \
			hoist__hip_leave(dev, &entered_);                                          \
		}                                                                                  \
		err_;                                                                              \
	})

#define RUN(dev, what, call) RUN_WITHIN(dev, false, 1, what, call)
#define RUN_RELAXED(dev, what, call) RUN_WITHIN(dev, true, 1, what, call)

/* For what gives something up: a failure to enter would leak it, so entering is
 * tried twice, and what fails is the runtime's own verdict. */
#define RELEASE(dev, what, call) RUN_WITHIN(dev, true, 2, what, call)

#endif
