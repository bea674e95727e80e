/* SPDX-License-Identifier: MIT */
/* device/cuda-run.h - calling the CUDA driver within a device's context; private to
 * device/cuda*.c.
 *
 * Each call that needs a context pushes the device's primary one and pops it
 * afterwards, so the caller's current context and its stack are as they were.
 * Within a scope of the device (scope.h) the context is there already.
 * The primary context is what the CUDA runtime (and with it PyTorch, JAX, ...)
 * uses: addresses and streams can be handed over both ways.
 *
 * While any thread captures a graph in the driver's global mode, calls that the driver
 * names unsafe (allocating, freeing, registering, asking an event ...) fail in every
 * thread and invalidate the capture.  A thread in relaxed mode may make them.  None of
 * hoist's calls of this kind belongs into anybody's graph.  So these calls run RELAXED,
 * and the thread's mode is put back afterwards.
 */
#ifndef HOIST_DEVICE_CUDA_RUN_H
#define HOIST_DEVICE_CUDA_RUN_H

#include "device/cuda.h"
#include "device/cuda-names.h"
#include "device/scope.h"

/* Retains @dev's primary context, unless hoist has it already. */
int hoist__cuda_retain(struct hoist__dev *dev);

/* Makes the primary context current until leave().  The code between the two may
 * not return.  Where that context is current anyway, nothing is pushed. */
int hoist__cuda_enter(struct hoist__dev *dev, bool relax, struct hoist__dev_switched *ret);

/* Logs a failure to leave.  The work between is done by then, and is not undone. */
void hoist__cuda_leave(const struct hoist__dev *dev, const struct hoist__dev_switched *switched);

/* --- names for the code that both drivers share (driver-ops.inc.h) --- */

#define OURS(name) hoist__cuda_##name

/* A function of the driver, by HIP's name where the two differ in more than the prefix. */
#define CALL(function) hoist__cuda.cu##function
#define cuEventCreateWithFlags cuEventCreate
#define cuFree cuMemFree
#define cuFreeAsync cuMemFreeAsync
#define cuHostGetDevicePointer cuMemHostGetDevicePointer
#define cuHostRegister cuMemHostRegister
#define cuHostUnregister cuMemHostUnregister
#define cuMalloc cuMemAlloc
#define cuMallocAsync cuMemAllocAsync
#define cuMallocFromPoolAsync cuMemAllocFromPoolAsync
#define cuMallocManaged cuMemAllocManaged
#define cuStreamCreateWithFlags cuStreamCreate

/* The driver's functions know a device by this. */
#define DEVICE_ID(dev) ((dev)->native)

/* A failed call of CUDA leaves nothing behind; a failed call of HIP does. */
#define FORGET_ERROR() ((void)0)

#include "device/driver-run.h"

#endif
