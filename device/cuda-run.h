/* SPDX-License-Identifier: MIT */
/* device/cuda-run.h - calling the CUDA driver within a device's context; private to
 * device/cuda*.c.
 *
 * Each call that needs a context pushes the device's primary one and pops it
 * afterwards, so the caller's current context and its stack are as they were.
 * The primary context is what the CUDA runtime (and with it PyTorch, JAX, ...)
 * uses: addresses and streams can be handed over both ways.
 *
 * While any thread captures a graph in the driver's global mode, calls that it calls
 * unsafe (allocating, freeing, registering, asking an event ...) fail in every thread
 * and invalidate the capture.  A thread in relaxed mode may make them, since none of
 * ours belongs into anybody's graph: such calls run RELAXED, and the thread's mode is
 * put back.
 */
#ifndef HOIST_DEVICE_CUDA_RUN_H
#define HOIST_DEVICE_CUDA_RUN_H

#include "device/cuda.h"

/* What entering changed of the calling thread. */
struct hoist__cuda_entered {
	bool pushed;
	bool relaxed;
	hoist__cu_capture_mode mode; /* the caller's, if relaxed */
};

/* Makes sure of @dev's primary context. */
int hoist__cuda_retain(struct hoist__dev *dev);

/* Makes the primary context current until leave(); between the two, nothing
 * may return.  Where the caller has it current anyway, nothing is pushed. */
int hoist__cuda_enter(struct hoist__dev *dev, bool relax, struct hoist__cuda_entered *ret);

/* The work between is done whatever leaving says, so it is not undone for it. */
void hoist__cuda_leave(const struct hoist__dev *dev, const struct hoist__cuda_entered *entered);

/* Runs @call, which gives a CUresult, within @dev's context; evaluates to what
 * hoist__cuda_judge() says of it, or to the failure to enter.  @tries: of entering. */
#define RUN_WITHIN(dev, relax, tries, what, call)                                                  \
	({                                                                                         \
		struct hoist__cuda_entered entered_;                                               \
		int err_ = -EAGAIN;                                                                \
		for (int try_ = 0; err_ < 0 && try_ < (tries); try_++)                             \
			err_ = hoist__cuda_enter(dev, relax, &entered_);                           \
		if (err_ == 0) {                                                                   \
			hoist__cu_result result_ = (call);                                         \
			hoist__cuda_leave(dev, &entered_);                                         \
			err_ = hoist__cuda_judge(dev, result_, what);                              \
		}                                                                                  \
		err_;                                                                              \
	})

#define RUN(dev, what, call) RUN_WITHIN(dev, false, 1, what, call)
#define RUN_RELAXED(dev, what, call) RUN_WITHIN(dev, true, 1, what, call)

/* For what gives something up: a failure to enter would leak it, so entering is
 * tried twice, and what fails is the driver's own verdict. */
#define RELEASE(dev, what, call) RUN_WITHIN(dev, true, 2, what, call)

#endif
