/* SPDX-License-Identifier: MIT */
/* emulator/cuda-device.c - the stand-in for libcuda.so.1: devices, contexts and streams, as
 * programs ask for them that were written for a real driver.  The contract is
 * emulator/cuda-client.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "emulator/cuda-face.h"
#include "emulator/stream.h"

/* --- attributes --- */

/* An emulated device has the attributes of a data-center device, as far as these are figures, and
 * says no to each ability that the stand-in lacks.  The rows are CUdevice_attribute and its value;
 * a number between the rows is 0. */
static const struct {
	unsigned attribute;
	int value;
} attributes[] = {
	{1, 1024}, /* threads of a block */
	{2, 1024}, /* extents of a block */
	{3, 1024},
	{4, 64},
	{5, 0x7fffffff}, /* extents of a grid */
	{6, 65535},
	{7, 65535},
	{8, 48 << 10}, /* shared memory of a block */
	{9, 64 << 10}, /* constant memory */
	{10, 32},      /* threads of a warp */
	{11, (int)EMU_MAX_PITCH},
	{12, 65536},	/* registers of a block */
	{13, 1980000},	/* clock, kHz */
	{14, 512},	/* alignment of textures */
	{15, 1},	/* copies beside kernels */
	{16, 132},	/* multiprocessors */
	{19, 1},	/* maps host memory */
	{30, 512},	/* alignment of surfaces */
	{31, 1},	/* kernels side by side */
	{32, 1},	/* ECC */
	{36, 2619000},	/* clock of the memory, kHz */
	{37, 5120},	/* bits of the memory's bus */
	{38, 50 << 20}, /* L2 cache */
	{39, 2048},	/* threads of a multiprocessor */
	{40, 3},	/* copy engines */
	{41, 1},	/* one address space */
	{51, 32},	/* pitch of textures */
	{75, 9},	/* compute capability 9.0 */
	{78, 1},	/* priorities of streams */
	{79, 1},	/* L1 caches */
	{80, 1},
	{81, 228 << 10}, /* shared memory of a multiprocessor */
	{82, 65536},	 /* registers of a multiprocessor */
	{83, 1},	 /* managed memory */
	{87, 2},	 /* single beside double precision */
	{89, 1},	 /* the host touches managed memory while kernels run */
	{90, 1},	 /* preemption */
	{91, 1},	 /* registered memory has one address */
	{97, 227 << 10}, /* shared memory of a block, if asked for */
	{99, 1},	 /* registration of host memory */
	{102, 1},	 /* virtual memory */
	{106, 32},	 /* blocks of a multiprocessor */
	{111, 1 << 10},	 /* shared memory that the driver takes */
	{113, 1},	 /* registration of memory that is mapped for reading only */
	{115, 1},	 /* pools */
	{119, 1},	 /* pools go to other processes as file descriptors */
	{126, 1},	 /* domains of memory */
	{131, -1},	 /* the device is no NUMA node */
	{134, -1},	 /* on no node in particular */
	{142, 1},	 /* pools of the host's memory, of a node's too */
	{144, 1},
};
#define LAST_ATTRIBUTE 148

bool hoist__emu_cuda_attribute(hoist__cu_attribute attribute, int *ret)
{
	if (attribute < 1 || attribute > LAST_ATTRIBUTE)
		return false;
	*ret = 0;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(attributes); i++)
		if (attributes[i].attribute == attribute)
			*ret = attributes[i].value;
	return true;
}

/* --- devices --- */

static hoist__cu_result get_uuid(unsigned function, struct emu_cu_uuid *ret, int ordinal)
{
	int result = enter_device(function, ordinal, ret);
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	*ret = (struct emu_cu_uuid){"emulated device"};
	ret->bytes[15] = (unsigned char)ordinal;
	return EMU_SUCCESS;
}

hoist__cu_result cuDeviceGetUuid(struct emu_cu_uuid *ret, hoist__cu_device ordinal)
{
	return get_uuid(FN_cuDeviceGetUuid, ret, ordinal);
}

hoist__cu_result cuDeviceGetUuid_v2(struct emu_cu_uuid *ret, hoist__cu_device ordinal)
{
	return get_uuid(FN_cuDeviceGetUuid_v2, ret, ordinal);
}

hoist__cu_result cuDeviceGetByPCIBusId(hoist__cu_device *ret, const char *text)
{
	int result = hoist__emu_face_enter(FN_cuDeviceGetByPCIBusId);
	unsigned domain = 0, bus = 0, device = 0, function = 0;
	if (result == EMU_SUCCESS && (ret == NULL || text == NULL))
		result = EMU_INVALID_VALUE;
	if (result != EMU_SUCCESS)
		return (hoist__cu_result)result;
	/* The manual's forms: domain:bus:device.function, domain:bus:device, bus:device.function.
	 */
	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
		domain = 0;
		if (sscanf(text, "%x:%x.%x", &bus, &device, &function) != 3)
			return EMU_INVALID_VALUE;
	}
	int ordinal = (int)(bus & 0xff) - EMU_CU_FIRST_BUS;
	if (bus > 0xff || domain != 0 || device != 0 || function != 0 ||
	    hoist__emu_device(ordinal) == NULL)
		return EMU_INVALID_DEVICE;
	*ret = ordinal;
	return EMU_SUCCESS;
}

/* --- primary contexts --- */

hoist__cu_result cuDevicePrimaryCtxRelease_v2(hoist__cu_device ordinal)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_cuDevicePrimaryCtxRelease_v2, &forced);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	if (result == EMU_SUCCESS && !hoist__emu_cuda_ready())
		result = EMU_NOT_INITIALIZED;
	if (result == EMU_SUCCESS && device == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS) {
		hoist__emu_lock();
		if (device->retained == 0)
			result = EMU_INVALID_CONTEXT;
		else if (--device->retained == 0)
			hoist__emu.count.live_contexts--;
		hoist__emu_unlock();
	}
	return leave_free(result, forced);
}

/* How the host waits (one of four ways), and four more bits. */
hoist__cu_result cuDevicePrimaryCtxSetFlags_v2(hoist__cu_device ordinal, unsigned int flags)
{
	int result = hoist__emu_face_enter(FN_cuDevicePrimaryCtxSetFlags_v2);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	unsigned wait = flags & 7u;
	if (result == EMU_SUCCESS && device == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS && ((flags & ~0xffu) != 0 || (wait & (wait - 1)) != 0))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS) {
		hoist__emu_lock();
		device->flags = flags;
		hoist__emu_unlock();
	}
	return (hoist__cu_result)result;
}

/* --- contexts --- */

hoist__cu_result cuCtxGetDevice(hoist__cu_device *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxGetDevice, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = device->ordinal;
	return (hoist__cu_result)result;
}

/* Enters a function that is told a context; NULL: the current one. */
static int enter_context(unsigned function, hoist__cu_context context,
			 struct hoist__emu_device **ret)
{
	if (context == NULL)
		return hoist__emu_face_enter_current(function, ret);
	int result = hoist__emu_face_enter(function);
	if (result == EMU_SUCCESS && (*ret = hoist__emu_cuda_context_device(context)) == NULL)
		result = EMU_INVALID_CONTEXT;
	return result;
}

hoist__cu_result cuCtxGetDevice_v2(hoist__cu_device *ret, hoist__cu_context context)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_context(FN_cuCtxGetDevice_v2, context, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = device->ordinal;
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxSynchronize_v2(hoist__cu_context context)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_context(FN_cuCtxSynchronize_v2, context, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_device_synchronize(device);
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxGetFlags(unsigned int *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxGetFlags, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = device->flags;
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxGetId(hoist__cu_context context, unsigned long long *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_context(FN_cuCtxGetId, context, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = 1 + (unsigned long long)device->ordinal;
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxGetApiVersion(hoist__cu_context context, unsigned int *ret)
{
	struct hoist__emu_device *device = NULL;
	int result = enter_context(FN_cuCtxGetApiVersion, context, &device);
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		*ret = 3020;
	return (hoist__cu_result)result;
}

hoist__cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuCtxGetStreamPriorityRange, &device);
	if (result == EMU_SUCCESS && least != NULL)
		*least = EMU_CU_PRIORITY_LEAST;
	if (result == EMU_SUCCESS && greatest != NULL)
		*greatest = EMU_CU_PRIORITY_GREATEST;
	return (hoist__cu_result)result;
}
