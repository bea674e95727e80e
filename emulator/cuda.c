/* SPDX-License-Identifier: MIT */
/* The stand-in for libcuda.so.1: the driver, its devices and contexts. */
#include "config.h"

#include "emulator/cuda-face.h"
#include "emulator/vmm.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/checked.h"

_Static_assert(N_FUNCTIONS <= EMU_MAX_FUNCTIONS, "raise EMU_MAX_FUNCTIONS");
/* The core speaks the driver's numbers. */
#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_INVALID_VALUE, HOIST__CU_ERROR_INVALID_VALUE);
SAME(EMU_OUT_OF_MEMORY, HOIST__CU_ERROR_OUT_OF_MEMORY);
SAME(EMU_NOT_INITIALIZED, HOIST__CU_ERROR_NOT_INITIALIZED);
SAME(EMU_NO_DEVICE, HOIST__CU_ERROR_NO_DEVICE);
SAME(EMU_INVALID_DEVICE, HOIST__CU_ERROR_INVALID_DEVICE);
SAME(EMU_INVALID_CONTEXT, HOIST__CU_ERROR_INVALID_CONTEXT);
SAME(EMU_OPERATING_SYSTEM, HOIST__CU_ERROR_OPERATING_SYSTEM);
SAME(EMU_INVALID_HANDLE, HOIST__CU_ERROR_INVALID_HANDLE);
SAME(EMU_NOT_FOUND, HOIST__CU_ERROR_NOT_FOUND);
SAME(EMU_NOT_READY, HOIST__CU_ERROR_NOT_READY);
SAME(EMU_ILLEGAL_ADDRESS, HOIST__CU_ERROR_ILLEGAL_ADDRESS);
SAME(EMU_PEER_ENABLED, HOIST__CU_ERROR_PEER_ENABLED);
SAME(EMU_ALREADY_REGISTERED, HOIST__CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(EMU_NOT_REGISTERED, HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(EMU_NOT_PERMITTED, HOIST__CU_ERROR_NOT_PERMITTED);
SAME(EMU_UNKNOWN, HOIST__CU_ERROR_UNKNOWN);
SAME(EMU_CAPTURE_UNSUPPORTED, HOIST__CU_ERROR_CAPTURE_UNSUPPORTED);
SAME(EMU_CAPTURE_INVALID, HOIST__CU_ERROR_CAPTURE_INVALIDATED);
SAME(EMU_CAPTURE_ISOLATION, HOIST__CU_ERROR_CAPTURE_ISOLATION);
SAME(EMU_CAPTURE_IMPLICIT, HOIST__CU_ERROR_CAPTURE_IMPLICIT);
SAME(EMU_CAPTURED_EVENT, HOIST__CU_ERROR_CAPTURED_EVENT);
SAME(EMU_CAPTURE_ACTIVE, HOIST__CU_CAPTURE_ACTIVE);
SAME(EMU_CAPTURE_INVALIDATED, HOIST__CU_CAPTURE_INVALIDATED);
SAME(EMU_MODE_RELAXED, HOIST__CU_CAPTURE_RELAXED);
#undef SAME

static const struct hoist__emu_function functions[] = {
#define X(name, symbol, result, arguments, need, since) {#name, #symbol},
	HOIST__CUDA_TABLE(X)
#undef X
};

/* What no file defines cannot be loaded: no row can be forgotten. */
#define X(name, symbol, result, arguments, need, since)                                            \
	static __typeof__(symbol) *const defined_##symbol __attribute__((used)) = symbol;
HOIST__CUDA_TABLE(X)
#undef X

static int default_error(unsigned function)
{
	switch (function) {
	case FN_cuDevicePrimaryCtxRetain:
	case FN_cuMemAlloc_v2:
	case FN_cuMemAllocManaged:
	case FN_cuMemAllocFromPoolAsync:
	case FN_cuMemAllocAsync:
	case FN_cuMemAddressReserve:
	case FN_cuMemCreate:
	case FN_cuMemPoolCreate:
	case FN_cuMemPoolImportFromShareableHandle:
	case FN_cuMemPoolImportPointer:
	case FN_cuIpcOpenMemHandle_v2:
	case FN_cuMemHostRegister_v2:
	case FN_cuStreamCreate:
	case FN_cuEventCreate:
		return EMU_OUT_OF_MEMORY;
	default:
		return EMU_UNKNOWN;
	}
}

const struct hoist__emu_face hoist__emu_face = {
	.api = "cuda",
	.other_prefix = "hip",
	.functions = functions,
	.n_functions = N_FUNCTIONS,
	.default_error = default_error,
	.lost_stream = EMU_INVALID_HANDLE,
};

/* The calling thread's contexts; the last one is current.  A context is its
 * device: only primary ones exist here. */
#define MAX_CONTEXTS 16
static EMU_THREAD_LOCAL struct hoist__emu_device *contexts[MAX_CONTEXTS];
static EMU_THREAD_LOCAL unsigned n_contexts;

static atomic_bool initialized;

int hoist__emu_cuda_enter(unsigned function)
{
	int result = hoist__emu_enter(function);
	if (result == EMU_SUCCESS && !atomic_load(&initialized))
		result = EMU_NOT_INITIALIZED;
	return result;
}

int hoist__emu_cuda_enter_context(unsigned function, struct hoist__emu_device **ret)
{
	int result = hoist__emu_cuda_enter(function);
	if (result == EMU_SUCCESS && n_contexts == 0)
		result = EMU_INVALID_CONTEXT;
	if (result == EMU_SUCCESS)
		*ret = contexts[n_contexts - 1];
	return result;
}

int hoist__emu_cuda_enter_free(unsigned function, int *forced)
{
	int result = hoist__emu_enter_free(function, forced);
	if (result == EMU_SUCCESS && n_contexts == 0)
		result = EMU_INVALID_CONTEXT;
	return result;
}

struct hoist__emu_device *hoist__emu_cuda_current(void)
{
	return n_contexts > 0 ? contexts[n_contexts - 1] : NULL;
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
		*ret = 13000;
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

static const char *error_name(hoist__cu_result code)
{
	static const struct {
		hoist__cu_result code;
		const char *name;
	} names[] = {
#define X(constant, value, vendor) {value, #vendor},
		HOIST__CUDA_CONSTANTS(X)
#undef X
	};
	/* The table goes on with constants that are no errors. */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(names); i++) {
		if (names[i].code == code)
			return names[i].name;
		if (names[i].code == HOIST__CU_ERROR_UNKNOWN)
			break;
	}
	return NULL;
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

/* Enters and checks what every question about a device has: a device, and a
 * place for the answer. */
static int enter_device(unsigned function, hoist__cu_device ordinal, const void *ret)
{
	int result = hoist__emu_cuda_enter(function);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && hoist__emu_device(ordinal) == NULL)
		result = EMU_INVALID_DEVICE;
	return result;
}

hoist__cu_result cuDeviceGetCount(int *ret)
{
	int result = hoist__emu_cuda_enter(FN_cuDeviceGetCount);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = hoist__emu.environment.n_devices;
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceGet(hoist__cu_device *ret, int ordinal)
{
	int result = enter_device(FN_cuDeviceGet, ordinal, ret);
	if (result == EMU_SUCCESS)
		*ret = ordinal;
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceGetName(char *ret, int bytes, hoist__cu_device device)
{
	int result = enter_device(FN_cuDeviceGetName, device, ret);
	if (result == EMU_SUCCESS && bytes <= 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		(void)snprintf(ret, (size_t)bytes, "Emulated CUDA device");
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceTotalMem_v2(size_t *ret, hoist__cu_device device)
{
	int result = enter_device(FN_cuDeviceTotalMem_v2, device, ret);
	size_t unused = 0;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(hoist__emu_device(device), &unused, ret);
	return (hoist__cu_result)result;
}

/* Each device is alone on a bus from here on. */
#define FIRST_BUS 0xa1

hoist__cu_result cuDeviceGetAttribute(int *ret, hoist__cu_attribute attribute,
				      hoist__cu_device device)
{
	int result = enter_device(FN_cuDeviceGetAttribute, device, ret);
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	switch (attribute) {
	case HOIST__CU_ATTRIBUTE_MAX_PITCH:
		*ret = (int)EMU_MAX_PITCH;
		break;
	case HOIST__CU_ATTRIBUTE_VIRTUAL_MEMORY:
		*ret = 1;
		break;
	case HOIST__CU_ATTRIBUTE_VIRTUAL_RDMA:
		*ret = device == EMU_VMM_RDMA_DEVICE;
		break;
	case HOIST__CU_ATTRIBUTE_COMPUTE_MAJOR:
		*ret = 9;
		break;
	case HOIST__CU_ATTRIBUTE_COMPUTE_MINOR:
	case HOIST__CU_ATTRIBUTE_PCI_DEVICE_ID:
	case HOIST__CU_ATTRIBUTE_PCI_DOMAIN_ID:
		*ret = 0;
		break;
	case HOIST__CU_ATTRIBUTE_PCI_BUS_ID:
		*ret = FIRST_BUS + device;
		break;
	case HOIST__CU_ATTRIBUTE_HOST_NUMA_ID:
		*ret = -1; /* on no node in particular */
		break;
	default:
		return EMU_INVALID_VALUE;
	}
	return EMU_SUCCESS;
}

hoist__cu_result cuDeviceGetPCIBusId(char *ret, int bytes, hoist__cu_device device)
{
	int result = enter_device(FN_cuDeviceGetPCIBusId, device, ret);
	if (result == EMU_SUCCESS && bytes < 13)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		(void)snprintf(ret, (size_t)bytes, "0000:%02X:00.0",
			       (unsigned)(FIRST_BUS + device));
	return (hoist__cu_result)result;
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
	int result = hoist__emu_cuda_enter(FN_cuCtxGetCurrent);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = n_contexts == 0 ? NULL : (hoist__cu_context)(void *)contexts[n_contexts - 1];
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxPushCurrent_v2(hoist__cu_context context)
{
	int result = hoist__emu_cuda_enter(FN_cuCtxPushCurrent_v2);
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
	int result = hoist__emu_cuda_enter_context(FN_cuCtxPopCurrent_v2, &device);
	/* The manual: it may also tell of earlier work's failure.  Then it has popped. */
	if (result == EMU_ILLEGAL_ADDRESS && n_contexts > 0)
		n_contexts--;
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	n_contexts--;
	if (ret != NULL)
		*ret = (hoist__cu_context)(void *)device;
	return EMU_SUCCESS;
}

#include "emulator/face-memory.inc.h"
#include "emulator/face-stream.inc.h"
#include "emulator/face-pool.inc.h"
#include "emulator/face-ipc.inc.h"
#include "emulator/face-graph.inc.h"
#include "emulator/face-vmm.inc.h"
