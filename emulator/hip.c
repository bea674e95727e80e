/* SPDX-License-Identifier: MIT */
/* emulator/hip.c - the stand-in for libamdhip64: the runtime and its devices, and the functions
 * that both faces share.  The contract is device/hip-table.h, and emulator/face.h. */
#include "config.h"

#include "emulator/hip-face.h"
#include "emulator/pool.h"

#include <limits.h>
#include <string.h>

#define LAST_ERROR HOIST__HIP_ERROR_CAPTURED_EVENT
#define DEVICE_NAME "Emulated HIP device"
#define BUS_ID(ordinal) "0000:%02x:00.0", 0x21 + (unsigned)(ordinal)
#define ALLOCATES_NOTHING true
#define EVENT_FLAGS UINT_MAX /* HIP's own flags are the top bits */

#include "emulator/face-device.inc.h"

SAME(EMU_CONTEXT_DESTROYED, ERROR_CONTEXT_DESTROYED);

static int default_error(unsigned function)
{
	return allocates(function) ? EMU_OUT_OF_MEMORY : EMU_UNKNOWN;
}

const struct hoist__emu_face hoist__emu_face = {
	.api = "hip",
	.other_prefix = "cu",
	.functions = functions,
	.n_functions = N_FUNCTIONS,
	.default_error = default_error,
	/* No program has such addresses on any machine: only kernels and copies use them. */
	.registered_offset = (uintptr_t)1 << 56,
	.events_read_streams = true,
	.lost_stream = EMU_CONTEXT_DESTROYED,
};

#define ARCHITECTURE "gfx942:sramecc+:xnack-"

static EMU_THREAD_LOCAL int current;
static EMU_THREAD_LOCAL int last_error;

hoist__hip_error hoist__emu_face_leave(int result)
{
	if (result != EMU_SUCCESS)
		last_error = result;
	return (hoist__hip_error)result;
}

int hoist__emu_face_enter(unsigned function)
{
	int result = hoist__emu_enter(function);
	return result != EMU_SUCCESS ? result : hoist__emu_init();
}

int hoist__emu_face_enter_free(unsigned function, int *forced)
{
	return hoist__emu_enter_free(function, forced);
}

struct hoist__emu_device *hoist__emu_face_current(void)
{
	return hoist__emu_device(current);
}

int hoist__emu_face_enter_current(unsigned function, struct hoist__emu_device **ret)
{
	int result = hoist__emu_face_enter(function);
	if (result == EMU_SUCCESS)
		*ret = hoist__emu_device(current);
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
	return hoist__emu_face_leave(result);
}

hoist__hip_error hipInit(unsigned int flags)
{
	int result = hoist__emu_face_enter(FN_hipInit);
	return hoist__emu_face_leave(result == EMU_SUCCESS && flags != 0 ? EMU_INVALID_VALUE
									 : result);
}

/* These two functions cannot fail: a fault set on them is spent without effect. */
const char *hipGetErrorName(hoist__hip_error code)
{
	(void)hoist__emu_enter(FN_hipGetErrorName);
	const char *name = error_name(code);
	return name != NULL ? name : "hipErrorUnknown";
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
		return hoist__emu_face_leave(result);
	result = last_error;
	last_error = EMU_SUCCESS;
	return (hoist__hip_error)result;
}

/* --- devices --- */

/* Releases before 7.2, like this one, know one of the attributes that hoist asks for. */
hoist__hip_error hipDeviceGetAttribute(int *ret, hoist__hip_attribute attribute, int device)
{
	int result = enter_device(FN_hipDeviceGetAttribute, device, ret);
	if (result == EMU_SUCCESS && attribute == HOIST__HIP_ATTRIBUTE_INTEGRATED)
		*ret = 0;
	else if (result == EMU_SUCCESS)
		result = EMU_INVALID_VALUE;
	return hoist__emu_face_leave(result);
}

/* A caller may have the vendor's structure, so no byte behind it is written. */
hoist__hip_error hipGetDevicePropertiesR0600(struct hoist__hip_props_r0600 *ret, int device)
{
	int result = enter_device(FN_hipGetDevicePropertiesR0600, device, ret);
	if (result != EMU_SUCCESS)
		return hoist__emu_face_leave(result);
	memset(ret, 0, HOIST__HIP_R0600_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return hoist__emu_face_leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDeviceProperties(struct hoist__hip_props_r0000 *ret, int device)
{
	int result = enter_device(FN_hipGetDeviceProperties, device, ret);
	if (result != EMU_SUCCESS)
		return hoist__emu_face_leave(result);
	memset(ret, 0, HOIST__HIP_R0000_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return hoist__emu_face_leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDevice(int *ret)
{
	int result = hoist__emu_face_enter(FN_hipGetDevice);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = current;
	return hoist__emu_face_leave(result);
}

hoist__hip_error hipSetDevice(int device)
{
	int result = enter_device(FN_hipSetDevice, device, &current);
	if (result == EMU_SUCCESS)
		current = device;
	return hoist__emu_face_leave(result);
}

/* --- managed memory --- */

/* The range must be one whole allocation, and the advice a preferred location. */
hoist__hip_error hipMemAdvise(const void *address, size_t bytes, hoist__hip_advice advice,
			      int location)
{
	int result = hoist__emu_face_enter(FN_hipMemAdvise);
	if (result == EMU_SUCCESS && advice != HOIST__HIP_ADVISE_PREFERRED_LOCATION)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && location != HOIST__HIP_CPU &&
	    hoist__emu_device(location) == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_prefer((uintptr_t)address, bytes,
					   location == HOIST__HIP_CPU ? EMU_PREFER_HOST : location);
	return hoist__emu_face_leave(result);
}

/* --- functions that both faces share --- */

/* ROCm 5 and 6 import a pool for the first device, whichever is current. */
#define FACE_IMPORTS_TO_FIRST true

static bool face_has_rdma(const struct hoist__emu_device *device)
{
	(void)device;
	return false;
}

static int face_pool_place(unsigned type, unsigned location_type, int location,
			   enum hoist__emu_pool_kind *kind, struct hoist__emu_device **device)
{
	if (type != VALUE(ALLOCATION_PINNED) || location_type != VALUE(LOCATION_DEVICE))
		return EMU_INVALID_VALUE;
	*kind = EMU_POOL_DEVICE;
	*device = hoist__emu_device(location);
	return *device != NULL ? EMU_SUCCESS : EMU_INVALID_DEVICE;
}

#include "emulator/face-memory.inc.h"
#include "emulator/face-stream.inc.h"
#include "emulator/face-pool.inc.h"
#include "emulator/face-ipc.inc.h"
#include "emulator/face-graph.inc.h"
#include "emulator/face-vmm.inc.h"
