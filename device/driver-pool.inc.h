/* SPDX-License-Identifier: MIT */
/* device/driver-pool.inc.h - the stream-ordered pools of both drivers, where a driver has them;
 * part of driver-ops.inc.h. */

/* The driver got these functions in one version, so one of them stands for all. */
static int check_pools(const struct hoist__dev *dev)
{
	return CALL(MemPoolCreate) != NULL ? 0 : hoist__driver_fail_lacks(dev, "memory pools");
}

static NATIVE(pool_attribute) native_attribute(enum hoist__pool_attribute attribute)
{
	static const NATIVE(pool_attribute) natives[HOIST__N_POOL_ATTRIBUTES] = {
		[HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES] = VALUE(POOL_FOLLOW_EVENTS),
		[HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC] = VALUE(POOL_OPPORTUNISTIC),
		[HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES] = VALUE(POOL_DEPENDENCIES),
		[HOIST__POOL_RELEASE_THRESHOLD] = VALUE(POOL_THRESHOLD),
		[HOIST__POOL_RESERVED_CURRENT] = VALUE(POOL_RESERVED_CURRENT),
		[HOIST__POOL_RESERVED_HIGH] = VALUE(POOL_RESERVED_HIGH),
		[HOIST__POOL_USED_CURRENT] = VALUE(POOL_USED_CURRENT),
		[HOIST__POOL_USED_HIGH] = VALUE(POOL_USED_HIGH),
	};
	return natives[attribute];
}

/* --- attributes --- */

/* An attribute of the drivers is an int if it is a flag, else 64 bits. */
static bool is_flag(enum hoist__pool_attribute attribute)
{
	return attribute < HOIST__POOL_RELEASE_THRESHOLD;
}

static int check_attribute(const struct hoist__dev *dev, enum hoist__pool_attribute attribute)
{
	if (attribute < HOIST__POOL_RESERVED_CURRENT ||
	    dev->props.driver_version >= VALUE(POOL_FIGURES_SINCE))
		return 0;
	return hoist__driver_fail_lacks(dev, "figures of memory pools");
}

static int driver_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			   uint64_t *ret)
{
	int flag = 0;
	uint64_t number = 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	int err = check_attribute(pool->dev, attribute);
	if (err < 0)
		return err;
	err = RUN(pool->dev, "asking for an attribute of a memory pool",
		  CALL(MemPoolGetAttribute)(pool->native, native_attribute(attribute), value));
	if (err == 0)
		*ret = is_flag(attribute) ? (uint64_t)(flag != 0) : number;
	return err;
}

static int driver_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			   uint64_t number)
{
	int flag = number != 0;
	void *value = is_flag(attribute) ? (void *)&flag : (void *)&number;
	int err = check_attribute(pool->dev, attribute);
	if (err < 0)
		return err;
	return RUN(pool->dev, "setting an attribute of a memory pool",
		   CALL(MemPoolSetAttribute)(pool->native, native_attribute(attribute), value));
}

/* --- pools --- */

static void driver_pool_destroy(struct hoist__dev_pool *pool)
{
	int err =
		RELEASE(pool->dev, "destroying a memory pool", CALL(MemPoolDestroy)(pool->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

/* A driver that knows no shareable pools calls their handle type an invalid value.  Where the
 * driver ignores thresholds, a pool whose threshold cannot be set is as good as others. */
static int driver_pool_create(struct hoist__dev_pool *pool)
{
	const struct hoist__dev *dev = pool->dev;
	const struct NATIVE(pool_props) props = {
		.type = VALUE(ALLOCATION_PINNED),
		.handle_types = pool->shareable ? VALUE(HANDLE_FD) : VALUE(HANDLE_NONE),
		.location_type = VALUE(LOCATION_DEVICE),
		.location = DEVICE_ID(dev),
		.max_bytes = pool->max_bytes,
	};
	NATIVE(pool) native = NULL;
	RESULT result = VALUE(SUCCESS);
	int err = check_pools(dev);
	if (err < 0)
		return err;
	if (pool->max_bytes != 0 && dev->props.driver_version < VALUE(POOL_LIMIT_SINCE))
		return hoist__driver_fail_lacks(dev, "memory pools with a limit");
	err = RUN_RELAXED(pool->dev, "creating a memory pool",
			  result = CALL(MemPoolCreate)(&native, &props));
	if (pool->shareable && result == VALUE(ERROR_INVALID_VALUE))
		return hoist__driver_fail_lacks(dev, "memory pools that processes can share");
	if (result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_refuses(dev, (int)result, "memory pools");
	if (err < 0)
		return err == -ENOSPC ? hoist__fail_in(-ENOMEM, "a memory pool") : err;
	pool->native = native;
	err = driver_pool_set(pool, HOIST__POOL_RELEASE_THRESHOLD, UINT64_MAX);
	if (err < 0 && POOLS_HAVE_THRESHOLDS) {
		driver_pool_destroy(pool);
		return err;
	}
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
	return 0;
}

static int driver_pool_current(struct hoist__dev_pool *pool)
{
	NATIVE(pool) native = NULL;
	RESULT result = VALUE(SUCCESS);
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN(pool->dev, "asking for the device's memory pool",
		  result = CALL(DeviceGetMemPool)(&native, DEVICE_ID(pool->dev)));
	if (result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_refuses(pool->dev, (int)result, "memory pools");
	if (err == 0)
		pool->native = native;
	return err;
}

static int driver_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			     struct hoist__dev_stream *stream, uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	int err = RUN(pool->dev, "allocating from a memory pool",
		      CALL(MallocFromPoolAsync)(&address, bytes, pool->native, stream->native));
	if (err < 0)
		return hoist__driver_fail_pool_alloc(pool, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			    struct hoist__dev_stream *stream)
{
	return RELEASE(pool->dev, "freeing to a memory pool",
		       CALL(FreeAsync)((NATIVE(device_ptr))address, stream->native));
}

static int driver_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes)
{
	return RUN_RELAXED(pool->dev, "trimming a memory pool",
			   CALL(MemPoolTrimTo)(pool->native, keep_bytes));
}

/* --- access --- */

static int driver_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				  bool allowed)
{
	const struct NATIVE(access) access = {
		.location = {VALUE(LOCATION_DEVICE), DEVICE_ID(peer)},
		.flags = allowed ? VALUE(ACCESS_READ_WRITE) : VALUE(ACCESS_NONE),
	};
	return RUN_RELAXED(pool->dev, "setting the access to a memory pool",
			   CALL(MemPoolSetAccess)(pool->native, &access, 1));
}

static int driver_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				  bool *ret)
{
	struct NATIVE(location) location = {VALUE(LOCATION_DEVICE), DEVICE_ID(peer)};
	NATIVE(access_flags) flags = VALUE(ACCESS_NONE);
	int err = RUN(pool->dev, "asking for the access to a memory pool",
		      CALL(MemPoolGetAccess)(&flags, pool->native, &location));
	if (err == 0)
		*ret = flags == VALUE(ACCESS_READ_WRITE);
	return err;
}
