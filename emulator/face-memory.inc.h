/* SPDX-License-Identifier: MIT */
/* emulator/face-memory.inc.h - memory; part of cuda.c and of hip.c.
 * See face.h. */

RESULT SYMBOL(MemGetInfo)(size_t *free_bytes, size_t *total)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MemGetInfo), &device);
	if (result == EMU_SUCCESS && (free_bytes == NULL || total == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(device, free_bytes, total);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(Malloc)(NATIVE(device_ptr) *ret, size_t bytes)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(Malloc), &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (bytes > 0 || !ALLOCATES_NOTHING))
		result = hoist__emu_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MallocManaged)(NATIVE(device_ptr) *ret, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MallocManaged), &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags != VALUE(ATTACH_GLOBAL)))
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_managed_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(Free)(NATIVE(device_ptr) address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(Free), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_free((uintptr_t)address);
	return leave_free(result, forced);
}

RESULT SYMBOL(HostRegister)(void *address, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(HostRegister), &device);
	if (result == EMU_SUCCESS && (flags & ~0xfu) != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_register(address, bytes,
					     (flags & VALUE(HOST_REGISTER_READ_ONLY)) != 0);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(HostUnregister)(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(HostUnregister), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_unregister(address);
	return leave_free(result, forced);
}

RESULT SYMBOL(HostGetDevicePointer)(NATIVE(device_ptr) *ret, void *address, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(HostGetDevicePointer), &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	uintptr_t found = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_address(address, &found);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))found;
	return hoist__emu_face_leave(result);
}
