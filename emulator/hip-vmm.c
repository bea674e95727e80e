/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: virtual memory. */
#include "config.h"

#include "emulator/hip-face.h"
#include "emulator/vmm.h"

/* Of the properties this driver has those that hoist asks for; all else must be 0. */
static int check_props(const struct hoist__hip_memory_props *props)
{
	if (props == NULL || props->type != HOIST__HIP_ALLOCATION_PINNED ||
	    props->handle_types != HOIST__HIP_HANDLE_NONE ||
	    props->location.type != HOIST__HIP_LOCATION_DEVICE || props->unused != NULL ||
	    props->compression != 0 || props->usage != 0)
		return EMU_INVALID_VALUE;
	const struct hoist__emu_device *device = hoist__emu_device(props->location.id);
	if (device == NULL)
		return EMU_INVALID_DEVICE;
	return props->rdma != 0 ? EMU_INVALID_VALUE : EMU_SUCCESS;
}

hoist__hip_error hipMemGetAllocationGranularity(size_t *ret,
						const struct hoist__hip_memory_props *props,
						hoist__hip_granularity option)
{
	int result = hoist__emu_hip_enter(FN_hipMemGetAllocationGranularity);
	if (result == EMU_SUCCESS && (ret == NULL || option > HOIST__HIP_GRANULARITY_RECOMMENDED))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_props(props);
	if (result == EMU_SUCCESS)
		*ret = option == HOIST__HIP_GRANULARITY_MINIMUM ? EMU_VMM_MINIMUM
								: EMU_VMM_RECOMMENDED;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemAddressReserve(void **ret, size_t bytes, size_t align, void *hint,
				      unsigned long long flags)
{
	int result = hoist__emu_hip_enter(FN_hipMemAddressReserve);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_reserve(bytes, align, (uintptr_t)hint, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemAddressFree(void *address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipMemAddressFree, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unreserve((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

hoist__hip_error hipMemCreate(hoist__hip_memory *ret, size_t bytes,
			      const struct hoist__hip_memory_props *props, unsigned long long flags)
{
	int result = hoist__emu_hip_enter(FN_hipMemCreate);
	void *handle = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_props(props);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_create(hoist__emu_device(props->location.id), bytes,
					       &handle);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_memory)handle;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemRelease(hoist__hip_memory handle)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipMemRelease, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_release((void *)handle);
	return leave_free(result, forced);
}

hoist__hip_error hipMemMap(void *address, size_t bytes, size_t offset, hoist__hip_memory handle,
			   unsigned long long flags)
{
	int result = hoist__emu_hip_enter(FN_hipMemMap);
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_map((uintptr_t)address, bytes, offset, (void *)handle);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemUnmap(void *address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipMemUnmap, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unmap((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

hoist__hip_error hipMemSetAccess(void *address, size_t bytes,
				 const struct hoist__hip_access *access, size_t n)
{
	int result = hoist__emu_hip_enter(FN_hipMemSetAccess);
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result =
			access[i].location.type != HOIST__HIP_LOCATION_DEVICE
				? EMU_INVALID_VALUE
				: hoist__emu_vmm_set_access((uintptr_t)address, bytes,
							    access[i].location.id, access[i].flags);
	return hoist__emu_hip_leave(result);
}
