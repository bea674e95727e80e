/* SPDX-License-Identifier: MIT */
/* emulator/hip-query.c - the stand-in for libamdhip64: questions about devices and addresses.
 * The contract is device/hip-table.h; emulator/face.h says how a face is made. */
#include "config.h"

#include "emulator/hip-face.h"

hoist__hip_error hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_hipDeviceEnablePeerAccess, &device);
	const struct hoist__emu_device *other = hoist__emu_device(peer);
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && (other == NULL || other == device))
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_peer_enable(device, other);
	return hoist__emu_face_leave(result);
}

hoist__hip_error hipDeviceSynchronize(void)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_hipDeviceSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_device_synchronize(device);
	return hoist__emu_face_leave(result);
}

/* Unknown memory has a type of its own, as in ROCm 6, whose version this stand-in has. */
hoist__hip_error hipPointerGetAttributes(struct hoist__hip_pointer_attributes *ret,
					 const void *address)
{
	struct hoist__emu_pointer pointer = {0};
	int result = hoist__emu_face_enter(FN_hipPointerGetAttributes);
	if (result == EMU_SUCCESS && (ret == NULL || address == NULL))
		result = EMU_INVALID_VALUE;
	if (result != EMU_SUCCESS)
		return hoist__emu_face_leave(result);
	bool known = hoist__emu_pointer((uintptr_t)address, &pointer);
	*ret = (struct hoist__hip_pointer_attributes){
		.type = !known		  ? HOIST__HIP_MEMORY_UNREGISTERED
			: pointer.managed ? HOIST__HIP_MEMORY_MANAGED
			: pointer.host	  ? HOIST__HIP_MEMORY_HOST
					  : HOIST__HIP_MEMORY_DEVICE,
		.device = pointer.ordinal,
		.device_address = (void *)pointer.device_address,
		.host_address = (void *)pointer.host_address,
		.managed = pointer.managed,
	};
	return hoist__emu_face_leave(EMU_SUCCESS);
}
