/* SPDX-License-Identifier: MIT */
/* device/hip-ipc.c - memory that processes share, where the runtime can. */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "device/driver.h"
#include "device/hip-run.h"

_Static_assert(sizeof(hoist__hip_ipc_handle) == HOIST__IPC_BYTES, "hipIpcMemHandle_t");
_Static_assert(sizeof(hoist__hip_block_handle) == HOIST__IPC_BYTES, "hipMemPoolPtrExportData");

/* The functions of one kind came together, so one of them stands for all. */
static int check_ipc(const struct hoist__dev *dev)
{
	return hoist__hip.hipIpcOpenMemHandle != NULL && hoist__hip.hipIpcGetMemHandle != NULL &&
			       hoist__hip.hipIpcCloseMemHandle != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory that processes share");
}

static int check_pools(const struct hoist__dev *dev)
{
	return hoist__hip.hipMemPoolImportPointer != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory pools that processes can share");
}

/* @err, or that the driver says it cannot do it. */
static int judge_support(const struct hoist__dev *dev, hoist__hip_error result, int err)
{
	if (result == HOIST__HIP_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)result, "memory that processes share");
	return err;
}

int hoist__hip_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base, size_t *bytes)
{
	void *start = NULL;
	size_t size = 0;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	if (hoist__hip.hipMemGetAddressRange == NULL)
		return hoist__driver_fail_lacks(dev, "answer to where an allocation begins");
	int err = RUN(dev, "asking for the allocation around an address",
		      result = hoist__hip.hipMemGetAddressRange(&start, &size, (void *)address));
	if (result == HOIST__HIP_ERROR_INVALID_VALUE || result == HOIST__HIP_ERROR_NOT_FOUND)
		return hoist__fail_in(-EINVAL, "%#zx", (size_t)address);
	if (err < 0)
		return err;
	*base = (uintptr_t)start;
	*bytes = size;
	return 0;
}

int hoist__hip_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret)
{
	hoist__hip_ipc_handle handle;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(dev, "sharing an allocation",
			  result = hoist__hip.hipIpcGetMemHandle(&handle, (void *)base));
	if (result == HOIST__HIP_ERROR_INVALID_VALUE)
		return hoist__fail_in(-ENOTSUP, "%#zx, which is no plain allocation of the driver",
				      (size_t)base);
	if (err < 0)
		return judge_support(dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

/* With the flag of newer runtimes, or that of older ones. */
static hoist__hip_error open_handle(void **address, const hoist__hip_ipc_handle *handle)
{
	hoist__hip_error error =
		hoist__hip.hipIpcOpenMemHandle(address, *handle, HOIST__HIP_IPC_LAZY_PEER_ACCESS);
	if (error != HOIST__HIP_ERROR_INVALID_VALUE)
		return error;
	(void)hoist__hip.hipGetLastError();
	return hoist__hip.hipIpcOpenMemHandle(address, *handle, 0);
}

int hoist__hip_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			uintptr_t *ret)
{
	void *address = NULL;
	hoist__hip_ipc_handle native;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(dev, "opening another process's allocation",
			  result = open_handle(&address, &native));
	if (err < 0)
		return judge_support(dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__hip_ipc_close(struct hoist__dev *dev, uintptr_t base)
{
	return RELEASE(dev, "closing another process's allocation",
		       hoist__hip.hipIpcCloseMemHandle((void *)base));
}

int hoist__hip_pool_import(struct hoist__dev_pool *pool, int fd)
{
	hoist__hip_pool native = NULL;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	/* The runtime makes the pool the first device's, whichever is current. */
	if (pool->dev->ordinal != 0)
		return hoist__fail(-ENOTSUP,
				   "hip:%d: the runtime imports memory pools on hip:0 only; share "
				   "memory of HOIST_MEMORY_DEVICE, not of HOIST_MEMORY_DRIVER_POOL",
				   pool->dev->ordinal);
	err = RUN_RELAXED(pool->dev, "importing a memory pool",
			  result = hoist__hip.hipMemPoolImportFromShareableHandle(
				  &native, (void *)(uintptr_t)fd, HOIST__HIP_HANDLE_FD, 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	pool->native = native;
	return 0;
}

int hoist__hip_pool_export(struct hoist__dev_pool *pool, int *ret)
{
	int fd = -1;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a memory pool",
			  result = hoist__hip.hipMemPoolExportToShareableHandle(
				  &fd, pool->native, HOIST__HIP_HANDLE_FD, 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = fd;
	return 0;
}

int hoist__hip_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				 struct hoist__ipc_handle *ret)
{
	hoist__hip_block_handle handle;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a block of a memory pool",
			  result = hoist__hip.hipMemPoolExportPointer(&handle, (void *)address));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

int hoist__hip_pool_import_block(struct hoist__dev_pool *pool,
				 const struct hoist__ipc_handle *handle, uintptr_t *ret)
{
	void *address = NULL;
	hoist__hip_block_handle native;
	hoist__hip_error result = HOIST__HIP_SUCCESS;
	int err = check_pools(pool->dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(
		pool->dev, "importing a block of a memory pool",
		result = hoist__hip.hipMemPoolImportPointer(&address, pool->native, &native));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}
