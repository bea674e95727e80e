/* SPDX-License-Identifier: MIT */
/* device/hip-pool.c - the runtime's own stream-ordered pools, where it has them. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/driver.h"
#include "device/hip-run.h"

/* The functions came together, so one of them stands for all. */
static int check_pools(const struct hoist__dev *dev)
{
	return hoist__hip.hipMemPoolCreate != NULL ? 0
						   : hoist__driver_fail_lacks(dev, "memory pools");
}

static hoist__hip_pool_attribute native_attribute(enum hoist__pool_attribute attribute)
{
	static const hoist__hip_pool_attribute natives[HOIST__N_POOL_ATTRIBUTES] = {
		[HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES] = HOIST__HIP_POOL_FOLLOW_EVENTS,
		[HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC] = HOIST__HIP_POOL_OPPORTUNISTIC,
		[HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES] = HOIST__HIP_POOL_DEPENDENCIES,
		[HOIST__POOL_RELEASE_THRESHOLD] = HOIST__HIP_POOL_THRESHOLD,
		[HOIST__POOL_RESERVED_CURRENT] = HOIST__HIP_POOL_RESERVED_CURRENT,
		[HOIST__POOL_RESERVED_HIGH] = HOIST__HIP_POOL_RESERVED_HIGH,
		[HOIST__POOL_USED_CURRENT] = HOIST__HIP_POOL_USED_CURRENT,
		[HOIST__POOL_USED_HIGH] = HOIST__HIP_POOL_USED_HIGH,
	};
	return natives[attribute];
}

int hoist__hip_pool_create(struct hoist__dev_pool *pool)
{
	const struct hoist__dev *dev = pool->dev;
	const struct hoist__hip_pool_props props = {
		.type = HOIST__HIP_ALLOCATION_PINNED,
		.handle_types = pool->shareable ? HOIST__HIP_HANDLE_FD : HOIST__HIP_HANDLE_NONE,
		.location_type = HOIST__HIP_LOCATION_DEVICE,
		.location = pool->dev->ordinal,
		.max_bytes = pool->max_bytes,
	};
	hoist__hip_pool native = NULL;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(dev);
	if (err < 0)
		return err;
	if (pool->max_bytes != 0 && dev->props.driver_version < HOIST__HIP_POOL_LIMIT_SINCE)
		return hoist__driver_fail_lacks(dev, "memory pools with a limit");
	err = RUN_RELAXED(pool->dev, "creating a memory pool",
			  result = hoist__hip.hipMemPoolCreate(&native, &props));
	if (pool->shareable && result == HOIST__HIP_ERROR_INVALID_VALUE)
		return hoist__driver_fail_lacks(dev, "memory pools that processes can share");
	if (result == HOIST__HIP_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)result, "memory pools");
	if (err < 0)
		return err == -ENOSPC ? hoist__fail_in(-ENOMEM, "a memory pool") : err;
	pool->native = native;
	err = hoist__hip_pool_set(pool, HOIST__POOL_RELEASE_THRESHOLD, UINT64_MAX);
	if (err < 0) /* some releases have no thresholds, and keep memory or not as they like */
		hoist__log(device, "%s", hoist__error_text());
	return 0;
}

int hoist__hip_pool_current(struct hoist__dev_pool *pool)
{
	hoist__hip_pool native = NULL;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN(pool->dev, "asking for the device's memory pool",
		  result = hoist__hip.hipDeviceGetMemPool(&native, pool->dev->ordinal));
	if (result == HOIST__HIP_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(pool->dev, (int)result, "memory pools");
	if (err == 0)
		pool->native = native;
	return err;
}

void hoist__hip_pool_destroy(struct hoist__dev_pool *pool)
{
	int err = RELEASE(pool->dev, "destroying a memory pool",
			  hoist__hip.hipMemPoolDestroy(pool->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

int hoist__hip_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			  struct hoist__dev_stream *stream, uintptr_t *ret)
{
	void *address = NULL;
	int err = RUN(
		pool->dev, "allocating from a memory pool",
		hoist__hip.hipMallocFromPoolAsync(&address, bytes, pool->native, stream->native));
	if (err < 0)
		return hoist__driver_fail_pool_alloc(pool, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__hip_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			 struct hoist__dev_stream *stream)
{
	return RELEASE(pool->dev, "freeing to a memory pool",
		       hoist__hip.hipFreeAsync((void *)address, stream->native));
}

int hoist__hip_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes)
{
	return RUN_RELAXED(pool->dev, "trimming a memory pool",
			   hoist__hip.hipMemPoolTrimTo(pool->native, keep_bytes));
}

/* The drivers' attributes are an int each where they are flags, else 64 bits. */
static bool is_flag(enum hoist__pool_attribute attribute)
{
	return attribute < HOIST__POOL_RELEASE_THRESHOLD;
}

int hoist__hip_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t *ret)
{
	int flag = 0;
	uint64_t number = 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	int err = RUN(pool->dev, "asking for an attribute of a memory pool",
		      hoist__hip.hipMemPoolGetAttribute(pool->native, native_attribute(attribute),
							value));
	if (err == 0)
		*ret = is_flag(attribute) ? (uint64_t)(flag != 0) : number;
	return err;
}

int hoist__hip_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t number)
{
	int flag = number != 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	return RUN(pool->dev, "setting an attribute of a memory pool",
		   hoist__hip.hipMemPoolSetAttribute(pool->native, native_attribute(attribute),
						     value));
}

int hoist__hip_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool allowed)
{
	const struct hoist__hip_access access = {
		.location = {HOIST__HIP_LOCATION_DEVICE, peer->ordinal},
		.flags = allowed ? HOIST__HIP_ACCESS_READ_WRITE : HOIST__HIP_ACCESS_NONE,
	};
	return RUN_RELAXED(pool->dev, "setting who can access a memory pool",
			   hoist__hip.hipMemPoolSetAccess(pool->native, &access, 1));
}

int hoist__hip_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool *ret)
{
	struct hoist__hip_location location = {HOIST__HIP_LOCATION_DEVICE, peer->ordinal};
	hoist__hip_access_flags flags = HOIST__HIP_ACCESS_NONE;
	int err = RUN(pool->dev, "asking who can access a memory pool",
		      hoist__hip.hipMemPoolGetAccess(&flags, pool->native, &location));
	if (err == 0)
		*ret = flags == HOIST__HIP_ACCESS_READ_WRITE;
	return err;
}
