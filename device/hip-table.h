/* SPDX-License-Identifier: MIT */
/* device/hip-table.h - every HIP runtime function that hoist calls, once.
 *
 *   X(name, symbol, result, (arguments), need, since)
 *
 * The columns are those of cuda-table.h; `since` is encoded as by
 * hipRuntimeGetVersion() (10000000 * major + 100000 * minor + patch).
 * The HIP runtime API is used where it and the driver-like API overlap: its
 * prototypes are the same in ROCm 5, 6 and 7 (hipMemcpyHtoDAsync's are not).
 */
#ifndef HOIST_DEVICE_HIP_TABLE_H
#define HOIST_DEVICE_HIP_TABLE_H

#include "device/hip-types.h"

/* The oldest runtime hoist accepts: ROCm 5. */
#define HOIST__HIP_SINCE 50000000

#define HOIST__HIP_TABLE(X)                                                                        \
	/* The runtime. */                                                                         \
	X(hipRuntimeGetVersion, hipRuntimeGetVersion, hoist__hip_error, (int *), REQUIRED,         \
	  50000000)                                                                                \
	X(hipInit, hipInit, hoist__hip_error, (unsigned int), REQUIRED, 50000000)                  \
	X(hipGetErrorName, hipGetErrorName, const char *, (hoist__hip_error), REQUIRED, 50000000)  \
	X(hipGetErrorString, hipGetErrorString, const char *, (hoist__hip_error), REQUIRED,        \
	  50000000)                                                                                \
	X(hipGetLastError, hipGetLastError, hoist__hip_error, (void), REQUIRED, 50000000)          \
	/* Devices. */                                                                             \
	X(hipGetDeviceCount, hipGetDeviceCount, hoist__hip_error, (int *), REQUIRED, 50000000)     \
	X(hipDeviceGet, hipDeviceGet, hoist__hip_error, (hoist__hip_device *, int), REQUIRED,      \
	  50000000)                                                                                \
	X(hipDeviceGetName, hipDeviceGetName, hoist__hip_error, (char *, int, hoist__hip_device),  \
	  REQUIRED, 50000000)                                                                      \
	X(hipDeviceTotalMem, hipDeviceTotalMem, hoist__hip_error, (size_t *, hoist__hip_device),   \
	  REQUIRED, 50000000)                                                                      \
	X(hipDeviceGetAttribute, hipDeviceGetAttribute, hoist__hip_error,                          \
	  (int *, hoist__hip_attribute, int), REQUIRED, 50000000)                                  \
	X(hipDeviceGetPCIBusId, hipDeviceGetPCIBusId, hoist__hip_error, (char *, int, int),        \
	  REQUIRED, 50000000)                                                                      \
	X(hipGetDevicePropertiesR0600, hipGetDevicePropertiesR0600, hoist__hip_error,              \
	  (struct hoist__hip_props_r0600 *, int), OPTIONAL, 60000000)                              \
	X(hipGetDevicePropertiesR0000, hipGetDeviceProperties, hoist__hip_error,                   \
	  (struct hoist__hip_props_r0000 *, int), OPTIONAL, 50000000)                              \
	/* The calling thread's current device. */                                                 \
	X(hipGetDevice, hipGetDevice, hoist__hip_error, (int *), REQUIRED, 50000000)               \
	X(hipSetDevice, hipSetDevice, hoist__hip_error, (int), REQUIRED, 50000000)                 \
	/* Questions about devices and addresses, and waiting for a whole device. */               \
	X(hipDeviceCanAccessPeer, hipDeviceCanAccessPeer, hoist__hip_error, (int *, int, int),     \
	  REQUIRED, 50000000)                                                                      \
	X(hipDeviceEnablePeerAccess, hipDeviceEnablePeerAccess, hoist__hip_error,                  \
	  (int, unsigned int), REQUIRED, 50000000)                                                 \
	X(hipPointerGetAttributes, hipPointerGetAttributes, hoist__hip_error,                      \
	  (struct hoist__hip_pointer_attributes *, const void *), REQUIRED, 50000000)              \
	X(hipDeviceSynchronize, hipDeviceSynchronize, hoist__hip_error, (void), REQUIRED,          \
	  50000000)                                                                                \
	/* Memory. */                                                                              \
	X(hipMemGetInfo, hipMemGetInfo, hoist__hip_error, (size_t *, size_t *), REQUIRED,          \
	  50000000)                                                                                \
	X(hipMalloc, hipMalloc, hoist__hip_error, (void **, size_t), REQUIRED, 50000000)           \
	X(hipFree, hipFree, hoist__hip_error, (void *), REQUIRED, 50000000)                        \
	X(hipHostRegister, hipHostRegister, hoist__hip_error, (void *, size_t, unsigned int),      \
	  REQUIRED, 50000000)                                                                      \
	X(hipHostUnregister, hipHostUnregister, hoist__hip_error, (void *), REQUIRED, 50000000)    \
	X(hipHostGetDevicePointer, hipHostGetDevicePointer, hoist__hip_error,                      \
	  (void **, void *, unsigned int), REQUIRED, 50000000)                                     \
	X(hipMallocManaged, hipMallocManaged, hoist__hip_error, (void **, size_t, unsigned int),   \
	  OPTIONAL, 50000000)                                                                      \
	X(hipMemAdvise, hipMemAdvise, hoist__hip_error,                                            \
	  (const void *, size_t, hoist__hip_advice, int), OPTIONAL, 50000000)                      \
	/* The runtime's own pools. */                                                             \
	X(hipDeviceGetMemPool, hipDeviceGetMemPool, hoist__hip_error, (hoist__hip_pool *, int),    \
	  OPTIONAL, 50200000)                                                                      \
	X(hipMemPoolCreate, hipMemPoolCreate, hoist__hip_error,                                    \
	  (hoist__hip_pool *, const struct hoist__hip_pool_props *), OPTIONAL, 50200000)           \
	X(hipMemPoolDestroy, hipMemPoolDestroy, hoist__hip_error, (hoist__hip_pool), OPTIONAL,     \
	  50200000)                                                                                \
	X(hipMemPoolTrimTo, hipMemPoolTrimTo, hoist__hip_error, (hoist__hip_pool, size_t),         \
	  OPTIONAL, 50200000)                                                                      \
	X(hipMemPoolGetAttribute, hipMemPoolGetAttribute, hoist__hip_error,                        \
	  (hoist__hip_pool, hoist__hip_pool_attribute, void *), OPTIONAL, 50200000)                \
	X(hipMemPoolSetAttribute, hipMemPoolSetAttribute, hoist__hip_error,                        \
	  (hoist__hip_pool, hoist__hip_pool_attribute, void *), OPTIONAL, 50200000)                \
	X(hipMemPoolSetAccess, hipMemPoolSetAccess, hoist__hip_error,                              \
	  (hoist__hip_pool, const struct hoist__hip_access *, size_t), OPTIONAL, 50200000)         \
	X(hipMemPoolGetAccess, hipMemPoolGetAccess, hoist__hip_error,                              \
	  (hoist__hip_access_flags *, hoist__hip_pool, struct hoist__hip_location *), OPTIONAL,    \
	  50200000)                                                                                \
	X(hipMallocFromPoolAsync, hipMallocFromPoolAsync, hoist__hip_error,                        \
	  (void **, size_t, hoist__hip_pool, hoist__hip_stream), OPTIONAL, 50200000)               \
	X(hipFreeAsync, hipFreeAsync, hoist__hip_error, (void *, hoist__hip_stream), OPTIONAL,     \
	  50200000)                                                                                \
	/* Memory of graphs: allocated while a stream captures. */                                 \
	X(hipMallocAsync, hipMallocAsync, hoist__hip_error, (void **, size_t, hoist__hip_stream),  \
	  OPTIONAL, 50200000)                                                                      \
	X(hipDeviceGraphMemTrim, hipDeviceGraphMemTrim, hoist__hip_error, (int), OPTIONAL,         \
	  50300000)                                                                                \
	X(hipDeviceGetGraphMemAttribute, hipDeviceGetGraphMemAttribute, hoist__hip_error,          \
	  (int, hoist__hip_graph_attribute, void *), OPTIONAL, 50300000)                           \
	X(hipDeviceSetGraphMemAttribute, hipDeviceSetGraphMemAttribute, hoist__hip_error,          \
	  (int, hoist__hip_graph_attribute, void *), OPTIONAL, 50300000)                           \
	/* Virtual memory. */                                                                      \
	X(hipMemGetAllocationGranularity, hipMemGetAllocationGranularity, hoist__hip_error,        \
	  (size_t *, const struct hoist__hip_memory_props *, hoist__hip_granularity), OPTIONAL,    \
	  60000000)                                                                                \
	X(hipMemAddressReserve, hipMemAddressReserve, hoist__hip_error,                            \
	  (void **, size_t, size_t, void *, unsigned long long), OPTIONAL, 60000000)               \
	X(hipMemAddressFree, hipMemAddressFree, hoist__hip_error, (void *, size_t), OPTIONAL,      \
	  60000000)                                                                                \
	X(hipMemCreate, hipMemCreate, hoist__hip_error,                                            \
	  (hoist__hip_memory *, size_t, const struct hoist__hip_memory_props *,                    \
	   unsigned long long),                                                                    \
	  OPTIONAL, 60000000)                                                                      \
	X(hipMemRelease, hipMemRelease, hoist__hip_error, (hoist__hip_memory), OPTIONAL, 60000000) \
	X(hipMemMap, hipMemMap, hoist__hip_error,                                                  \
	  (void *, size_t, size_t, hoist__hip_memory, unsigned long long), OPTIONAL, 60000000)     \
	X(hipMemUnmap, hipMemUnmap, hoist__hip_error, (void *, size_t), OPTIONAL, 60000000)        \
	X(hipMemSetAccess, hipMemSetAccess, hoist__hip_error,                                      \
	  (void *, size_t, const struct hoist__hip_access *, size_t), OPTIONAL, 60000000)          \
	/* Sharing between processes. */                                                           \
	X(hipMemGetAddressRange, hipMemGetAddressRange, hoist__hip_error,                          \
	  (void **, size_t *, void *), OPTIONAL, 50000000)                                         \
	X(hipIpcGetMemHandle, hipIpcGetMemHandle, hoist__hip_error,                                \
	  (hoist__hip_ipc_handle *, void *), OPTIONAL, 50000000)                                   \
	X(hipIpcOpenMemHandle, hipIpcOpenMemHandle, hoist__hip_error,                              \
	  (void **, hoist__hip_ipc_handle, unsigned int), OPTIONAL, 50000000)                      \
	X(hipIpcCloseMemHandle, hipIpcCloseMemHandle, hoist__hip_error, (void *), OPTIONAL,        \
	  50000000)                                                                                \
	X(hipMemPoolExportToShareableHandle, hipMemPoolExportToShareableHandle, hoist__hip_error,  \
	  (void *, hoist__hip_pool, hoist__hip_handle_type, hoist__hip_handle_flags), OPTIONAL,    \
	  50200000)                                                                                \
	X(hipMemPoolImportFromShareableHandle, hipMemPoolImportFromShareableHandle,                \
	  hoist__hip_error,                                                                        \
	  (hoist__hip_pool *, void *, hoist__hip_handle_type, hoist__hip_handle_flags), OPTIONAL,  \
	  50200000)                                                                                \
	X(hipMemPoolExportPointer, hipMemPoolExportPointer, hoist__hip_error,                      \
	  (hoist__hip_block_handle *, void *), OPTIONAL, 50200000)                                 \
	X(hipMemPoolImportPointer, hipMemPoolImportPointer, hoist__hip_error,                      \
	  (void **, hoist__hip_pool, hoist__hip_block_handle *), OPTIONAL, 50200000)               \
	/* Streams. */                                                                             \
	X(hipStreamCreateWithFlags, hipStreamCreateWithFlags, hoist__hip_error,                    \
	  (hoist__hip_stream *, unsigned int), REQUIRED, 50000000)                                 \
	X(hipStreamDestroy, hipStreamDestroy, hoist__hip_error, (hoist__hip_stream), REQUIRED,     \
	  50000000)                                                                                \
	X(hipStreamSynchronize, hipStreamSynchronize, hoist__hip_error, (hoist__hip_stream),       \
	  REQUIRED, 50000000)                                                                      \
	X(hipStreamQuery, hipStreamQuery, hoist__hip_error, (hoist__hip_stream), REQUIRED,         \
	  50000000)                                                                                \
	X(hipStreamWaitEvent, hipStreamWaitEvent, hoist__hip_error,                                \
	  (hoist__hip_stream, hoist__hip_event, unsigned int), REQUIRED, 50000000)                 \
	/* Capture: the calls a thread may make while any stream captures a graph. */              \
	X(hipStreamIsCapturing, hipStreamIsCapturing, hoist__hip_error,                            \
	  (hoist__hip_stream, hoist__hip_capture_status *), OPTIONAL, 50000000)                    \
	X(hipThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode,                  \
	  hoist__hip_error, (hoist__hip_capture_mode *), OPTIONAL, 50200000)                       \
	/* Events. */                                                                              \
	X(hipEventCreateWithFlags, hipEventCreateWithFlags, hoist__hip_error,                      \
	  (hoist__hip_event *, unsigned int), REQUIRED, 50000000)                                  \
	X(hipEventDestroy, hipEventDestroy, hoist__hip_error, (hoist__hip_event), REQUIRED,        \
	  50000000)                                                                                \
	X(hipEventRecord, hipEventRecord, hoist__hip_error, (hoist__hip_event, hoist__hip_stream), \
	  REQUIRED, 50000000)                                                                      \
	X(hipEventQuery, hipEventQuery, hoist__hip_error, (hoist__hip_event), REQUIRED, 50000000)  \
	X(hipEventSynchronize, hipEventSynchronize, hoist__hip_error, (hoist__hip_event),          \
	  REQUIRED, 50000000)                                                                      \
	X(hipEventElapsedTime, hipEventElapsedTime, hoist__hip_error,                              \
	  (float *, hoist__hip_event, hoist__hip_event), REQUIRED, 50000000)                       \
	/* Asynchronous work. */                                                                   \
	X(hipMemcpyAsync, hipMemcpyAsync, hoist__hip_error,                                        \
	  (void *, const void *, size_t, hoist__hip_copy_kind, hoist__hip_stream), REQUIRED,       \
	  50000000)                                                                                \
	X(hipMemcpyPeerAsync, hipMemcpyPeerAsync, hoist__hip_error,                                \
	  (void *, int, const void *, int, size_t, hoist__hip_stream), REQUIRED, 50000000)         \
	X(hipMemcpy2DAsync, hipMemcpy2DAsync, hoist__hip_error,                                    \
	  (void *, size_t, const void *, size_t, size_t, size_t, hoist__hip_copy_kind,             \
	   hoist__hip_stream),                                                                     \
	  REQUIRED, 50000000)                                                                      \
	X(hipMemcpy3DAsync, hipMemcpy3DAsync, hoist__hip_error,                                    \
	  (const struct hoist__hip_copy_3d *, hoist__hip_stream), REQUIRED, 50000000)              \
	X(hipLaunchHostFunc, hipLaunchHostFunc, hoist__hip_error,                                  \
	  (hoist__hip_stream, hoist__hip_host_function, void *), OPTIONAL, 50200000)               \
	X(hipMemsetAsync, hipMemsetAsync, hoist__hip_error,                                        \
	  (void *, int, size_t, hoist__hip_stream), REQUIRED, 50000000)                            \
	X(hipMemsetD16Async, hipMemsetD16Async, hoist__hip_error,                                  \
	  (void *, unsigned short, size_t, hoist__hip_stream), REQUIRED, 50000000)                 \
	X(hipMemsetD32Async, hipMemsetD32Async, hoist__hip_error,                                  \
	  (void *, int, size_t, hoist__hip_stream), REQUIRED, 50000000)

#endif
