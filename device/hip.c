/* SPDX-License-Identifier: MIT */
/* device/hip.c - the HIP backend, on the runtime API: driver-ops.inc.h compiled for HIP, and the
 * parts that only HIP has.  The contract is in device/device-ops.h. */
#include "config.h"

#include "base/error.h"
#include "device/driver.h"
#include "device/hip-run.h"

#define HOST_REGISTER "hipHostRegister"
#define EVENTS_READ_STREAMS true
/* Some releases have no thresholds, and decide themselves whether to keep memory. */
#define POOLS_HAVE_THRESHOLDS false

/* --- managed memory --- */

/* The runtime knows one location on the host, which is the whole host. */
static int driver_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
				 enum hoist__prefer prefer, int node)
{
	int location = prefer == HOIST__PREFER_DEVICE ? dev->ordinal : HOIST__HIP_CPU;
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	if (hoist__hip.hipMemAdvise == NULL || prefer == HOIST__PREFER_NODE)
		return hoist__driver_fail_lacks(dev, prefer == HOIST__PREFER_NODE
							     ? "preferred node of managed memory"
							     : "preferred location of managed "
							       "memory");
	(void)node;
	int err = RUN_RELAXED(dev, "preferring a location of managed memory",
			      error = hoist__hip.hipMemAdvise((void *)address, bytes,
							      HOIST__HIP_ADVISE_PREFERRED_LOCATION,
							      location));
	if (error == HOIST__HIP_ERROR_INVALID_DEVICE)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	return err;
}

/* --- streams --- */

/* The runtime knows its streams, and says so if the caller has destroyed a wrapped one. */
static bool driver_says_destroyed(hoist__hip_error error)
{
	return error == HOIST__HIP_ERROR_CONTEXT_DESTROYED;
}

/* --- sharing --- */

/* Opens with the flag of newer runtimes, and if that is refused with the flag of older ones. */
static hoist__hip_error driver_open_handle(void **address, const hoist__hip_ipc_handle *handle)
{
	hoist__hip_error error =
		hoist__hip.hipIpcOpenMemHandle(address, *handle, HOIST__HIP_IPC_LAZY_PEER_ACCESS);
	if (error != HOIST__HIP_ERROR_INVALID_VALUE)
		return error;
	FORGET_ERROR();
	return hoist__hip.hipIpcOpenMemHandle(address, *handle, 0);
}

/* The runtime imports a pool for the first device, whichever is current. */
static int driver_check_import(const struct hoist__dev *dev)
{
	if (dev->ordinal == 0)
		return 0;
	return hoist__fail(-ENOTSUP,
			   "hip:%d: the runtime imports memory pools on hip:0 only; share "
			   "memory of HOIST_MEMORY_DEVICE, not of HOIST_MEMORY_DRIVER_POOL",
			   dev->ordinal);
}

/* --- virtual memory --- */

/* No attribute of the runtime tells of RDMA.  The attribute for virtual memory has different
 * numbers in different releases, so it is not asked: a device without such memory refuses to tell
 * the granularity. */
static int driver_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props)
{
	if (hoist__hip.hipMemSetAccess == NULL ||
	    dev->props.driver_version < HOIST__HIP_MEMORY_PROPS_SINCE)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	return props->rdma ? hoist__driver_fail_lacks(dev, "virtual memory for RDMA") : 0;
}

#include "device/driver-ops.inc.h"
