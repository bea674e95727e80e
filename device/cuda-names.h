/* SPDX-License-Identifier: MIT */
/* device/cuda-names.h - CUDA's types and constants for the code that both drivers share.
 *
 * device/driver-*.inc.h and emulator/face-*.inc.h are compiled once for each driver and name its
 * types and constants by these macros.  hip-names.h is the twin: a file includes one of the two.
 */
#ifndef HOIST_DEVICE_CUDA_NAMES_H
#define HOIST_DEVICE_CUDA_NAMES_H

#include "device/cuda-types.h"

#define RESULT hoist__cu_result
#define NATIVE(type) hoist__cu_##type
#define VALUE(constant) HOIST__CU_##constant

#endif
