/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/pin.h"

#include "base/error.h"
#include "base/log.h"

bool hoist__pinned_by_driver(const struct hoist__dev *dev)
{
	return dev != NULL && hoist__dev_api(dev) != HOIST__API_CPU;
}

/* Without a driver the CPU's way will do: mlock(2). */
static int pinner(struct hoist__dev *dev, struct hoist__dev **ret)
{
	if (dev == NULL)
		return hoist__dev_get(HOIST__API_CPU, 0, ret);
	*ret = dev;
	return 0;
}

int hoist__pin(struct hoist__dev *dev, void *base, size_t bytes)
{
	struct hoist__dev *by;
	int err = pinner(dev, &by);
	return err < 0 ? err : hoist__dev_host_register(by, base, bytes);
}

void hoist__unpin(struct hoist__dev *dev, void *base, size_t bytes)
{
	struct hoist__dev *by;
	if (pinner(dev, &by) < 0 || hoist__dev_host_unregister(by, base, bytes) < 0)
		hoist__log(alloc, "unpinning %zu bytes: %s", bytes, hoist__error_text());
}
