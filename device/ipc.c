/* SPDX-License-Identifier: MIT */
/* device/ipc.c - memory that processes share: checks arguments and the process, then calls the
 * backend.  The contract is in device/ipc.h; device/pool.c makes and imports the pools. */
#include "config.h"

#include "device/ipc.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device-ops.h"

static int check_dev(const struct hoist__dev *dev)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (dev->ops->ipc_export == NULL)
		return hoist__fail(-ENOTSUP, "%s:%d has no driver whose memory processes share",
				   hoist__api_name(dev->api), dev->ordinal);
	return 0;
}

static int check_pool(const struct hoist__dev_pool *pool)
{
	return hoist__dev_check_process(pool->generation, "the memory pool");
}

int hoist__dev_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base, size_t *bytes)
{
	int err = check_dev(dev);
	return err < 0 ? err : dev->ops->allocation(dev, address, base, bytes);
}

int hoist__dev_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret)
{
	int err = check_dev(dev);
	return err < 0 ? err : dev->ops->ipc_export(dev, base, ret);
}

int hoist__dev_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			uintptr_t *ret)
{
	int err = check_dev(dev);
	return err < 0 ? err : dev->ops->ipc_open(dev, handle, ret);
}

int hoist__dev_ipc_close(struct hoist__dev *dev, uintptr_t base)
{
	int err = check_dev(dev);
	return err < 0 ? err : dev->ops->ipc_close(dev, base);
}

int hoist__dev_pool_export(struct hoist__dev_pool *pool, int *ret)
{
	int fd = -1;
	int err = check_pool(pool);
	if (err == 0)
		err = pool->dev->ops->pool_export(pool, &fd);
	if (err == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
		err = hoist__fail_errno(-errno, "the descriptor of a memory pool");
		(void)close(fd);
	}
	if (err == 0)
		*ret = fd;
	return err;
}

int hoist__dev_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				 struct hoist__ipc_handle *ret)
{
	int err = check_pool(pool);
	return err < 0 ? err : pool->dev->ops->pool_export_block(pool, address, ret);
}

int hoist__dev_pool_import_block(struct hoist__dev_pool *pool,
				 const struct hoist__ipc_handle *handle, uintptr_t *ret)
{
	int err = check_pool(pool);
	return err < 0 ? err : pool->dev->ops->pool_import_block(pool, handle, ret);
}
