/* SPDX-License-Identifier: MIT */
/* emulator/cuda-thread.c - the stand-in for libcuda.so.1: functions for which the NULL stream is
 * the calling thread's own.  The contract is in emulator/cuda-thread.h. */
#include "config.h"

#include "emulator/cuda-thread.h"

#include <string.h>

#include "base/checked.h"
#include "emulator/cuda-face.h"

/* The stream that the caller means. */
static hoist__cu_stream own(hoist__cu_stream stream)
{
	return stream != NULL ? stream : (hoist__cu_stream)(void *)EMU_STREAM_OF_THREAD;
}

/* V(variant, function, parameters, arguments): the functions that only pass the stream on. */
#define VARIANTS(V)                                                                                \
	V(cuStreamSynchronize_ptsz, cuStreamSynchronize, (hoist__cu_stream s), (own(s)))           \
	V(cuStreamQuery_ptsz, cuStreamQuery, (hoist__cu_stream s), (own(s)))                       \
	V(cuStreamWaitEvent_ptsz, cuStreamWaitEvent,                                               \
	  (hoist__cu_stream s, hoist__cu_event e, unsigned int f), (own(s), e, f))                 \
	V(cuStreamIsCapturing_ptsz, cuStreamIsCapturing,                                           \
	  (hoist__cu_stream s, hoist__cu_capture_status * r), (own(s), r))                         \
	V(cuStreamGetPriority_ptsz, cuStreamGetPriority, (hoist__cu_stream s, int *r),             \
	  (own(s), r))                                                                             \
	V(cuStreamGetFlags_ptsz, cuStreamGetFlags, (hoist__cu_stream s, unsigned int *r),          \
	  (own(s), r))                                                                             \
	V(cuStreamGetId_ptsz, cuStreamGetId, (hoist__cu_stream s, unsigned long long *r),          \
	  (own(s), r))                                                                             \
	V(cuStreamGetCtx_ptsz, cuStreamGetCtx, (hoist__cu_stream s, hoist__cu_context * r),        \
	  (own(s), r))                                                                             \
	V(cuStreamGetDevice_ptsz, cuStreamGetDevice, (hoist__cu_stream s, hoist__cu_device * r),   \
	  (own(s), r))                                                                             \
	V(cuEventRecord_ptsz, cuEventRecord, (hoist__cu_event e, hoist__cu_stream s), (e, own(s))) \
	V(cuLaunchHostFunc_ptsz, cuLaunchHostFunc,                                                 \
	  (hoist__cu_stream s, hoist__cu_host_function f, void *a), (own(s), f, a))                \
	V(cuMemAllocAsync_ptsz, cuMemAllocAsync,                                                   \
	  (hoist__cu_device_ptr * r, size_t n, hoist__cu_stream s), (r, n, own(s)))                \
	V(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync,                                   \
	  (hoist__cu_device_ptr * r, size_t n, hoist__cu_pool p, hoist__cu_stream s),              \
	  (r, n, p, own(s)))                                                                       \
	V(cuMemFreeAsync_ptsz, cuMemFreeAsync, (hoist__cu_device_ptr a, hoist__cu_stream s),       \
	  (a, own(s)))                                                                             \
	V(cuMemcpyAsync_ptsz, cuMemcpyAsync,                                                       \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n, hoist__cu_stream s),          \
	  (d, a, n, own(s)))                                                                       \
	V(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2,                                         \
	  (hoist__cu_device_ptr d, const void *a, size_t n, hoist__cu_stream s),                   \
	  (d, a, n, own(s)))                                                                       \
	V(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2,                                         \
	  (void *d, hoist__cu_device_ptr a, size_t n, hoist__cu_stream s), (d, a, n, own(s)))      \
	V(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2,                                         \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n, hoist__cu_stream s),          \
	  (d, a, n, own(s)))                                                                       \
	V(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync,                                               \
	  (hoist__cu_device_ptr d, hoist__cu_context dc, hoist__cu_device_ptr a,                   \
	   hoist__cu_context ac, size_t n, hoist__cu_stream s),                                    \
	  (d, dc, a, ac, n, own(s)))                                                               \
	V(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2,                                             \
	  (const struct hoist__cu_copy_2d *c, hoist__cu_stream s), (c, own(s)))                    \
	V(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2,                                             \
	  (const struct hoist__cu_copy_3d *c, hoist__cu_stream s), (c, own(s)))                    \
	V(cuMemsetD8Async_ptsz, cuMemsetD8Async,                                                   \
	  (hoist__cu_device_ptr d, unsigned char v, size_t n, hoist__cu_stream s),                 \
	  (d, v, n, own(s)))                                                                       \
	V(cuMemsetD16Async_ptsz, cuMemsetD16Async,                                                 \
	  (hoist__cu_device_ptr d, unsigned short v, size_t n, hoist__cu_stream s),                \
	  (d, v, n, own(s)))                                                                       \
	V(cuMemsetD32Async_ptsz, cuMemsetD32Async,                                                 \
	  (hoist__cu_device_ptr d, unsigned int v, size_t n, hoist__cu_stream s),                  \
	  (d, v, n, own(s)))                                                                       \
	/* Work that waits: the inner function is told the stream. */                              \
	V(cuMemcpy_ptds, hoist__emu_cuda_copy,                                                     \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n),                              \
	  (FN_cuMemcpy, d, a, n, EMU_STREAM_OF_THREAD))                                            \
	V(cuMemcpyHtoD_v2_ptds, hoist__emu_cuda_copy,                                              \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n),                              \
	  (FN_cuMemcpyHtoD_v2, d, a, n, EMU_STREAM_OF_THREAD))                                     \
	V(cuMemcpyDtoH_v2_ptds, hoist__emu_cuda_copy,                                              \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n),                              \
	  (FN_cuMemcpyDtoH_v2, d, a, n, EMU_STREAM_OF_THREAD))                                     \
	V(cuMemcpyDtoD_v2_ptds, hoist__emu_cuda_copy,                                              \
	  (hoist__cu_device_ptr d, hoist__cu_device_ptr a, size_t n),                              \
	  (FN_cuMemcpyDtoD_v2, d, a, n, EMU_STREAM_OF_THREAD))                                     \
	V(cuMemsetD8_v2_ptds, hoist__emu_cuda_set,                                                 \
	  (hoist__cu_device_ptr d, unsigned char v, size_t n),                                     \
	  (FN_cuMemsetD8_v2, d, v, 1, n, EMU_STREAM_OF_THREAD))                                    \
	V(cuMemsetD16_v2_ptds, hoist__emu_cuda_set,                                                \
	  (hoist__cu_device_ptr d, unsigned short v, size_t n),                                    \
	  (FN_cuMemsetD16_v2, d, v, 2, n, EMU_STREAM_OF_THREAD))                                   \
	V(cuMemsetD32_v2_ptds, hoist__emu_cuda_set,                                                \
	  (hoist__cu_device_ptr d, unsigned int v, size_t n),                                      \
	  (FN_cuMemsetD32_v2, d, v, 4, n, EMU_STREAM_OF_THREAD))

#define V(variant, function, parameters, arguments)                                                \
	HOIST_EMULATOR_API hoist__cu_result variant parameters;                                    \
	hoist__cu_result variant parameters                                                        \
	{                                                                                          \
		return function arguments;                                                         \
	}
VARIANTS(V)
#undef V

typedef void (*address)(void);

address hoist__emu_cuda_of_thread(const char *symbol)
{
	static const struct {
		const char *variant;
		address at;
	} variants[] = {
#define V(variant, function, parameters, arguments) {#variant, (address)variant},
		VARIANTS(V)
#undef V
	};
	size_t n = strlen(symbol);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(variants); i++)
		if (strncmp(variants[i].variant, symbol, n) == 0 &&
		    strncmp(variants[i].variant + n, "_pt", 3) == 0)
			return variants[i].at;
	return NULL;
}
