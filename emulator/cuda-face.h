/* SPDX-License-Identifier: MIT */
/* emulator/cuda-face.h - the face of the stand-in for libcuda.so.1; see face.h. */
#ifndef HOIST_EMULATOR_CUDA_FACE_H
#define HOIST_EMULATOR_CUDA_FACE_H

#include "device/cuda-names.h"
#include "device/cuda-table.h"

#define TABLE HOIST__CUDA_TABLE
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

/* The device of a retained context; NULL if @context is none. */
struct hoist__emu_device *hoist__emu_cuda_context_device(hoist__cu_context context);

#endif
