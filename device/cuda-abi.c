/* SPDX-License-Identifier: MIT */
/* device/cuda-abi.c - compares cuda-table.h and cuda-types.h with NVIDIA's cuda.h.
 * The compared declarations are in device/cuda-table.h and device/cuda-types.h.
 *
 * Compiled only where configure found cuda.h.  This file makes no code.  If a row,
 * a constant or a type disagrees with the vendor's, this file does not compile.
 */
#include "config.h"

#include <cuda.h>
#include <stddef.h>

#include "device/cuda-types.h"

/* hoist's types have the size and kind of the vendor's ... */
_Static_assert(sizeof(hoist__cu_result) == sizeof(CUresult), "CUresult");
_Static_assert(sizeof(hoist__cu_attribute) == sizeof(CUdevice_attribute), "CUdevice_attribute");
_Static_assert(sizeof(hoist__cu_capture_mode) == sizeof(CUstreamCaptureMode), "mode");
_Static_assert(sizeof(hoist__cu_capture_status) == sizeof(CUstreamCaptureStatus), "status");
_Static_assert(sizeof(hoist__cu_pool_attribute) == sizeof(CUmemPool_attribute), "attribute");
_Static_assert(sizeof(hoist__cu_pointer_attribute) == sizeof(CUpointer_attribute), "pointer");
_Static_assert(__builtin_types_compatible_p(hoist__cu_device, CUdevice), "CUdevice");
_Static_assert(__builtin_types_compatible_p(hoist__cu_device_ptr, CUdeviceptr), "CUdeviceptr");
_Static_assert(sizeof(hoist__cu_context) == sizeof(CUcontext), "CUcontext");
_Static_assert(sizeof(hoist__cu_stream) == sizeof(CUstream), "CUstream");
_Static_assert(sizeof(hoist__cu_event) == sizeof(CUevent), "CUevent");
_Static_assert(sizeof(hoist__cu_pool) == sizeof(CUmemoryPool), "CUmemoryPool");
_Static_assert(sizeof(hoist__cu_handle_type) == sizeof(CUmemAllocationHandleType), "handle type");
_Static_assert(sizeof(hoist__cu_ipc_handle) == sizeof(CUipcMemHandle), "CUipcMemHandle");
_Static_assert(sizeof(hoist__cu_block_handle) == sizeof(CUmemPoolPtrExportData), "block");

#define OURS struct hoist__cu_pool_props
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(CUmemPoolProps, vendor) &&                 \
			       sizeof(((OURS *)0)->ours) == sizeof(((CUmemPoolProps *)0)->vendor), \
		       #vendor)
SAME(type, allocType);
SAME(handle_types, handleTypes);
SAME(location_type, location.type);
SAME(location, location.id);
SAME(unused, win32SecurityAttributes);
#if CUDA_VERSION >= HOIST__CU_POOL_LIMIT_SINCE
SAME(max_bytes, maxSize);
#endif
_Static_assert(sizeof(OURS) == sizeof(CUmemPoolProps), "CUmemPoolProps");
#undef SAME
#undef OURS

#define OURS struct hoist__cu_access
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(CUmemAccessDesc, vendor) &&                \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((CUmemAccessDesc *)0)->vendor),                     \
		       #vendor)
SAME(location, location);
SAME(location.type, location.type);
SAME(location.id, location.id);
SAME(flags, flags);
_Static_assert(sizeof(OURS) == sizeof(CUmemAccessDesc), "CUmemAccessDesc");
#undef SAME
#undef OURS

#define OURS struct hoist__cu_memory_props
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(CUmemAllocationProp, vendor) &&            \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((CUmemAllocationProp *)0)->vendor),                 \
		       #vendor)
SAME(type, type);
SAME(handle_types, requestedHandleTypes);
SAME(location, location);
SAME(unused, win32HandleMetaData);
SAME(compression, allocFlags.compressionType);
SAME(rdma, allocFlags.gpuDirectRDMACapable);
SAME(usage, allocFlags.usage);
_Static_assert(sizeof(OURS) == sizeof(CUmemAllocationProp), "CUmemAllocationProp");
#undef SAME
#undef OURS

#define OURS struct hoist__cu_copy_2d
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(CUDA_MEMCPY2D, vendor) &&                  \
			       sizeof(((OURS *)0)->ours) == sizeof(((CUDA_MEMCPY2D *)0)->vendor),  \
		       #vendor)
SAME(src_x, srcXInBytes);
SAME(src_y, srcY);
SAME(src_type, srcMemoryType);
SAME(src_host, srcHost);
SAME(src_device, srcDevice);
SAME(src_array, srcArray);
SAME(src_pitch, srcPitch);
SAME(dst_x, dstXInBytes);
SAME(dst_y, dstY);
SAME(dst_type, dstMemoryType);
SAME(dst_host, dstHost);
SAME(dst_device, dstDevice);
SAME(dst_array, dstArray);
SAME(dst_pitch, dstPitch);
SAME(width, WidthInBytes);
SAME(height, Height);
_Static_assert(sizeof(OURS) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
#undef SAME
#undef OURS

#define OURS struct hoist__cu_copy_3d
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(CUDA_MEMCPY3D, vendor) &&                  \
			       sizeof(((OURS *)0)->ours) == sizeof(((CUDA_MEMCPY3D *)0)->vendor),  \
		       #vendor)
SAME(src_x, srcXInBytes);
SAME(src_y, srcY);
SAME(src_type, srcMemoryType);
SAME(src_host, srcHost);
SAME(src_device, srcDevice);
SAME(src_array, srcArray);
SAME(src_pitch, srcPitch);
SAME(dst_x, dstXInBytes);
SAME(dst_y, dstY);
SAME(dst_type, dstMemoryType);
SAME(dst_host, dstHost);
SAME(dst_device, dstDevice);
SAME(dst_array, dstArray);
SAME(dst_pitch, dstPitch);
SAME(width, WidthInBytes);
SAME(height, Height);
SAME(src_z, srcZ);
SAME(src_lod, srcLOD);
SAME(reserved0, reserved0);
SAME(src_height, srcHeight);
SAME(dst_z, dstZ);
SAME(dst_lod, dstLOD);
SAME(reserved1, reserved1);
SAME(dst_height, dstHeight);
SAME(depth, Depth);
_Static_assert(sizeof(OURS) == sizeof(CUDA_MEMCPY3D), "CUDA_MEMCPY3D");
#undef SAME
#undef OURS

#define X(constant, value, vendor) _Static_assert((long)(constant) == (long)(vendor), #vendor);
HOIST__CUDA_CONSTANTS(X)
#undef X

/* ... so with the vendor's types in their place every row must be the vendor's declaration, */
#define hoist__cu_result CUresult
#define hoist__cu_attribute CUdevice_attribute
#define hoist__cu_capture_mode CUstreamCaptureMode
#define hoist__cu_capture_status CUstreamCaptureStatus
#define hoist__cu_pool_attribute CUmemPool_attribute
#define hoist__cu_pool CUmemoryPool
#define hoist__cu_handle_type CUmemAllocationHandleType
#define hoist__cu_ipc_handle CUipcMemHandle
#define hoist__cu_block_handle CUmemPoolPtrExportData
#define hoist__cu_pool_props CUmemPoolProps_st
#define hoist__cu_advice CUmem_advise
#define hoist__cu_graph_attribute CUgraphMem_attribute
#define hoist__cu_memory_props CUmemAllocationProp_st
#define hoist__cu_memory CUmemGenericAllocationHandle
#define hoist__cu_granularity CUmemAllocationGranularity_flags
#define hoist__cu_access_flags CUmemAccess_flags
#define hoist__cu_access CUmemAccessDesc_st
#define hoist__cu_location CUmemLocation_st
#define hoist__cu_pointer_attribute CUpointer_attribute
#define hoist__cu_copy_2d CUDA_MEMCPY2D_st
#define hoist__cu_copy_3d CUDA_MEMCPY3D_st
#define hoist__cu_host_function CUhostFn
#define hoist__cu_device CUdevice
#define hoist__cu_device_ptr CUdeviceptr
#define hoist__cu_context CUcontext
#define hoist__cu_stream CUstream
#define hoist__cu_event CUevent

#include "device/cuda-table.h"

#define X(name, symbol, result, arguments, need, since)                                            \
	_Static_assert(__builtin_types_compatible_p(result arguments, __typeof__(name)), #name);
HOIST__CUDA_TABLE(X)
#undef X

/* and the row's symbol must be the one that cuda.h's macros make of its name. */
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
#define KEPT_UNSUFFIXED "cuEventElapsedTime"
#define X(name, symbol, result, arguments, need, since)                                            \
	_Static_assert(__builtin_strcmp(EXPANDED(name), #symbol) == 0 ||                           \
			       __builtin_strcmp(#symbol, KEPT_UNSUFFIXED) == 0,                    \
		       #symbol);
HOIST__CUDA_TABLE(X)
#undef X
