/* SPDX-License-Identifier: MIT */
/* emulator/cuda.c - the stand-in for libcuda.so.1: the driver, its devices and contexts, and the
 * functions that both faces share.  The contract is device/cuda-table.h, and emulator/face.h. */
#include "config.h"

#include "emulator/cuda-face.h"
#include "emulator/vmm.h"

#include <stdatomic.h>

#define LAST_ERROR HOIST__CU_ERROR_UNKNOWN
#define DEVICE_NAME "Emulated CUDA device"
#define FIRST_BUS EMU_CU_FIRST_BUS
#define BUS_ID(ordinal) "0000:%02X:00.0", FIRST_BUS + (unsigned)(ordinal)
#define ALLOCATES_NOTHING false
#define EVENT_FLAGS 7u

#include "emulator/face-device.inc.h"

SAME(EMU_INVALID_CONTEXT, ERROR_INVALID_CONTEXT);
SAME(EMU_NOT_PERMITTED, ERROR_NOT_PERMITTED);
SAME(EMU_UNKNOWN, ERROR_UNKNOWN);

static int default_error(unsigned function)
{
	return allocates(function) || function == FN_cuDevicePrimaryCtxRetain ? EMU_OUT_OF_MEMORY
									      : EMU_UNKNOWN;
}

const struct hoist__emu_face hoist__emu_face = {
	.api = "cuda",
	.other_prefix = "hip",
	.functions = functions,
	.n_functions = N_FUNCTIONS,
	.default_error = default_error,
	.lost_stream = EMU_INVALID_HANDLE,
	.absent = hoist__emu_cuda_absent,
};

/* The calling thread's contexts; the last one is current.  Only primary contexts
 * exist here, so a context is its device. */
#define MAX_CONTEXTS 16
static EMU_THREAD_LOCAL struct hoist__emu_device *contexts[MAX_CONTEXTS];
static EMU_THREAD_LOCAL unsigned n_contexts;

static atomic_bool initialized;

int hoist__emu_face_enter(unsigned function)
{
	int result = hoist__emu_enter(function);
	if (result == EMU_SUCCESS && !atomic_load(&initialized))
		result = EMU_NOT_INITIALIZED;
	return result;
}

bool hoist__emu_cuda_ready(void)
{
	return atomic_load(&initialized);
}

/* A thread may still have a context that was released for the last time. */
static int check_current(void)
{
	if (n_contexts == 0)
		return EMU_INVALID_CONTEXT;
	hoist__emu_lock();
	bool lives = contexts[n_contexts - 1]->retained > 0;
	hoist__emu_unlock();
	return lives ? EMU_SUCCESS : EMU_CONTEXT_DESTROYED;
}

int hoist__emu_face_enter_current(unsigned function, struct hoist__emu_device **ret)
{
	int result = hoist__emu_face_enter(function);
	if (result == EMU_SUCCESS)
		result = check_current();
	if (result == EMU_SUCCESS)
		*ret = contexts[n_contexts - 1];
	return result;
}

int hoist__emu_face_enter_free(unsigned function, int *forced)
{
	int result = hoist__emu_enter_free(function, forced);
	if (result == EMU_SUCCESS)
		result = check_current();
	return result;
}

struct hoist__emu_device *hoist__emu_face_current(void)
{
	return n_contexts > 0 ? contexts[n_contexts - 1] : NULL;
}

hoist__cu_result hoist__emu_face_leave(int result)
{
	return (hoist__cu_result)result;
}

struct hoist__emu_device *hoist__emu_cuda_context_device(hoist__cu_context context)
{
	struct hoist__emu_device *found = NULL;
	hoist__emu_lock();
	for (int i = 0; i < EMU_MAX_DEVICES; i++) {
		struct hoist__emu_device *device = &hoist__emu.devices[i];
		if ((void *)context == (void *)device && device->retained > 0)
			found = device;
	}
	hoist__emu_unlock();
	return found;
}

/* --- the driver --- */

hoist__cu_result cuDriverGetVersion(int *ret)
{
	int result = hoist__emu_enter(FN_cuDriverGetVersion);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = EMU_CUDA_VERSION;
	return (hoist__cu_result)result;
}

hoist__cu_result cuInit(unsigned int flags)
{
	int result = hoist__emu_enter(FN_cuInit);
	if (result == EMU_SUCCESS && flags != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_init();
	if (result == EMU_SUCCESS)
		atomic_store(&initialized, true);
	return (hoist__cu_result)result;
}

hoist__cu_result cuGetErrorName(hoist__cu_result code, const char **ret)
{
	int result = hoist__emu_enter(FN_cuGetErrorName);
	if (result != EMU_SUCCESS || ret == NULL)
		return (hoist__cu_result)(result != EMU_SUCCESS ? result : EMU_INVALID_VALUE);
	*ret = error_name(code);
	return *ret != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

hoist__cu_result cuGetErrorString(hoist__cu_result code, const char **ret)
{
	int result = hoist__emu_enter(FN_cuGetErrorString);
	if (result != EMU_SUCCESS || ret == NULL)
		return (hoist__cu_result)(result != EMU_SUCCESS ? result : EMU_INVALID_VALUE);
	*ret = error_name(code) != NULL ? hoist__emu_error_text((int)code) : NULL;
	return *ret != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

/* --- devices --- */

hoist__cu_result cuDeviceGetAttribute(int *ret, hoist__cu_attribute attribute,
				      hoist__cu_device device)
{
	int result = enter_device(FN_cuDeviceGetAttribute, device, ret);
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	switch (attribute) {
	case HOIST__CU_ATTRIBUTE_VIRTUAL_RDMA:
		*ret = device == EMU_VMM_RDMA_DEVICE;
		break;
	case HOIST__CU_ATTRIBUTE_PCI_BUS_ID:
		*ret = FIRST_BUS + device;
		break;
	default:
		if (!hoist__emu_cuda_attribute(attribute, ret))
			return EMU_INVALID_VALUE;
		break;
	}
	return EMU_SUCCESS;
}

/* --- contexts --- */

hoist__cu_result cuDevicePrimaryCtxRetain(hoist__cu_context *ret, hoist__cu_device ordinal)
{
	int result = enter_device(FN_cuDevicePrimaryCtxRetain, ordinal, ret);
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	hoist__emu_lock();
	if (device->retained++ == 0)
		hoist__emu.count.live_contexts++;
	hoist__emu_unlock();
	*ret = (hoist__cu_context)(void *)device;
	return EMU_SUCCESS;
}

hoist__cu_result cuCtxGetCurrent(hoist__cu_context *ret)
{
	int result = hoist__emu_face_enter(FN_cuCtxGetCurrent);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = n_contexts == 0 ? NULL : (hoist__cu_context)(void *)contexts[n_contexts - 1];
	return (hoist__cu_result)result;
}

/* Replaces the thread's current context; NULL: takes it off. */
hoist__cu_result cuCtxSetCurrent(hoist__cu_context context)
{
	int result = hoist__emu_face_enter(FN_cuCtxSetCurrent);
	struct hoist__emu_device *device = NULL;
	if (result == EMU_SUCCESS && context != NULL &&
	    (device = hoist__emu_cuda_context_device(context)) == NULL)
		result = EMU_INVALID_CONTEXT;
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	n_contexts -= n_contexts > 0;
	if (device != NULL)
		contexts[n_contexts++] = device;
	return EMU_SUCCESS;
}

hoist__cu_result cuCtxPushCurrent_v2(hoist__cu_context context)
{
	int result = hoist__emu_face_enter(FN_cuCtxPushCurrent_v2);
	struct hoist__emu_device *device = NULL;
	if (result == EMU_SUCCESS && (device = hoist__emu_cuda_context_device(context)) == NULL)
		result = EMU_INVALID_CONTEXT;
	if (result == EMU_SUCCESS && n_contexts == MAX_CONTEXTS)
		result = EMU_OUT_OF_MEMORY;
	if (result == EMU_SUCCESS)
		contexts[n_contexts++] = device;
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxPopCurrent_v2(hoist__cu_context *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxPopCurrent_v2, &device);
	/* The manual says that the call may also return the failure of earlier work.  In that case
	 * it has popped. */
	if (result == EMU_ILLEGAL_ADDRESS && n_contexts > 0)
		n_contexts--;
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	n_contexts--;
	if (ret != NULL)
		*ret = (hoist__cu_context)(void *)device;
	return EMU_SUCCESS;
}

/* --- managed memory --- */

/* The range must be one whole allocation, and the advice a preferred location. */
hoist__cu_result cuMemAdvise_v2(hoist__cu_device_ptr address, size_t bytes, hoist__cu_advice advice,
				struct hoist__cu_location location)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemAdvise_v2, &device);
	int preferred = location.id;
	if (result == EMU_SUCCESS && advice != HOIST__CU_ADVISE_PREFERRED_LOCATION)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && location.type == HOIST__CU_LOCATION_HOST)
		preferred = EMU_PREFER_HOST;
	else if (result == EMU_SUCCESS && location.type == HOIST__CU_LOCATION_HOST_NODE)
		preferred = location.id >= 0 ? EMU_PREFER_NODE(location.id) : EMU_PREFER_NONE;
	else if (result == EMU_SUCCESS && location.type != HOIST__CU_LOCATION_DEVICE)
		result = EMU_INVALID_VALUE;
	else if (result == EMU_SUCCESS && hoist__emu_device(location.id) == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS && preferred == EMU_PREFER_NONE)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_prefer((uintptr_t)address, bytes, preferred);
	return (hoist__cu_result)result;
}

/* --- functions that both faces share --- */

/* An imported pool is of the device that it was made for, and the import needs no context: a child
 * of cuda.core's imports a pool before it makes one current. */
#define FACE_IMPORTS_TO_FIRST false

static bool face_has_rdma(const struct hoist__emu_device *device)
{
	return device->ordinal == EMU_VMM_RDMA_DEVICE;
}

#define face_pool_place hoist__emu_cuda_pool_place

#include "emulator/face-memory.inc.h"
#include "emulator/face-stream.inc.h"
#include "emulator/face-pool.inc.h"
#include "emulator/face-ipc.inc.h"
#include "emulator/face-graph.inc.h"
#include "emulator/face-vmm.inc.h"
