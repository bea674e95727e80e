/* SPDX-License-Identifier: MIT */
/* device/hip-vmm.c - the runtime's virtual memory, where it has that. */
#include "config.h"

#include "base/error.h"
#include "device/driver.h"
#include "device/hip-run.h"

/* No attribute of the runtime's tells of RDMA, and that of virtual memory has not one number in all
 * releases: a device without it refuses the granularity. */
int hoist__hip_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props)
{
	if (hoist__hip.hipMemSetAccess == NULL ||
	    dev->props.driver_version < HOIST__HIP_MEMORY_PROPS_SINCE)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	return props->rdma ? hoist__driver_fail_lacks(dev, "virtual memory for RDMA") : 0;
}

static const hoist__hip_access_flags access_flags[] = {
	[HOIST__VMM_NONE] = HOIST__HIP_ACCESS_NONE,
	[HOIST__VMM_READ] = HOIST__HIP_ACCESS_READ,
	[HOIST__VMM_READ_WRITE] = HOIST__HIP_ACCESS_READ_WRITE,
};

static struct hoist__hip_memory_props native_props(const struct hoist__dev *dev,
						   const struct hoist__vmm_props *props)
{
	return (struct hoist__hip_memory_props){
		.type = HOIST__HIP_ALLOCATION_PINNED,
		.location = {HOIST__HIP_LOCATION_DEVICE, dev->ordinal},
		.rdma = props->rdma,
	};
}

int hoist__hip_vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			       size_t *ret)
{
	const struct hoist__hip_memory_props native = native_props(dev, props);
	size_t granularity = 0;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = RUN(dev, "asking for the granularity of virtual memory",
		      result = hoist__hip.hipMemGetAllocationGranularity(
			      &granularity, &native,
			      props->recommended ? HOIST__HIP_GRANULARITY_RECOMMENDED
						 : HOIST__HIP_GRANULARITY_MINIMUM));
	if (result == HOIST__HIP_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	if (err == 0)
		*ret = granularity;
	return err;
}

int hoist__hip_vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			   uintptr_t *ret)
{
	void *address = 0;
	int err = RUN_RELAXED(
		dev, "reserving addresses",
		hoist__hip.hipMemAddressReserve(&address, bytes, align, (void *)hint, 0));
	if (err < 0)
		return hoist__fail_in(err, "%zu bytes of addresses", bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__hip_vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "giving addresses back",
		       hoist__hip.hipMemAddressFree((void *)address, bytes));
}

int hoist__hip_vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			  size_t bytes, uint64_t *ret)
{
	const struct hoist__hip_memory_props native = native_props(dev, props);
	hoist__hip_memory handle = 0;
	int err = RUN_RELAXED(dev, "making memory without an address",
			      hoist__hip.hipMemCreate(&handle, bytes, &native, 0));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uint64_t)(uintptr_t)handle;
	return 0;
}

int hoist__hip_vmm_release(struct hoist__dev *dev, uint64_t handle)
{
	return RELEASE(dev, "releasing memory",
		       hoist__hip.hipMemRelease((hoist__hip_memory)(uintptr_t)handle));
}

int hoist__hip_vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle)
{
	return RUN_RELAXED(dev, "mapping memory",
			   hoist__hip.hipMemMap((void *)address, bytes, 0,
						(hoist__hip_memory)(uintptr_t)handle, 0));
}

int hoist__hip_vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "unmapping memory", hoist__hip.hipMemUnmap((void *)address, bytes));
}

int hoist__hip_vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      const struct hoist__dev *who, enum hoist__vmm_access access)
{
	const struct hoist__hip_access native = {
		.location = {HOIST__HIP_LOCATION_DEVICE, who->ordinal},
		.flags = access_flags[access],
	};
	return RUN_RELAXED(dev, "setting who can access memory",
			   hoist__hip.hipMemSetAccess((void *)address, bytes, &native, 1));
}
