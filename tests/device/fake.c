/* SPDX-License-Identifier: MIT */
/* A library that is a driver only by name: it tells a version and lacks the
 * rest.  Built twice, as one too old and as one new but damaged. */
#include "config.h"

#include "device/cuda-table.h"
#include "device/hip-table.h"

#pragma GCC visibility push(default)

hoist__cu_result cuDriverGetVersion(int *version);
hoist__cu_result cuInit(unsigned int flags);
hoist__hip_error hipRuntimeGetVersion(int *version);
hoist__hip_error hipInit(unsigned int flags);

hoist__cu_result cuDriverGetVersion(int *version)
{
	*version = FAKE_CUDA_VERSION;
	return HOIST__CU_SUCCESS;
}

hoist__cu_result cuInit(unsigned int flags)
{
	return flags == 0 ? HOIST__CU_SUCCESS : HOIST__CU_ERROR_INVALID_VALUE;
}

hoist__hip_error hipRuntimeGetVersion(int *version)
{
	*version = FAKE_HIP_VERSION;
	return HOIST__HIP_SUCCESS;
}

hoist__hip_error hipInit(unsigned int flags)
{
	return flags == 0 ? HOIST__HIP_SUCCESS : HOIST__HIP_ERROR_INVALID_VALUE;
}

#pragma GCC visibility pop
