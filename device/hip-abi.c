/* SPDX-License-Identifier: MIT */
/* device/hip-abi.c - compares hip-table.h and hip-types.h with hip_runtime_api.h.
 * The compared declarations are in device/hip-table.h and device/hip-types.h.
 *
 * Compiled only where configure found that header.  This file makes no code.  If a
 * row, a constant or a type disagrees with the vendor's, this file does not compile.
 */
#include "config.h"

#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <stddef.h>

#include "device/hip-types.h"

/* hoist's types have the size and kind of the vendor's ... */
_Static_assert(sizeof(hoist__hip_error) == sizeof(hipError_t), "hipError_t");
_Static_assert(sizeof(hoist__hip_attribute) == sizeof(hipDeviceAttribute_t), "attribute");
_Static_assert(sizeof(hoist__hip_copy_kind) == sizeof(hipMemcpyKind), "hipMemcpyKind");
_Static_assert(sizeof(hoist__hip_capture_mode) == sizeof(hipStreamCaptureMode), "mode");
_Static_assert(sizeof(hoist__hip_capture_status) == sizeof(hipStreamCaptureStatus), "status");
_Static_assert(sizeof(hoist__hip_pool_attribute) == sizeof(hipMemPoolAttr), "attribute");
_Static_assert(__builtin_types_compatible_p(hoist__hip_device, hipDevice_t), "hipDevice_t");
_Static_assert(sizeof(hoist__hip_stream) == sizeof(hipStream_t), "hipStream_t");
_Static_assert(sizeof(hoist__hip_event) == sizeof(hipEvent_t), "hipEvent_t");
_Static_assert(sizeof(hoist__hip_pool) == sizeof(hipMemPool_t), "hipMemPool_t");
_Static_assert(sizeof(hoist__hip_handle_type) == sizeof(hipMemAllocationHandleType), "handle type");
_Static_assert(sizeof(hoist__hip_ipc_handle) == sizeof(hipIpcMemHandle_t), "hipIpcMemHandle_t");
_Static_assert(sizeof(hoist__hip_block_handle) == sizeof(hipMemPoolPtrExportData), "block");

#define OURS struct hoist__hip_pool_props
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(hipMemPoolProps, vendor) &&                \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((hipMemPoolProps *)0)->vendor),                     \
		       #vendor)
SAME(type, allocType);
SAME(handle_types, handleTypes);
SAME(location_type, location.type);
SAME(location, location.id);
SAME(unused, win32SecurityAttributes);
#if HIP_VERSION >= HOIST__HIP_POOL_LIMIT_SINCE
SAME(max_bytes, maxSize);
#endif
_Static_assert(sizeof(OURS) == sizeof(hipMemPoolProps), "hipMemPoolProps");
#undef SAME
#undef OURS

#define OURS struct hoist__hip_access
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(hipMemAccessDesc, vendor) &&               \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((hipMemAccessDesc *)0)->vendor),                    \
		       #vendor)
SAME(location, location);
SAME(location.type, location.type);
SAME(location.id, location.id);
SAME(flags, flags);
_Static_assert(sizeof(OURS) == sizeof(hipMemAccessDesc), "hipMemAccessDesc");
#undef SAME
#undef OURS

#if HIP_VERSION >= HOIST__HIP_MEMORY_PROPS_SINCE
#define OURS struct hoist__hip_memory_props
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(hipMemAllocationProp, vendor) &&           \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((hipMemAllocationProp *)0)->vendor),                \
		       #vendor)
SAME(type, type);
SAME(handle_types, requestedHandleType);
SAME(location, location);
SAME(unused, win32HandleMetaData);
SAME(compression, allocFlags.compressionType);
SAME(rdma, allocFlags.gpuDirectRDMACapable);
SAME(usage, allocFlags.usage);
_Static_assert(sizeof(OURS) == sizeof(hipMemAllocationProp), "hipMemAllocationProp");
#undef SAME
#undef OURS
#endif

#define OURS struct hoist__hip_copy_3d
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(hipMemcpy3DParms, vendor) &&               \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((hipMemcpy3DParms *)0)->vendor),                    \
		       #vendor)
SAME(src_array, srcArray);
SAME(src_position, srcPos);
SAME(src.address, srcPtr.ptr);
SAME(src.pitch, srcPtr.pitch);
SAME(src.width, srcPtr.xsize);
SAME(src.height, srcPtr.ysize);
SAME(dst_array, dstArray);
SAME(dst_position, dstPos);
SAME(dst, dstPtr);
SAME(width, extent.width);
SAME(height, extent.height);
SAME(depth, extent.depth);
SAME(kind, kind);
_Static_assert(sizeof(OURS) == sizeof(hipMemcpy3DParms), "hipMemcpy3DParms");
#undef SAME
#undef OURS

#if HIP_VERSION >= HOIST__HIP_UNREGISTERED_SINCE
#define TYPE type
_Static_assert(hipMemoryTypeUnregistered == HOIST__HIP_MEMORY_UNREGISTERED, "unregistered");
_Static_assert(hipMemoryTypeHost == HOIST__HIP_MEMORY_HOST, "host");
_Static_assert(hipMemoryTypeDevice == HOIST__HIP_MEMORY_DEVICE, "device");
_Static_assert(hipMemoryTypeManaged == HOIST__HIP_MEMORY_MANAGED, "managed");
#else
#define TYPE memoryType
_Static_assert(hipMemoryTypeHost == HOIST__HIP_MEMORY_HOST - 1, "host");
_Static_assert(hipMemoryTypeDevice == HOIST__HIP_MEMORY_DEVICE - 1, "device");
#endif
#define OURS struct hoist__hip_pointer_attributes
#define SAME(ours, vendor)                                                                         \
	_Static_assert(offsetof(OURS, ours) == offsetof(hipPointerAttribute_t, vendor) &&          \
			       sizeof(((OURS *)0)->ours) ==                                        \
				       sizeof(((hipPointerAttribute_t *)0)->vendor),               \
		       #vendor)
SAME(type, TYPE);
SAME(device, device);
SAME(device_address, devicePointer);
SAME(host_address, hostPointer);
SAME(managed, isManaged);
SAME(flags, allocationFlags);
_Static_assert(sizeof(OURS) == sizeof(hipPointerAttribute_t), "hipPointerAttribute_t");
#undef SAME
#undef OURS
#undef TYPE

#define X(constant, value, vendor) _Static_assert((long)(constant) == (long)(vendor), #vendor);
HOIST__HIP_CONSTANTS(X)
#undef X

_Static_assert(hipCpuDeviceId == HOIST__HIP_CPU, "hipCpuDeviceId");
_Static_assert(hipDeviceAttributeIntegrated == HOIST__HIP_ATTRIBUTE_INTEGRATED, "Integrated");

#if HIP_VERSION >= HOIST__HIP_HOST_NUMA_ID_SINCE
_Static_assert(hipDeviceAttributeHostNumaId == HOIST__HIP_ATTRIBUTE_HOST_NUMA_ID, "HostNumaId");
#endif

/* The header has the layout of its own release; the other one is declared here
 * so that its row is at least well formed. */
#if HIP_VERSION_MAJOR < 6
_Static_assert(offsetof(hipDeviceProp_t, gcnArchName) == HOIST__HIP_R0000_ARCH_OFFSET, "R0000");
_Static_assert(sizeof(hipDeviceProp_t) <= HOIST__HIP_PROPS_ROOM, "room for R0000");
#define hoist__hip_props_r0000 hipDeviceProp_t
#define hipGetDevicePropertiesR0000 hipGetDeviceProperties
hipError_t hipGetDevicePropertiesR0600(struct hoist__hip_props_r0600 *props, int device);
#else
_Static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == HOIST__HIP_R0600_ARCH_OFFSET,
	       "R0600");
_Static_assert(sizeof(hipDeviceProp_tR0600) <= HOIST__HIP_PROPS_ROOM, "room for R0600");
#define hoist__hip_props_r0600 hipDeviceProp_tR0600
#define hipGetDevicePropertiesR0000 hoist__hip_r0000_declaration
hipError_t hoist__hip_r0000_declaration(struct hoist__hip_props_r0000 *props, int device);
#endif

/* Older headers have no calls for memory of graphs: a row can only be checked to be well formed. */
#if HIP_VERSION < HOIST__HIP_GRAPH_MEMORY_SINCE
typedef unsigned int hipGraphMemAttributeType;
hipError_t hipDeviceGraphMemTrim(int device);
hipError_t hipDeviceGetGraphMemAttribute(int device, hipGraphMemAttributeType attr, void *value);
hipError_t hipDeviceSetGraphMemAttribute(int device, hipGraphMemAttributeType attr, void *value);
#else
_Static_assert(hipGraphMemAttrUsedMemCurrent == HOIST__HIP_GRAPH_USED_CURRENT, "used");
_Static_assert(hipGraphMemAttrUsedMemHigh == HOIST__HIP_GRAPH_USED_HIGH, "used, high");
_Static_assert(hipGraphMemAttrReservedMemCurrent == HOIST__HIP_GRAPH_RESERVED_CURRENT, "reserved");
_Static_assert(hipGraphMemAttrReservedMemHigh == HOIST__HIP_GRAPH_RESERVED_HIGH, "high");
#endif

/* ... so with the vendor's types in their place every row must be the vendor's declaration. */
#define hoist__hip_error hipError_t
#define hoist__hip_attribute hipDeviceAttribute_t
#define hoist__hip_copy_kind hipMemcpyKind
#define hoist__hip_capture_mode hipStreamCaptureMode
#define hoist__hip_capture_status hipStreamCaptureStatus
#define hoist__hip_pool_attribute hipMemPoolAttr
#define hoist__hip_pool hipMemPool_t
#define hoist__hip_handle_type hipMemAllocationHandleType
#define hoist__hip_ipc_handle hipIpcMemHandle_t
#define hoist__hip_block_handle hipMemPoolPtrExportData
#define hoist__hip_pool_props hipMemPoolProps
#define hoist__hip_advice hipMemoryAdvise
#define hoist__hip_graph_attribute hipGraphMemAttributeType
#define hoist__hip_memory_props hipMemAllocationProp
#define hoist__hip_memory hipMemGenericAllocationHandle_t
#define hoist__hip_granularity hipMemAllocationGranularity_flags
#define hoist__hip_access_flags hipMemAccessFlags
#define hoist__hip_access hipMemAccessDesc
#define hoist__hip_location hipMemLocation
#define hoist__hip_copy_3d hipMemcpy3DParms
#define hoist__hip_pointer_attributes hipPointerAttribute_t
#define hoist__hip_host_function hipHostFn_t
#define hoist__hip_device hipDevice_t
#define hoist__hip_stream hipStream_t
#define hoist__hip_event hipEvent_t

#include "device/hip-table.h"

#define X(name, symbol, result, arguments, need, since)                                            \
	_Static_assert(__builtin_types_compatible_p(result arguments, __typeof__(name)), #name);
HOIST__HIP_TABLE(X)
#undef X
