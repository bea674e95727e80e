/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: the runtime and its devices. */
#include "config.h"

#include "emulator/hip-face.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"

_Static_assert(N_FUNCTIONS <= EMU_MAX_FUNCTIONS, "raise EMU_MAX_FUNCTIONS");
/* The core speaks the driver's numbers. */
#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_INVALID_VALUE, HOIST__HIP_ERROR_INVALID_VALUE);
SAME(EMU_OUT_OF_MEMORY, HOIST__HIP_ERROR_OUT_OF_MEMORY);
SAME(EMU_NOT_INITIALIZED, HOIST__HIP_ERROR_NOT_INITIALIZED);
SAME(EMU_NO_DEVICE, HOIST__HIP_ERROR_NO_DEVICE);
SAME(EMU_INVALID_DEVICE, HOIST__HIP_ERROR_INVALID_DEVICE);
SAME(EMU_OPERATING_SYSTEM, HOIST__HIP_ERROR_OPERATING_SYSTEM);
SAME(EMU_INVALID_HANDLE, HOIST__HIP_ERROR_INVALID_HANDLE);
SAME(EMU_NOT_FOUND, HOIST__HIP_ERROR_NOT_FOUND);
SAME(EMU_NOT_READY, HOIST__HIP_ERROR_NOT_READY);
SAME(EMU_ILLEGAL_ADDRESS, HOIST__HIP_ERROR_ILLEGAL_ADDRESS);
SAME(EMU_PEER_ENABLED, HOIST__HIP_ERROR_PEER_ENABLED);
SAME(EMU_CONTEXT_DESTROYED, HOIST__HIP_ERROR_CONTEXT_DESTROYED);
SAME(EMU_ALREADY_REGISTERED, HOIST__HIP_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(EMU_NOT_REGISTERED, HOIST__HIP_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(EMU_CAPTURE_UNSUPPORTED, HOIST__HIP_ERROR_CAPTURE_UNSUPPORTED);
SAME(EMU_CAPTURE_INVALID, HOIST__HIP_ERROR_CAPTURE_INVALIDATED);
SAME(EMU_CAPTURE_ISOLATION, HOIST__HIP_ERROR_CAPTURE_ISOLATION);
SAME(EMU_CAPTURE_IMPLICIT, HOIST__HIP_ERROR_CAPTURE_IMPLICIT);
SAME(EMU_CAPTURED_EVENT, HOIST__HIP_ERROR_CAPTURED_EVENT);
SAME(EMU_CAPTURE_ACTIVE, HOIST__HIP_CAPTURE_ACTIVE);
SAME(EMU_CAPTURE_INVALIDATED, HOIST__HIP_CAPTURE_INVALIDATED);
SAME(EMU_MODE_RELAXED, HOIST__HIP_CAPTURE_RELAXED);
#undef SAME

static const struct hoist__emu_function functions[] = {
#define X(name, symbol, result, arguments, need, since) {#name, #symbol},
	HOIST__HIP_TABLE(X)
#undef X
};

/* What no file defines cannot be loaded: no row can be forgotten. */
#define X(name, symbol, result, arguments, need, since)                                            \
	static __typeof__(symbol) *const defined_##symbol __attribute__((used)) = symbol;
HOIST__HIP_TABLE(X)
#undef X

static int default_error(unsigned function)
{
	switch (function) {
	case FN_hipMalloc:
	case FN_hipMallocManaged:
	case FN_hipMallocFromPoolAsync:
	case FN_hipMallocAsync:
	case FN_hipMemAddressReserve:
	case FN_hipMemCreate:
	case FN_hipMemPoolCreate:
	case FN_hipMemPoolImportFromShareableHandle:
	case FN_hipMemPoolImportPointer:
	case FN_hipIpcOpenMemHandle:
	case FN_hipHostRegister:
	case FN_hipStreamCreateWithFlags:
	case FN_hipEventCreateWithFlags:
		return EMU_OUT_OF_MEMORY;
	default:
		return EMU_UNKNOWN;
	}
}

const struct hoist__emu_face hoist__emu_face = {
	.api = "hip",
	.other_prefix = "cu",
	.functions = functions,
	.n_functions = N_FUNCTIONS,
	.default_error = default_error,
	/* On no machine an address of a program's: kernels alone use it, and copies. */
	.registered_offset = (uintptr_t)1 << 56,
	.events_read_streams = true,
	.lost_stream = EMU_CONTEXT_DESTROYED,
};

#define DEVICE_NAME "Emulated HIP device"
#define ARCHITECTURE "gfx942:sramecc+:xnack-"

static EMU_THREAD_LOCAL int current;
static EMU_THREAD_LOCAL int last_error;

hoist__hip_error hoist__emu_hip_leave(int result)
{
	if (result != EMU_SUCCESS)
		last_error = result;
	return (hoist__hip_error)result;
}

int hoist__emu_hip_enter(unsigned function)
{
	int result = hoist__emu_enter(function);
	return result != EMU_SUCCESS ? result : hoist__emu_init();
}

struct hoist__emu_device *hoist__emu_hip_current(void)
{
	return hoist__emu_device(current);
}

int hoist__emu_hip_enter_current(unsigned function, struct hoist__emu_device **ret)
{
	int result = hoist__emu_hip_enter(function);
	if (result == EMU_SUCCESS)
		*ret = hoist__emu_device(current);
	return result;
}

/* For questions about a device: there must be one, and a place for the answer. */
static int enter_device(unsigned function, int ordinal, const void *ret)
{
	int result = hoist__emu_hip_enter(function);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && hoist__emu_device(ordinal) == NULL)
		result = EMU_INVALID_DEVICE;
	return result;
}

/* --- the runtime --- */

hoist__hip_error hipRuntimeGetVersion(int *ret)
{
	int result = hoist__emu_enter(FN_hipRuntimeGetVersion);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = 60300000;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipInit(unsigned int flags)
{
	int result = hoist__emu_hip_enter(FN_hipInit);
	return hoist__emu_hip_leave(result == EMU_SUCCESS && flags != 0 ? EMU_INVALID_VALUE
									: result);
}

/* The two that cannot fail: a fault set on them is spent without effect. */
const char *hipGetErrorName(hoist__hip_error code)
{
	static const struct {
		hoist__hip_error code;
		const char *name;
	} names[] = {
#define X(constant, value, vendor) {value, #vendor},
		HOIST__HIP_CONSTANTS(X)
#undef X
	};
	(void)hoist__emu_enter(FN_hipGetErrorName);
	/* The table goes on with constants that are no errors. */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(names); i++) {
		if (names[i].code == code)
			return names[i].name;
		if (names[i].code == HOIST__HIP_ERROR_CAPTURED_EVENT)
			break;
	}
	return "hipErrorUnknown";
}

const char *hipGetErrorString(hoist__hip_error code)
{
	(void)hoist__emu_enter(FN_hipGetErrorString);
	return hoist__emu_error_text((int)code);
}

hoist__hip_error hipGetLastError(void)
{
	int result = hoist__emu_enter(FN_hipGetLastError);
	if (result != EMU_SUCCESS)
		return hoist__emu_hip_leave(result);
	result = last_error;
	last_error = EMU_SUCCESS;
	return (hoist__hip_error)result;
}

/* --- devices --- */

hoist__hip_error hipGetDeviceCount(int *ret)
{
	int result = hoist__emu_hip_enter(FN_hipGetDeviceCount);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = hoist__emu.environment.n_devices;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceGet(hoist__hip_device *ret, int ordinal)
{
	int result = enter_device(FN_hipDeviceGet, ordinal, ret);
	if (result == EMU_SUCCESS)
		*ret = ordinal;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceGetName(char *ret, int bytes, hoist__hip_device device)
{
	int result = enter_device(FN_hipDeviceGetName, device, ret);
	if (result == EMU_SUCCESS && bytes <= 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		(void)snprintf(ret, (size_t)bytes, DEVICE_NAME);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceTotalMem(size_t *ret, hoist__hip_device device)
{
	int result = enter_device(FN_hipDeviceTotalMem, device, ret);
	size_t unused = 0;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(hoist__emu_device(device), &unused, ret);
	return hoist__emu_hip_leave(result);
}

/* Releases before 7.2, as this one, know none of the attributes hoist asks for. */
hoist__hip_error hipDeviceGetAttribute(int *ret, hoist__hip_attribute attribute, int device)
{
	int result = enter_device(FN_hipDeviceGetAttribute, device, ret);
	(void)attribute;
	return hoist__emu_hip_leave(result == EMU_SUCCESS ? EMU_INVALID_VALUE : result);
}

hoist__hip_error hipDeviceGetPCIBusId(char *ret, int bytes, int device)
{
	int result = enter_device(FN_hipDeviceGetPCIBusId, device, ret);
	if (result == EMU_SUCCESS && bytes < 13)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS) /* each device is alone on a bus */
		(void)snprintf(ret, (size_t)bytes, "0000:%02x:00.0", 0x21u + (unsigned)device);
	return hoist__emu_hip_leave(result);
}

/* A caller may have the vendor's structure: not a byte behind it is written. */
hoist__hip_error hipGetDevicePropertiesR0600(struct hoist__hip_props_r0600 *ret, int device)
{
	int result = enter_device(FN_hipGetDevicePropertiesR0600, device, ret);
	if (result != EMU_SUCCESS)
		return hoist__emu_hip_leave(result);
	memset(ret, 0, HOIST__HIP_R0600_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return hoist__emu_hip_leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDeviceProperties(struct hoist__hip_props_r0000 *ret, int device)
{
	int result = enter_device(FN_hipGetDeviceProperties, device, ret);
	if (result != EMU_SUCCESS)
		return hoist__emu_hip_leave(result);
	memset(ret, 0, HOIST__HIP_R0000_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return hoist__emu_hip_leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDevice(int *ret)
{
	int result = hoist__emu_hip_enter(FN_hipGetDevice);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = current;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipSetDevice(int device)
{
	int result = enter_device(FN_hipSetDevice, device, &current);
	if (result == EMU_SUCCESS)
		current = device;
	return hoist__emu_hip_leave(result);
}
