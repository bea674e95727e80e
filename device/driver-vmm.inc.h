/* SPDX-License-Identifier: MIT */
/* device/driver-vmm.inc.h - the driver's virtual memory, where it has that. */
#include "config.h"

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/driver.h"

int hoist__cuda_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props)
{
	int supported = 0;
	int rdma = 0;
	if (hoist__cuda.cuMemSetAccess == NULL)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	hoist__cu_result result = hoist__cuda.cuDeviceGetAttribute(
		&supported, HOIST__CU_ATTRIBUTE_VIRTUAL_MEMORY, dev->native);
	/* Drivers before 11.0 do not know this one: they have none. */
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

static const hoist__cu_access_flags access_flags[] = {
	[HOIST__VMM_NONE] = HOIST__CU_ACCESS_NONE,
	[HOIST__VMM_READ] = HOIST__CU_ACCESS_READ,
	[HOIST__VMM_READ_WRITE] = HOIST__CU_ACCESS_READ_WRITE,
};

static struct hoist__cu_memory_props native_props(const struct hoist__dev *dev,
						  const struct hoist__vmm_props *props)
{
	return (struct hoist__cu_memory_props){
		.type = HOIST__CU_ALLOCATION_PINNED,
		.location = {HOIST__CU_LOCATION_DEVICE, dev->native},
		.rdma = props->rdma,
	};
}

int hoist__cuda_vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
				size_t *ret)
{
	const struct hoist__cu_memory_props native = native_props(dev, props);
	size_t granularity = 0;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = RUN(dev, "asking for the granularity of virtual memory",
		      result = hoist__cuda.cuMemGetAllocationGranularity(
			      &granularity, &native,
			      props->recommended ? HOIST__CU_GRANULARITY_RECOMMENDED
						 : HOIST__CU_GRANULARITY_MINIMUM));
	if (result == HOIST__CU_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_lacks(dev, "virtual memory");
	if (err == 0)
		*ret = granularity;
	return err;
}

int hoist__cuda_vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			    uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	int err = RUN_RELAXED(dev, "reserving addresses",
			      hoist__cuda.cuMemAddressReserve(&address, bytes, align, hint, 0));
	if (err < 0)
		return hoist__fail_in(err, "%zu bytes of addresses", bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__cuda_vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "giving addresses back", hoist__cuda.cuMemAddressFree(address, bytes));
}

int hoist__cuda_vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			   size_t bytes, uint64_t *ret)
{
	const struct hoist__cu_memory_props native = native_props(dev, props);
	hoist__cu_memory handle = 0;
	int err = RUN_RELAXED(dev, "making memory without an address",
			      hoist__cuda.cuMemCreate(&handle, bytes, &native, 0));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uint64_t)handle;
	return 0;
}

int hoist__cuda_vmm_release(struct hoist__dev *dev, uint64_t handle)
{
	return RELEASE(dev, "releasing memory", hoist__cuda.cuMemRelease((hoist__cu_memory)handle));
}

int hoist__cuda_vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle)
{
	return RUN_RELAXED(dev, "mapping memory",
			   hoist__cuda.cuMemMap(address, bytes, 0, (hoist__cu_memory)handle, 0));
}

int hoist__cuda_vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "unmapping memory", hoist__cuda.cuMemUnmap(address, bytes));
}

int hoist__cuda_vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			       const struct hoist__dev *who, enum hoist__vmm_access access)
{
	const struct hoist__cu_access native = {
		.location = {HOIST__CU_LOCATION_DEVICE, who->native},
		.flags = access_flags[access],
	};
	return RUN_RELAXED(dev, "setting who can access memory",
			   hoist__cuda.cuMemSetAccess(address, bytes, &native, 1));
}
