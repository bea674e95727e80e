/* SPDX-License-Identifier: MIT */
/* emulator/face-pool.inc.h - stream-ordered pools; part of cuda.c. */
#include "emulator/cuda-face.h"
#include "emulator/ipc.h"
#include "emulator/pool.h"

#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_POOL_FOLLOW_EVENTS, HOIST__CU_POOL_FOLLOW_EVENTS);
SAME(EMU_POOL_OPPORTUNISTIC, HOIST__CU_POOL_OPPORTUNISTIC);
SAME(EMU_POOL_DEPENDENCIES, HOIST__CU_POOL_DEPENDENCIES);
SAME(EMU_POOL_THRESHOLD, HOIST__CU_POOL_THRESHOLD);
SAME(EMU_POOL_RESERVED_CURRENT, HOIST__CU_POOL_RESERVED_CURRENT);
SAME(EMU_POOL_RESERVED_HIGH, HOIST__CU_POOL_RESERVED_HIGH);
SAME(EMU_POOL_USED_CURRENT, HOIST__CU_POOL_USED_CURRENT);
SAME(EMU_POOL_USED_HIGH, HOIST__CU_POOL_USED_HIGH);
SAME(EMU_ACCESS_READ_WRITE, HOIST__CU_ACCESS_READ_WRITE);
#undef SAME

static struct hoist__emu_pool *pool_of(hoist__cu_pool pool)
{
	return (struct hoist__emu_pool *)(void *)pool;
}

hoist__cu_result cuDeviceGetMemPool(hoist__cu_pool *ret, hoist__cu_device ordinal)
{
	int result = hoist__emu_cuda_enter(FN_cuDeviceGetMemPool);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || device == NULL))
		result = ret == NULL ? EMU_INVALID_VALUE : EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_of_device(device, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_pool)(void *)pool;
	return (hoist__cu_result)result;
}

/* Of the properties this driver has those that hoist asks for; all else must be 0. */
static int check_props(const struct hoist__cu_pool_props *props)
{
	if (props == NULL || props->type != HOIST__CU_ALLOCATION_PINNED ||
	    props->handle_types > HOIST__CU_HANDLE_FD ||
	    props->location_type != HOIST__CU_LOCATION_DEVICE || props->unused != NULL)
		return EMU_INVALID_VALUE;
	for (size_t i = 0; i < sizeof props->reserved; i++)
		if (props->reserved[i] != 0)
			return EMU_INVALID_VALUE;
	return hoist__emu_device(props->location) != NULL ? EMU_SUCCESS : EMU_INVALID_DEVICE;
}

static int create_pool(const struct hoist__cu_pool_props *props, struct hoist__emu_pool **ret)
{
	struct hoist__emu_pool *made = NULL;
	int result =
		hoist__emu_pool_create(hoist__emu_device(props->location), props->max_bytes, &made);
	if (result == EMU_SUCCESS && props->handle_types != HOIST__CU_HANDLE_NONE)
		result = hoist__emu_pool_make_shareable(made);
	if (result == EMU_SUCCESS)
		*ret = made;
	else if (made != NULL)
		(void)hoist__emu_pool_destroy(made);
	return result;
}

hoist__cu_result cuMemPoolCreate(hoist__cu_pool *ret, const struct hoist__cu_pool_props *props)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolCreate);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE : check_props(props);
	if (result == EMU_SUCCESS)
		result = create_pool(props, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__cu_pool)(void *)pool;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolDestroy(hoist__cu_pool pool)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_cuMemPoolDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_destroy(pool_of(pool));
	return leave_free(result, forced);
}

hoist__cu_result cuMemPoolTrimTo(hoist__cu_pool pool, size_t keep_bytes)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolTrimTo);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_trim(pool_of(pool), keep_bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolGetAttribute(hoist__cu_pool pool, hoist__cu_pool_attribute attribute,
				       void *value)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolGetAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get(pool_of(pool), attribute, value);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolSetAttribute(hoist__cu_pool pool, hoist__cu_pool_attribute attribute,
				       void *value)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolSetAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_set(pool_of(pool), attribute, value);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolSetAccess(hoist__cu_pool pool, const struct hoist__cu_access *access,
				    size_t n)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolSetAccess);
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result = access[i].location.type != HOIST__CU_LOCATION_DEVICE
				 ? EMU_INVALID_VALUE
				 : hoist__emu_pool_set_access(pool_of(pool), access[i].location.id,
							      access[i].flags);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemPoolGetAccess(hoist__cu_access_flags *ret, hoist__cu_pool pool,
				    struct hoist__cu_location *location)
{
	int result = hoist__emu_cuda_enter(FN_cuMemPoolGetAccess);
	if (result == EMU_SUCCESS &&
	    (ret == NULL || location == NULL || location->type != HOIST__CU_LOCATION_DEVICE))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get_access(pool_of(pool), location->id, ret);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemAllocFromPoolAsync(hoist__cu_device_ptr *ret, size_t bytes,
					 hoist__cu_pool pool, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemAllocFromPoolAsync, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_alloc(device, pool_of(pool), stream_of(stream), bytes,
					       &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemFreeAsync(hoist__cu_device_ptr address, hoist__cu_stream stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_cuda_enter_free(FN_cuMemFreeAsync, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_free(hoist__emu_cuda_current(), (uintptr_t)address,
					      stream_of(stream));
	return leave_free(result, forced);
}
