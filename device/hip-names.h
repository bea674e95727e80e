/* SPDX-License-Identifier: MIT */
/* device/hip-names.h - HIP's types and constants for the code that both drivers share; see
 * cuda-names.h. */
#ifndef HOIST_DEVICE_HIP_NAMES_H
#define HOIST_DEVICE_HIP_NAMES_H

#include "device/hip-types.h"

#define RESULT hoist__hip_error
#define NATIVE(type) hoist__hip_##type
#define VALUE(constant) HOIST__HIP_##constant

#endif
