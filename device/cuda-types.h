/* SPDX-License-Identifier: MIT */
/* device/cuda-types.h - the few CUDA driver types and constants that hoist uses.
 *
 * Our own declarations: hoist builds without the CUDA toolkit.  Where configure
 * finds cuda.h, cuda-abi.c compares every one of them with the vendor's.  All
 * names start with hoist__ or HOIST__ so that both can meet in one file.
 */
#ifndef HOIST_DEVICE_CUDA_TYPES_H
#define HOIST_DEVICE_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int hoist__cu_result;		  /* enum CUresult */
typedef unsigned int hoist__cu_attribute;	  /* enum CUdevice_attribute */
typedef unsigned int hoist__cu_capture_mode;	  /* enum CUstreamCaptureMode */
typedef unsigned int hoist__cu_capture_status;	  /* enum CUstreamCaptureStatus */
typedef unsigned int hoist__cu_pool_attribute;	  /* enum CUmemPool_attribute */
typedef unsigned int hoist__cu_graph_attribute;	  /* enum CUgraphMem_attribute */
typedef unsigned int hoist__cu_advice;		  /* enum CUmem_advise */
typedef unsigned int hoist__cu_pointer_attribute; /* enum CUpointer_attribute */
typedef int hoist__cu_device;			  /* the ordinal's handle, not a pointer */
typedef unsigned long long hoist__cu_device_ptr;
typedef struct hoist__cu_context_object *hoist__cu_context;
typedef struct hoist__cu_stream_object *hoist__cu_stream;
typedef struct hoist__cu_event_object *hoist__cu_event;
typedef void (*hoist__cu_host_function)(void *);

typedef struct hoist__cu_pool_object *hoist__cu_pool;

/* Sharing between processes: CUipcMemHandle, CUmemPoolPtrExportData. */
typedef unsigned int hoist__cu_handle_type; /* enum CUmemAllocationHandleType */
typedef unsigned long long hoist__cu_handle_flags;
typedef struct hoist__cu_ipc_handle {
	unsigned char bytes[64];
} hoist__cu_ipc_handle;
typedef struct hoist__cu_block_handle {
	unsigned char bytes[64];
} hoist__cu_block_handle;

/* CUmemPoolProps.  Driver 12.2 took the limit out of the reserved bytes, so an older driver would
 * not heed it.  Likewise the attributes from RESERVED_CURRENT on came with 11.3. */
struct hoist__cu_pool_props {
	unsigned int type;	   /* HOIST__CU_ALLOCATION_PINNED */
	unsigned int handle_types; /* HOIST__CU_HANDLE_...: how other processes get the pool */
	unsigned int location_type;
	int location; /* the device */
	void *unused;
	size_t max_bytes; /* 0: no limit */
	unsigned char reserved[56];
};

/* CUmemLocation, CUmemAccessDesc. */
typedef unsigned int hoist__cu_access_flags; /* enum CUmemAccess_flags */
struct hoist__cu_location {
	unsigned int type;
	int id; /* the device */
};
struct hoist__cu_access {
	struct hoist__cu_location location;
	hoist__cu_access_flags flags;
};

/* CUmemAllocationProp; a CUmemGenericAllocationHandle is memory without an address. */
typedef unsigned int hoist__cu_granularity; /* enum CUmemAllocationGranularity_flags */
typedef unsigned long long hoist__cu_memory;
struct hoist__cu_memory_props {
	unsigned int type; /* HOIST__CU_ALLOCATION_PINNED */
	unsigned int handle_types;
	struct hoist__cu_location location;
	void *unused;
	unsigned char compression;
	unsigned char rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

#define HOIST__CU_POOL_LIMIT_SINCE 12020
#define HOIST__CU_POOL_FIGURES_SINCE 11030

/* CUDA_MEMCPY2D and CUDA_MEMCPY3D.  The type of a side says whether its host or its device address
 * counts.  x, y, z and lod are 0, and there are no arrays. */
struct hoist__cu_copy_2d {
	size_t src_x;
	size_t src_y;
	unsigned int src_type;
	const void *src_host;
	hoist__cu_device_ptr src_device;
	void *src_array;
	size_t src_pitch;
	size_t dst_x;
	size_t dst_y;
	unsigned int dst_type;
	void *dst_host;
	hoist__cu_device_ptr dst_device;
	void *dst_array;
	size_t dst_pitch;
	size_t width;
	size_t height;
};

struct hoist__cu_copy_3d {
	size_t src_x;
	size_t src_y;
	size_t src_z;
	size_t src_lod;
	unsigned int src_type;
	const void *src_host;
	hoist__cu_device_ptr src_device;
	void *src_array;
	void *reserved0;
	size_t src_pitch;
	size_t src_height; /* the distance of planes, in rows */
	size_t dst_x;
	size_t dst_y;
	size_t dst_z;
	size_t dst_lod;
	unsigned int dst_type;
	void *dst_host;
	hoist__cu_device_ptr dst_device;
	void *dst_array;
	void *reserved1;
	size_t dst_pitch;
	size_t dst_height;
	size_t width;
	size_t height;
	size_t depth;
};

/* Constant, value, cuda.h's name for it. */
#define HOIST__CUDA_CONSTANTS(X)                                                                   \
	X(HOIST__CU_SUCCESS, 0, CUDA_SUCCESS)                                                      \
	X(HOIST__CU_ERROR_INVALID_VALUE, 1, CUDA_ERROR_INVALID_VALUE)                              \
	X(HOIST__CU_ERROR_OUT_OF_MEMORY, 2, CUDA_ERROR_OUT_OF_MEMORY)                              \
	X(HOIST__CU_ERROR_NOT_INITIALIZED, 3, CUDA_ERROR_NOT_INITIALIZED)                          \
	X(HOIST__CU_ERROR_DEINITIALIZED, 4, CUDA_ERROR_DEINITIALIZED)                              \
	X(HOIST__CU_ERROR_STUB_LIBRARY, 34, CUDA_ERROR_STUB_LIBRARY)                               \
	X(HOIST__CU_ERROR_NO_DEVICE, 100, CUDA_ERROR_NO_DEVICE)                                    \
	X(HOIST__CU_ERROR_INVALID_DEVICE, 101, CUDA_ERROR_INVALID_DEVICE)                          \
	X(HOIST__CU_ERROR_INVALID_CONTEXT, 201, CUDA_ERROR_INVALID_CONTEXT)                        \
	X(HOIST__CU_ERROR_PEER_UNSUPPORTED, 217, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)               \
	X(HOIST__CU_ERROR_OPERATING_SYSTEM, 304, CUDA_ERROR_OPERATING_SYSTEM)                      \
	X(HOIST__CU_ERROR_INVALID_HANDLE, 400, CUDA_ERROR_INVALID_HANDLE)                          \
	X(HOIST__CU_ERROR_NOT_FOUND, 500, CUDA_ERROR_NOT_FOUND)                                    \
	X(HOIST__CU_ERROR_NOT_READY, 600, CUDA_ERROR_NOT_READY)                                    \
	X(HOIST__CU_ERROR_ILLEGAL_ADDRESS, 700, CUDA_ERROR_ILLEGAL_ADDRESS)                        \
	X(HOIST__CU_ERROR_PEER_ENABLED, 704, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)               \
	X(HOIST__CU_ERROR_TOO_MANY_PEERS, 711, CUDA_ERROR_TOO_MANY_PEERS)                          \
	X(HOIST__CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712,                                     \
	  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)                                               \
	X(HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)  \
	X(HOIST__CU_ERROR_NOT_PERMITTED, 800, CUDA_ERROR_NOT_PERMITTED)                            \
	X(HOIST__CU_ERROR_NOT_SUPPORTED, 801, CUDA_ERROR_NOT_SUPPORTED)                            \
	X(HOIST__CU_ERROR_SYSTEM_NOT_READY, 802, CUDA_ERROR_SYSTEM_NOT_READY)                      \
	X(HOIST__CU_ERROR_SYSTEM_DRIVER_MISMATCH, 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)          \
	X(HOIST__CU_ERROR_CAPTURE_UNSUPPORTED, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)         \
	X(HOIST__CU_ERROR_CAPTURE_INVALIDATED, 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)         \
	X(HOIST__CU_ERROR_CAPTURE_ISOLATION, 905, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)             \
	X(HOIST__CU_ERROR_CAPTURE_IMPLICIT, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)               \
	X(HOIST__CU_ERROR_CAPTURED_EVENT, 907, CUDA_ERROR_CAPTURED_EVENT)                          \
	X(HOIST__CU_ERROR_UNKNOWN, 999, CUDA_ERROR_UNKNOWN)                                        \
	X(HOIST__CU_ATTRIBUTE_MAX_PITCH, 11, CU_DEVICE_ATTRIBUTE_MAX_PITCH)                        \
	X(HOIST__CU_ATTRIBUTE_INTEGRATED, 18, CU_DEVICE_ATTRIBUTE_INTEGRATED)                      \
	X(HOIST__CU_ATTRIBUTE_PCI_BUS_ID, 33, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)                      \
	X(HOIST__CU_ATTRIBUTE_PCI_DEVICE_ID, 34, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)                \
	X(HOIST__CU_ATTRIBUTE_PCI_DOMAIN_ID, 50, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)                \
	X(HOIST__CU_ATTRIBUTE_COMPUTE_MAJOR, 75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)     \
	X(HOIST__CU_ATTRIBUTE_COMPUTE_MINOR, 76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)     \
	X(HOIST__CU_ATTRIBUTE_VIRTUAL_MEMORY, 102,                                                 \
	  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                 \
	X(HOIST__CU_ATTRIBUTE_VIRTUAL_RDMA, 110,                                                   \
	  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)                             \
	X(HOIST__CU_GRAPH_USED_CURRENT, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)                     \
	X(HOIST__CU_GRAPH_USED_HIGH, 1, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)                           \
	X(HOIST__CU_GRAPH_RESERVED_CURRENT, 2, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)             \
	X(HOIST__CU_GRAPH_RESERVED_HIGH, 3, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)                   \
	X(HOIST__CU_GRANULARITY_MINIMUM, 0, CU_MEM_ALLOC_GRANULARITY_MINIMUM)                      \
	X(HOIST__CU_GRANULARITY_RECOMMENDED, 1, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)              \
	X(HOIST__CU_ATTRIBUTE_HOST_NUMA_ID, 134, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)                 \
	X(HOIST__CU_POINTER_MEMORY_TYPE, 2, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                      \
	X(HOIST__CU_POINTER_DEVICE_POINTER, 3, CU_POINTER_ATTRIBUTE_DEVICE_POINTER)                \
	X(HOIST__CU_POINTER_IS_MANAGED, 8, CU_POINTER_ATTRIBUTE_IS_MANAGED)                        \
	X(HOIST__CU_POINTER_DEVICE_ORDINAL, 9, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                \
	X(HOIST__CU_MEMORY_HOST, 1, CU_MEMORYTYPE_HOST)                                            \
	X(HOIST__CU_MEMORY_DEVICE, 2, CU_MEMORYTYPE_DEVICE)                                        \
	X(HOIST__CU_ATTACH_GLOBAL, 1, CU_MEM_ATTACH_GLOBAL)                                        \
	X(HOIST__CU_ALLOCATION_PINNED, 1, CU_MEM_ALLOCATION_TYPE_PINNED)                           \
	X(HOIST__CU_LOCATION_DEVICE, 1, CU_MEM_LOCATION_TYPE_DEVICE)                               \
	X(HOIST__CU_POOL_FOLLOW_EVENTS, 1, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)        \
	X(HOIST__CU_POOL_OPPORTUNISTIC, 2, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)              \
	X(HOIST__CU_POOL_DEPENDENCIES, 3, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)       \
	X(HOIST__CU_POOL_THRESHOLD, 4, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)                          \
	X(HOIST__CU_POOL_RESERVED_CURRENT, 5, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)                \
	X(HOIST__CU_POOL_RESERVED_HIGH, 6, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)                      \
	X(HOIST__CU_POOL_USED_CURRENT, 7, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)                        \
	X(HOIST__CU_POOL_USED_HIGH, 8, CU_MEMPOOL_ATTR_USED_MEM_HIGH)                              \
	X(HOIST__CU_LOCATION_HOST, 2, CU_MEM_LOCATION_TYPE_HOST)                                   \
	X(HOIST__CU_LOCATION_HOST_NODE, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA)                         \
	X(HOIST__CU_ADVISE_PREFERRED_LOCATION, 3, CU_MEM_ADVISE_SET_PREFERRED_LOCATION)            \
	X(HOIST__CU_ACCESS_NONE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE)                                 \
	X(HOIST__CU_ACCESS_READ, 1, CU_MEM_ACCESS_FLAGS_PROT_READ)                                 \
	X(HOIST__CU_ACCESS_READ_WRITE, 3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                      \
	X(HOIST__CU_HANDLE_NONE, 0, CU_MEM_HANDLE_TYPE_NONE)                                       \
	X(HOIST__CU_HANDLE_FD, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                        \
	X(HOIST__CU_IPC_LAZY_PEER_ACCESS, 1, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)                   \
	X(HOIST__CU_STREAM_NON_BLOCKING, 1, CU_STREAM_NON_BLOCKING)                                \
	X(HOIST__CU_CAPTURE_NONE, 0, CU_STREAM_CAPTURE_STATUS_NONE)                                \
	X(HOIST__CU_CAPTURE_ACTIVE, 1, CU_STREAM_CAPTURE_STATUS_ACTIVE)                            \
	X(HOIST__CU_CAPTURE_INVALIDATED, 2, CU_STREAM_CAPTURE_STATUS_INVALIDATED)                  \
	X(HOIST__CU_CAPTURE_RELAXED, 2, CU_STREAM_CAPTURE_MODE_RELAXED)                            \
	X(HOIST__CU_EVENT_BLOCKING_SYNC, 1, CU_EVENT_BLOCKING_SYNC)                                \
	X(HOIST__CU_EVENT_DISABLE_TIMING, 2, CU_EVENT_DISABLE_TIMING)                              \
	X(HOIST__CU_HOST_REGISTER_PORTABLE, 1, CU_MEMHOSTREGISTER_PORTABLE)                        \
	X(HOIST__CU_HOST_REGISTER_MAPPED, 2, CU_MEMHOSTREGISTER_DEVICEMAP)                         \
	X(HOIST__CU_HOST_REGISTER_READ_ONLY, 8, CU_MEMHOSTREGISTER_READ_ONLY)

enum hoist__cu_constant {
#define X(constant, value, vendor) constant = value,
	HOIST__CUDA_CONSTANTS(X)
#undef X
};

#endif
