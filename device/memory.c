/* SPDX-License-Identifier: MIT */
/* device/memory.c - memory of devices: checks arguments and the process, then calls the backend.
 * The contract is in device/device.h. */
#include "config.h"

#include "base/error.h"
#include "device/device-ops.h"

int hoist__dev_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	int err = hoist__dev_check(dev);
	return err < 0 ? err : dev->ops->mem_info(dev, free_bytes, total_bytes);
}

static int check_bytes(const struct hoist__dev *dev, size_t bytes)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (bytes == 0)
		return hoist__fail(-EINVAL, "%s:%d: 0 bytes of memory were asked for",
				   hoist__api_name(dev->api), dev->ordinal);
	return 0;
}

int hoist__dev_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	int err = check_bytes(dev, bytes);
	return err < 0 ? err : dev->ops->mem_alloc(dev, bytes, ret);
}

int hoist__dev_managed_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	int err = check_bytes(dev, bytes);
	if (err < 0)
		return err;
	if (dev->ops->managed_alloc == NULL)
		return hoist__fail(-ENOTSUP,
				   "%s:%d: the CPU has no managed memory; use host memory",
				   hoist__api_name(dev->api), dev->ordinal);
	return dev->ops->managed_alloc(dev, bytes, ret);
}

int hoist__dev_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      enum hoist__prefer prefer, int node)
{
	int err = hoist__dev_check(dev);
	if (err < 0 || prefer == HOIST__PREFER_NONE)
		return err;
	return dev->ops->managed_prefer(dev, address, bytes, prefer, node);
}

int hoist__dev_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	if (address == 0)
		return 0;
	int err = hoist__dev_check(dev);
	return err < 0 ? err : dev->ops->mem_free(dev, address, bytes);
}

/* An empty range of host memory is the caller's error. */
static int check_host(const struct hoist__dev *dev, const void *address, size_t bytes)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (address == NULL || bytes == 0)
		return hoist__fail(-EINVAL, "%s:%d: no host memory was given (%p, %zu bytes)",
				   hoist__api_name(dev->api), dev->ordinal, address, bytes);
	return 0;
}

int hoist__dev_host_register(struct hoist__dev *dev, void *address, size_t bytes)
{
	int err = check_host(dev, address, bytes);
	return err < 0 ? err : dev->ops->host_register(dev, address, bytes, false);
}

int hoist__dev_host_register_read_only(struct hoist__dev *dev, void *address, size_t bytes)
{
	int err = check_host(dev, address, bytes);
	return err < 0 ? err : dev->ops->host_register(dev, address, bytes, true);
}

int hoist__dev_host_unregister(struct hoist__dev *dev, void *address, size_t bytes)
{
	int err = check_host(dev, address, bytes);
	return err < 0 ? err : dev->ops->host_unregister(dev, address, bytes);
}

int hoist__dev_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret)
{
	int err = check_host(dev, address, 1);
	return err < 0 ? err : dev->ops->host_address(dev, address, ret);
}
