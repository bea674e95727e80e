/* SPDX-License-Identifier: MIT */
/* emulator/pool-handle.c - pools as the driver's caller sees them: made, destroyed, trimmed;
 * attributes.
 * The contract is in emulator/pool.h. */
#include "config.h"

#include <stdlib.h>

#include "emulator/block.h"
#include "emulator/stream.h"

struct hoist__emu_pool *hoist__emu_pool_find(struct hoist__emu_pool *handle)
{
	return hoist__emu_range_find(&hoist__emu.pools, (uintptr_t)handle, 1);
}

/* [locked] */
static int make_pool(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
		     uint64_t max_bytes, struct hoist__emu_pool **ret)
{
	struct hoist__emu_pool *pool = calloc(1, sizeof *pool);
	if (pool == NULL)
		return EMU_OUT_OF_MEMORY;
	pool->range = (struct hoist__emu_range){.start = (uintptr_t)pool, .bytes = 1};
	pool->device = device;
	pool->kind = kind;
	pool->max_bytes = max_bytes;
	for (unsigned i = EMU_POOL_FOLLOW_EVENTS; i <= EMU_POOL_DEPENDENCIES; i++)
		pool->values[i] = 1;
	hoist__list_init(&pool->free);
	if (hoist__emu_range_add(&hoist__emu.pools, &pool->range) < 0) {
		free(pool);
		return EMU_OUT_OF_MEMORY;
	}
	hoist__list_push_back(&device->pools, &pool->node);
	*ret = pool;
	return EMU_SUCCESS;
}

int hoist__emu_pool_create(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
			   uint64_t max_bytes, struct hoist__emu_pool **ret)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	result = make_pool(device, kind, max_bytes, ret);
	hoist__emu.count.live_pools += result == EMU_SUCCESS;
	hoist__emu_unlock();
	return result;
}

/* [locked] */
static int get_default(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
		       struct hoist__emu_pool **ret)
{
	struct hoist__emu_pool **own = &device->own_pools[kind];
	int result = *own == NULL ? make_pool(device, kind, 0, own) : EMU_SUCCESS;
	if (result == EMU_SUCCESS)
		*ret = *own;
	return result;
}

int hoist__emu_pool_default(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
			    struct hoist__emu_pool **ret)
{
	hoist__emu_lock();
	int result = get_default(device, kind, ret);
	hoist__emu_unlock();
	return result;
}

int hoist__emu_pool_of_device(struct hoist__emu_device *device, struct hoist__emu_pool **ret)
{
	int result = EMU_SUCCESS;
	hoist__emu_lock();
	if (device->current_pool != NULL)
		*ret = device->current_pool;
	else
		result = get_default(device, EMU_POOL_DEVICE, ret);
	hoist__emu_unlock();
	return result;
}

int hoist__emu_pool_set_of_device(struct hoist__emu_device *device, struct hoist__emu_pool *handle)
{
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	bool fits = pool != NULL && pool->device == device && pool->kind == EMU_POOL_DEVICE;
	if (fits)
		device->current_pool = pool;
	hoist__emu_unlock();
	return fits ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

int hoist__emu_pool_destroy(struct hoist__emu_pool *handle)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL && pool != pool->device->own_pools[pool->kind]) {
		if (pool->device->current_pool == pool)
			pool->device->current_pool = NULL;
		hoist__emu_range_remove(&hoist__emu.pools, &pool->range);
		hoist__emu.count.live_pools--;
		pool->closing = true;
		hoist__emu_pool_settle(pool, 0);
		result = EMU_SUCCESS;
	}
	hoist__emu_unlock();
	return result;
}

int hoist__emu_pool_trim(struct hoist__emu_pool *handle, size_t keep_bytes)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL)
		hoist__emu_pool_settle(pool, keep_bytes);
	hoist__emu_unlock();
	return pool != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

int hoist__emu_pool_get(struct hoist__emu_pool *handle, unsigned attribute, void *value)
{
	if (attribute < EMU_POOL_FOLLOW_EVENTS || attribute >= EMU_POOL_ATTRIBUTES || value == NULL)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	const struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL && attribute < EMU_POOL_THRESHOLD)
		*(int *)value = (int)pool->values[attribute];
	else if (pool != NULL)
		*(uint64_t *)value = pool->values[attribute];
	hoist__emu_unlock();
	return pool != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

/* [locked] */
static int set_value(struct hoist__emu_pool *pool, unsigned attribute, const void *value)
{
	switch (attribute) {
	case EMU_POOL_FOLLOW_EVENTS:
	case EMU_POOL_OPPORTUNISTIC:
	case EMU_POOL_DEPENDENCIES:
		pool->values[attribute] = *(const int *)value != 0;
		return EMU_SUCCESS;
	case EMU_POOL_THRESHOLD:
		pool->values[attribute] = *(const uint64_t *)value;
		return EMU_SUCCESS;
	case EMU_POOL_RESERVED_HIGH:
	case EMU_POOL_USED_HIGH: /* it may be set to 0 only, and then rises at once to the current
				  * value */
		if (*(const uint64_t *)value != 0)
			return EMU_INVALID_VALUE;
		pool->values[attribute] = pool->values[attribute - 1];
		return EMU_SUCCESS;
	default:
		return EMU_INVALID_VALUE;
	}
}

int hoist__emu_pool_set(struct hoist__emu_pool *handle, unsigned attribute, const void *value)
{
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	int result = EMU_INVALID_VALUE;
	if (pool != NULL && value != NULL)
		result = set_value(pool, attribute, value);
	hoist__emu_unlock();
	return result;
}

int hoist__emu_pool_set_access(struct hoist__emu_pool *handle, int ordinal, unsigned flags)
{
	if (hoist__emu_device(ordinal) == NULL)
		return EMU_INVALID_DEVICE;
	if (flags != 0 && flags != EMU_ACCESS_READ_WRITE)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	bool is_own =
		pool != NULL && pool->kind != EMU_POOL_HOST && pool->device->ordinal == ordinal;
	int result = pool != NULL && (!is_own || flags != 0) ? EMU_SUCCESS : EMU_INVALID_VALUE;
	uint64_t bit = (uint64_t)1 << ordinal;
	if (result == EMU_SUCCESS)
		pool->peers = flags != 0 ? pool->peers | bit : pool->peers & ~bit;
	hoist__emu_unlock();
	return result;
}

int hoist__emu_pool_get_access(struct hoist__emu_pool *handle, int ordinal, unsigned *flags)
{
	if (hoist__emu_device(ordinal) == NULL)
		return EMU_INVALID_DEVICE;
	hoist__emu_lock();
	const struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL)
		*flags = (pool->kind != EMU_POOL_HOST && pool->device->ordinal == ordinal) ||
					 (pool->peers >> ordinal & 1) != 0
				 ? EMU_ACCESS_READ_WRITE
				 : 0;
	hoist__emu_unlock();
	return pool != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}
