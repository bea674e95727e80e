/* SPDX-License-Identifier: MIT */
/* device/cuda-query.c - what the CUDA driver knows of devices and addresses. */
#include "config.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/query.h"

int hoist__cuda_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	int can = 0;
	hoist__cu_result result =
		hoist__cuda.cuDeviceCanAccessPeer(&can, dev->native, peer->native);
	int err = hoist__cuda_judge(dev, result, "asking for access to another device");
	if (err == 0)
		*ret = can != 0;
	return err;
}

/* Others may use the primary context before hoist does. */
int hoist__cuda_synchronize(struct hoist__dev *dev)
{
	unsigned flags = 0;
	int active = 1;
	if (atomic_load(&dev->context) == NULL) {
		hoist__cu_result result =
			hoist__cuda.cuDevicePrimaryCtxGetState(dev->native, &flags, &active);
		if (result != HOIST__CU_SUCCESS)
			return hoist__cuda_judge(dev, result, "asking whether it is in use");
	}
	if (!active)
		return 0;
	return RUN_RELAXED(dev, "waiting for the device", hoist__cuda.cuCtxSynchronize());
}

/* --- addresses --- */

typedef __typeof__(hoist__cuda.cuPointerGetAttributes) ask_function;

static ask_function function_of(void *library)
{
	ask_function ask = NULL;
	if (library == NULL)
		return hoist__cuda.cuPointerGetAttributes;
	void *symbol = dlsym(library, "cuPointerGetAttributes");
	memcpy(&ask, &symbol, sizeof ask);
	return ask;
}

/* The driver leaves what it does not know at 0. */
int hoist__cuda_pointer(void *library, uintptr_t address, struct hoist__pointer *ret)
{
	unsigned type = 0;
	hoist__cu_device_ptr seen = 0;
	unsigned managed = 0; /* the driver writes one byte of it, or four */
	int ordinal = -1;
	hoist__cu_pointer_attribute attributes[] = {
		HOIST__CU_POINTER_MEMORY_TYPE,
		HOIST__CU_POINTER_DEVICE_POINTER,
		HOIST__CU_POINTER_IS_MANAGED,
		HOIST__CU_POINTER_DEVICE_ORDINAL,
	};
	void *results[] = {&type, &seen, &managed, &ordinal};
	ask_function ask = function_of(library);
	if (ask == NULL)
		return -ENOENT;
	hoist__cu_result result = ask(4, attributes, results, address);
	/* Not a word of all addresses that are nobody's; but also of all, where the driver is too
	 * old to know an attribute. */
	if (result == HOIST__CU_ERROR_INVALID_VALUE &&
	    (ask(1, attributes, results, address) == HOIST__CU_ERROR_INVALID_VALUE || type == 0))
		return -ENOENT;
	/* Nobody has started it, or made a context. */
	if (result == HOIST__CU_ERROR_NOT_INITIALIZED || result == HOIST__CU_ERROR_DEINITIALIZED ||
	    result == HOIST__CU_ERROR_INVALID_CONTEXT)
		return -ENOENT;
	if (result != HOIST__CU_SUCCESS)
		return hoist__fail_driver(-EREMOTEIO, "cuda", (int)result,
					  "cuda: asking what is at %#zx: CUDA error %u",
					  (size_t)address, result);
	if (type == 0)
		return -ENOENT;
	bool host = type == HOIST__CU_MEMORY_HOST;
	*ret = (struct hoist__pointer){
		.api = HOIST__API_CUDA,
		.ordinal = host && !managed ? -1 : ordinal,
		.host = host || managed,
		.device = seen != 0,
		.managed = managed,
		.device_address = (uintptr_t)seen,
	};
	return 0;
}
