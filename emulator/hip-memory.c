/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: memory. */
#include "config.h"

#include "emulator/hip-face.h"

hoist__hip_error hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemGetInfo, &device);
	if (result == EMU_SUCCESS && (free_bytes == NULL || total == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(device, free_bytes, total);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMalloc(void **ret, size_t bytes)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMalloc, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && bytes > 0) /* nothing is NULL, and no error */
		result = hoist__emu_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMallocManaged(void **ret, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMallocManaged, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags != HOIST__HIP_ATTACH_GLOBAL))
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_managed_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

/* All of one allocation, whose preferred location alone is given. */
hoist__hip_error hipMemAdvise(const void *address, size_t bytes, hoist__hip_advice advice,
			      int location)
{
	int result = hoist__emu_hip_enter(FN_hipMemAdvise);
	if (result == EMU_SUCCESS && advice != HOIST__HIP_ADVISE_PREFERRED_LOCATION)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && location != HOIST__HIP_CPU &&
	    hoist__emu_device(location) == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_prefer((uintptr_t)address, bytes,
					   location == HOIST__HIP_CPU ? EMU_PREFER_HOST : location);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipFree(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipFree, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_free((uintptr_t)address);
	return leave_free(result, forced);
}

hoist__hip_error hipHostRegister(void *address, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipHostRegister, &device);
	if (result == EMU_SUCCESS && (flags & ~0xfu) != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_register(address, bytes);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipHostUnregister(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipHostUnregister, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_unregister(address);
	return leave_free(result, forced);
}

hoist__hip_error hipHostGetDevicePointer(void **ret, void *address, unsigned int flags)
{
	int result = hoist__emu_hip_enter(FN_hipHostGetDevicePointer);
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	uintptr_t found = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_address(address, &found);
	if (result == EMU_SUCCESS)
		*ret = (void *)found;
	return hoist__emu_hip_leave(result);
}
