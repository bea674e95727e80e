/* SPDX-License-Identifier: MIT */
/* emulator/face-vmm.inc.h - virtual memory; part of cuda.c. */
#include "emulator/cuda-face.h"
#include "emulator/vmm.h"

/* Of the properties this driver has those that hoist asks for; all else must be 0. */
static int check_memory_props(const struct hoist__cu_memory_props *props)
{
	if (props == NULL || props->type != HOIST__CU_ALLOCATION_PINNED ||
	    props->handle_types != HOIST__CU_HANDLE_NONE ||
	    props->location.type != HOIST__CU_LOCATION_DEVICE || props->unused != NULL ||
	    props->compression != 0 || props->usage != 0)
		return EMU_INVALID_VALUE;
	const struct hoist__emu_device *device = hoist__emu_device(props->location.id);
	if (device == NULL)
		return EMU_INVALID_DEVICE;
	return props->rdma != 0 && device->ordinal != EMU_VMM_RDMA_DEVICE ? EMU_INVALID_VALUE
									  : EMU_SUCCESS;
}

hoist__cu_result cuMemGetAllocationGranularity(size_t *ret,
					       const struct hoist__cu_memory_props *props,
					       hoist__cu_granularity option)
{
	int result = hoist__emu_cuda_enter(FN_cuMemGetAllocationGranularity);
	if (result == EMU_SUCCESS && (ret == NULL || option > HOIST__CU_GRANULARITY_RECOMMENDED))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_memory_props(props);
	if (result == EMU_SUCCESS)
		*ret = option == HOIST__CU_GRANULARITY_MINIMUM ? EMU_VMM_MINIMUM
							       : EMU_VMM_RECOMMENDED;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAddressReserve(hoist__cu_device_ptr *ret, size_t bytes, size_t align,
				     hoist__cu_device_ptr hint, unsigned long long flags)
{
	int result = hoist__emu_cuda_enter(FN_cuMemAddressReserve);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_reserve(bytes, align, (uintptr_t)hint, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAddressFree(hoist__cu_device_ptr address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_cuMemAddressFree, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unreserve((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

hoist__cu_result cuMemCreate(hoist__cu_memory *ret, size_t bytes,
			     const struct hoist__cu_memory_props *props, unsigned long long flags)
{
	int result = hoist__emu_cuda_enter(FN_cuMemCreate);
	void *handle = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_memory_props(props);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_create(hoist__emu_device(props->location.id), bytes,
					       &handle);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_memory)(uintptr_t)handle;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemRelease(hoist__cu_memory handle)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_cuMemRelease, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_release((void *)(uintptr_t)handle);
	return leave_free(result, forced);
}

hoist__cu_result cuMemMap(hoist__cu_device_ptr address, size_t bytes, size_t offset,
			  hoist__cu_memory handle, unsigned long long flags)
{
	int result = hoist__emu_cuda_enter(FN_cuMemMap);
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_map((uintptr_t)address, bytes, offset,
					    (void *)(uintptr_t)handle);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemUnmap(hoist__cu_device_ptr address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_cuMemUnmap, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unmap((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

hoist__cu_result cuMemSetAccess(hoist__cu_device_ptr address, size_t bytes,
				const struct hoist__cu_access *access, size_t n)
{
	int result = hoist__emu_cuda_enter(FN_cuMemSetAccess);
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result =
			access[i].location.type != HOIST__CU_LOCATION_DEVICE
				? EMU_INVALID_VALUE
				: hoist__emu_vmm_set_access((uintptr_t)address, bytes,
							    access[i].location.id, access[i].flags);
	return (hoist__cu_result)result;
}
