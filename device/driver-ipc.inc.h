/* SPDX-License-Identifier: MIT */
/* device/driver-ipc.inc.h - memory that processes share, where the driver can. */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/driver.h"

_Static_assert(sizeof(hoist__cu_ipc_handle) == HOIST__IPC_BYTES, "CUipcMemHandle");
_Static_assert(sizeof(hoist__cu_block_handle) == HOIST__IPC_BYTES, "CUmemPoolPtrExportData");

/* The functions of one kind came together, so one of them stands for all. */
static int check_ipc(const struct hoist__dev *dev)
{
	return hoist__cuda.cuIpcOpenMemHandle != NULL && hoist__cuda.cuIpcGetMemHandle != NULL &&
			       hoist__cuda.cuIpcCloseMemHandle != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory that processes share");
}

static int check_shared_pools(const struct hoist__dev *dev)
{
	return hoist__cuda.cuMemPoolImportPointer != NULL
		       ? 0
		       : hoist__driver_fail_lacks(dev, "memory pools that processes can share");
}

/* @err, or that the driver says it cannot do it. */
static int judge_support(const struct hoist__dev *dev, hoist__cu_result result, int err)
{
	if (result == HOIST__CU_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)result, "memory that processes share");
	return err;
}

int hoist__cuda_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			   size_t *bytes)
{
	hoist__cu_device_ptr start = 0;
	size_t size = 0;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (hoist__cuda.cuMemGetAddressRange == NULL)
		return hoist__driver_fail_lacks(dev, "answer to where an allocation begins");
	int err = RUN(dev, "asking for the allocation around an address",
		      result = hoist__cuda.cuMemGetAddressRange(&start, &size, address));
	if (result == HOIST__CU_ERROR_INVALID_VALUE || result == HOIST__CU_ERROR_NOT_FOUND)
		return hoist__fail_in(-EINVAL, "%#zx", (size_t)address);
	if (err < 0)
		return err;
	*base = (uintptr_t)start;
	*bytes = size;
	return 0;
}

int hoist__cuda_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret)
{
	hoist__cu_ipc_handle handle;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(dev, "sharing an allocation",
			  result = hoist__cuda.cuIpcGetMemHandle(&handle, base));
	if (result == HOIST__CU_ERROR_INVALID_VALUE)
		return hoist__fail_in(-ENOTSUP, "%#zx, which is no plain allocation of the driver",
				      (size_t)base);
	if (err < 0)
		return judge_support(dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

int hoist__cuda_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			 uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	hoist__cu_ipc_handle native;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_ipc(dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(dev, "opening another process's allocation",
			  result = hoist__cuda.cuIpcOpenMemHandle(&address, native,
								  HOIST__CU_IPC_LAZY_PEER_ACCESS));
	if (err < 0)
		return judge_support(dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}

int hoist__cuda_ipc_close(struct hoist__dev *dev, uintptr_t base)
{
	return RELEASE(dev, "closing another process's allocation",
		       hoist__cuda.cuIpcCloseMemHandle(base));
}

int hoist__cuda_pool_import(struct hoist__dev_pool *pool, int fd)
{
	hoist__cu_pool native = NULL;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "importing a memory pool",
			  result = hoist__cuda.cuMemPoolImportFromShareableHandle(
				  &native, (void *)(uintptr_t)fd, HOIST__CU_HANDLE_FD, 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	pool->native = native;
	return 0;
}

int hoist__cuda_pool_export(struct hoist__dev_pool *pool, int *ret)
{
	int fd = -1;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a memory pool",
			  result = hoist__cuda.cuMemPoolExportToShareableHandle(
				  &fd, pool->native, HOIST__CU_HANDLE_FD, 0));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = fd;
	return 0;
}

int hoist__cuda_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				  struct hoist__ipc_handle *ret)
{
	hoist__cu_block_handle handle;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	err = RUN_RELAXED(pool->dev, "sharing a block of a memory pool",
			  result = hoist__cuda.cuMemPoolExportPointer(&handle, address));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	memcpy(ret->bytes, handle.bytes, sizeof ret->bytes);
	return 0;
}

int hoist__cuda_pool_import_block(struct hoist__dev_pool *pool,
				  const struct hoist__ipc_handle *handle, uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	hoist__cu_block_handle native;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	int err = check_shared_pools(pool->dev);
	if (err < 0)
		return err;
	memcpy(native.bytes, handle->bytes, sizeof native.bytes);
	err = RUN_RELAXED(
		pool->dev, "importing a block of a memory pool",
		result = hoist__cuda.cuMemPoolImportPointer(&address, pool->native, &native));
	if (err < 0)
		return judge_support(pool->dev, result, err);
	*ret = (uintptr_t)address;
	return 0;
}
