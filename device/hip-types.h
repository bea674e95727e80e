/* SPDX-License-Identifier: MIT */
/* device/hip-types.h - the few HIP runtime types and constants that hoist uses.
 *
 * Our own declarations: hoist builds without ROCm.  Where configure finds
 * hip_runtime_api.h, hip-abi.c compares every one of them with the vendor's.
 * All names start with hoist__ or HOIST__ so that both can meet in one file.
 */
#ifndef HOIST_DEVICE_HIP_TYPES_H
#define HOIST_DEVICE_HIP_TYPES_H

#include <stddef.h>

typedef unsigned int hoist__hip_error;		 /* enum hipError_t */
typedef unsigned int hoist__hip_attribute;	 /* enum hipDeviceAttribute_t */
typedef unsigned int hoist__hip_copy_kind;	 /* enum hipMemcpyKind */
typedef unsigned int hoist__hip_capture_mode;	 /* enum hipStreamCaptureMode */
typedef unsigned int hoist__hip_capture_status;	 /* enum hipStreamCaptureStatus */
typedef unsigned int hoist__hip_graph_attribute; /* enum hipGraphMemAttributeType */
typedef unsigned int hoist__hip_advice;		 /* enum hipMemoryAdvise */
typedef unsigned int hoist__hip_pool_attribute;	 /* enum hipMemPoolAttr */
typedef int hoist__hip_device;
typedef void *hoist__hip_device_ptr;
typedef struct hoist__hip_stream_object *hoist__hip_stream;
typedef struct hoist__hip_event_object *hoist__hip_event;
typedef void (*hoist__hip_host_function)(void *);
typedef struct hoist__hip_pool_object *hoist__hip_pool;

/* Sharing between processes: hipIpcMemHandle_t, hipMemPoolPtrExportData. */
typedef unsigned int hoist__hip_handle_type; /* enum hipMemAllocationHandleType */
typedef unsigned int hoist__hip_handle_flags;
typedef struct hoist__hip_ipc_handle {
	unsigned char bytes[64];
} hoist__hip_ipc_handle;
typedef struct hoist__hip_block_handle {
	unsigned char bytes[64];
} hoist__hip_block_handle;

/* hipIpcMemLazyEnablePeerAccess: 0 in the headers of ROCm 5, later 1.  A runtime may insist on the
 * value of its own header. */
#define HOIST__HIP_IPC_LAZY_PEER_ACCESS 1u

/* hipDeviceProp_t is the only place that tells the architecture's name
 * ("gfx942:sramecc+:xnack-").  It has two layouts: R0000, filled by the symbol
 * hipGetDeviceProperties of every release, and R0600, filled by
 * hipGetDevicePropertiesR0600 of ROCm 6 and later.  (With ROCm 6's header the
 * source name hipGetDeviceProperties means the second one.)  Only two
 * strings of either layout are described here; the tail is room for the bytes
 * that a later driver may write.  The true sizes were 792 bytes (ROCm 5.2) and
 * 1472 bytes (ROCm 6, 7); a stand-in driver writes no more than that. */
#define HOIST__HIP_R0000_ARCH_OFFSET 396
#define HOIST__HIP_R0000_BYTES 792
#define HOIST__HIP_R0600_ARCH_OFFSET 1160
#define HOIST__HIP_R0600_BYTES 1472
#define HOIST__HIP_PROPS_ROOM 8192

struct hoist__hip_props_r0000 {
	_Alignas(16) char name[256];
	char unused[HOIST__HIP_R0000_ARCH_OFFSET - 256];
	char architecture[256];
	char room[HOIST__HIP_PROPS_ROOM - HOIST__HIP_R0000_ARCH_OFFSET - 256];
};

struct hoist__hip_props_r0600 {
	_Alignas(16) char name[256];
	char unused[HOIST__HIP_R0600_ARCH_OFFSET - 256];
	char architecture[256];
	char room[HOIST__HIP_PROPS_ROOM - HOIST__HIP_R0600_ARCH_OFFSET - 256];
};

/* hipMemPoolProps.  A release took the limit out of the reserved bytes.  6.3 is the first release
 * seen with the limit, and an older one would not heed it. */
struct hoist__hip_pool_props {
	unsigned int type;	   /* HOIST__HIP_ALLOCATION_PINNED */
	unsigned int handle_types; /* HOIST__HIP_HANDLE_...: how other processes get the pool */
	unsigned int location_type;
	int location; /* the device */
	void *unused;
	size_t max_bytes; /* 0: no limit */
	unsigned char reserved[56];
};

/* hipMemLocation, hipMemAccessDesc. */
typedef unsigned int hoist__hip_access_flags; /* enum hipMemAccessFlags */
struct hoist__hip_location {
	unsigned int type;
	int id; /* the device */
};
struct hoist__hip_access {
	struct hoist__hip_location location;
	hoist__hip_access_flags flags;
};

/* hipMemAllocationProp as it is since ROCm 6.  Before, the members had another order, and devices
 * had no virtual memory. */
typedef unsigned int hoist__hip_granularity; /* enum hipMemAllocationGranularity_flags */
typedef struct hoist__hip_memory_object *hoist__hip_memory; /* hipMemGenericAllocationHandle_t */
struct hoist__hip_memory_props {
	unsigned int type; /* HOIST__HIP_ALLOCATION_PINNED */
	unsigned int handle_types;
	struct hoist__hip_location location;
	void *unused;
	unsigned char compression;
	unsigned char rdma;
	unsigned short usage;
};

/* hipGraphMemAttr...: since ROCm 5.3. */
enum {
	HOIST__HIP_GRAPH_USED_CURRENT,
	HOIST__HIP_GRAPH_USED_HIGH,
	HOIST__HIP_GRAPH_RESERVED_CURRENT,
	HOIST__HIP_GRAPH_RESERVED_HIGH
};
#define HOIST__HIP_GRAPH_MEMORY_SINCE 50300000

#define HOIST__HIP_MEMORY_PROPS_SINCE 60000000
#define HOIST__HIP_POOL_LIMIT_SINCE 60300000
#define HOIST__HIP_POOL_FIGURES_SINCE 0 /* they came with the pools */

/* hipMemcpy3DParms, with the hipPitchedPtr, the hipPos and the hipExtent in it.  There are no
 * arrays, and positions are 0. */
struct hoist__hip_pitched {
	void *address;
	size_t pitch;
	size_t width;  /* 0: not given */
	size_t height; /* the distance of planes, in rows */
};

struct hoist__hip_copy_3d {
	void *src_array;
	size_t src_position[3];
	struct hoist__hip_pitched src;
	void *dst_array;
	size_t dst_position[3];
	struct hoist__hip_pitched dst;
	size_t width;
	size_t height;
	size_t depth;
	hoist__hip_copy_kind kind;
};

/* hipPointerAttribute_t, and its numbers of types since ROCm 6.  Before, the first type was not
 * there, and the others were one less. */
struct hoist__hip_pointer_attributes {
	unsigned int type;
	int device;
	void *device_address;
	void *host_address;
	int managed;
	unsigned int flags;
};

#define HOIST__HIP_MEMORY_UNREGISTERED 0
#define HOIST__HIP_MEMORY_HOST 1
#define HOIST__HIP_MEMORY_DEVICE 2
#define HOIST__HIP_MEMORY_MANAGED 3
#define HOIST__HIP_UNREGISTERED_SINCE 60000000

/* The most bytes from row to row.  ROCm 6 refuses a copy of planes with INT32_MAX or more, and up
 * to this value ROCm 5 does not overflow.  The runtime has an attribute for the limit, but its
 * number is not the same in all releases. */
#define HOIST__HIP_MAX_PITCH ((size_t)INT32_MAX - 1)

/* The most bytes from plane to plane: ROCm 5 computes this distance in 32 bits, and copies wrong
 * bytes where it is greater. */
#define HOIST__HIP_MAX_PLANE ((size_t)UINT32_MAX)

/* hipCpuDeviceId: the host, as a location. */
#define HOIST__HIP_CPU (-1)

/* Constant, value, hip_runtime_api.h's name for it. */
#define HOIST__HIP_CONSTANTS(X)                                                                    \
	X(HOIST__HIP_SUCCESS, 0, hipSuccess)                                                       \
	X(HOIST__HIP_ERROR_INVALID_VALUE, 1, hipErrorInvalidValue)                                 \
	X(HOIST__HIP_ERROR_OUT_OF_MEMORY, 2, hipErrorOutOfMemory)                                  \
	X(HOIST__HIP_ERROR_NOT_INITIALIZED, 3, hipErrorNotInitialized)                             \
	X(HOIST__HIP_ERROR_DEINITIALIZED, 4, hipErrorDeinitialized)                                \
	X(HOIST__HIP_ERROR_INSUFFICIENT_DRIVER, 35, hipErrorInsufficientDriver)                    \
	X(HOIST__HIP_ERROR_NO_DEVICE, 100, hipErrorNoDevice)                                       \
	X(HOIST__HIP_ERROR_INVALID_DEVICE, 101, hipErrorInvalidDevice)                             \
	X(HOIST__HIP_ERROR_PEER_UNSUPPORTED, 217, hipErrorPeerAccessUnsupported)                   \
	X(HOIST__HIP_ERROR_OPERATING_SYSTEM, 304, hipErrorOperatingSystem)                         \
	X(HOIST__HIP_ERROR_INVALID_HANDLE, 400, hipErrorInvalidHandle)                             \
	X(HOIST__HIP_ERROR_NOT_FOUND, 500, hipErrorNotFound)                                       \
	X(HOIST__HIP_ERROR_NOT_READY, 600, hipErrorNotReady)                                       \
	X(HOIST__HIP_ERROR_ILLEGAL_ADDRESS, 700, hipErrorIllegalAddress)                           \
	X(HOIST__HIP_ERROR_PEER_ENABLED, 704, hipErrorPeerAccessAlreadyEnabled)                    \
	X(HOIST__HIP_ERROR_CONTEXT_DESTROYED, 709, hipErrorContextIsDestroyed)                     \
	X(HOIST__HIP_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712,                                    \
	  hipErrorHostMemoryAlreadyRegistered)                                                     \
	X(HOIST__HIP_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, hipErrorHostMemoryNotRegistered)       \
	X(HOIST__HIP_ERROR_NOT_SUPPORTED, 801, hipErrorNotSupported)                               \
	X(HOIST__HIP_ERROR_CAPTURE_UNSUPPORTED, 900, hipErrorStreamCaptureUnsupported)             \
	X(HOIST__HIP_ERROR_CAPTURE_INVALIDATED, 901, hipErrorStreamCaptureInvalidated)             \
	X(HOIST__HIP_ERROR_CAPTURE_ISOLATION, 905, hipErrorStreamCaptureIsolation)                 \
	X(HOIST__HIP_ERROR_CAPTURE_IMPLICIT, 906, hipErrorStreamCaptureImplicit)                   \
	X(HOIST__HIP_ERROR_CAPTURED_EVENT, 907, hipErrorCapturedEvent)                             \
	X(HOIST__HIP_COPY_HOST_TO_DEVICE, 1, hipMemcpyHostToDevice)                                \
	X(HOIST__HIP_COPY_DEVICE_TO_HOST, 2, hipMemcpyDeviceToHost)                                \
	X(HOIST__HIP_COPY_DEVICE_TO_DEVICE, 3, hipMemcpyDeviceToDevice)                            \
	X(HOIST__HIP_ATTACH_GLOBAL, 1, hipMemAttachGlobal)                                         \
	X(HOIST__HIP_ALLOCATION_PINNED, 1, hipMemAllocationTypePinned)                             \
	X(HOIST__HIP_LOCATION_DEVICE, 1, hipMemLocationTypeDevice)                                 \
	X(HOIST__HIP_POOL_FOLLOW_EVENTS, 1, hipMemPoolReuseFollowEventDependencies)                \
	X(HOIST__HIP_POOL_OPPORTUNISTIC, 2, hipMemPoolReuseAllowOpportunistic)                     \
	X(HOIST__HIP_POOL_DEPENDENCIES, 3, hipMemPoolReuseAllowInternalDependencies)               \
	X(HOIST__HIP_POOL_THRESHOLD, 4, hipMemPoolAttrReleaseThreshold)                            \
	X(HOIST__HIP_POOL_RESERVED_CURRENT, 5, hipMemPoolAttrReservedMemCurrent)                   \
	X(HOIST__HIP_POOL_RESERVED_HIGH, 6, hipMemPoolAttrReservedMemHigh)                         \
	X(HOIST__HIP_POOL_USED_CURRENT, 7, hipMemPoolAttrUsedMemCurrent)                           \
	X(HOIST__HIP_POOL_USED_HIGH, 8, hipMemPoolAttrUsedMemHigh)                                 \
	X(HOIST__HIP_GRANULARITY_MINIMUM, 0, hipMemAllocationGranularityMinimum)                   \
	X(HOIST__HIP_GRANULARITY_RECOMMENDED, 1, hipMemAllocationGranularityRecommended)           \
	X(HOIST__HIP_ADVISE_PREFERRED_LOCATION, 3, hipMemAdviseSetPreferredLocation)               \
	X(HOIST__HIP_ACCESS_NONE, 0, hipMemAccessFlagsProtNone)                                    \
	X(HOIST__HIP_ACCESS_READ, 1, hipMemAccessFlagsProtRead)                                    \
	X(HOIST__HIP_ACCESS_READ_WRITE, 3, hipMemAccessFlagsProtReadWrite)                         \
	X(HOIST__HIP_HANDLE_NONE, 0, hipMemHandleTypeNone)                                         \
	X(HOIST__HIP_HANDLE_FD, 1, hipMemHandleTypePosixFileDescriptor)                            \
	X(HOIST__HIP_STREAM_NON_BLOCKING, 1, hipStreamNonBlocking)                                 \
	X(HOIST__HIP_CAPTURE_NONE, 0, hipStreamCaptureStatusNone)                                  \
	X(HOIST__HIP_CAPTURE_ACTIVE, 1, hipStreamCaptureStatusActive)                              \
	X(HOIST__HIP_CAPTURE_INVALIDATED, 2, hipStreamCaptureStatusInvalidated)                    \
	X(HOIST__HIP_CAPTURE_RELAXED, 2, hipStreamCaptureModeRelaxed)                              \
	X(HOIST__HIP_EVENT_BLOCKING_SYNC, 1, hipEventBlockingSync)                                 \
	X(HOIST__HIP_EVENT_DISABLE_TIMING, 2, hipEventDisableTiming)                               \
	X(HOIST__HIP_HOST_REGISTER_PORTABLE, 1, hipHostRegisterPortable)                           \
	X(HOIST__HIP_HOST_REGISTER_MAPPED, 2, hipHostRegisterMapped)

/* HIP pins pages for writing only: AMD's kernel driver refuses a map without write permission, and
 * its bit 8 means coarse-grained memory. */
#define HOIST__HIP_HOST_REGISTER_READ_ONLY 0u

#define HOIST__HIP_ATTRIBUTE_INTEGRATED 16
/* hipDeviceAttributeHostNumaId: since ROCm 7.2.  Earlier releases have no
 * attribute of that number, and answer hipErrorInvalidValue. */
#define HOIST__HIP_ATTRIBUTE_HOST_NUMA_ID 92
#define HOIST__HIP_HOST_NUMA_ID_SINCE 70200000

enum hoist__hip_constant {
#define X(constant, value, vendor) constant = value,
	HOIST__HIP_CONSTANTS(X)
#undef X
};

#endif
