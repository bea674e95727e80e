/* SPDX-License-Identifier: MIT */
/* emulator/cuda-client.c - the stand-in for libcuda.so.1: memory, pools, streams and copies, as
 * programs ask for them that were written for a real driver.  The contract is
 * emulator/cuda-client.h. */
#include "config.h"

#include <string.h>

#include "emulator/cuda-face.h"
#include "emulator/pool.h"
#include "emulator/stream.h"
#include "emulator/vmm.h"

/* --- pinned memory that the driver allocates --- */

static hoist__cu_result host_alloc(unsigned function, void **ret, size_t bytes, unsigned flags)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	/* PORTABLE, DEVICEMAP, WRITECOMBINED */
	if (result == EMU_SUCCESS && (ret == NULL || flags > 7))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_alloc(bytes, ret);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAllocHost_v2(void **ret, size_t bytes)
{
	return host_alloc(FN_cuMemAllocHost_v2, ret, bytes, 0);
}

hoist__cu_result cuMemHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
	return host_alloc(FN_cuMemHostAlloc, ret, bytes, flags);
}

hoist__cu_result cuMemFreeHost(void *address)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN_cuMemFreeHost, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_host_free(address);
	return leave_free(result, forced);
}

hoist__cu_result cuMemRetainAllocationHandle(hoist__cu_memory *ret, void *address)
{
	int result = hoist__emu_face_enter(FN_cuMemRetainAllocationHandle);
	void *handle = NULL;
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE
				     : hoist__emu_vmm_retain((uintptr_t)address, &handle);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_memory)(uintptr_t)handle;
	return (hoist__cu_result)result;
}

/* --- pools --- */

int hoist__emu_cuda_pool_place(unsigned type, unsigned location_type, int location,
			       enum hoist__emu_pool_kind *kind, struct hoist__emu_device **device)
{
	bool managed = type == EMU_CU_ALLOCATION_MANAGED;
	if (!managed && type != HOIST__CU_ALLOCATION_PINNED)
		return EMU_INVALID_VALUE;
	*device = hoist__emu_device(location_type == HOIST__CU_LOCATION_DEVICE ? location : 0);
	if (*device == NULL)
		return EMU_INVALID_DEVICE;
	*kind = managed ? EMU_POOL_MANAGED : EMU_POOL_HOST;
	switch (location_type) {
	case HOIST__CU_LOCATION_DEVICE:
		if (!managed)
			*kind = EMU_POOL_DEVICE;
		return EMU_SUCCESS;
	case HOIST__CU_LOCATION_HOST:
		return EMU_SUCCESS;
	case HOIST__CU_LOCATION_HOST_NODE:
		return location >= 0 ? EMU_SUCCESS : EMU_INVALID_VALUE;
	case EMU_CU_LOCATION_NONE:
		return managed ? EMU_SUCCESS : EMU_INVALID_VALUE;
	default:
		return EMU_INVALID_VALUE;
	}
}

hoist__cu_result cuDeviceGetDefaultMemPool(hoist__cu_pool *ret, hoist__cu_device ordinal)
{
	struct hoist__emu_pool *pool = NULL;
	int result = enter_device(FN_cuDeviceGetDefaultMemPool, ordinal, ret);
	if (result == EMU_SUCCESS)
		result =
			hoist__emu_pool_default(hoist__emu_device(ordinal), EMU_POOL_DEVICE, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_pool)(void *)pool;
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceSetMemPool(hoist__cu_device ordinal, hoist__cu_pool pool)
{
	int result = hoist__emu_face_enter(FN_cuDeviceSetMemPool);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	if (result == EMU_SUCCESS && device == NULL)
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_set_of_device(device, pool_of(pool));
	return (hoist__cu_result)result;
}

/* Only a device can be given another pool than the default. */
static hoist__cu_result get_pool(unsigned function, hoist__cu_pool *ret,
				 const struct hoist__cu_location *location, unsigned type,
				 bool by_default)
{
	enum hoist__emu_pool_kind kind = EMU_POOL_DEVICE;
	struct hoist__emu_device *device = NULL;
	struct hoist__emu_pool *pool = NULL;
	int result = hoist__emu_face_enter(function);
	if (result == EMU_SUCCESS && (ret == NULL || location == NULL))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_cuda_pool_place(type, location->type, location->id, &kind,
						    &device);
	if (result == EMU_SUCCESS)
		result = kind == EMU_POOL_DEVICE && !by_default
				 ? hoist__emu_pool_of_device(device, &pool)
				 : hoist__emu_pool_default(device, kind, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_pool)(void *)pool;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemGetDefaultMemPool(hoist__cu_pool *ret, struct hoist__cu_location *location,
					unsigned int type)
{
	return get_pool(FN_cuMemGetDefaultMemPool, ret, location, type, true);
}

hoist__cu_result cuMemGetMemPool(hoist__cu_pool *ret, struct hoist__cu_location *location,
				 unsigned int type)
{
	return get_pool(FN_cuMemGetMemPool, ret, location, type, false);
}

/* --- streams and events --- */

/* A priority outside of the range becomes the nearest one in it. */
hoist__cu_result cuStreamCreateWithPriority(hoist__cu_stream *ret, unsigned int flags, int priority)
{
	struct hoist__emu_device *device = NULL;
	struct hoist__emu_stream *stream = NULL;
	int result = hoist__emu_face_enter_current(FN_cuStreamCreateWithPriority, &device);
	if (result == EMU_SUCCESS && (ret == NULL || flags > HOIST__CU_STREAM_NON_BLOCKING))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_create(device, flags == 0, &stream);
	if (priority < EMU_CU_PRIORITY_GREATEST)
		priority = EMU_CU_PRIORITY_GREATEST;
	if (priority > EMU_CU_PRIORITY_LEAST)
		priority = EMU_CU_PRIORITY_LEAST;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_set_priority(stream, priority);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_stream)(void *)stream;
	return (hoist__cu_result)result;
}

/* Enters a question about a stream, for whose answer there is a place. */
static int enter_stream(unsigned function, hoist__cu_stream stream, const void *at,
			struct hoist__emu_stream_info *info)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	if (result == EMU_SUCCESS && at == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_info(device, stream_of(stream), info);
	return result;
}

hoist__cu_result cuStreamGetPriority(hoist__cu_stream stream, int *ret)
{
	struct hoist__emu_stream_info info;
	int result = enter_stream(FN_cuStreamGetPriority, stream, ret, &info);
	if (result == EMU_SUCCESS)
		*ret = info.priority;
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamGetFlags(hoist__cu_stream stream, unsigned int *ret)
{
	struct hoist__emu_stream_info info;
	int result = enter_stream(FN_cuStreamGetFlags, stream, ret, &info);
	if (result == EMU_SUCCESS)
		*ret = info.blocking ? 0 : HOIST__CU_STREAM_NON_BLOCKING;
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamGetId(hoist__cu_stream stream, unsigned long long *ret)
{
	struct hoist__emu_stream_info info;
	int result = enter_stream(FN_cuStreamGetId, stream, ret, &info);
	if (result == EMU_SUCCESS)
		*ret = info.id;
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamGetCtx(hoist__cu_stream stream, hoist__cu_context *ret)
{
	struct hoist__emu_stream_info info;
	int result = enter_stream(FN_cuStreamGetCtx, stream, ret, &info);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_context)(void *)info.device;
	return (hoist__cu_result)result;
}

hoist__cu_result cuStreamGetDevice(hoist__cu_stream stream, hoist__cu_device *ret)
{
	struct hoist__emu_stream_info info;
	int result = enter_stream(FN_cuStreamGetDevice, stream, ret, &info);
	if (result == EMU_SUCCESS)
		*ret = info.device->ordinal;
	return (hoist__cu_result)result;
}

/* The first version answers INVALID_HANDLE for events of two contexts, and so does this one. */
hoist__cu_result cuEventElapsedTime_v2(float *ret, hoist__cu_event start, hoist__cu_event end)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuEventElapsedTime_v2, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_event_elapsed_ms(event_of(start), event_of(end), ret);
	return (hoist__cu_result)result;
}

/* --- copies whose direction the addresses say --- */

static bool is_device(uint64_t address)
{
	struct hoist__emu_pointer pointer;
	return hoist__emu_pointer((uintptr_t)address, &pointer) && !pointer.host;
}

static bool is_known(uint64_t address)
{
	struct hoist__emu_pointer pointer;
	return hoist__emu_pointer((uintptr_t)address, &pointer);
}

/* Both sides are pageable: the host copies, once the stream has come to the copy. */
static int copy_host(struct hoist__emu_device *device, uint64_t dst, uint64_t src, size_t bytes,
		     struct hoist__emu_stream *stream)
{
	struct hoist__emu_span to = {.bytes = NULL};
	struct hoist__emu_span from = {.bytes = NULL};
	int result = hoist__emu_stream_synchronize(device, stream);
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	result = hoist__emu_span_host((uintptr_t)dst, bytes, &to);
	if (result == EMU_SUCCESS)
		result = hoist__emu_span_host((uintptr_t)src, bytes, &from);
	hoist__emu_unlock();
	if (result == EMU_SUCCESS)
		memmove(to.bytes, from.bytes, bytes);
	return result;
}

static int copy(struct hoist__emu_device *device, uint64_t dst, uint64_t src, size_t bytes,
		struct hoist__emu_stream *stream)
{
	bool to = is_device(dst);
	bool from = is_device(src);
	if (bytes == 0)
		return EMU_SUCCESS;
	if (!to && !from && !is_known(dst) && !is_known(src))
		return copy_host(device, dst, src, bytes, stream);
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	if (!(to && from))
		direction = to || (!from && is_known(dst)) ? EMU_TO_DEVICE : EMU_TO_HOST;
	return hoist__emu_copy(device, stream, direction, (uintptr_t)dst, (uintptr_t)src, bytes);
}

hoist__cu_result cuMemcpyAsync(hoist__cu_device_ptr dst, hoist__cu_device_ptr src, size_t bytes,
			       hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpyAsync, &device);
	if (result == EMU_SUCCESS)
		result = copy(device, dst, src, bytes, stream_of(stream));
	return (hoist__cu_result)result;
}

hoist__cu_result hoist__emu_cuda_copy(unsigned function, uint64_t dst, uint64_t src, size_t bytes,
				      struct hoist__emu_stream *stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	enum hoist__emu_direction direction = function == FN_cuMemcpyHtoD_v2   ? EMU_TO_DEVICE
					      : function == FN_cuMemcpyDtoH_v2 ? EMU_TO_HOST
									       : EMU_ON_DEVICE;
	if (result == EMU_SUCCESS)
		result = function == FN_cuMemcpy
				 ? copy(device, dst, src, bytes, stream)
				 : hoist__emu_copy(device, stream, direction, (uintptr_t)dst,
						   (uintptr_t)src, bytes);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream);
	return (hoist__cu_result)result;
}

hoist__cu_result hoist__emu_cuda_set(unsigned function, uint64_t dst, uint32_t value,
				     unsigned width, size_t n, struct hoist__emu_stream *stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_memset(device, stream, (uintptr_t)dst, value, width, n);
	if (result == EMU_SUCCESS)
		result = hoist__emu_stream_synchronize(device, stream);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemcpy(hoist__cu_device_ptr dst, hoist__cu_device_ptr src, size_t bytes)
{
	return hoist__emu_cuda_copy(FN_cuMemcpy, dst, src, bytes, NULL);
}

hoist__cu_result cuMemcpyHtoD_v2(hoist__cu_device_ptr dst, const void *src, size_t bytes)
{
	return hoist__emu_cuda_copy(FN_cuMemcpyHtoD_v2, dst, (uintptr_t)src, bytes, NULL);
}

hoist__cu_result cuMemcpyDtoH_v2(void *dst, hoist__cu_device_ptr src, size_t bytes)
{
	return hoist__emu_cuda_copy(FN_cuMemcpyDtoH_v2, (uintptr_t)dst, src, bytes, NULL);
}

hoist__cu_result cuMemcpyDtoD_v2(hoist__cu_device_ptr dst, hoist__cu_device_ptr src, size_t bytes)
{
	return hoist__emu_cuda_copy(FN_cuMemcpyDtoD_v2, dst, src, bytes, NULL);
}

hoist__cu_result cuMemsetD8_v2(hoist__cu_device_ptr dst, unsigned char value, size_t n)
{
	return hoist__emu_cuda_set(FN_cuMemsetD8_v2, dst, value, 1, n, NULL);
}

hoist__cu_result cuMemsetD16_v2(hoist__cu_device_ptr dst, unsigned short value, size_t n)
{
	return hoist__emu_cuda_set(FN_cuMemsetD16_v2, dst, value, 2, n, NULL);
}

hoist__cu_result cuMemsetD32_v2(hoist__cu_device_ptr dst, unsigned int value, size_t n)
{
	return hoist__emu_cuda_set(FN_cuMemsetD32_v2, dst, value, 4, n, NULL);
}
