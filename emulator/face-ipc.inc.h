/* SPDX-License-Identifier: MIT */
/* emulator/face-ipc.inc.h - memory that processes share; part of cuda.c and of hip.c.
 * See face.h. */
#include <string.h>

#include "emulator/ipc.h"

_Static_assert(sizeof(NATIVE(ipc_handle)) == EMU_IPC_BYTES, "the handle of an allocation");
_Static_assert(sizeof(NATIVE(block_handle)) == EMU_IPC_BYTES, "the handle of a pool's block");

RESULT SYMBOL(MemGetAddressRange)(NATIVE(device_ptr) *base, size_t *bytes,
				  NATIVE(device_ptr) address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MemGetAddressRange), &device);
	uintptr_t start = 0;
	size_t size = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_allocation((uintptr_t)address, &start, &size);
	if (result == EMU_SUCCESS && base != NULL)
		*base = (NATIVE(device_ptr))start;
	if (result == EMU_SUCCESS && bytes != NULL)
		*bytes = size;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(IpcGetMemHandle)(NATIVE(ipc_handle) *ret, NATIVE(device_ptr) address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(IpcGetMemHandle), &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_ipc_export((uintptr_t)address, ret->bytes);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(IpcOpenMemHandle)(NATIVE(device_ptr) *ret, NATIVE(ipc_handle) handle,
				unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(IpcOpenMemHandle), &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || flags != VALUE(IPC_LAZY_PEER_ACCESS)))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_open(device, handle.bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(IpcCloseMemHandle)(NATIVE(device_ptr) address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(IpcCloseMemHandle), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_ipc_close((uintptr_t)address);
	return leave_free(result, forced);
}

RESULT SYMBOL(MemPoolExportToShareableHandle)(void *ret, NATIVE(pool) pool,
					      NATIVE(handle_type) type, NATIVE(handle_flags) flags)
{
	int result = hoist__emu_face_enter(FN(MemPoolExportToShareableHandle));
	if (result == EMU_SUCCESS && (ret == NULL || type != VALUE(HANDLE_FD) || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_export(pool_of(pool), ret);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolImportFromShareableHandle)(NATIVE(pool) *ret, void *fd,
						NATIVE(handle_type) type,
						NATIVE(handle_flags) flags)
{
	int result = hoist__emu_face_enter(FN(MemPoolImportFromShareableHandle));
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS &&
	    (ret == NULL || fd == NULL || type != VALUE(HANDLE_FD) || flags != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import(FACE_IMPORTS_TO_FIRST, (int)(uintptr_t)fd, &pool);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(pool))(void *)pool;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolExportPointer)(NATIVE(block_handle) *ret, NATIVE(device_ptr) address)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MemPoolExportPointer), &device);
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_pool_export_block((uintptr_t)address, ret->bytes);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolImportPointer)(NATIVE(device_ptr) *ret, NATIVE(pool) pool,
				    NATIVE(block_handle) *block)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MemPoolImportPointer), &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && (ret == NULL || block == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_import_block(pool_of(pool), block->bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}
