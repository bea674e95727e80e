/* SPDX-License-Identifier: MIT */
/* device/cuda.c - the CUDA backend, on the driver API: driver-ops.inc.h compiled for CUDA, and the
 * parts that only CUDA has.  The contract is in device/device-ops.h. */
#include "config.h"

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/driver.h"

#define HOST_REGISTER "cuMemHostRegister"
#define EVENTS_READ_STREAMS false
#define POOLS_HAVE_THRESHOLDS true

/* --- managed memory --- */

static struct hoist__cu_location location_of(const struct hoist__dev *dev,
					     enum hoist__prefer prefer, int node)
{
	switch (prefer) {
	case HOIST__PREFER_HOST:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_HOST, 0};
	case HOIST__PREFER_NODE:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_HOST_NODE, node};
	default:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_DEVICE, dev->native};
	}
}

static int driver_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
				 enum hoist__prefer prefer, int node)
{
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (hoist__cuda.cuMemAdvise_v2 == NULL)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	int err = RUN_RELAXED(dev, "preferring a location of managed memory",
			      result = hoist__cuda.cuMemAdvise_v2(
				      address, bytes, HOIST__CU_ADVISE_PREFERRED_LOCATION,
				      location_of(dev, prefer, node)));
	/* The answer of devices that cannot use managed memory at the same time as the host. */
	if (result == HOIST__CU_ERROR_INVALID_DEVICE)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	return err;
}

/* --- streams --- */

/* CUDA does not check for destroyed streams: passing one is the caller's bug. */
static bool driver_says_destroyed(hoist__cu_result result)
{
	(void)result;
	return false;
}

/* --- sharing --- */

static hoist__cu_result driver_open_handle(hoist__cu_device_ptr *address,
					   const hoist__cu_ipc_handle *handle)
{
	return hoist__cuda.cuIpcOpenMemHandle(address, *handle, HOIST__CU_IPC_LAZY_PEER_ACCESS);
}

static int driver_check_import(const struct hoist__dev *dev)
{
	(void)dev;
	return 0;
}

/* --- virtual memory --- */

static int driver_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props)
{
	int supported = 0;
	int rdma = 0;
	if (hoist__cuda.cuMemSetAccess == NULL)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	hoist__cu_result result = hoist__cuda.cuDeviceGetAttribute(
		&supported, HOIST__CU_ATTRIBUTE_VIRTUAL_MEMORY, dev->native);
	/* Drivers before 11.0 do not know this attribute, and have no such memory. */
	if (result == HOIST__CU_SUCCESS && props->rdma &&
	    hoist__cuda.cuDeviceGetAttribute(&rdma, HOIST__CU_ATTRIBUTE_VIRTUAL_RDMA,
					     dev->native) != HOIST__CU_SUCCESS)
		rdma = 0;
	if (result != HOIST__CU_SUCCESS)
		return hoist__cuda_judge(dev, result, "asking whether it has virtual memory");
	if (!supported)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	return props->rdma && !rdma ? hoist__driver_fail_lacks(dev, "virtual memory for RDMA") : 0;
}

#include "device/driver-ops.inc.h"
