/* SPDX-License-Identifier: MIT */
/* emulator/cuda-query.c - the stand-in for libcuda.so.1: questions about devices and addresses.
 * The contract is device/cuda-table.h; emulator/face.h says how a face is made. */
#include "config.h"

#include "emulator/cuda-face.h"

#include <string.h>

hoist__cu_result cuCtxEnablePeerAccess(hoist__cu_context peer, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxEnablePeerAccess, &device);
	const struct hoist__emu_device *other = hoist__emu_cuda_context_device(peer);
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && (other == NULL || other == device))
		result = EMU_INVALID_CONTEXT;
	if (result == EMU_SUCCESS)
		result = hoist__emu_peer_enable(device, other);
	return (hoist__cu_result)result;
}

hoist__cu_result cuDevicePrimaryCtxGetState(hoist__cu_device ordinal, unsigned int *flags,
					    int *active)
{
	int result = hoist__emu_face_enter(FN_cuDevicePrimaryCtxGetState);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	if (result == EMU_SUCCESS && (flags == NULL || active == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && device == NULL)
		result = EMU_INVALID_DEVICE;
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	hoist__emu_lock();
	*active = device->retained > 0;
	*flags = device->flags;
	hoist__emu_unlock();
	return EMU_SUCCESS;
}

hoist__cu_result cuCtxSynchronize(void)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_device_synchronize(device);
	return (hoist__cu_result)result;
}

/* Writes the address by which kernels of the current context reach @pointer.  Without a context
 * there are no kernels.  Without access no kernel reaches another device's memory. */
static int put_device_pointer(void *at, bool known, const struct hoist__emu_pointer *pointer)
{
	const struct hoist__emu_device *current = hoist__emu_face_current();
	if (current == NULL)
		return EMU_INVALID_CONTEXT;
	if (known && !hoist__emu_peer_reaches(current, pointer))
		return EMU_INVALID_VALUE;
	memcpy(at, &(hoist__cu_device_ptr){pointer->device_address}, sizeof(hoist__cu_device_ptr));
	return EMU_SUCCESS;
}

/* Writes one attribute.  For an unknown address it is 0, and the device is -2. */
int hoist__emu_cuda_put_pointer(hoist__cu_pointer_attribute attribute, void *at, bool known,
				const struct hoist__emu_pointer *pointer)
{
	unsigned type = pointer->host && !pointer->managed ? HOIST__CU_MEMORY_HOST
							   : HOIST__CU_MEMORY_DEVICE;
	switch (attribute) {
	case HOIST__CU_POINTER_MEMORY_TYPE:
		memcpy(at, &(unsigned){known ? type : 0}, sizeof(unsigned));
		return EMU_SUCCESS;
	case HOIST__CU_POINTER_DEVICE_POINTER:
		return put_device_pointer(at, known, pointer);
	case HOIST__CU_POINTER_IS_MANAGED:
		memcpy(at, &(bool){pointer->managed}, sizeof(bool));
		return EMU_SUCCESS;
	case HOIST__CU_POINTER_DEVICE_ORDINAL:
		memcpy(at, &(int){known ? pointer->ordinal : -2}, sizeof(int));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_CONTEXT:
		memcpy(at, &(void *){known ? &hoist__emu.devices[pointer->ordinal] : NULL},
		       sizeof(void *));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_HOST:
		if (known && !pointer->host)
			return EMU_INVALID_VALUE;
		memcpy(at, &(uintptr_t){pointer->host_address}, sizeof(uintptr_t));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_START:
		memcpy(at, &(uintptr_t){pointer->start}, sizeof(uintptr_t));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_SIZE:
		memcpy(at, &(size_t){pointer->bytes}, sizeof(size_t));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_MAPPED:
		memcpy(at, &(bool){known}, sizeof(bool));
		return EMU_SUCCESS;
	case EMU_CU_POINTER_POOL:
		memcpy(at, &(void *){pointer->pool}, sizeof(void *));
		return EMU_SUCCESS;
	default:
		return attribute >= 1 && attribute <= EMU_CU_POINTER_LAST ? EMU_NOT_SUPPORTED
									  : EMU_INVALID_VALUE;
	}
}

/* Unlike the plural, it refuses an address that the driver does not know. */
hoist__cu_result cuPointerGetAttribute(void *ret, hoist__cu_pointer_attribute attribute,
				       hoist__cu_device_ptr address)
{
	struct hoist__emu_pointer pointer = {0};
	int result = hoist__emu_face_enter(FN_cuPointerGetAttribute);
	if (result == EMU_SUCCESS &&
	    (ret == NULL || !hoist__emu_pointer((uintptr_t)address, &pointer)))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_cuda_put_pointer(attribute, ret, true, &pointer);
	return (hoist__cu_result)result;
}

/* Needs no context, unlike other questions, except for one attribute. */
hoist__cu_result cuPointerGetAttributes(unsigned int n, hoist__cu_pointer_attribute *attributes,
					void **results, hoist__cu_device_ptr address)
{
	struct hoist__emu_pointer pointer = {0};
	int result = hoist__emu_face_enter(FN_cuPointerGetAttributes);
	if (result == EMU_SUCCESS && (attributes == NULL || results == NULL))
		result = EMU_INVALID_VALUE;
	bool known = result == EMU_SUCCESS && hoist__emu_pointer((uintptr_t)address, &pointer);
	for (unsigned i = 0; i < n && result == EMU_SUCCESS; i++)
		result = hoist__emu_cuda_put_pointer(attributes[i], results[i], known, &pointer);
	return (hoist__cu_result)result;
}
