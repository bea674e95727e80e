/* SPDX-License-Identifier: MIT */
/* device/hip-query.c - questions to the HIP runtime about devices and addresses.
 * The contract is in device/device-ops.h, and for addresses in device/query.h. */
#include "config.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "device/hip-run.h"
#include "device/query.h"

int hoist__hip_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	int can = 0;
	hoist__hip_error error =
		hoist__hip.hipDeviceCanAccessPeer(&can, dev->ordinal, peer->ordinal);
	int err = hoist__hip_judge(dev, error, "asking for access to another device");
	if (err == 0)
		*ret = can != 0;
	return err;
}

/* Other code of the process may have enabled the access already. */
static hoist__hip_error enable(const struct hoist__dev *peer)
{
	hoist__hip_error error = hoist__hip.hipDeviceEnablePeerAccess(peer->ordinal, 0);
	if (error != HOIST__HIP_ERROR_PEER_ENABLED)
		return error;
	(void)hoist__hip.hipGetLastError();
	return HOIST__HIP_SUCCESS;
}

int hoist__hip_enable_access(struct hoist__dev *dev, struct hoist__dev *peer)
{
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	int err = RUN_RELAXED(dev, "enabling access to another device", error = enable(peer));
	return error == HOIST__HIP_ERROR_PEER_UNSUPPORTED ? -ENOTSUP : err;
}

int hoist__hip_synchronize(struct hoist__dev *dev)
{
	return RUN_RELAXED(dev, "waiting for the device", hoist__hip.hipDeviceSynchronize());
}

/* --- addresses --- */

struct functions {
	__typeof__(hoist__hip.hipRuntimeGetVersion) version;
	__typeof__(hoist__hip.hipPointerGetAttributes) ask;
	__typeof__(hoist__hip.hipGetLastError) last_error;
};

static bool functions_of(void *library, struct functions *ret)
{
	if (library == NULL) {
		ret->version = hoist__hip.hipRuntimeGetVersion;
		ret->ask = hoist__hip.hipPointerGetAttributes;
		ret->last_error = hoist__hip.hipGetLastError;
		return true;
	}
	void *version = dlsym(library, "hipRuntimeGetVersion");
	void *ask = dlsym(library, "hipPointerGetAttributes");
	void *last_error = dlsym(library, "hipGetLastError");
	memcpy(&ret->version, &version, sizeof version);
	memcpy(&ret->ask, &ask, sizeof ask);
	memcpy(&ret->last_error, &last_error, sizeof last_error);
	return version != NULL && ask != NULL && last_error != NULL;
}

/* -ENOENT where the runtime does not know the address.  ROCm 5 then returns "invalid value", and
 * "invalid device" on a machine without devices.  Later releases give such memory a type of its
 * own, which came in front of the other types. */
static int ask(const struct functions *call, uintptr_t address,
	       struct hoist__hip_pointer_attributes *ret)
{
	int version = 0;
	hoist__hip_error error = call->version(&version);
	if (error == HOIST__HIP_SUCCESS)
		error = call->ask(ret, (const void *)address);
	if (error != HOIST__HIP_SUCCESS)
		(void)call->last_error();
	if (error == HOIST__HIP_ERROR_INVALID_VALUE || error == HOIST__HIP_ERROR_NOT_INITIALIZED ||
	    error == HOIST__HIP_ERROR_DEINITIALIZED || error == HOIST__HIP_ERROR_NO_DEVICE ||
	    error == HOIST__HIP_ERROR_INVALID_DEVICE)
		return -ENOENT;
	if (error != HOIST__HIP_SUCCESS)
		return hoist__fail_driver(-EREMOTEIO, "hip", (int)error,
					  "hip: asking about the address %#zx: HIP error %u",
					  (size_t)address, error);
	if (version < HOIST__HIP_UNREGISTERED_SINCE)
		ret->type++;
	return ret->type == HOIST__HIP_MEMORY_UNREGISTERED ? -ENOENT : 0;
}

int hoist__hip_pointer(void *library, uintptr_t address, struct hoist__pointer *ret)
{
	struct functions call;
	struct hoist__hip_pointer_attributes found = {.type = HOIST__HIP_MEMORY_UNREGISTERED};
	int err = functions_of(library, &call) ? ask(&call, address, &found) : -ENOENT;
	if (err < 0)
		return err;
	bool managed = found.managed != 0 || found.type == HOIST__HIP_MEMORY_MANAGED;
	bool host = found.type == HOIST__HIP_MEMORY_HOST;
	*ret = (struct hoist__pointer){
		.api = HOIST__API_HIP,
		.ordinal = host && !managed ? -1 : found.device,
		.host = host || managed,
		.device = found.device_address != NULL,
		.managed = managed,
		.device_address = (uintptr_t)found.device_address,
		.host_address = !host && !managed	     ? 0
				: found.host_address != NULL ? (uintptr_t)found.host_address
							     : address,
	};
	return 0;
}
