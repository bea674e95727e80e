/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage-parked.c - storages that a consumer's work may still use: see storage.h. */
#include "config.h"

#include <errno.h>
#include <pthread.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "lib/device/device-private.h"
#include "lib/memory/memory.h"
#include "lib/buffer/storage-private.h"

/* More than this part of a device's memory, and than LEAST, is not left parked by who allocates. */
#define PART 32
#define LEAST (64 * HOIST__MIB)

static struct hoist__lock lock;
static struct hoist__list parked = {&parked, &parked};
static _Atomic size_t n_parked;

/* A child of fork parks none of its parent's, but frees what has passed of its own. */
static void lock_all(void)
{
	hoist__lock(&lock);
}

static void unlock_all(void)
{
	hoist__unlock(&lock);
}

static void watch_forks(void)
{
	if (pthread_atfork(lock_all, unlock_all, unlock_all) != 0)
		hoist__log(alloc, "a child of fork may hang in exported buffers: no handlers");
}

static struct hoist__storage *storage_of(struct hoist__list *link)
{
	return HOIST__CONTAINER_OF(link, struct hoist__storage, link);
}

/* --- what has passed --- */

static struct hoist__dev *dev_of(const struct hoist__storage *storage)
{
	return hoist__device_dev(storage->device);
}

/* Host and managed memory is for every device of its driver. */
static bool is_wide(const struct hoist__storage *storage)
{
	return storage->kind != HOIST__MEMORY_DEVICE;
}

/* May kernels of @dev use it?  Those of a peer may where access to the storage's device is enabled.
 */
static bool may_use(struct hoist__dev *dev, const struct hoist__storage *storage)
{
	return is_wide(storage) || dev == dev_of(storage) ||
	       hoist__dev_reaches(dev, dev_of(storage));
}

/* True if all devices that may use it have been waited for; else *ret is one that has not, or NULL
 * if that one cannot be opened.  Looks at every device, also behind the first that has not been
 * waited for: so each has been opened when this is asked again under the lock. */
static bool has_passed(const struct hoist__storage *storage, struct hoist__dev **ret)
{
	enum hoist__api api = hoist__dev_api(dev_of(storage));
	bool passed = true;
	int count = 0;
	*ret = NULL;
	if (hoist__dev_count(api, &count) < 0)
		return false;
	for (int n = 0; n < count; n++) {
		struct hoist__dev *dev = NULL;
		if (hoist__dev_get(api, n, &dev) < 0) {
			passed = passed && !is_wide(storage);
		} else if (may_use(dev, storage) && !hoist__dev_waited(dev, storage->passes)) {
			passed = false;
			*ret = dev;
		}
	}
	return passed;
}

static void count(struct hoist__storage *storage, bool more)
{
	_Atomic size_t *bytes = &storage->device->xparked_bytes;
	hoist_memory *memory = storage->memory;
	if (more) {
		atomic_fetch_add(&n_parked, 1);
		atomic_fetch_add(bytes, storage->bytes);
		if (memory != NULL) {
			atomic_fetch_add(&memory->xn_parked, 1);
			atomic_fetch_add(&memory->xparked_bytes, storage->bytes);
		}
		return;
	}
	atomic_fetch_sub(&n_parked, 1);
	atomic_fetch_sub(bytes, storage->bytes);
	if (memory != NULL) {
		atomic_fetch_sub(&memory->xn_parked, 1);
		atomic_fetch_sub(&memory->xparked_bytes, storage->bytes);
	}
}

/* --- parking --- */

void hoist__storage_lend(struct hoist__storage *storage)
{
	atomic_store(&storage->xpasses, HOIST__STORAGE_LENT);
}

void hoist__storage_returned(struct hoist__storage *storage)
{
	uint64_t next = hoist__dev_next_wait();
	uint64_t known = atomic_load(&storage->xpasses);
	while (known < next && !atomic_compare_exchange_weak(&storage->xpasses, &known, next)) {
	}
}

bool hoist__storage_is_of_graph(const struct hoist__storage *storage)
{
	hoist_stream *own = atomic_load(&storage->xstream);
	bool captures = false;
	if (storage->memory != NULL && storage->memory->ops == &hoist__memory_graph_ops)
		return true;
	if (own == NULL || !hoist__stream_may_capture(hoist__stream_dev_stream(own)))
		return false;
	int err = hoist__stream_capturing(hoist__stream_dev_stream(own), &captures);
	return err == 0 && captures;
}

bool hoist__storage_park(struct hoist__storage *storage)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct hoist__dev *dev;
	uint64_t passes = atomic_load(&storage->xpasses);
	if (passes == 0 || storage->kind == HOIST__MEMORY_HOST || storage->bytes == 0 ||
	    hoist__storage_address(storage) == 0)
		return false;
	if (hoist__device_is_cpu(storage->device) || hoist__dev_check(dev_of(storage)) < 0)
		return false;
	storage->passes = passes == HOIST__STORAGE_LENT ? hoist__dev_next_wait() : passes;
	if (has_passed(storage, &dev))
		return false;
	(void)pthread_once(&once, watch_forks);
	count(storage, true);
	hoist__lock(&lock);
	hoist__list_push_back(&parked, &storage->link);
	hoist__unlock(&lock);
	return true;
}

int hoist__storage_await_consumers(struct hoist__storage *storage)
{
	struct hoist__dev *dev;
	storage->passes = atomic_load(&storage->xpasses);
	if (storage->passes == 0)
		return 0;
	if (storage->passes == HOIST__STORAGE_LENT)
		return hoist__fail(-EBUSY,
				   "its address was exported (the CUDA Array Interface, DLPack's "
				   "exchange), and somebody may use it; copy the buffer instead");
	while (!has_passed(storage, &dev)) {
		int err = dev == NULL ? hoist__fail(-EAGAIN, "a device that may use its memory "
							     "cannot be opened")
				      : hoist__dev_synchronize(dev);
		if (err < 0)
			return err;
	}
	return 0;
}

/* --- giving back --- */

/* NULL is every device; what is wide is of all of its driver. */
static bool concerns(const struct hoist__storage *storage, const hoist_device *device)
{
	if (hoist__dev_check(dev_of(storage)) < 0)
		return false;
	return device == NULL || storage->device == device ||
	       (is_wide(storage) &&
		hoist__dev_api(dev_of(storage)) == hoist__dev_api(hoist__device_dev(device)));
}

/* A device that must be waited for, so that all that was parked before the wait @before passes;
 * NULL if there is none. */
static struct hoist__dev *next_wait(const hoist_device *device, uint64_t before)
{
	struct hoist__dev *found = NULL;
	hoist__lock(&lock);
	struct hoist__list *link = parked.next;
	for (; link != &parked && found == NULL; link = link->next) {
		const struct hoist__storage *storage = storage_of(link);
		if (storage->passes <= before && concerns(storage, device))
			(void)has_passed(storage, &found);
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
		struct hoist__storage *storage = storage_of(link);
		struct hoist__dev *dev;
		link = link->next;
		if (!concerns(storage, device) || !has_passed(storage, &dev))
			continue;
		hoist__list_remove(&storage->link);
		hoist__list_push_back(ret, &storage->link);
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
	/* A wait is for all that is parked so far; one that is refused is not tried again.  What a
	 * stream of the CPU calls may be what the device waits for. */
	uint64_t before = hoist__dev_next_wait();
	wait = wait && !hoist__in_cpu_stream();
	while (wait && (dev = next_wait(device, before)) != NULL)
		if (hoist__dev_synchronize(dev) < 0)
			break;
	take_passed(device, &passed);
	while ((link = hoist__list_pop(&passed)) != NULL) {
		struct hoist__storage *storage = storage_of(link);
		count(storage, false);
		hoist__storage_end(storage);
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
	else if (hoist__memory_lacks_budget(memory, bytes)) /* which may be waited for */
		(void)hoist__parked_sweep(NULL, true);
}
