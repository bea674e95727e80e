/* SPDX-License-Identifier: MIT */
/* device/query.c - questions about devices and addresses. */
#include "config.h"

#include "base/error.h"
#include "device/device-ops.h"
#include "device/query.h"

int hoist__dev_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (dev->api == peer->api && dev->native != peer->native)
		return dev->ops->can_access(dev, peer, ret);
	*ret = dev->api == peer->api;
	return 0;
}

int hoist__dev_synchronize(struct hoist__dev *dev)
{
	int err = hoist__dev_check(dev);
	if (err < 0 || dev->ops->synchronize == NULL)
		return err;
	return dev->ops->synchronize(dev);
}

/* --- addresses --- */

/* The driver that hoist opened, or one that others did: *ret is its library then, NULL for
 * hoist's own.  -ENODEV: neither. */
static int find_driver(enum hoist__api api, const char *prefix, void **ret)
{
	int err = hoist__api_opened(api);
	*ret = NULL;
	if (err != -ENOENT)
		return err;
	*ret = hoist__loaded(api, prefix);
	return *ret == NULL ? -ENODEV : 0;
}

int hoist__pointer_find(uintptr_t address, struct hoist__pointer *ret)
{
	static const struct {
		enum hoist__api api;
		const char *prefix;
		int (*find)(void *library, uintptr_t address, struct hoist__pointer *ret);
	} drivers[] = {
		{HOIST__API_CUDA, "libcuda.so", hoist__cuda_pointer},
		{HOIST__API_HIP, "libamdhip64", hoist__hip_pointer},
	};
	for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
		void *library = NULL;
		int err = find_driver(drivers[i].api, drivers[i].prefix, &library);
		if (err == -ENODEV)
			continue;
		if (err == 0)
			err = drivers[i].find(library, address, ret);
		if (err != -ENOENT)
			return err;
	}
	*ret = (struct hoist__pointer){.api = HOIST__API_CPU, .ordinal = -1, .host = true};
	return 0;
}
