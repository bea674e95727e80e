/* SPDX-License-Identifier: MIT */
/* emulator/cuda-client.h - what the stand-in for libcuda.so.1 answers beside the functions that
 * hoist calls, for programs that were written for a real driver.
 *
 *   EMU_CUDA_CLIENT_TABLE   functions with rows as in device/cuda-table.h: made here, counted, and
 *                           made to fail, as hoist's own are
 *   cuda-absent.h           the driver's other functions, which all answer NOT_SUPPORTED
 *   _ptsz, _ptds            cuda-thread.c: the same functions, for which the NULL stream is the
 *                           calling thread's own
 *
 * `since` is the version of the driver that first had the symbol: cuGetProcAddress() goes by it.
 */
#ifndef HOIST_EMULATOR_CUDA_CLIENT_H
#define HOIST_EMULATOR_CUDA_CLIENT_H

#include <stdint.h>

#include "device/cuda-types.h"

/* The stand-in's own version: it has no symbol that came later. */
#define EMU_CUDA_VERSION 13000

/* The PCI bus of the first device; each device has one of its own. */
#define EMU_CU_FIRST_BUS 0xa1

struct emu_cu_uuid { /* CUuuid */
	unsigned char bytes[16];
};

/* CUdriverProcAddressQueryResult, and the flags of cuGetProcAddress(). */
enum { EMU_CU_FOUND, EMU_CU_NO_SYMBOL, EMU_CU_NO_VERSION };
#define EMU_CU_LEGACY_STREAM 1u
#define EMU_CU_STREAM_OF_THREAD 2u

/* Streams have these priorities; the lowest number goes first on a device. */
#define EMU_CU_PRIORITY_LEAST 0
#define EMU_CU_PRIORITY_GREATEST (-5)

/* CUdevice_attribute and CUpointer_attribute, where hoist itself has no name for them. */
enum {
	EMU_CU_POINTER_CONTEXT = 1,
	EMU_CU_POINTER_HOST = 4,
	EMU_CU_POINTER_START = 11,
	EMU_CU_POINTER_SIZE = 12,
	EMU_CU_POINTER_MAPPED = 13,
	EMU_CU_POINTER_POOL = 17,
	EMU_CU_POINTER_LAST = 20
};

/* CU_MEM_ALLOCATION_TYPE_MANAGED, of pools since 13.0; CU_MEM_LOCATION_TYPE_NONE. */
#define EMU_CU_ALLOCATION_MANAGED 2u
#define EMU_CU_LOCATION_NONE 0u

#define EMU_CUDA_CLIENT_TABLE(X)                                                                   \
	/* Addresses of functions. */                                                              \
	X(cuGetProcAddress, cuGetProcAddress, hoist__cu_result,                                    \
	  (const char *, void **, int, uint64_t), OPTIONAL, 11030)                                 \
	X(cuGetProcAddress, cuGetProcAddress_v2, hoist__cu_result,                                 \
	  (const char *, void **, int, uint64_t, int *), OPTIONAL, 12000)                          \
	/* Devices and contexts. */                                                                \
	X(cuDeviceGetUuid, cuDeviceGetUuid, hoist__cu_result,                                      \
	  (struct emu_cu_uuid *, hoist__cu_device), OPTIONAL, 9020)                                \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, hoist__cu_result,                                   \
	  (struct emu_cu_uuid *, hoist__cu_device), OPTIONAL, 11040)                               \
	X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, hoist__cu_result,                          \
	  (hoist__cu_device *, const char *), OPTIONAL, 4010)                                      \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, hoist__cu_result,               \
	  (hoist__cu_device), OPTIONAL, 11000)                                                     \
	X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, hoist__cu_result,             \
	  (hoist__cu_device, unsigned int), OPTIONAL, 11000)                                       \
	X(cuCtxSetCurrent, cuCtxSetCurrent, hoist__cu_result, (hoist__cu_context), OPTIONAL, 4000) \
	X(cuCtxGetDevice, cuCtxGetDevice, hoist__cu_result, (hoist__cu_device *), OPTIONAL, 2000)  \
	X(cuCtxGetDevice, cuCtxGetDevice_v2, hoist__cu_result,                                     \
	  (hoist__cu_device *, hoist__cu_context), OPTIONAL, 13000)                                \
	X(cuCtxGetFlags, cuCtxGetFlags, hoist__cu_result, (unsigned int *), OPTIONAL, 7000)        \
	X(cuCtxGetId, cuCtxGetId, hoist__cu_result, (hoist__cu_context, unsigned long long *),     \
	  OPTIONAL, 12000)                                                                         \
	X(cuCtxGetApiVersion, cuCtxGetApiVersion, hoist__cu_result,                                \
	  (hoist__cu_context, unsigned int *), OPTIONAL, 3020)                                     \
	X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, hoist__cu_result,              \
	  (int *, int *), OPTIONAL, 5050)                                                          \
	X(cuCtxSynchronize, cuCtxSynchronize_v2, hoist__cu_result, (hoist__cu_context), OPTIONAL,  \
	  13000)                                                                                   \
	X(cuPointerGetAttribute, cuPointerGetAttribute, hoist__cu_result,                          \
	  (void *, hoist__cu_pointer_attribute, hoist__cu_device_ptr), OPTIONAL, 4000)             \
	/* Pinned memory that the driver allocates. */                                             \
	X(cuMemAllocHost, cuMemAllocHost_v2, hoist__cu_result, (void **, size_t), OPTIONAL, 3020)  \
	X(cuMemHostAlloc, cuMemHostAlloc, hoist__cu_result, (void **, size_t, unsigned int),       \
	  OPTIONAL, 2020)                                                                          \
	X(cuMemFreeHost, cuMemFreeHost, hoist__cu_result, (void *), OPTIONAL, 2000)                \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, hoist__cu_result,              \
	  (hoist__cu_memory *, void *), OPTIONAL, 11000)                                           \
	/* Pools of the process. */                                                                \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, hoist__cu_result,                  \
	  (hoist__cu_pool *, hoist__cu_device), OPTIONAL, 11020)                                   \
	X(cuDeviceSetMemPool, cuDeviceSetMemPool, hoist__cu_result,                                \
	  (hoist__cu_device, hoist__cu_pool), OPTIONAL, 11020)                                     \
	X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, hoist__cu_result,                        \
	  (hoist__cu_pool *, struct hoist__cu_location *, unsigned int), OPTIONAL, 13000)          \
	X(cuMemGetMemPool, cuMemGetMemPool, hoist__cu_result,                                      \
	  (hoist__cu_pool *, struct hoist__cu_location *, unsigned int), OPTIONAL, 13000)          \
	/* Streams and events. */                                                                  \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, hoist__cu_result,                \
	  (hoist__cu_stream *, unsigned int, int), OPTIONAL, 5050)                                 \
	X(cuStreamGetPriority, cuStreamGetPriority, hoist__cu_result, (hoist__cu_stream, int *),   \
	  OPTIONAL, 5050)                                                                          \
	X(cuStreamGetFlags, cuStreamGetFlags, hoist__cu_result,                                    \
	  (hoist__cu_stream, unsigned int *), OPTIONAL, 5050)                                      \
	X(cuStreamGetId, cuStreamGetId, hoist__cu_result,                                          \
	  (hoist__cu_stream, unsigned long long *), OPTIONAL, 12000)                               \
	X(cuStreamGetCtx, cuStreamGetCtx, hoist__cu_result,                                        \
	  (hoist__cu_stream, hoist__cu_context *), OPTIONAL, 9020)                                 \
	X(cuStreamGetDevice, cuStreamGetDevice, hoist__cu_result,                                  \
	  (hoist__cu_stream, hoist__cu_device *), OPTIONAL, 12080)                                 \
	X(cuEventElapsedTime, cuEventElapsedTime_v2, hoist__cu_result,                             \
	  (float *, hoist__cu_event, hoist__cu_event), OPTIONAL, 12080)                            \
	/* Copies and fills. */                                                                    \
	X(cuMemcpy, cuMemcpy, hoist__cu_result,                                                    \
	  (hoist__cu_device_ptr, hoist__cu_device_ptr, size_t), OPTIONAL, 4000)                    \
	X(cuMemcpyAsync, cuMemcpyAsync, hoist__cu_result,                                          \
	  (hoist__cu_device_ptr, hoist__cu_device_ptr, size_t, hoist__cu_stream), OPTIONAL, 4000)  \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, hoist__cu_result,                                         \
	  (hoist__cu_device_ptr, const void *, size_t), OPTIONAL, 3020)                            \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, hoist__cu_result, (void *, hoist__cu_device_ptr, size_t), \
	  OPTIONAL, 3020)                                                                          \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2, hoist__cu_result,                                         \
	  (hoist__cu_device_ptr, hoist__cu_device_ptr, size_t), OPTIONAL, 3020)                    \
	X(cuMemsetD8, cuMemsetD8_v2, hoist__cu_result,                                             \
	  (hoist__cu_device_ptr, unsigned char, size_t), OPTIONAL, 3020)                           \
	X(cuMemsetD16, cuMemsetD16_v2, hoist__cu_result,                                           \
	  (hoist__cu_device_ptr, unsigned short, size_t), OPTIONAL, 3020)                          \
	X(cuMemsetD32, cuMemsetD32_v2, hoist__cu_result,                                           \
	  (hoist__cu_device_ptr, unsigned int, size_t), OPTIONAL, 3020)

#endif
