/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: every function of device/hip-table.h over the
 * core.  A row of the table that is not defined here does not compile.  HIP needs
 * no initialisation and no context: each thread has a current device, 0 at
 * first, and a last error. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "device/hip-table.h"
#include "emulator/core.h"

#define X(name, symbol, result, arguments, need, since) HOIST_EMULATOR_API result symbol arguments;
HOIST__HIP_TABLE(X)
#undef X

enum {
#define X(name, symbol, result, arguments, need, since) FN_##symbol,
	HOIST__HIP_TABLE(X)
#undef X
		N_FUNCTIONS
};

_Static_assert(N_FUNCTIONS <= EMU_MAX_FUNCTIONS, "raise EMU_MAX_FUNCTIONS");
/* The core speaks the driver's numbers. */
#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_INVALID_VALUE, HOIST__HIP_ERROR_INVALID_VALUE);
SAME(EMU_OUT_OF_MEMORY, HOIST__HIP_ERROR_OUT_OF_MEMORY);
SAME(EMU_NOT_INITIALIZED, HOIST__HIP_ERROR_NOT_INITIALIZED);
SAME(EMU_NO_DEVICE, HOIST__HIP_ERROR_NO_DEVICE);
SAME(EMU_INVALID_DEVICE, HOIST__HIP_ERROR_INVALID_DEVICE);
SAME(EMU_INVALID_HANDLE, HOIST__HIP_ERROR_INVALID_HANDLE);
SAME(EMU_NOT_READY, HOIST__HIP_ERROR_NOT_READY);
SAME(EMU_ILLEGAL_ADDRESS, HOIST__HIP_ERROR_ILLEGAL_ADDRESS);
SAME(EMU_ALREADY_REGISTERED, HOIST__HIP_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(EMU_NOT_REGISTERED, HOIST__HIP_ERROR_HOST_MEMORY_NOT_REGISTERED);
#undef SAME

static const struct hoist__emu_function functions[] = {
#define X(name, symbol, result, arguments, need, since) {#name, #symbol},
	HOIST__HIP_TABLE(X)
#undef X
};

/* An alias of what is not defined does not compile: no row can be forgotten. */
#define X(name, symbol, result, arguments, need, since)                                            \
	static __typeof__(symbol) defined_##symbol __attribute__((alias(#symbol), unused));
HOIST__HIP_TABLE(X)
#undef X

static int default_error(unsigned function)
{
	switch (function) {
	case FN_hipMalloc:
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
};

#define DEVICE_NAME "Emulated HIP device"
#define ARCHITECTURE "gfx942:sramecc+:xnack-"

static EMU_THREAD_LOCAL int current;
static EMU_THREAD_LOCAL int last_error;

/* Every function ends with this. */
static hoist__hip_error leave(int result)
{
	if (result != EMU_SUCCESS)
		last_error = result;
	return (hoist__hip_error)result;
}

static hoist__hip_error leave_free(int result, int forced)
{
	return leave(forced != EMU_SUCCESS ? forced : result);
}

static int enter(unsigned function)
{
	int result = hoist__emu_enter(function);
	return result != EMU_SUCCESS ? result : hoist__emu_init();
}

/* For what works on the thread's current device. */
static int enter_current(unsigned function, struct hoist__emu_device **ret)
{
	int result = enter(function);
	if (result == EMU_SUCCESS)
		*ret = hoist__emu_device(current);
	return result;
}

/* For questions about a device: there must be one, and a place for the answer. */
static int enter_device(unsigned function, int ordinal, const void *ret)
{
	int result = enter(function);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS && hoist__emu_device(ordinal) == NULL)
		result = EMU_INVALID_DEVICE;
	return result;
}

static struct hoist__emu_stream *stream_of(hoist__hip_stream stream)
{
	return (struct hoist__emu_stream *)(void *)stream;
}

static struct hoist__emu_event *event_of(hoist__hip_event event)
{
	return (struct hoist__emu_event *)(void *)event;
}

/* --- the runtime --- */

hoist__hip_error hipRuntimeGetVersion(int *ret)
{
	int result = hoist__emu_enter(FN_hipRuntimeGetVersion);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = 60300000;
	return leave(result);
}

hoist__hip_error hipInit(unsigned int flags)
{
	int result = enter(FN_hipInit);
	return leave(result == EMU_SUCCESS && flags != 0 ? EMU_INVALID_VALUE : result);
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
		if (names[i].code == HOIST__HIP_ERROR_NOT_SUPPORTED)
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
		return leave(result);
	result = last_error;
	last_error = EMU_SUCCESS;
	return (hoist__hip_error)result;
}

/* --- devices --- */

hoist__hip_error hipGetDeviceCount(int *ret)
{
	int result = enter(FN_hipGetDeviceCount);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = hoist__emu.environment.n_devices;
	return leave(result);
}

hoist__hip_error hipDeviceGet(hoist__hip_device *ret, int ordinal)
{
	int result = enter_device(FN_hipDeviceGet, ordinal, ret);
	if (result == EMU_SUCCESS)
		*ret = ordinal;
	return leave(result);
}

hoist__hip_error hipDeviceGetName(char *ret, int bytes, hoist__hip_device device)
{
	int result = enter_device(FN_hipDeviceGetName, device, ret);
	if (result == EMU_SUCCESS && bytes <= 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		(void)snprintf(ret, (size_t)bytes, DEVICE_NAME);
	return leave(result);
}

hoist__hip_error hipDeviceTotalMem(size_t *ret, hoist__hip_device device)
{
	int result = enter_device(FN_hipDeviceTotalMem, device, ret);
	size_t unused = 0;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(hoist__emu_device(device), &unused, ret);
	return leave(result);
}

/* Releases before 7.2, as this one, know none of the attributes hoist asks for. */
hoist__hip_error hipDeviceGetAttribute(int *ret, hoist__hip_attribute attribute, int device)
{
	int result = enter_device(FN_hipDeviceGetAttribute, device, ret);
	(void)attribute;
	return leave(result == EMU_SUCCESS ? EMU_INVALID_VALUE : result);
}

hoist__hip_error hipDeviceGetPCIBusId(char *ret, int bytes, int device)
{
	int result = enter_device(FN_hipDeviceGetPCIBusId, device, ret);
	if (result == EMU_SUCCESS && bytes < 13)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS) /* each device is alone on a bus */
		(void)snprintf(ret, (size_t)bytes, "0000:%02x:00.0", 0x21u + (unsigned)device);
	return leave(result);
}

/* A caller may have the vendor's structure: not a byte behind it is written. */
hoist__hip_error hipGetDevicePropertiesR0600(struct hoist__hip_props_r0600 *ret, int device)
{
	int result = enter_device(FN_hipGetDevicePropertiesR0600, device, ret);
	if (result != EMU_SUCCESS)
		return leave(result);
	memset(ret, 0, HOIST__HIP_R0600_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDeviceProperties(struct hoist__hip_props_r0000 *ret, int device)
{
	int result = enter_device(FN_hipGetDeviceProperties, device, ret);
	if (result != EMU_SUCCESS)
		return leave(result);
	memset(ret, 0, HOIST__HIP_R0000_BYTES);
	(void)snprintf(ret->name, sizeof ret->name, DEVICE_NAME);
	(void)snprintf(ret->architecture, sizeof ret->architecture, ARCHITECTURE);
	return leave(EMU_SUCCESS);
}

hoist__hip_error hipGetDevice(int *ret)
{
	int result = enter(FN_hipGetDevice);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = current;
	return leave(result);
}

hoist__hip_error hipSetDevice(int device)
{
	int result = enter_device(FN_hipSetDevice, device, &current);
	if (result == EMU_SUCCESS)
		current = device;
	return leave(result);
}

/* --- memory --- */

hoist__hip_error hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipMemGetInfo, &device);
	if (result == EMU_SUCCESS && (free_bytes == NULL || total == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		hoist__emu_mem_info(device, free_bytes, total);
	return leave(result);
}

hoist__hip_error hipMalloc(void **ret, size_t bytes)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipMalloc, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && bytes > 0) /* nothing is NULL, and no error */
		result = hoist__emu_alloc(device, bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return leave(result);
}

hoist__hip_error hipFree(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipFree, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_free((uintptr_t)address);
	return leave_free(result, forced);
}

hoist__hip_error hipHostRegister(void *address, size_t bytes, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipHostRegister, &device);
	if (result == EMU_SUCCESS && (flags & ~0xfu) != 0)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_register(address, bytes);
	return leave(result);
}

hoist__hip_error hipHostUnregister(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipHostUnregister, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_unregister(address);
	return leave_free(result, forced);
}

hoist__hip_error hipHostGetDevicePointer(void **ret, void *address, unsigned int flags)
{
	int result = enter(FN_hipHostGetDevicePointer);
	if (result == EMU_SUCCESS && (ret == NULL || flags != 0))
		result = EMU_INVALID_VALUE;
	uintptr_t found = 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_address(address, &found);
	if (result == EMU_SUCCESS)
		*ret = (void *)found;
	return leave(result);
}

/* --- streams --- */

hoist__hip_error hipStreamCreateWithFlags(hoist__hip_stream *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipStreamCreateWithFlags, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > HOIST__HIP_STREAM_NON_BLOCKING))
		result = EMU_INVALID_VALUE;
	struct hoist__emu_stream *stream = NULL;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_create(device, flags == 0, &stream);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_stream)(void *)stream;
	return leave(result);
}

hoist__hip_error hipStreamDestroy(hoist__hip_stream stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipStreamDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_destroy(stream_of(stream));
	return leave_free(result, forced);
}

hoist__hip_error hipStreamSynchronize(hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipStreamSynchronize, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream_of(stream));
	return leave(result);
}

hoist__hip_error hipStreamQuery(hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipStreamQuery, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_query(device, stream_of(stream));
	return leave(result);
}

hoist__hip_error hipStreamWaitEvent(hoist__hip_stream stream, hoist__hip_event event,
				    unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipStreamWaitEvent, &device);
	if (result == EMU_SUCCESS && flags > 1)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_wait(device, event_of(event), stream_of(stream));
	return leave(result);
}

/* --- events --- */

hoist__hip_error hipEventCreateWithFlags(hoist__hip_event *ret, unsigned int flags)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipEventCreateWithFlags, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	struct hoist__emu_event *event = NULL;
	bool timing = (flags & HOIST__HIP_EVENT_DISABLE_TIMING) == 0;
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_create(device, timing, &event);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_event)(void *)event;
	return leave(result);
}

hoist__hip_error hipEventDestroy(hoist__hip_event event)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipEventDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_destroy(event_of(event));
	return leave_free(result, forced);
}

hoist__hip_error hipEventRecord(hoist__hip_event event, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipEventRecord, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_record(device, event_of(event), stream_of(stream));
	return leave(result);
}

hoist__hip_error hipEventQuery(hoist__hip_event event)
{
	int result = enter(FN_hipEventQuery);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_query(event_of(event));
	return leave(result);
}

hoist__hip_error hipEventSynchronize(hoist__hip_event event)
{
	int result = enter(FN_hipEventSynchronize);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_synchronize(event_of(event));
	return leave(result);
}

hoist__hip_error hipEventElapsedTime(float *ret, hoist__hip_event start, hoist__hip_event end)
{
	int result = enter(FN_hipEventElapsedTime);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_elapsed_ms(event_of(start), event_of(end), ret);
	return leave(result);
}

/* --- asynchronous work --- */

static int direction_of(hoist__hip_copy_kind kind, enum hoist__emu_direction *ret)
{
	switch (kind) {
	case HOIST__HIP_COPY_HOST_TO_DEVICE:
		*ret = EMU_TO_DEVICE;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_HOST:
		*ret = EMU_TO_HOST;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_DEVICE:
		*ret = EMU_ON_DEVICE;
		return EMU_SUCCESS;
	default:
		return EMU_INVALID_VALUE;
	}
}

hoist__hip_error hipMemcpyAsync(void *dst, const void *src, size_t bytes, hoist__hip_copy_kind kind,
				hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	int result = enter_current(FN_hipMemcpyAsync, &device);
	if (result == EMU_SUCCESS)
		result = direction_of(kind, &direction);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), direction, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return leave(result);
}

hoist__hip_error hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				    size_t bytes, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipMemcpyPeerAsync, &device);
	if (result == EMU_SUCCESS &&
	    (hoist__emu_device(dst_device) == NULL || hoist__emu_device(src_device) == NULL))
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), EMU_ON_DEVICE, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return leave(result);
}

hoist__hip_error hipMemsetAsync(void *dst, int value, size_t bytes, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_current(FN_hipMemsetAsync, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_memset(device, stream_of(stream), (uintptr_t)dst,
					   (unsigned char)value, bytes);
	return leave(result);
}
