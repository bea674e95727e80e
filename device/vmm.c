/* SPDX-License-Identifier: MIT */
/* device/vmm.c - virtual memory: checks arguments and the process, then calls the backend.
 * The contract is in device/vmm.h. */
#include "config.h"

#include "device/vmm.h"

#include "base/error.h"
#include "device/device-ops.h"

/* A backend has all of these operations or none, so one of them stands for all. */
static int check(struct hoist__dev *dev)
{
	int err = hoist__dev_check(dev);
	if (err == 0 && dev->ops->vmm_check == NULL)
		err = hoist__fail(-ENOTSUP, "%s:%d has no driver, and no virtual memory of one",
				  hoist__api_name(dev->api), dev->ordinal);
	return err;
}

int hoist__vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_check(dev, props);
}

int hoist__vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			   size_t *ret)
{
	int err = hoist__vmm_check(dev, props);
	return err < 0 ? err : dev->ops->vmm_granularity(dev, props, ret);
}

int hoist__vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
		       uintptr_t *ret)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_reserve(dev, bytes, align, hint, ret);
}

int hoist__vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_unreserve(dev, address, bytes);
}

int hoist__vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props, size_t bytes,
		      uint64_t *ret)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_create(dev, props, bytes, ret);
}

int hoist__vmm_release(struct hoist__dev *dev, uint64_t handle)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_release(dev, handle);
}

int hoist__vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_map(dev, address, bytes, handle);
}

int hoist__vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_unmap(dev, address, bytes);
}

int hoist__vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			  const struct hoist__dev *accessor, enum hoist__vmm_access access)
{
	int err = check(dev);
	return err < 0 ? err : dev->ops->vmm_set_access(dev, address, bytes, accessor, access);
}
