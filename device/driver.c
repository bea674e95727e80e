/* SPDX-License-Identifier: MIT */
/* device/driver.c - texts of failures and conversions of numbers for both drivers.
 * The contract is in device/driver.h. */
#include "config.h"

#include "device/driver.h"

#include <stdio.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "base/error.h"

void hoist__driver_pci(const char *said, char *buffer, size_t bytes)
{
	unsigned domain = 0;
	unsigned bus = 0;
	unsigned device = 0;
	unsigned function = 0;
	int end = 0;
	bool full = sscanf(said, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4;
	if (!full) {
		domain = 0;
		end = 0;
		if (sscanf(said, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3)
			end = -1;
	}
	if (end < 0 || said[end] != '\0') {
		buffer[0] = '\0';
		return;
	}
	int n = snprintf(buffer, bytes, "%04x:%02x:%02x.%x", domain, bus, device, function);
	if (n < 0 || (size_t)n >= bytes)
		buffer[0] = '\0';
}

static bool limits_addresses(void)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

int hoist__driver_fail_alloc(struct hoist__dev *dev, int err, size_t bytes)
{
	struct hoist__failure cause;
	uint64_t available = 0;
	uint64_t total = 0;
	if (err != -ENOSPC)
		return hoist__fail_in(err, "%zu bytes", bytes);
	/* mem_info() may fail, and then replaces the cause's text. */
	hoist__failure_keep(&cause);
	if (dev->ops->mem_info(dev, &available, &total) < 0)
		return hoist__fail_because(err, &cause,
					   "device memory is exhausted: %zu bytes: %.700s", bytes,
					   cause.text);
	return hoist__fail_because(
		err, &cause,
		"device memory is exhausted: %zu bytes: %.700s; %llu of %llu MiB are free: %s",
		bytes, cause.text, (unsigned long long)(available / HOIST__MIB),
		(unsigned long long)(total / HOIST__MIB),
		available > bytes && limits_addresses()
			? "drivers map device memory, and the process's address space is limited: "
			  "raise that limit (ulimit -v)"
			: "free some, or choose another device");
}

int hoist__driver_fail_register(int err, size_t bytes)
{
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	if (err == -ENOSPC)
		err = -ENOMEM;
	if ((err != -ENOMEM && err != -EPERM) || getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return hoist__fail_in(err, "page-locking %zu bytes of host memory", bytes);
	return hoist__fail_in(err,
			      "page-locking %zu bytes of host memory (the memlock limit is %llu "
			      "KiB; `ulimit -l` or LimitMEMLOCK= raises it)",
			      bytes, (unsigned long long)(limit.rlim_cur / HOIST__KIB));
}

int hoist__driver_fail_lacks(const struct hoist__dev *dev, const char *what)
{
	return hoist__fail(-ENOTSUP,
			   "%s:%d: the driver (version %d) or the device has no %s: choose another "
			   "kind of memory, or update the driver",
			   hoist__api_name(dev->api), dev->ordinal, dev->props.driver_version,
			   what);
}

int hoist__driver_fail_pool_alloc(const struct hoist__dev_pool *pool, int err, size_t bytes)
{
	if (pool->max_bytes == 0 || err != -ENOSPC)
		return hoist__driver_fail_alloc(pool->dev, err, bytes);
	return hoist__fail_in(err, "%zu bytes of a driver's pool that is limited to %zu bytes",
			      bytes, pool->max_bytes);
}

int hoist__driver_fail_refuses(const struct hoist__dev *dev, int number, const char *what)
{
	struct hoist__failure cause = {.api = hoist__api_name(dev->api), .number = number};
	int err = hoist__driver_fail_lacks(dev, what);
	return hoist__fail_because(err, &cause, "%s", hoist__error_text());
}

uint64_t hoist__driver_ns(float ms)
{
	return ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
}
