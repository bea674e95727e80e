/* SPDX-License-Identifier: MIT */
/* device/query.c - questions about devices and addresses. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/device-ops.h"
#include "device/query.h"

/* Drivers enable access by direction, once: what two threads enable at the same time, the second
 * one finds enabled.  So nothing is locked. */
static int enable_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	/* No machine has more devices than this; were there one, its access would stay disabled. */
	if (peer->ordinal >= 64) {
		*ret = false;
		return 0;
	}
	uint64_t bit = UINT64_C(1) << peer->ordinal;
	bool can = (atomic_load(&dev->peers_reached) & bit) != 0;
	int err = 0;
	if (!can && (atomic_load(&dev->peers_refused) & bit) == 0) {
		err = dev->ops->can_access(dev, peer, &can);
		if (err == 0 && can)
			err = dev->ops->enable_access(dev, peer);
		if (err == 0 && can)
			err = hoist__dev_pools_open_to(peer, dev);
		if (err == -ENOTSUP) {
			hoist__log(device, "%s", hoist__error_text());
			can = false;
			err = 0;
		}
		if (err == 0)
			atomic_fetch_or(can ? &dev->peers_reached : &dev->peers_refused, bit);
	}
	if (err == 0)
		*ret = can;
	return err;
}

int hoist__dev_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret)
{
	int err = hoist__dev_check(dev);
	if (err < 0)
		return err;
	if (dev->api == peer->api && dev->native != peer->native)
		return enable_access(dev, peer, ret);
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
