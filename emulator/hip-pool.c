/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: its stream-ordered pools. */
#include "config.h"

#include "emulator/hip-face.h"
#include "emulator/ipc.h"
#include "emulator/pool.h"

#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_POOL_FOLLOW_EVENTS, HOIST__HIP_POOL_FOLLOW_EVENTS);
SAME(EMU_POOL_OPPORTUNISTIC, HOIST__HIP_POOL_OPPORTUNISTIC);
SAME(EMU_POOL_DEPENDENCIES, HOIST__HIP_POOL_DEPENDENCIES);
SAME(EMU_POOL_THRESHOLD, HOIST__HIP_POOL_THRESHOLD);
SAME(EMU_POOL_RESERVED_CURRENT, HOIST__HIP_POOL_RESERVED_CURRENT);
SAME(EMU_POOL_RESERVED_HIGH, HOIST__HIP_POOL_RESERVED_HIGH);
SAME(EMU_POOL_USED_CURRENT, HOIST__HIP_POOL_USED_CURRENT);
SAME(EMU_POOL_USED_HIGH, HOIST__HIP_POOL_USED_HIGH);
SAME(EMU_ACCESS_READ_WRITE, HOIST__HIP_ACCESS_READ_WRITE);
#undef SAME

static struct hoist__emu_pool *pool_of(hoist__hip_pool pool)
{
	return (struct hoist__emu_pool *)(void *)pool;
}

hoist__hip_error hipDeviceGetMemPool(hoist__hip_pool *ret, int ordinal)
{
	int result = hoist__emu_hip_enter(FN_hipDeviceGetMemPool);
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || device == NULL))
		result = ret == NULL ? EMU_INVALID_VALUE : EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_of_device(device, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_pool)(void *)pool;
	return hoist__emu_hip_leave(result);
}

/* Of the properties this driver has those that hoist asks for; all else must be 0. */
static int check_props(const struct hoist__hip_pool_props *props)
{
	if (props == NULL || props->type != HOIST__HIP_ALLOCATION_PINNED ||
	    props->handle_types > HOIST__HIP_HANDLE_FD ||
	    props->location_type != HOIST__HIP_LOCATION_DEVICE || props->unused != NULL)
		return EMU_INVALID_VALUE;
	for (size_t i = 0; i < sizeof props->reserved; i++)
		if (props->reserved[i] != 0)
			return EMU_INVALID_VALUE;
	return hoist__emu_device(props->location) != NULL ? EMU_SUCCESS : EMU_INVALID_DEVICE;
}

static int create_pool(const struct hoist__hip_pool_props *props, struct hoist__emu_pool **ret)
{
	struct hoist__emu_pool *made = NULL;
	int result =
		hoist__emu_pool_create(hoist__emu_device(props->location), props->max_bytes, &made);
	if (result == EMU_SUCCESS && props->handle_types != HOIST__HIP_HANDLE_NONE)
		result = hoist__emu_pool_make_shareable(made);
	if (result == EMU_SUCCESS)
		*ret = made;
	else if (made != NULL)
		(void)hoist__emu_pool_destroy(made);
	return result;
}

hoist__hip_error hipMemPoolCreate(hoist__hip_pool *ret, const struct hoist__hip_pool_props *props)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolCreate);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE : check_props(props);
	if (result == EMU_SUCCESS)
		result = create_pool(props, &pool);
	if (result == EMU_SUCCESS)
		*ret = (hoist__hip_pool)(void *)pool;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolDestroy(hoist__hip_pool pool)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipMemPoolDestroy, &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_destroy(pool_of(pool));
	return leave_free(result, forced);
}

hoist__hip_error hipMemPoolTrimTo(hoist__hip_pool pool, size_t keep_bytes)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolTrimTo);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_trim(pool_of(pool), keep_bytes);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolGetAttribute(hoist__hip_pool pool, hoist__hip_pool_attribute attribute,
					void *value)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolGetAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get(pool_of(pool), attribute, value);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolSetAttribute(hoist__hip_pool pool, hoist__hip_pool_attribute attribute,
					void *value)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolSetAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_set(pool_of(pool), attribute, value);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolSetAccess(hoist__hip_pool pool, const struct hoist__hip_access *access,
				     size_t n)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolSetAccess);
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result = access[i].location.type != HOIST__HIP_LOCATION_DEVICE
				 ? EMU_INVALID_VALUE
				 : hoist__emu_pool_set_access(pool_of(pool), access[i].location.id,
							      access[i].flags);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMemPoolGetAccess(hoist__hip_access_flags *ret, hoist__hip_pool pool,
				     struct hoist__hip_location *location)
{
	int result = hoist__emu_hip_enter(FN_hipMemPoolGetAccess);
	if (result == EMU_SUCCESS &&
	    (ret == NULL || location == NULL || location->type != HOIST__HIP_LOCATION_DEVICE))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get_access(pool_of(pool), location->id, ret);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipMallocFromPoolAsync(void **ret, size_t bytes, hoist__hip_pool pool,
					hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMallocFromPoolAsync, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_alloc(device, pool_of(pool), stream_of(stream), bytes,
					       &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipFreeAsync(void *address, hoist__hip_stream stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN_hipFreeAsync, &forced);
	if (result == EMU_SUCCESS && hoist__emu_hip_current() == NULL)
		result = EMU_NO_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_free(hoist__emu_hip_current(), (uintptr_t)address,
					      stream_of(stream));
	return leave_free(result, forced);
}
