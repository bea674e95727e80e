/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/pin.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "alloc/figure.h"
#include "base/error.h"
#include "base/log.h"

bool hoist__pinned_by_driver(const struct hoist__dev *dev)
{
	return dev != NULL && hoist__dev_api(dev) != HOIST__API_CPU;
}

static int lock_failed(int error, size_t bytes)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	bool limited = limit.rlim_cur != RLIM_INFINITY && (error == ENOMEM || error == EPERM);
	if (!limited)
		return hoist__fail_errno(error == EPERM ? -EPERM : -ENOMEM, "pinning %s",
					 hoist__figure(bytes).text);
	return hoist__fail(-EPERM,
			   "pinning %s: RLIMIT_MEMLOCK is %s%s; raise it with `ulimit -l`, or set "
			   "LimitMEMLOCK= for a service",
			   hoist__figure(bytes).text, hoist__figure(limit.rlim_cur).text,
			   bytes <= limit.rlim_cur ? " and the rest of it is in use" : "");
}

int hoist__pin(struct hoist__dev *dev, void *base, size_t bytes)
{
	if (hoist__pinned_by_driver(dev))
		return hoist__dev_host_register(dev, base, bytes);
	return mlock(base, bytes) == 0 ? 0 : lock_failed(errno, bytes);
}

void hoist__unpin(struct hoist__dev *dev, void *base, size_t bytes)
{
	/* What mlock() pinned, unmapping releases. */
	if (hoist__pinned_by_driver(dev) && hoist__dev_host_unregister(dev, base, bytes) != 0)
		hoist__log(alloc, "unregistering %zu bytes: %s", bytes, hoist__error_text());
}
