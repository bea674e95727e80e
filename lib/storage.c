/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/storage.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/objects.h"

struct hoist__storage {
	_Atomic unsigned xrefs;
	enum hoist__memory_kind kind;
	hoist_device *device;
	struct hoist__pool *pool; /* POOL: referenced; else NULL */
	struct hoist__map map;	  /* MAP; else zeroed */
	uintptr_t address;
	uintptr_t device_address; /* `address` as the device sees it */
	size_t bytes;
};

/* Owns nothing yet: with neither a pool nor a map it is a NONE storage. */
static int make(hoist_device *device, struct hoist__storage **ret)
{
	struct hoist__storage *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a buffer's storage", sizeof *made);
	atomic_init(&made->xrefs, 1);
	made->device = device;
	made->kind = HOIST__MEMORY_HOST;
	*ret = made;
	return 0;
}

static int find_device_address(struct hoist__storage *storage)
{
	struct hoist__dev *dev = hoist__device_dev(storage->device);
	storage->device_address = storage->address;
	if (storage->kind != HOIST__MEMORY_PINNED || hoist__dev_api(dev) == HOIST__API_CPU)
		return 0;
	return hoist__dev_host_address(dev, (void *)storage->address, &storage->device_address);
}

int hoist__storage_alloc(hoist_device *device, struct hoist__pool *pool, size_t bytes, size_t align,
			 unsigned flags, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = make(device, &made);
	if (err < 0)
		return err;
	if (bytes > 0) {
		uintptr_t address;
		err = hoist__pool_alloc(pool, bytes, align, flags, &address);
		if (err < 0) {
			free(made);
			return err;
		}
		made->kind = hoist__pool_options_of(pool)->kind;
		made->pool = hoist__pool_ref(pool);
		made->address = address;
		made->bytes = bytes;
		err = find_device_address(made);
		if (err < 0) {
			hoist__storage_unref(made);
			return err;
		}
	}
	*ret = made;
	return 0;
}

int hoist__storage_map(hoist_device *device, struct hoist__map *map, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = make(device, &made);
	if (err < 0)
		return err;
	made->map = *map;
	made->address = (uintptr_t)map->data;
	made->device_address = made->address;
	made->bytes = map->bytes;
	memset(map, 0, sizeof *map);
	*ret = made;
	return 0;
}

struct hoist__storage *hoist__storage_ref(struct hoist__storage *storage)
{
	atomic_fetch_add_explicit(&storage->xrefs, 1, memory_order_relaxed);
	return storage;
}

void hoist__storage_unref(struct hoist__storage *storage)
{
	if (storage == NULL ||
	    atomic_fetch_sub_explicit(&storage->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	if (storage->pool != NULL) {
		/* It was this pool's live block, so that nothing can go wrong but the driver,
		 * and there is nobody to tell. */
		(void)hoist__pool_free(storage->pool, storage->address);
		hoist__pool_unref(storage->pool);
	}
	hoist__map_close(&storage->map);
	free(storage);
}

uintptr_t hoist__storage_address(const struct hoist__storage *storage)
{
	return storage->address;
}

uintptr_t hoist__storage_device_address(const struct hoist__storage *storage)
{
	return storage->device_address;
}

size_t hoist__storage_bytes(const struct hoist__storage *storage)
{
	return storage->bytes;
}

hoist_device *hoist__storage_device(const struct hoist__storage *storage)
{
	return storage->device;
}

enum hoist__memory_kind hoist__storage_kind(const struct hoist__storage *storage)
{
	return storage->kind;
}
