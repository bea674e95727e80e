/* SPDX-License-Identifier: MIT */
/* emulator/face-memory.inc.h - memory; part of cuda.c. */
#include "emulator/cuda-face.h"

hoist__cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemGetInfo_v2, &device);
	if (result == EMU_SUCCESS && (free_bytes == NULL || total == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(device, free_bytes, total);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAlloc_v2(hoist__cu_device_ptr *ret, size_t bytes)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemAlloc_v2, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAllocManaged(hoist__cu_device_ptr *ret, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemAllocManaged, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags != HOIST__CU_ATTACH_GLOBAL))
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_managed_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

/* All of one allocation, whose preferred location alone is given. */
hoist__cu_result cuMemAdvise_v2(hoist__cu_device_ptr address, size_t bytes, hoist__cu_advice advice,
				struct hoist__cu_location location)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemAdvise_v2, &device);
	int preferred = location.id;
	if (result == EMU_SUCCESS && advice != HOIST__CU_ADVISE_PREFERRED_LOCATION)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && location.type == HOIST__CU_LOCATION_HOST)
		preferred = EMU_PREFER_HOST;
	else if (result == EMU_SUCCESS && location.type == HOIST__CU_LOCATION_HOST_NODE)
		preferred = location.id >= 0 ? EMU_PREFER_NODE(location.id) : EMU_PREFER_NONE;
	else if (result == EMU_SUCCESS && location.type != HOIST__CU_LOCATION_DEVICE)
		result = EMU_INVALID_VALUE;
	else if (result == EMU_SUCCESS && hoist__emu_device(location.id) == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS && preferred == EMU_PREFER_NONE)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_prefer((uintptr_t)address, bytes, preferred);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemFree_v2(hoist__cu_device_ptr address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuMemFree_v2, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_free((uintptr_t)address);
	return leave_free(result, forced);
}

hoist__cu_result cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemHostRegister_v2, &device);
	if (result == EMU_SUCCESS && (flags & ~0xfu) != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_register(address, bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemHostUnregister(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuMemHostUnregister, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_unregister(address);
	return leave_free(result, forced);
}

hoist__cu_result cuMemHostGetDevicePointer_v2(hoist__cu_device_ptr *ret, void *address,
					      unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemHostGetDevicePointer_v2, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	uintptr_t found = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_address(address, &found);
	if (result == EMU_SUCCESS)
		*ret = found;
	return (hoist__cu_result)result;
}
