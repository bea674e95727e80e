/* SPDX-License-Identifier: MIT */
/* emulator/cuda-face.h - the face of the stand-in for libcuda.so.1; see face.h. */
#ifndef HOIST_EMULATOR_CUDA_FACE_H
#define HOIST_EMULATOR_CUDA_FACE_H

#include "device/cuda-names.h"
#include "device/cuda-table.h"
#include "emulator/cuda-client.h"

#define TABLE(X) HOIST__CUDA_TABLE(X) EMU_CUDA_CLIENT_TABLE(X)
#define CONSTANTS HOIST__CUDA_CONSTANTS

/* Functions that CUDA names differently, or exports with a suffix. */
#define SYMBOL(function) cu##function
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuEventCreateWithFlags cuEventCreate
#define cuEventDestroy cuEventDestroy_v2
#define cuFree cuMemFree_v2
#define cuFreeAsync cuMemFreeAsync
#define cuGetDeviceCount cuDeviceGetCount
#define cuHostGetDevicePointer cuMemHostGetDevicePointer_v2
#define cuHostRegister cuMemHostRegister_v2
#define cuHostUnregister cuMemHostUnregister
#define cuIpcOpenMemHandle cuIpcOpenMemHandle_v2
#define cuMalloc cuMemAlloc_v2
#define cuMallocAsync cuMemAllocAsync
#define cuMallocFromPoolAsync cuMemAllocFromPoolAsync
#define cuMallocManaged cuMemAllocManaged
#define cuMemGetAddressRange cuMemGetAddressRange_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuStreamCreateWithFlags cuStreamCreate
#define cuStreamDestroy cuStreamDestroy_v2

#include "emulator/face.h"
#include "emulator/pool.h"

/* The device of a retained context; NULL if @context is none. */
struct hoist__emu_device *hoist__emu_cuda_context_device(hoist__cu_context context);

/* True once cuInit() has succeeded. */
bool hoist__emu_cuda_ready(void);

/* False if no device has the attribute. */
bool hoist__emu_cuda_attribute(hoist__cu_attribute attribute, int *ret);

/* The kind and the device of a pool, from the members of CUmemPoolProps. */
int hoist__emu_cuda_pool_place(unsigned type, unsigned location_type, int location,
			       enum hoist__emu_pool_kind *kind, struct hoist__emu_device **device);

/* See hoist__emu_face.absent. */
const char *hoist__emu_cuda_absent(unsigned index, uint64_t *n_calls);

/* A copy and a fill on @stream that the caller waits for; @function is counted. */
hoist__cu_result hoist__emu_cuda_copy(unsigned function, uint64_t dst, uint64_t src, size_t bytes,
				      struct hoist__emu_stream *stream);
hoist__cu_result hoist__emu_cuda_set(unsigned function, uint64_t dst, uint32_t value,
				     unsigned width, size_t n, struct hoist__emu_stream *stream);

/* Writes one attribute of a pointer: 0; EMU_INVALID_VALUE; EMU_NOT_SUPPORTED for one that the
 * stand-in lacks. */
int hoist__emu_cuda_put_pointer(hoist__cu_pointer_attribute attribute, void *at, bool known,
				const struct hoist__emu_pointer *pointer);

#endif
