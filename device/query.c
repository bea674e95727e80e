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
		void *library = NULL; /* the driver that hoist opened */
		int opened = hoist__api_opened(drivers[i].api);
		if (opened == -ESTALE)
			return opened;
		if (opened < 0) { /* or one that others did */
			library = hoist__loaded(drivers[i].api, drivers[i].prefix);
			if (library == NULL)
				continue;
		}
		int err = drivers[i].find(library, address, ret);
		/* One that cannot be started may say so of every address. */
		if (err == -EREMOTEIO && opened == -ENODEV)
			continue;
		if (err != -ENOENT)
			return err;
	}
	*ret = (struct hoist__pointer){.api = HOIST__API_CPU, .ordinal = -1, .host = true};
	return 0;
}
