/* SPDX-License-Identifier: MIT */
/* device/driver-run.h - calling a driver with a device current; private to cuda-run.h and
 * hip-run.h, which include it last.
 *
 * A call is judged before the device is left, because HIP keeps the last error of any call of
 * the thread.
 */
#ifndef HOIST_DEVICE_DRIVER_RUN_H
#define HOIST_DEVICE_DRIVER_RUN_H

/* Runs @call, which gives a RESULT, with @dev current.  Evaluates to the verdict of the driver's
 * judge(), or to the failure to enter.  Entering is tried @tries times. */
#define RUN_WITHIN(dev, relax, tries, what, call)                                                  \
	({                                                                                         \
		struct hoist__dev_switched switched_;                                              \
		int err_ = -EAGAIN;                                                                \
		for (int try_ = 0; err_ < 0 && try_ < (tries); try_++)                             \
			err_ = OURS(enter)(dev, relax, &switched_);                                \
		if (err_ == 0) {                                                                   \
			RESULT result_ = (call);                                                   \
			err_ = OURS(judge)(dev, result_, what);                                    \
			OURS(leave)(dev, &switched_);                                              \
		}                                                                                  \
		err_;                                                                              \
	})

#define RUN(dev, what, call) RUN_WITHIN(dev, false, 1, what, call)
#define RUN_RELAXED(dev, what, call) RUN_WITHIN(dev, true, 1, what, call)

/* For a call that gives something up.  A failure to enter would leak that thing.  So
 * entering is tried twice, and a failure is, as a rule, the driver's own verdict. */
#define RELEASE(dev, what, call) RUN_WITHIN(dev, true, 2, what, call)

#endif
