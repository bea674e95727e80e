/* SPDX-License-Identifier: MIT */
/* device/driver-pool.inc.h - the driver's own stream-ordered pools, where it has them. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/cuda-run.h"
#include "device/driver.h"

/* The functions came together, so one of them stands for all. */
static int check_pools(const struct hoist__dev *dev)
{
	return hoist__cuda.cuMemPoolCreate != NULL ? 0
						   : hoist__driver_fail_lacks(dev, "memory pools");
}

static hoist__cu_pool_attribute native_attribute(enum hoist__pool_attribute attribute)
{
	static const hoist__cu_pool_attribute natives[HOIST__N_POOL_ATTRIBUTES] = {
		[HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES] = HOIST__CU_POOL_FOLLOW_EVENTS,
		[HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC] = HOIST__CU_POOL_OPPORTUNISTIC,
		[HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES] = HOIST__CU_POOL_DEPENDENCIES,
		[HOIST__POOL_RELEASE_THRESHOLD] = HOIST__CU_POOL_THRESHOLD,
		[HOIST__POOL_RESERVED_CURRENT] = HOIST__CU_POOL_RESERVED_CURRENT,
		[HOIST__POOL_RESERVED_HIGH] = HOIST__CU_POOL_RESERVED_HIGH,
		[HOIST__POOL_USED_CURRENT] = HOIST__CU_POOL_USED_CURRENT,
		[HOIST__POOL_USED_HIGH] = HOIST__CU_POOL_USED_HIGH,
	};
	return natives[attribute];
}

int hoist__cuda_pool_create(struct hoist__dev_pool *pool)
{
	const struct hoist__dev *dev = pool->dev;
	const struct hoist__cu_pool_props props = {
		.type = HOIST__CU_ALLOCATION_PINNED,
		.handle_types = pool->shareable ? HOIST__CU_HANDLE_FD : HOIST__CU_HANDLE_NONE,
		.location_type = HOIST__CU_LOCATION_DEVICE,
		.location = pool->dev->native,
		.max_bytes = pool->max_bytes,
	};
	hoist__cu_pool native = NULL;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_pools(dev);
	if (err < 0)
		return err;
	if (pool->max_bytes != 0 && dev->props.driver_version < HOIST__CU_POOL_LIMIT_SINCE)
		return hoist__driver_fail_lacks(dev, "memory pools with a limit");
	err = RUN_RELAXED(pool->dev, "creating a memory pool",
			  result = hoist__cuda.cuMemPoolCreate(&native, &props));
	if (pool->shareable && result == HOIST__CU_ERROR_INVALID_VALUE)
		return hoist__driver_fail_lacks(dev, "memory pools that processes can share");
	if (result == HOIST__CU_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)result, "memory pools");
	if (err < 0)
		return err == -ENOSPC ? hoist__fail_in(-ENOMEM, "a memory pool") : err;
	pool->native = native;
	err = hoist__cuda_pool_set(pool, HOIST__POOL_RELEASE_THRESHOLD, UINT64_MAX);
	if (err < 0)
		hoist__cuda_pool_destroy(pool);
	return err;
}

int hoist__cuda_pool_current(struct hoist__dev_pool *pool)
{
	hoist__cu_pool native = NULL;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN(pool->dev, "asking for the device's memory pool",
		  result = hoist__cuda.cuDeviceGetMemPool(&native, pool->dev->native));
	if (result == HOIST__CU_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(pool->dev, (int)result, "memory pools");
	if (err == 0)
		pool->native = native;
	return err;
}

void hoist__cuda_pool_destroy(struct hoist__dev_pool *pool)
{
	int err = RELEASE(pool->dev, "destroying a memory pool",
			  hoist__cuda.cuMemPoolDestroy(pool->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

int hoist__cuda_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			   struct hoist__dev_stream *stream, uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	int err = RUN(
		pool->dev, "allocating from a memory pool",
		hoist__cuda.cuMemAllocFromPoolAsync(&address, bytes, pool->native, stream->native));
	if (err < 0)
		return hoist__driver_fail_pool_alloc(pool, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__cuda_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			  struct hoist__dev_stream *stream)
{
	return RELEASE(pool->dev, "freeing to a memory pool",
		       hoist__cuda.cuMemFreeAsync(address, stream->native));
}

int hoist__cuda_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes)
{
	return RUN_RELAXED(pool->dev, "trimming a memory pool",
			   hoist__cuda.cuMemPoolTrimTo(pool->native, keep_bytes));
}

/* The drivers' attributes are an int each where they are flags, else 64 bits. */
static bool is_flag(enum hoist__pool_attribute attribute)
{
	return attribute < HOIST__POOL_RELEASE_THRESHOLD;
}

static int check_attribute(const struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	if (attribute < HOIST__POOL_RESERVED_CURRENT ||
	    dev->props.driver_version >= HOIST__CU_POOL_FIGURES_SINCE)
		return 0;
	return hoist__driver_fail_lacks(dev, "figures of memory pools");
}

int hoist__cuda_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			 uint64_t *ret)
{
	int flag = 0;
	uint64_t number = 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	int err = check_attribute(pool->dev, attribute);
	if (err < 0)
		return err;
	err = RUN(pool->dev, "asking for an attribute of a memory pool",
		  hoist__cuda.cuMemPoolGetAttribute(pool->native, native_attribute(attribute),
						    value));
	if (err == 0)
		*ret = is_flag(attribute) ? (uint64_t)(flag != 0) : number;
	return err;
}

int hoist__cuda_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			 uint64_t number)
{
	int flag = number != 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	int err = check_attribute(pool->dev, attribute);
	if (err < 0)
		return err;
	return RUN(pool->dev, "setting an attribute of a memory pool",
		   hoist__cuda.cuMemPoolSetAttribute(pool->native, native_attribute(attribute),
						     value));
}

int hoist__cuda_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				bool allowed)
{
	const struct hoist__cu_access access = {
		.location = {HOIST__CU_LOCATION_DEVICE, peer->native},
		.flags = allowed ? HOIST__CU_ACCESS_READ_WRITE : HOIST__CU_ACCESS_NONE,
	};
	return RUN_RELAXED(pool->dev, "setting who can access a memory pool",
			   hoist__cuda.cuMemPoolSetAccess(pool->native, &access, 1));
}

int hoist__cuda_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				bool *ret)
{
	struct hoist__cu_location location = {HOIST__CU_LOCATION_DEVICE, peer->native};
	hoist__cu_access_flags flags = HOIST__CU_ACCESS_NONE;
	int err = RUN(pool->dev, "asking who can access a memory pool",
		      hoist__cuda.cuMemPoolGetAccess(&flags, pool->native, &location));
	if (err == 0)
		*ret = flags == HOIST__CU_ACCESS_READ_WRITE;
	return err;
}
