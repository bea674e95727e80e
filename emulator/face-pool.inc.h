/* SPDX-License-Identifier: MIT */
/* emulator/face-pool.inc.h - stream-ordered pools; part of cuda.c and of hip.c.
 * See face.h. */
#include "emulator/ipc.h"
#include "emulator/pool.h"

SAME(EMU_POOL_FOLLOW_EVENTS, POOL_FOLLOW_EVENTS);
SAME(EMU_POOL_OPPORTUNISTIC, POOL_OPPORTUNISTIC);
SAME(EMU_POOL_DEPENDENCIES, POOL_DEPENDENCIES);
SAME(EMU_POOL_THRESHOLD, POOL_THRESHOLD);
SAME(EMU_POOL_RESERVED_CURRENT, POOL_RESERVED_CURRENT);
SAME(EMU_POOL_RESERVED_HIGH, POOL_RESERVED_HIGH);
SAME(EMU_POOL_USED_CURRENT, POOL_USED_CURRENT);
SAME(EMU_POOL_USED_HIGH, POOL_USED_HIGH);
SAME(EMU_ACCESS_READ_WRITE, ACCESS_READ_WRITE);

RESULT SYMBOL(DeviceGetMemPool)(NATIVE(pool) *ret, NATIVE(device) ordinal)
{
	int result = hoist__emu_face_enter(FN(DeviceGetMemPool));
	struct hoist__emu_device *device = hoist__emu_device(ordinal);
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS && (ret == NULL || device == NULL))
		result = ret == NULL ? EMU_INVALID_VALUE : EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_of_device(device, &pool);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(pool))(void *)pool;
	return hoist__emu_face_leave(result);
}

/* This driver knows the properties that hoist asks for; all others must be 0. */
static int check_props(const struct NATIVE(pool_props) *props)
{
	if (props == NULL || props->handle_types > VALUE(HANDLE_FD) || props->unused != NULL)
		return EMU_INVALID_VALUE;
	for (size_t i = 0; i < sizeof props->reserved; i++)
		if (props->reserved[i] != 0)
			return EMU_INVALID_VALUE;
	return EMU_SUCCESS;
}

static int create_pool(const struct NATIVE(pool_props) *props, struct hoist__emu_pool **ret)
{
	struct hoist__emu_pool *made = NULL;
	enum hoist__emu_pool_kind kind = EMU_POOL_DEVICE;
	struct hoist__emu_device *device = NULL;
	int result =
		face_pool_place(props->type, props->location_type, props->location, &kind, &device);
	/* Other processes get pools of devices only. */
	if (result == EMU_SUCCESS && kind != EMU_POOL_DEVICE &&
	    props->handle_types != VALUE(HANDLE_NONE))
		result = EMU_NOT_SUPPORTED;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_create(device, kind, props->max_bytes, &made);
	if (result == EMU_SUCCESS && props->handle_types != VALUE(HANDLE_NONE))
		result = hoist__emu_pool_make_shareable(made);
	if (result == EMU_SUCCESS)
		*ret = made;
	else if (made != NULL)
		(void)hoist__emu_pool_destroy(made);
	return result;
}

RESULT SYMBOL(MemPoolCreate)(NATIVE(pool) *ret, const struct NATIVE(pool_props) *props)
{
	int result = hoist__emu_face_enter(FN(MemPoolCreate));
	struct hoist__emu_pool *pool = NULL;
	if (result == EMU_SUCCESS)
		result = ret == NULL ? EMU_INVALID_VALUE : check_props(props);
	if (result == EMU_SUCCESS)
		result = create_pool(props, &pool);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(pool))(void *)pool;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolDestroy)(NATIVE(pool) pool)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_enter_free(FN(MemPoolDestroy), &forced);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_destroy(pool_of(pool));
	return leave_free(result, forced);
}

RESULT SYMBOL(MemPoolTrimTo)(NATIVE(pool) pool, size_t keep_bytes)
{
	int result = hoist__emu_face_enter(FN(MemPoolTrimTo));
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_trim(pool_of(pool), keep_bytes);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolGetAttribute)(NATIVE(pool) pool, NATIVE(pool_attribute) attribute, void *value)
{
	int result = hoist__emu_face_enter(FN(MemPoolGetAttribute));
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get(pool_of(pool), attribute, value);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolSetAttribute)(NATIVE(pool) pool, NATIVE(pool_attribute) attribute, void *value)
{
	int result = hoist__emu_face_enter(FN(MemPoolSetAttribute));
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_set(pool_of(pool), attribute, value);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolSetAccess)(NATIVE(pool) pool, const struct NATIVE(access) *access, size_t n)
{
	int result = hoist__emu_face_enter(FN(MemPoolSetAccess));
	if (result == EMU_SUCCESS && (access == NULL || n == 0))
		result = EMU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == EMU_SUCCESS; i++)
		result = access[i].location.type != VALUE(LOCATION_DEVICE)
				 ? EMU_INVALID_VALUE
				 : hoist__emu_pool_set_access(pool_of(pool), access[i].location.id,
							      access[i].flags);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MemPoolGetAccess)(NATIVE(access_flags) *ret, NATIVE(pool) pool,
				struct NATIVE(location) *location)
{
	int result = hoist__emu_face_enter(FN(MemPoolGetAccess));
	if (result == EMU_SUCCESS &&
	    (ret == NULL || location == NULL || location->type != VALUE(LOCATION_DEVICE)))
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_get_access(pool_of(pool), location->id, ret);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(MallocFromPoolAsync)(NATIVE(device_ptr) *ret, size_t bytes, NATIVE(pool) pool,
				   NATIVE(stream) stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MallocFromPoolAsync), &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_alloc(device, pool_of(pool), stream_of(stream), bytes,
					       &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(FreeAsync)(NATIVE(device_ptr) address, NATIVE(stream) stream)
{
	int forced = EMU_SUCCESS;
	int result = hoist__emu_face_enter_free(FN(FreeAsync), &forced);
	if (result == EMU_SUCCESS && hoist__emu_face_current() == NULL)
		result = EMU_NO_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_free(hoist__emu_face_current(), (uintptr_t)address,
					      stream_of(stream));
	return leave_free(result, forced);
}
