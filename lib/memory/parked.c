/* SPDX-License-Identifier: MIT */
/* lib/memory/parked.c - parks memory that a consumer's work may still use, and waits for devices.
 * The contract is in lib/memory/parked.h. */
#include "config.h"

#include "lib/memory/parked.h"

#include <errno.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/lock-fork.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/memory/memory.h"

/* An allocation sweeps if more than this part of a device's memory, and more than LEAST, is
 * parked. */
#define PART 32
#define LEAST (64 * HOIST__MIB)

static struct hoist__lock lock;
static struct hoist__list parked = {&parked, &parked};
static _Atomic size_t n_parked;

/* A child of fork parks nothing of its parent's, but frees memory of its own that has passed. */
HOIST__WATCH_FORKS(lock, alloc, "exported buffers")

static struct hoist__parked *entry_of(struct hoist__list *link)
{
	return HOIST__CONTAINER_OF(link, struct hoist__parked, link);
}

/* --- entries that have passed --- */

static struct hoist__dev *dev_of(const struct hoist__parked *entry)
{
	return hoist__device_dev(entry->device);
}

/* True for host and managed memory, which every device of its driver may use. */
static bool is_wide(const struct hoist__parked *entry)
{
	return entry->kind != HOIST__MEMORY_DEVICE;
}

/* True if kernels of @dev may use the memory.  Kernels of a peer may, if access to the memory's
 * device is enabled. */
static bool may_use(struct hoist__dev *dev, const struct hoist__parked *entry)
{
	return is_wide(entry) || dev == dev_of(entry) || hoist__dev_reaches(dev, dev_of(entry));
}

/* True if all devices that may use the memory have been waited for.  Else *ret is a device that has
 * not, or NULL if only a device that cannot be opened is left.  Looks at every device, also behind
 * the first that has not been waited for, so that each is open when the function is called again
 * under the lock. */
static bool has_passed(const struct hoist__parked *entry, struct hoist__dev **ret)
{
	enum hoist__api api = hoist__dev_api(dev_of(entry));
	bool passed = true;
	int count = 0;
	*ret = NULL;
	if (hoist__dev_count(api, &count) < 0)
		return false;
	for (int n = 0; n < count; n++) {
		struct hoist__dev *dev = NULL;
		if (hoist__dev_get(api, n, &dev) < 0) {
			passed = passed && !is_wide(entry);
		} else if (may_use(dev, entry) && !hoist__dev_waited(dev, entry->passes)) {
			passed = false;
			*ret = dev;
		}
	}
	return passed;
}

static void count(struct hoist__parked *entry, bool more)
{
	_Atomic size_t *bytes = &entry->device->xparked_bytes;
	hoist_memory *memory = entry->memory;
	if (more) {
		atomic_fetch_add(&n_parked, 1);
		atomic_fetch_add(bytes, entry->bytes);
		if (memory != NULL) {
			atomic_fetch_add(&memory->xn_parked, 1);
			atomic_fetch_add(&memory->xparked_bytes, entry->bytes);
		}
		return;
	}
	HOIST__ASSERT(atomic_load(&n_parked) != 0 && atomic_load(bytes) >= entry->bytes);
	HOIST__ASSERT(memory == NULL || (atomic_load(&memory->xn_parked) != 0 &&
					 atomic_load(&memory->xparked_bytes) >= entry->bytes));
	atomic_fetch_sub(&n_parked, 1);
	atomic_fetch_sub(bytes, entry->bytes);
	if (memory != NULL) {
		atomic_fetch_sub(&memory->xn_parked, 1);
		atomic_fetch_sub(&memory->xparked_bytes, entry->bytes);
	}
}

/* --- parking --- */

bool hoist__park(struct hoist__parked *entry)
{
	struct hoist__dev *dev;
	HOIST__ASSERT(entry->end != NULL && entry->bytes != 0 && entry->passes != 0);
	if (hoist__dev_check(dev_of(entry)) < 0 || has_passed(entry, &dev))
		return false;
	watch_forks();
	count(entry, true);
	hoist__lock(&lock);
	hoist__list_push_back(&parked, &entry->link);
	hoist__unlock(&lock);
	return true;
}

int hoist__parked_await(const struct hoist__parked *entry)
{
	struct hoist__dev *dev;
	while (!has_passed(entry, &dev)) {
		int err = dev == NULL ? hoist__fail(-EAGAIN, "a device that may use its memory "
							     "cannot be opened")
				      : hoist__dev_synchronize(dev);
		if (err < 0)
			return err;
	}
	return 0;
}

/* --- giving back --- */

/* True if a sweep of @device (NULL: of every device) concerns the entry.  A wide entry concerns all
 * devices of its driver. */
static bool concerns(const struct hoist__parked *entry, const hoist_device *device)
{
	if (hoist__dev_check(dev_of(entry)) < 0)
		return false;
	return device == NULL || entry->device == device ||
	       (is_wide(entry) &&
		hoist__dev_api(dev_of(entry)) == hoist__dev_api(hoist__device_dev(device)));
}

/* Returns: a device that must be waited for, so that every entry that was parked before the wait
 * @before passes; NULL if there is none. */
static struct hoist__dev *next_wait(const hoist_device *device, uint64_t before)
{
	struct hoist__dev *found = NULL;
	hoist__lock(&lock);
	struct hoist__list *link = parked.next;
	for (; link != &parked && found == NULL; link = link->next) {
		const struct hoist__parked *entry = entry_of(link);
		if (entry->passes <= before && concerns(entry, device))
			(void)has_passed(entry, &found);
	}
	hoist__unlock(&lock);
	return found;
}

static void take_passed(const hoist_device *device, struct hoist__list *ret)
{
	hoist__list_init(ret);
	hoist__lock(&lock);
	struct hoist__list *link = parked.next;
	while (link != &parked) {
		struct hoist__parked *entry = entry_of(link);
		struct hoist__dev *dev;
		link = link->next;
		if (!concerns(entry, device) || !has_passed(entry, &dev))
			continue;
		hoist__list_remove(&entry->link);
		hoist__list_push_back(ret, &entry->link);
	}
	hoist__unlock(&lock);
}

bool hoist__parked_sweep(hoist_device *device, bool wait)
{
	struct hoist__list passed;
	struct hoist__list *link;
	struct hoist__dev *dev;
	bool any = false;
	if (atomic_load_explicit(&n_parked, memory_order_relaxed) == 0)
		return false;
	/* The wait is for entries parked so far.  A refused wait is not tried again.  There is no
	 * wait in a function that a stream of the CPU calls: the device may wait for just that
	 * function. */
	uint64_t before = hoist__dev_next_wait();
	wait = wait && !hoist__in_cpu_stream();
	while (wait && (dev = next_wait(device, before)) != NULL)
		if (hoist__dev_synchronize(dev) < 0)
			break;
	take_passed(device, &passed);
	while ((link = hoist__list_pop(&passed)) != NULL) {
		struct hoist__parked *entry = entry_of(link);
		HOIST__ASSERT(hoist__list_empty(&entry->link));
		count(entry, false);
		entry->end(entry);
		any = true;
	}
	return any;
}

void hoist__parked_bound(const hoist_memory *memory, size_t bytes)
{
	hoist_device *device = memory->device;
	if (atomic_load_explicit(&n_parked, memory_order_relaxed) == 0)
		return;
	size_t n = atomic_load_explicit(&device->xparked_bytes, memory_order_relaxed);
	if (n > LEAST && n > hoist__dev_props(device->dev)->total_bytes / PART)
		(void)hoist__parked_sweep(device, true);
	else if (hoist__memory_lacks_budget(memory, bytes)) /* the budget may wait for memory that
							     * is parked */
		(void)hoist__parked_sweep(NULL, true);
}
