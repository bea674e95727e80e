/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: memory that processes share. */
#include "config.h"

#include <string.h>

#include "emulator/hip-face.h"
#include "emulator/ipc.h"

_Static_assert(sizeof(hoist__hip_ipc_handle) == EMU_IPC_BYTES, "hipIpcMemHandle_t");
_Static_assert(sizeof(hoist__hip_block_handle) == EMU_IPC_BYTES, "hipMemPoolPtrExportData");

static struct hoist__emu_pool *pool_of(hoist__hip_pool pool)
{
	return (struct hoist__emu_pool *)(void *)pool;
}

hoist__hip_error hipMemGetAddressRange(void **base, size_t *bytes, void *address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemGetAddressRange, &device);
	uintptr_t start = 0;
	size_t size = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_allocation((uintptr_t)address, &start, &size);
	if (result == EMU_SUCCESS && base != NULL)
		*base = (void *)start;
	if (result == EMU_SUCCESS && bytes != NULL)
		*bytes = size;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipIpcGetMemHandle(hoist__hip_ipc_handle *ret, void *address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipIpcGetMemHandle, &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_ipc_export((uintptr_t)address, ret->bytes);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipIpcOpenMemHandle(void **ret, hoist__hip_ipc_handle handle, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipIpcOpenMemHandle, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != HOIST__HIP_IPC_LAZY_PEER_ACCESS))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_open(device, handle.bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipIpcCloseMemHandle(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipIpcCloseMemHandle, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_close((uintptr_t)address);
	return leave_free(result, forced);
}

hoist__hip_error hipMemPoolExportToShareableHandle(void *ret, hoist__hip_pool pool,
						   hoist__hip_handle_type type, unsigned int flags)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolExportToShareableHandle);
	if (result == EMU_SUCCESS && (ret == NULL || type != HOIST__HIP_HANDLE_FD || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_export(pool_of(pool), ret);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolImportFromShareableHandle(hoist__hip_pool *ret, void *fd,
						     hoist__hip_handle_type type,
						     unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemPoolImportFromShareableHandle, &device);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS &&
	    (ret == NULL || fd == NULL || type != HOIST__HIP_HANDLE_FD || flags != 0))
		result = EMU_INVALID_VALUE;
	/* Of the first device, whichever is current: as ROCm 5 and 6 have it. */
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import(hoist__emu_device(0), (int)(uintptr_t)fd, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_pool)(void *)pool;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolExportPointer(hoist__hip_block_handle *ret, void *address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemPoolExportPointer, &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_pool_export_block((uintptr_t)address, ret->bytes);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolImportPointer(void **ret, hoist__hip_pool pool,
					 hoist__hip_block_handle *block)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMemPoolImportPointer, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || block == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import_block(pool_of(pool), block->bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}
