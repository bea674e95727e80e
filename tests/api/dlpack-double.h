/* SPDX-License-Identifier: MIT */
/* The definitions of dlpack/dlpack.h of DLPack 1.x, under the same names and the same guard: the
 * test that hoist/dlpack.h lives beside that header uses them where the header is not installed. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stddef.h>
#include <stdint.h>

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
	uint32_t major, minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLROCMHost = 11, kDLTrn = 18 } DLDeviceType;
#else
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLROCMHost = 11, kDLTrn = 18 } DLDeviceType;
#endif

typedef struct {
	DLDeviceType device_type;
	int32_t device_id;
} DLDevice;

typedef struct {
	uint8_t code, bits;
	uint16_t lanes;
} DLDataType;

typedef struct {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)

typedef struct DLManagedTensorVersioned {
	DLPackVersion version;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *);
	uint64_t flags;
	DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchangeAPIHeader {
	DLPackVersion version;
	struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
	DLPackExchangeAPIHeader header;
	int (*managed_tensor_allocator)(DLTensor *, DLManagedTensorVersioned **, void *,
					void (*)(void *, const char *, const char *));
	int (*managed_tensor_from_py_object_no_sync)(void *, DLManagedTensorVersioned **);
	int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *, void **);
	int (*dltensor_from_py_object_no_sync)(void *, DLTensor *);
	int (*current_work_stream)(DLDeviceType, int32_t, void **);
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif

#endif
