/* SPDX-License-Identifier: MIT */
/* emulator/face-ipc.inc.h - memory that processes share; part of cuda.c. */
#include <string.h>

#include "emulator/cuda-face.h"
#include "emulator/ipc.h"

_Static_assert(sizeof(hoist__cu_ipc_handle) == EMU_IPC_BYTES, "CUipcMemHandle");
_Static_assert(sizeof(hoist__cu_block_handle) == EMU_IPC_BYTES, "CUmemPoolPtrExportData");

hoist__cu_result cuMemGetAddressRange_v2(hoist__cu_device_ptr *base, size_t *bytes,
					 hoist__cu_device_ptr address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemGetAddressRange_v2, &device);
	uintptr_t start = 0;
	size_t size = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_allocation((uintptr_t)address, &start, &size);
	if (result == EMU_SUCCESS && base != NULL)
		*base = start;
	if (result == EMU_SUCCESS && bytes != NULL)
		*bytes = size;
	return (hoist__cu_result)result;
}

hoist__cu_result cuIpcGetMemHandle(hoist__cu_ipc_handle *ret, hoist__cu_device_ptr address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuIpcGetMemHandle, &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_ipc_export((uintptr_t)address, ret->bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuIpcOpenMemHandle_v2(hoist__cu_device_ptr *ret, hoist__cu_ipc_handle handle,
				       unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuIpcOpenMemHandle_v2, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != HOIST__CU_IPC_LAZY_PEER_ACCESS))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_open(device, handle.bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

hoist__cu_result cuIpcCloseMemHandle(hoist__cu_device_ptr address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuIpcCloseMemHandle, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_close((uintptr_t)address);
	return leave_free(result, forced);
}

hoist__cu_result cuMemPoolExportToShareableHandle(void *ret, hoist__cu_pool pool,
						  hoist__cu_handle_type type,
						  unsigned long long flags)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolExportToShareableHandle);
	if (result == EMU_SUCCESS && (ret == NULL || type != HOIST__CU_HANDLE_FD || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_export(pool_of(pool), ret);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolImportFromShareableHandle(hoist__cu_pool *ret, void *fd,
						    hoist__cu_handle_type type,
						    unsigned long long flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemPoolImportFromShareableHandle, &device);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS &&
	    (ret == NULL || fd == NULL || type != HOIST__CU_HANDLE_FD || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import(device, (int)(uintptr_t)fd, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_pool)(void *)pool;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolExportPointer(hoist__cu_block_handle *ret, hoist__cu_device_ptr address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemPoolExportPointer, &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_pool_export_block((uintptr_t)address, ret->bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolImportPointer(hoist__cu_device_ptr *ret, hoist__cu_pool pool,
					hoist__cu_block_handle *block)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemPoolImportPointer, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || block == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import_block(pool_of(pool), block->bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}
