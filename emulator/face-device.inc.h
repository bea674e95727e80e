/* SPDX-License-Identifier: MIT */
/* emulator/face-device.inc.h - the table of functions, and devices; part of cuda.c and of hip.c.
 * See face.h. */
#include <stdio.h>

#include "base/checked.h"
#include "emulator/stream.h"

_Static_assert(N_FUNCTIONS <= EMU_MAX_FUNCTIONS, "raise EMU_MAX_FUNCTIONS");

SAME(EMU_INVALID_VALUE, ERROR_INVALID_VALUE);
SAME(EMU_OUT_OF_MEMORY, ERROR_OUT_OF_MEMORY);
SAME(EMU_NOT_INITIALIZED, ERROR_NOT_INITIALIZED);
SAME(EMU_NO_DEVICE, ERROR_NO_DEVICE);
SAME(EMU_INVALID_DEVICE, ERROR_INVALID_DEVICE);
SAME(EMU_OPERATING_SYSTEM, ERROR_OPERATING_SYSTEM);
SAME(EMU_INVALID_HANDLE, ERROR_INVALID_HANDLE);
SAME(EMU_NOT_FOUND, ERROR_NOT_FOUND);
SAME(EMU_NOT_READY, ERROR_NOT_READY);
SAME(EMU_ILLEGAL_ADDRESS, ERROR_ILLEGAL_ADDRESS);
SAME(EMU_PEER_ENABLED, ERROR_PEER_ENABLED);
SAME(EMU_ALREADY_REGISTERED, ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(EMU_NOT_REGISTERED, ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(EMU_CAPTURE_UNSUPPORTED, ERROR_CAPTURE_UNSUPPORTED);
SAME(EMU_CAPTURE_INVALID, ERROR_CAPTURE_INVALIDATED);
SAME(EMU_CAPTURE_ISOLATION, ERROR_CAPTURE_ISOLATION);
SAME(EMU_CAPTURE_IMPLICIT, ERROR_CAPTURE_IMPLICIT);
SAME(EMU_CAPTURED_EVENT, ERROR_CAPTURED_EVENT);
SAME(EMU_CAPTURE_ACTIVE, CAPTURE_ACTIVE);
SAME(EMU_CAPTURE_INVALIDATED, CAPTURE_INVALIDATED);
SAME(EMU_MODE_RELAXED, CAPTURE_RELAXED);

/* --- the table --- */

static const struct hoist__emu_function functions[] = {
#define X(name, symbol, result, arguments, need, since) {#name, #symbol},
	TABLE(X)
#undef X
};

/* A library that refers to an undefined symbol cannot be loaded, so no row can be forgotten. */
#define X(name, symbol, result, arguments, need, since)                                            \
	static __typeof__(symbol) *const defined_##symbol __attribute__((used)) = symbol;
TABLE(X)
#undef X

/* Functions whose injected failure is "out of memory". */
static bool allocates(unsigned function)
{
	switch (function) {
	case FN(Malloc):
	case FN(MallocManaged):
	case FN(MallocFromPoolAsync):
	case FN(MallocAsync):
	case FN(MemAddressReserve):
	case FN(MemCreate):
	case FN(MemPoolCreate):
	case FN(MemPoolImportFromShareableHandle):
	case FN(MemPoolImportPointer):
	case FN(IpcOpenMemHandle):
	case FN(HostRegister):
	case FN(StreamCreateWithFlags):
	case FN(EventCreateWithFlags):
		return true;
	default:
		return false;
	}
}

/* The vendor's name of @code; NULL if @code is no result of a call. */
static const char *error_name(RESULT code)
{
	static const struct {
		RESULT code;
		const char *name;
	} names[] = {
#define X(constant, value, vendor) {value, #vendor},
		CONSTANTS(X)
#undef X
	};
	/* The table goes on with constants that are no errors. */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(names); i++) {
		if (names[i].code == code)
			return names[i].name;
		if (names[i].code == LAST_ERROR)
			break;
	}
	return NULL;
}

/* --- devices --- */

RESULT SYMBOL(GetDeviceCount)(int *ret)
{
	int result = hoist__emu_face_enter(FN(GetDeviceCount));
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = hoist__emu.environment.n_devices;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceGet)(NATIVE(device) *ret, int ordinal)
{
	int result = enter_device(FN(DeviceGet), ordinal, ret);
	if (result == EMU_SUCCESS)
		*ret = ordinal;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceGetName)(char *ret, int bytes, NATIVE(device) device)
{
	int result = enter_device(FN(DeviceGetName), device, ret);
	if (result == EMU_SUCCESS && bytes <= 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		(void)snprintf(ret, (size_t)bytes, DEVICE_NAME);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceTotalMem)(size_t *ret, NATIVE(device) device)
{
	int result = enter_device(FN(DeviceTotalMem), device, ret);
	size_t unused = 0;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(hoist__emu_device(device), &unused, ret);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceGetPCIBusId)(char *ret, int bytes, NATIVE(device) device)
{
	int result = enter_device(FN(DeviceGetPCIBusId), device, ret);
	if (result == EMU_SUCCESS && bytes < 13)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS) /* each device is alone on a bus */
		(void)snprintf(ret, (size_t)bytes, BUS_ID(device));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceCanAccessPeer)(int *ret, NATIVE(device) device, NATIVE(device) peer)
{
	int result = hoist__emu_face_enter(FN(DeviceCanAccessPeer));
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS &&
	    (hoist__emu_device(device) == NULL || hoist__emu_device(peer) == NULL))
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		*ret = device != peer;
	return hoist__emu_face_leave(result);
}
