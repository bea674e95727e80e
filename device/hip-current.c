/* SPDX-License-Identifier: MIT */
/* device/hip-current.c - the thread's current device and capture mode around calls
 * of the HIP runtime.  The contract is in device/hip-run.h. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/hip-run.h"

/* Runtimes before 5.2 have no modes.  There, calls that a capture forbids fail. */
static hoist__hip_error relax(struct hoist__dev_switched *switched)
{
	if (hoist__hip.hipThreadExchangeStreamCaptureMode == NULL)
		return HOIST__HIP_SUCCESS;
	switched->mode = HOIST__HIP_CAPTURE_RELAXED;
	hoist__hip_error error = hoist__hip.hipThreadExchangeStreamCaptureMode(&switched->mode);
	switched->relaxed = error == HOIST__HIP_SUCCESS;
	return error;
}

int hoist__hip_enter(struct hoist__dev *dev, bool relaxed, struct hoist__dev_switched *ret)
{
	*ret = (struct hoist__dev_switched){.device = dev->ordinal};
	const struct hoist__dev *held = hoist__dev_held(HOIST__API_HIP);
	if (held == dev)
		return 0;
	int caller = held != NULL ? held->ordinal : dev->ordinal;
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	if (held == NULL)
		error = hoist__hip.hipGetDevice(&caller);
	if (error == HOIST__HIP_SUCCESS && caller != dev->ordinal)
		error = hoist__hip.hipSetDevice(dev->ordinal);
	if (error == HOIST__HIP_SUCCESS) {
		ret->device = caller;
		/* A scope has relaxed the thread already. */
		if (relaxed && held == NULL)
			error = relax(ret);
	}
	int err = hoist__hip_judge(dev, error, "making it current");
	if (err < 0)
		hoist__hip_leave(dev, ret);
	return err;
}

/* Setting the mode or the device twice is harmless.  So a failed call is tried once more, and a
 * second failure is logged. */
static void unrelax(const struct hoist__dev *dev, const struct hoist__dev_switched *switched)
{
	hoist__hip_error error = HOIST__HIP_ERROR_INVALID_VALUE;
	for (int try = 0; try < 2 && error != HOIST__HIP_SUCCESS; try++) {
		hoist__hip_capture_mode mode = switched->mode;
		error = hoist__hip.hipThreadExchangeStreamCaptureMode(&mode);
		if (error != HOIST__HIP_SUCCESS)
			(void)hoist__hip.hipGetLastError();
	}
	if (error != HOIST__HIP_SUCCESS)
		hoist__log(device, "hip:%d: setting the capture mode back: HIP error %u",
			   dev->ordinal, error);
}

static void set_back(const struct hoist__dev *dev, int caller)
{
	hoist__hip_error error = HOIST__HIP_ERROR_INVALID_VALUE;
	for (int try = 0; try < 2 && error != HOIST__HIP_SUCCESS; try++) {
		error = hoist__hip.hipSetDevice(caller);
		if (error != HOIST__HIP_SUCCESS)
			(void)hoist__hip.hipGetLastError();
	}
	if (error == HOIST__HIP_SUCCESS)
		return;
	hoist__log(device, "hip:%d: setting device %d back: HIP error %u", dev->ordinal, caller,
		   error);
	hoist__dev_doubt(HOIST__API_HIP);
}

void hoist__hip_leave(const struct hoist__dev *dev, const struct hoist__dev_switched *switched)
{
	if (switched->relaxed)
		unrelax(dev, switched);
	if (switched->device != dev->ordinal)
		set_back(dev, switched->device);
}
