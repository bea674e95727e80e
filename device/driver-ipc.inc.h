/* SPDX-License-Identifier: MIT */
/* device/driver-ipc.inc.h - memory that processes share, where a driver can; part of
 * driver-ops.inc.h. */

_Static_assert(sizeof(NATIVE(ipc_handle)) == HOIST__IPC_BYTES, "the handle of an allocation");
_Static_assert(sizeof(NATIVE(block_handle)) == HOIST__IPC_BYTES, "the handle of a pool's block");

/* Sharing allocations needs all three functions.  The functions for pools came in one version of
 * the driver, so one of them stands for all. */
static int check_ipc(const struct hoist__dev *dev)
{
	return CALL(IpcOpenMemHandle) != NULL && CALL(IpcGetMemHandle) != NULL &&
			       CALL(IpcCloseMemHandle) != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory that processes share");
}

static int check_shared_pools(const struct hoist__dev *dev)
{
	return CALL(MemPoolImportPointer) != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory pools that processes can share");
}

/* @err; or -ENOTSUP, its text set, where the driver says that it cannot share. */
static int judge_support(const struct hoist__dev *dev, RESULT result, int err)
{
	if (result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_refuses(dev, (int)result, "memory that processes share");
	return err;
}

/* --- allocations --- */

static int driver_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			     size_t *bytes)
{
	NATIVE(device_ptr) start = 0;
	size_t size = 0;
	RESULT result = VALUE(SUCCESS);
	if (CALL(MemGetAddressRange) == NULL)
		return hoist__driver_fail_lacks(dev, "answer to where an allocation begins");
	int err =
		RUN(dev, "asking for the allocation around an address",
		    result = CALL(MemGetAddressRange)(&start, &size, (NATIVE(device_ptr))address));
	if (result == VALUE(ERROR_INVALID_VALUE) || result == VALUE(ERROR_NOT_FOUND))
		return hoist__fail_in(-EINVAL, "%#zx", (size_t)address);
	if (err < 0)
		return err;
	*base = (uintptr_t)start;
	*bytes = size;
	return 0;
}

static int driver_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret)
{
	NATIVE(ipc_handle) handle;
	RESULT result = VALUE(SUCCESS);
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(dev, "sharing an allocation",
			  result = CALL(IpcGetMemHandle)(&handle, (NATIVE(device_ptr))base));
	if (result == VALUE(ERROR_INVALID_VALUE))
		return hoist__fail_in(-ENOTSUP, "%#zx, which is no plain allocation of the driver",
				      (size_t)base);
	if (err < 0)
		return judge_support(dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

static int driver_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			   uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	NATIVE(ipc_handle) native;
	RESULT result = VALUE(SUCCESS);
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(dev, "opening another process's allocation",
			  result = driver_open_handle(&address, &native));
	if (err < 0)
		return judge_support(dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_ipc_close(struct hoist__dev *dev, uintptr_t base)
{
	return RELEASE(dev, "closing another process's allocation",
		       CALL(IpcCloseMemHandle)((NATIVE(device_ptr))base));
}

/* --- pools --- */

static int driver_pool_import(struct hoist__dev_pool *pool, int fd)
{
	NATIVE(pool) native = NULL;
	RESULT result = VALUE(SUCCESS);
	int err = check_shared_pools(pool->dev);
	if (err == 0)
		err = driver_check_import(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "importing a memory pool",
			  result = CALL(MemPoolImportFromShareableHandle)(
				  &native, (void *)(uintptr_t)fd, VALUE(HANDLE_FD), 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	pool->native = native;
	return 0;
}

static int driver_pool_export(struct hoist__dev_pool *pool, int *ret)
{
	int fd = -1;
	RESULT result = VALUE(SUCCESS);
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a memory pool",
			  result = CALL(MemPoolExportToShareableHandle)(&fd, pool->native,
									VALUE(HANDLE_FD), 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = fd;
	return 0;
}

static int driver_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				    struct hoist__ipc_handle *ret)
{
	NATIVE(block_handle) handle;
	RESULT result = VALUE(SUCCESS);
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a block of a memory pool",
			  result =
				  CALL(MemPoolExportPointer)(&handle, (NATIVE(device_ptr))address));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

static int driver_pool_import_block(struct hoist__dev_pool *pool,
				    const struct hoist__ipc_handle *handle, uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	NATIVE(block_handle) native;
	RESULT result = VALUE(SUCCESS);
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(pool->dev, "importing a block of a memory pool",
			  result = CALL(MemPoolImportPointer)(&address, pool->native, &native));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}
