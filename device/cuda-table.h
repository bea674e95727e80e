/* SPDX-License-Identifier: MIT */
/* device/cuda-table.h - every CUDA driver function that hoist calls, once.
 *
 *   X(name, symbol, result, (arguments), need, since)
 *
 *   name      as in NVIDIA's manual, and the member of the table in cuda.h
 *   symbol    what libcuda.so.1 exports: cuda.h renames with macros, dlsym does
 *             not.  An unsuffixed symbol beside a _v2 takes 32-bit sizes
 *   need      REQUIRED: a driver without the symbol is refused; OPTIONAL: the
 *             member is NULL without it, and its caller does without
 *   since     the first driver version with the symbol, as cuDriverGetVersion()
 *             encodes versions (1000 * major + 10 * minor)
 *
 * Used by cuda.h (the members), cuda-open.c (what to load), cuda-abi.c
 * (compared with cuda.h) and emulator/ (declares the stand-ins it defines):
 *
 *   #define X(name, symbol, result, arguments, need, since) result symbol arguments;
 */
#ifndef HOIST_DEVICE_CUDA_TABLE_H
#define HOIST_DEVICE_CUDA_TABLE_H

#include "device/cuda-types.h"

/* The oldest driver hoist accepts: the newest REQUIRED row. */
#define HOIST__CUDA_SINCE 7000

/* cuEventElapsedTime stays unsuffixed: its _v2 (12.8) only adds an answer for
 * events of different contexts. */
#define HOIST__CUDA_TABLE(X)                                                                       \
	/* The driver. */                                                                          \
	X(cuDriverGetVersion, cuDriverGetVersion, hoist__cu_result, (int *), REQUIRED, 2020)       \
	X(cuInit, cuInit, hoist__cu_result, (unsigned int), REQUIRED, 2000)                        \
	X(cuGetErrorName, cuGetErrorName, hoist__cu_result, (hoist__cu_result, const char **),     \
	  REQUIRED, 6000)                                                                          \
	X(cuGetErrorString, cuGetErrorString, hoist__cu_result, (hoist__cu_result, const char **), \
	  REQUIRED, 6000)                                                                          \
	/* Devices. */                                                                             \
	X(cuDeviceGetCount, cuDeviceGetCount, hoist__cu_result, (int *), REQUIRED, 2000)           \
	X(cuDeviceGet, cuDeviceGet, hoist__cu_result, (hoist__cu_device *, int), REQUIRED, 2000)   \
	X(cuDeviceGetName, cuDeviceGetName, hoist__cu_result, (char *, int, hoist__cu_device),     \
	  REQUIRED, 2000)                                                                          \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, hoist__cu_result, (size_t *, hoist__cu_device),   \
	  REQUIRED, 3020)                                                                          \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, hoist__cu_result,                            \
	  (int *, hoist__cu_attribute, hoist__cu_device), REQUIRED, 2000)                          \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, hoist__cu_result,                              \
	  (char *, int, hoist__cu_device), REQUIRED, 4010)                                         \
	/* Contexts.  The primary one is retained and never released. */                           \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, hoist__cu_result,                    \
	  (hoist__cu_context *, hoist__cu_device), REQUIRED, 7000)                                 \
	X(cuCtxGetCurrent, cuCtxGetCurrent, hoist__cu_result, (hoist__cu_context *), REQUIRED,     \
	  4000)                                                                                    \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, hoist__cu_result, (hoist__cu_context), REQUIRED,  \
	  4000)                                                                                    \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, hoist__cu_result, (hoist__cu_context *), REQUIRED,  \
	  4000)                                                                                    \
	/* Questions about devices and addresses, and waiting for a whole device. */               \
	X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, hoist__cu_result,                          \
	  (int *, hoist__cu_device, hoist__cu_device), REQUIRED, 4000)                             \
	X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, hoist__cu_result,                          \
	  (hoist__cu_context, unsigned int), REQUIRED, 4000)                                       \
	X(cuPointerGetAttributes, cuPointerGetAttributes, hoist__cu_result,                        \
	  (unsigned int, hoist__cu_pointer_attribute *, void **, hoist__cu_device_ptr), REQUIRED,  \
	  7000)                                                                                    \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, hoist__cu_result,                \
	  (hoist__cu_device, unsigned int *, int *), REQUIRED, 7000)                               \
	X(cuCtxSynchronize, cuCtxSynchronize, hoist__cu_result, (void), REQUIRED, 2000)            \
	/* Memory. */                                                                              \
	X(cuMemGetInfo, cuMemGetInfo_v2, hoist__cu_result, (size_t *, size_t *), REQUIRED, 3020)   \
	X(cuMemAlloc, cuMemAlloc_v2, hoist__cu_result, (hoist__cu_device_ptr *, size_t), REQUIRED, \
	  3020)                                                                                    \
	X(cuMemFree, cuMemFree_v2, hoist__cu_result, (hoist__cu_device_ptr), REQUIRED, 3020)       \
	X(cuMemHostRegister, cuMemHostRegister_v2, hoist__cu_result,                               \
	  (void *, size_t, unsigned int), REQUIRED, 6050)                                          \
	X(cuMemHostUnregister, cuMemHostUnregister, hoist__cu_result, (void *), REQUIRED, 4000)    \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, hoist__cu_result,               \
	  (hoist__cu_device_ptr *, void *, unsigned int), REQUIRED, 3020)                          \
	X(cuMemAllocManaged, cuMemAllocManaged, hoist__cu_result,                                  \
	  (hoist__cu_device_ptr *, size_t, unsigned int), OPTIONAL, 6000)                          \
	X(cuMemAdvise_v2, cuMemAdvise_v2, hoist__cu_result,                                        \
	  (hoist__cu_device_ptr, size_t, hoist__cu_advice, struct hoist__cu_location), OPTIONAL,   \
	  12020)                                                                                   \
	/* The driver's own pools. */                                                              \
	X(cuDeviceGetMemPool, cuDeviceGetMemPool, hoist__cu_result,                                \
	  (hoist__cu_pool *, hoist__cu_device), OPTIONAL, 11020)                                   \
	X(cuMemPoolCreate, cuMemPoolCreate, hoist__cu_result,                                      \
	  (hoist__cu_pool *, const struct hoist__cu_pool_props *), OPTIONAL, 11020)                \
	X(cuMemPoolDestroy, cuMemPoolDestroy, hoist__cu_result, (hoist__cu_pool), OPTIONAL, 11020) \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, hoist__cu_result, (hoist__cu_pool, size_t), OPTIONAL,  \
	  11020)                                                                                   \
	X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, hoist__cu_result,                          \
	  (hoist__cu_pool, hoist__cu_pool_attribute, void *), OPTIONAL, 11020)                     \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, hoist__cu_result,                          \
	  (hoist__cu_pool, hoist__cu_pool_attribute, void *), OPTIONAL, 11020)                     \
	X(cuMemPoolSetAccess, cuMemPoolSetAccess, hoist__cu_result,                                \
	  (hoist__cu_pool, const struct hoist__cu_access *, size_t), OPTIONAL, 11020)              \
	X(cuMemPoolGetAccess, cuMemPoolGetAccess, hoist__cu_result,                                \
	  (hoist__cu_access_flags *, hoist__cu_pool, struct hoist__cu_location *), OPTIONAL,       \
	  11020)                                                                                   \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, hoist__cu_result,                      \
	  (hoist__cu_device_ptr *, size_t, hoist__cu_pool, hoist__cu_stream), OPTIONAL, 11020)     \
	X(cuMemFreeAsync, cuMemFreeAsync, hoist__cu_result,                                        \
	  (hoist__cu_device_ptr, hoist__cu_stream), OPTIONAL, 11020)                               \
	/* Memory of graphs: allocated while a stream captures. */                                 \
	X(cuMemAllocAsync, cuMemAllocAsync, hoist__cu_result,                                      \
	  (hoist__cu_device_ptr *, size_t, hoist__cu_stream), OPTIONAL, 11020)                     \
	X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, hoist__cu_result, (hoist__cu_device),        \
	  OPTIONAL, 11040)                                                                         \
	X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, hoist__cu_result,            \
	  (hoist__cu_device, hoist__cu_graph_attribute, void *), OPTIONAL, 11040)                  \
	X(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, hoist__cu_result,            \
	  (hoist__cu_device, hoist__cu_graph_attribute, void *), OPTIONAL, 11040)                  \
	/* Virtual memory. */                                                                      \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, hoist__cu_result,          \
	  (size_t *, const struct hoist__cu_memory_props *, hoist__cu_granularity), OPTIONAL,      \
	  10020)                                                                                   \
	X(cuMemAddressReserve, cuMemAddressReserve, hoist__cu_result,                              \
	  (hoist__cu_device_ptr *, size_t, size_t, hoist__cu_device_ptr, unsigned long long),      \
	  OPTIONAL, 10020)                                                                         \
	X(cuMemAddressFree, cuMemAddressFree, hoist__cu_result, (hoist__cu_device_ptr, size_t),    \
	  OPTIONAL, 10020)                                                                         \
	X(cuMemCreate, cuMemCreate, hoist__cu_result,                                              \
	  (hoist__cu_memory *, size_t, const struct hoist__cu_memory_props *, unsigned long long), \
	  OPTIONAL, 10020)                                                                         \
	X(cuMemRelease, cuMemRelease, hoist__cu_result, (hoist__cu_memory), OPTIONAL, 10020)       \
	X(cuMemMap, cuMemMap, hoist__cu_result,                                                    \
	  (hoist__cu_device_ptr, size_t, size_t, hoist__cu_memory, unsigned long long), OPTIONAL,  \
	  10020)                                                                                   \
	X(cuMemUnmap, cuMemUnmap, hoist__cu_result, (hoist__cu_device_ptr, size_t), OPTIONAL,      \
	  10020)                                                                                   \
	X(cuMemSetAccess, cuMemSetAccess, hoist__cu_result,                                        \
	  (hoist__cu_device_ptr, size_t, const struct hoist__cu_access *, size_t), OPTIONAL,       \
	  10020)                                                                                   \
	/* Sharing between processes. */                                                           \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, hoist__cu_result,                         \
	  (hoist__cu_device_ptr *, size_t *, hoist__cu_device_ptr), OPTIONAL, 3020)                \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, hoist__cu_result,                                  \
	  (hoist__cu_ipc_handle *, hoist__cu_device_ptr), OPTIONAL, 4010)                          \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, hoist__cu_result,                             \
	  (hoist__cu_device_ptr *, hoist__cu_ipc_handle, unsigned int), OPTIONAL, 11000)           \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, hoist__cu_result, (hoist__cu_device_ptr),      \
	  OPTIONAL, 4010)                                                                          \
	X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, hoist__cu_result,    \
	  (void *, hoist__cu_pool, hoist__cu_handle_type, hoist__cu_handle_flags), OPTIONAL,       \
	  11020)                                                                                   \
	X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle,                  \
	  hoist__cu_result,                                                                        \
	  (hoist__cu_pool *, void *, hoist__cu_handle_type, hoist__cu_handle_flags), OPTIONAL,     \
	  11020)                                                                                   \
	X(cuMemPoolExportPointer, cuMemPoolExportPointer, hoist__cu_result,                        \
	  (hoist__cu_block_handle *, hoist__cu_device_ptr), OPTIONAL, 11020)                       \
	X(cuMemPoolImportPointer, cuMemPoolImportPointer, hoist__cu_result,                        \
	  (hoist__cu_device_ptr *, hoist__cu_pool, hoist__cu_block_handle *), OPTIONAL, 11020)     \
	/* Streams. */                                                                             \
	X(cuStreamCreate, cuStreamCreate, hoist__cu_result, (hoist__cu_stream *, unsigned int),    \
	  REQUIRED, 2000)                                                                          \
	X(cuStreamDestroy, cuStreamDestroy_v2, hoist__cu_result, (hoist__cu_stream), REQUIRED,     \
	  4000)                                                                                    \
	X(cuStreamSynchronize, cuStreamSynchronize, hoist__cu_result, (hoist__cu_stream),          \
	  REQUIRED, 2000)                                                                          \
	X(cuStreamQuery, cuStreamQuery, hoist__cu_result, (hoist__cu_stream), REQUIRED, 2000)      \
	X(cuStreamWaitEvent, cuStreamWaitEvent, hoist__cu_result,                                  \
	  (hoist__cu_stream, hoist__cu_event, unsigned int), REQUIRED, 3020)                       \
	/* Capture: the calls a thread may make while any stream captures a graph. */              \
	X(cuStreamIsCapturing, cuStreamIsCapturing, hoist__cu_result,                              \
	  (hoist__cu_stream, hoist__cu_capture_status *), OPTIONAL, 10000)                         \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, hoist__cu_result,  \
	  (hoist__cu_capture_mode *), OPTIONAL, 10010)                                             \
	/* Events. */                                                                              \
	X(cuEventCreate, cuEventCreate, hoist__cu_result, (hoist__cu_event *, unsigned int),       \
	  REQUIRED, 2000)                                                                          \
	X(cuEventDestroy, cuEventDestroy_v2, hoist__cu_result, (hoist__cu_event), REQUIRED, 4000)  \
	X(cuEventRecord, cuEventRecord, hoist__cu_result, (hoist__cu_event, hoist__cu_stream),     \
	  REQUIRED, 2000)                                                                          \
	X(cuEventQuery, cuEventQuery, hoist__cu_result, (hoist__cu_event), REQUIRED, 2000)         \
	X(cuEventSynchronize, cuEventSynchronize, hoist__cu_result, (hoist__cu_event), REQUIRED,   \
	  2000)                                                                                    \
	X(cuEventElapsedTime, cuEventElapsedTime, hoist__cu_result,                                \
	  (float *, hoist__cu_event, hoist__cu_event), REQUIRED, 2000)                             \
	/* Asynchronous work. */                                                                   \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, hoist__cu_result,                               \
	  (hoist__cu_device_ptr, const void *, size_t, hoist__cu_stream), REQUIRED, 3020)          \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, hoist__cu_result,                               \
	  (void *, hoist__cu_device_ptr, size_t, hoist__cu_stream), REQUIRED, 3020)                \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, hoist__cu_result,                               \
	  (hoist__cu_device_ptr, hoist__cu_device_ptr, size_t, hoist__cu_stream), REQUIRED, 3020)  \
	X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, hoist__cu_result,                                  \
	  (hoist__cu_device_ptr, hoist__cu_context, hoist__cu_device_ptr, hoist__cu_context,       \
	   size_t, hoist__cu_stream),                                                              \
	  REQUIRED, 4000)                                                                          \
	X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, hoist__cu_result,                                   \
	  (const struct hoist__cu_copy_2d *, hoist__cu_stream), REQUIRED, 3020)                    \
	X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, hoist__cu_result,                                   \
	  (const struct hoist__cu_copy_3d *, hoist__cu_stream), REQUIRED, 3020)                    \
	X(cuLaunchHostFunc, cuLaunchHostFunc, hoist__cu_result,                                    \
	  (hoist__cu_stream, hoist__cu_host_function, void *), OPTIONAL, 10000)                    \
	X(cuMemsetD8Async, cuMemsetD8Async, hoist__cu_result,                                      \
	  (hoist__cu_device_ptr, unsigned char, size_t, hoist__cu_stream), REQUIRED, 3020)         \
	X(cuMemsetD16Async, cuMemsetD16Async, hoist__cu_result,                                    \
	  (hoist__cu_device_ptr, unsigned short, size_t, hoist__cu_stream), REQUIRED, 3020)        \
	X(cuMemsetD32Async, cuMemsetD32Async, hoist__cu_result,                                    \
	  (hoist__cu_device_ptr, unsigned int, size_t, hoist__cu_stream), REQUIRED, 3020)

#endif
