/* SPDX-License-Identifier: MIT */
/* emulator/face-vmm.inc.h - virtual memory; part of cuda.c and of hip.c.
 * See face.h. */
#include "emulator/vmm.h"

/* This driver knows the properties that hoist asks for; all others must be 0. */
static int check_memory_props(const struct NATIVE(memory_props) *props)
{
	if (props == NULL || props->type != VALUE(ALLOCATION_PINNED) ||
	    props->handle_types != VALUE(HANDLE_NONE) ||
	    props->location.type != VALUE(LOCATION_DEVICE) || props->unused != NULL ||
	    props->compression != 0 || props->usage != 0)
		return EMU_INVALID_VALUE;
	const struct hoist__emu_device *device = hoist__emu_device(props->location.id);
	if (device == NULL)
		return EMU_INVALID_DEVICE;
	return props->rdma != 0 && !face_has_rdma(device) ? EMU_INVALID_VALUE : EMU_SUCCESS;
}

RESULT SYMBOL(MemGetAllocationGranularity)(size_t *ret, const struct NATIVE(memory_props) *props,
					   NATIVE(granularity) option)
{
	int result = hoist__emu_face_enter(FN(MemGetAllocationGranularity));
	if (result == EMU_SUCCESS && (ret == NULL || option > VALUE(GRANULARITY_RECOMMENDED)))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_memory_props(props);
	if (result == EMU_SUCCESS)
		*ret = option == VALUE(GRANULARITY_MINIMUM) ? EMU_VMM_MINIMUM : EMU_VMM_RECOMMENDED;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemAddressReserve)(NATIVE(device_ptr) *ret, size_t bytes, size_t align,
				 NATIVE(device_ptr) hint, unsigned long long flags)
{
	int result = hoist__emu_face_enter(FN(MemAddressReserve));
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_reserve(bytes, align, (uintptr_t)hint, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemAddressFree)(NATIVE(device_ptr) address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN(MemAddressFree), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unreserve((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

RESULT SYMBOL(MemCreate)(NATIVE(memory) *ret, size_t bytes,
			 const struct NATIVE(memory_props) *props, unsigned long long flags)
{
	int result = hoist__emu_face_enter(FN(MemCreate));
	void *handle = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = check_memory_props(props);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_create(hoist__emu_device(props->location.id), bytes,
					       &handle);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(memory))(uintptr_t)handle;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemRelease)(NATIVE(memory) handle)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN(MemRelease), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_release((void *)(uintptr_t)handle);
	return leave_free(result, forced);
}

RESULT SYMBOL(MemMap)(NATIVE(device_ptr) address, size_t bytes, size_t offset,
		      NATIVE(memory) handle, unsigned long long flags)
{
	int result = hoist__emu_face_enter(FN(MemMap));
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_map((uintptr_t)address, bytes, offset,
					    (void *)(uintptr_t)handle);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemUnmap)(NATIVE(device_ptr) address, size_t bytes)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN(MemUnmap), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_vmm_unmap((uintptr_t)address, bytes);
	return leave_free(result, forced);
}

RESULT SYMBOL(MemSetAccess)(NATIVE(device_ptr) address, size_t bytes,
			    const struct NATIVE(access) *access, size_t n)
{
	int result = hoist__emu_face_enter(FN(MemSetAccess));
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result =
			access[i].location.type != VALUE(LOCATION_DEVICE)
				? EMU_INVALID_VALUE
				: hoist__emu_vmm_set_access((uintptr_t)address, bytes,
							    access[i].location.id, access[i].flags);
	return hoist__emu_face_leave(result);
}
