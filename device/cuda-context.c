/* SPDX-License-Identifier: MIT */
/* device/cuda-context.c - the primary context and the thread's capture mode around
 * calls of the CUDA driver.  The contract is in device/cuda-run.h. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/cuda-run.h"

int hoist__cuda_retain(struct hoist__dev *dev)
{
	if (atomic_load_explicit(&dev->context, memory_order_acquire) != NULL)
		return 0;
	pthread_mutex_lock(&dev->lock);
	hoist__cu_context context = atomic_load(&dev->context);
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (context == NULL)
		result = hoist__cuda.cuDevicePrimaryCtxRetain(&context, dev->native);
	if (result == HOIST__CU_SUCCESS)
		atomic_store(&dev->context, context);
	pthread_mutex_unlock(&dev->lock);
	return hoist__cuda_judge(dev, result, "making its primary context");
}

/* Drivers before 10.1 have no modes.  There, calls that a capture forbids fail. */
static hoist__cu_result relax(struct hoist__dev_switched *switched)
{
	if (hoist__cuda.cuThreadExchangeStreamCaptureMode == NULL)
		return HOIST__CU_SUCCESS;
	switched->mode = HOIST__CU_CAPTURE_RELAXED;
	hoist__cu_result result = hoist__cuda.cuThreadExchangeStreamCaptureMode(&switched->mode);
	switched->relaxed = result == HOIST__CU_SUCCESS;
	return result;
}

int hoist__cuda_enter(struct hoist__dev *dev, bool relaxed, struct hoist__dev_switched *ret)
{
	int err = hoist__cuda_retain(dev);
	if (err < 0)
		return err;
	const struct hoist__dev *held = hoist__dev_held(HOIST__API_CUDA);
	*ret = (struct hoist__dev_switched){.pushed = false};
	if (held == dev)
		return 0;
	hoist__cu_context ours = atomic_load(&dev->context);
	hoist__cu_context current = NULL;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (held == NULL)
		result = hoist__cuda.cuCtxGetCurrent(&current);
	bool push = result == HOIST__CU_SUCCESS && current != ours;
	if (push)
		result = hoist__cuda.cuCtxPushCurrent(ours);
	ret->pushed = push && result == HOIST__CU_SUCCESS;
	/* A scope has relaxed the thread already. */
	if (result == HOIST__CU_SUCCESS && relaxed && held == NULL)
		result = relax(ret);
	if (result != HOIST__CU_SUCCESS)
		hoist__cuda_leave(dev, ret);
	return hoist__cuda_judge(dev, result, "entering its context");
}

/* Setting the caller's mode twice is harmless, so a failed call is tried again. */
static void unrelax(const struct hoist__dev *dev, const struct hoist__dev_switched *switched)
{
	hoist__cu_result result = HOIST__CU_ERROR_UNKNOWN;
	for (int try = 0; try < 2 && result != HOIST__CU_SUCCESS; try++) {
		hoist__cu_capture_mode mode = switched->mode;
		result = hoist__cuda.cuThreadExchangeStreamCaptureMode(&mode);
	}
	if (result != HOIST__CU_SUCCESS)
		hoist__log(device, "cuda:%d: setting the capture mode back: CUDA error %u",
			   dev->ordinal, result);
}

/* A pop that succeeds may report the failure of earlier work.  So popping is tried
 * again only if the context is still there; else the caller's would go too. */
static void pop(const struct hoist__dev *dev)
{
	hoist__cu_context popped = NULL;
	hoist__cu_context current = NULL;
	hoist__cu_result result = hoist__cuda.cuCtxPopCurrent(&popped);
	if (result != HOIST__CU_SUCCESS &&
	    hoist__cuda.cuCtxGetCurrent(&current) == HOIST__CU_SUCCESS &&
	    current == atomic_load(&dev->context))
		result = hoist__cuda.cuCtxPopCurrent(&popped);
	if (result == HOIST__CU_SUCCESS)
		return;
	hoist__log(device, "cuda:%d: leaving its context: CUDA error %u", dev->ordinal, result);
	hoist__dev_doubt(HOIST__API_CUDA);
}

void hoist__cuda_leave(const struct hoist__dev *dev, const struct hoist__dev_switched *switched)
{
	if (switched->relaxed)
		unrelax(dev, switched);
	if (switched->pushed)
		pop(dev);
}
