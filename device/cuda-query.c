/* SPDX-License-Identifier: MIT */
/* device/cuda-query.c - questions to the CUDA driver about devices and addresses.
 * The contract is in device/device-ops.h, and for addresses in device/query.h. */
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

/* Other code of the process may have enabled the access already. */
static hoist__cu_result enable(struct hoist__dev *peer)
{
	hoist__cu_result result = hoist__cuda.cuCtxEnablePeerAccess(atomic_load(&peer->context), 0);
	return result == HOIST__CU_ERROR_PEER_ENABLED ? HOIST__CU_SUCCESS : result;
}

int hoist__cuda_enable_access(struct hoist__dev *dev, struct hoist__dev *peer)
{
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = hoist__cuda_retain(peer);
	if (err < 0)
		return err;
	err = RUN_RELAXED(dev, "enabling access to another device", result = enable(peer));
	return result == HOIST__CU_ERROR_TOO_MANY_PEERS ||
			       result == HOIST__CU_ERROR_PEER_UNSUPPORTED
		       ? -ENOTSUP
		       : err;
}

/* Whether the primary context is active: other code may use it before hoist does. */
static int in_use(struct hoist__dev *dev, bool *ret)
{
	unsigned flags = 0;
	int active = 1;
	if (atomic_load(&dev->context) == NULL) {
		hoist__cu_result result =
			hoist__cuda.cuDevicePrimaryCtxGetState(dev->native, &flags, &active);
		if (result != HOIST__CU_SUCCESS)
			return hoist__cuda_judge(dev, result, "asking whether it is in use");
	}
	*ret = active != 0;
	return 0;
}

int hoist__cuda_synchronize(struct hoist__dev *dev)
{
	bool used = false;
	int err = in_use(dev, &used);
	if (err < 0 || !used)
		return err;
	return RUN_RELAXED(dev, "waiting for the device", hoist__cuda.cuCtxSynchronize());
}

/* --- addresses ---
 *
 * hoist asks only for those attributes of an address that a driver gives without a context.  The
 * address by which kernels see the memory is no such attribute: the driver refuses that question
 * without a context, and in the context of a device without access.  Device and managed memory
 * have one address.  Host memory may have two, and a context is needed to ask for the second. */

struct functions {
	__typeof__(hoist__cuda.cuPointerGetAttributes) ask;
	__typeof__(hoist__cuda.cuCtxGetCurrent) current;
	__typeof__(hoist__cuda.cuMemHostGetDevicePointer) host_address;
};

static bool functions_of(void *library, struct functions *ret)
{
	if (library == NULL) {
		ret->ask = hoist__cuda.cuPointerGetAttributes;
		ret->current = hoist__cuda.cuCtxGetCurrent;
		ret->host_address = hoist__cuda.cuMemHostGetDevicePointer;
		return true;
	}
	void *ask = dlsym(library, "cuPointerGetAttributes");
	void *current = dlsym(library, "cuCtxGetCurrent");
	void *host_address = dlsym(library, "cuMemHostGetDevicePointer_v2");
	memcpy(&ret->ask, &ask, sizeof ask);
	memcpy(&ret->current, &current, sizeof current);
	memcpy(&ret->host_address, &host_address, sizeof host_address);
	return ask != NULL && current != NULL && host_address != NULL;
}

static int fail(uintptr_t address, hoist__cu_result result)
{
	return hoist__fail_driver(-EREMOTEIO, "cuda", (int)result,
				  "cuda: asking about the address %#zx: CUDA error %u",
				  (size_t)address, result);
}

/* Asks in the context of the device that the memory was registered for, if that device is in use.
 * *@asked stays false if it is not. */
static int ask_within(int ordinal, uintptr_t address, hoist__cu_device_ptr *seen,
		      hoist__cu_result *result, bool *asked)
{
	struct hoist__dev *dev;
	bool used = false;
	int err = ordinal < 0 ? -ENODEV : hoist__dev_get(HOIST__API_CUDA, ordinal, &dev);
	if (err < 0)
		return ordinal < 0 ? 0 : err;
	err = in_use(dev, &used);
	if (err < 0 || !used)
		return err;
	err = RUN(dev, "asking for the device's address of host memory",
		  *result = hoist__cuda.cuMemHostGetDevicePointer(seen, (void *)address, 0));
	*asked = err == 0 || *result == HOIST__CU_ERROR_INVALID_VALUE;
	return *asked ? 0 : err;
}

/* Finds the address by which kernels see host memory.  A driver refuses an address that is such an
 * address already.  Where no context can be asked, the answer is the host's address; an example is
 * somebody else's driver in a thread without a context.  The two addresses differ on no device that
 * has unified addresses and can use the host's address of registered memory. */
static int find_host_address(const struct functions *call, bool own, int ordinal, uintptr_t address,
			     uintptr_t *ret)
{
	hoist__cu_context current = NULL;
	hoist__cu_device_ptr seen = 0;
	bool asked = false;
	hoist__cu_result result = call->current(&current);
	if (result == HOIST__CU_SUCCESS && current != NULL) {
		result = call->host_address(&seen, (void *)address, 0);
		asked = true;
	}
	int err = 0;
	if (result == HOIST__CU_SUCCESS && !asked && own)
		err = ask_within(ordinal, address, &seen, &result, &asked);
	if (err < 0)
		return err;
	if (result != HOIST__CU_SUCCESS && !(asked && result == HOIST__CU_ERROR_INVALID_VALUE))
		return fail(address, result);
	*ret = asked && result == HOIST__CU_SUCCESS ? (uintptr_t)seen : address;
	return 0;
}

/* The driver's answers about an address; the driver may leave them at 0. */
struct found {
	unsigned type;
	unsigned managed; /* the driver writes one byte of this, or four */
	int ordinal;
};

/* -ENOENT where the driver does not know the address. */
static int find(const struct functions *call, uintptr_t address, struct found *ret)
{
	*ret = (struct found){.ordinal = -1};
	hoist__cu_pointer_attribute attributes[] = {
		HOIST__CU_POINTER_MEMORY_TYPE,
		HOIST__CU_POINTER_IS_MANAGED,
		HOIST__CU_POINTER_DEVICE_ORDINAL,
	};
	void *results[] = {&ret->type, &ret->managed, &ret->ordinal};
	hoist__cu_result result = call->ask(3, attributes, results, address);
	/* The driver answers this for an address that nobody owns.  It also does for every address
	 * if it is too old to know an attribute: so the type is asked alone. */
	if (result == HOIST__CU_ERROR_INVALID_VALUE &&
	    (call->ask(1, attributes, results, address) == HOIST__CU_ERROR_INVALID_VALUE ||
	     ret->type == 0))
		return -ENOENT;
	/* Nobody has started the driver, or made a context. */
	if (result == HOIST__CU_ERROR_NOT_INITIALIZED || result == HOIST__CU_ERROR_DEINITIALIZED ||
	    result == HOIST__CU_ERROR_INVALID_CONTEXT)
		return -ENOENT;
	if (result != HOIST__CU_SUCCESS)
		return fail(address, result);
	return ret->type == 0 ? -ENOENT : 0;
}

/* Managed memory is host and device memory, whichever type the driver names. */
int hoist__cuda_pointer(void *library, uintptr_t address, struct hoist__pointer *ret)
{
	struct functions call;
	struct found found;
	uintptr_t seen = address;
	int err = functions_of(library, &call) ? find(&call, address, &found) : -ENOENT;
	if (err < 0)
		return err;
	bool managed = found.managed != 0;
	bool host = found.type == HOIST__CU_MEMORY_HOST && !managed;
	if (host)
		err = find_host_address(&call, library == NULL, found.ordinal, address, &seen);
	if (err < 0)
		return err;
	*ret = (struct hoist__pointer){
		.api = HOIST__API_CUDA,
		.ordinal = host ? -1 : found.ordinal,
		.host = host || managed,
		.device = true,
		.managed = managed,
		.device_address = seen,
		.host_address = host || managed ? address : 0,
	};
	return 0;
}
