/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage-block.c - storages whose bytes are a block of a memory resource.
 * The contract is in lib/buffer/storage.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "lib/buffer/storage-private.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/memory/memory.h"
#include "lib/memory/parked.h"
#include "lib/memory/transfer.h"

/* Chooses how bytes of @memory are copied: as pinned memory if a driver has registered it. */
static enum hoist__memory_kind kind_of(const hoist_memory *memory)
{
	const hoist_memory_info *info = &memory->info;
	if (info->is_managed)
		return HOIST__MEMORY_MANAGED;
	if (!info->is_host_accessible)
		return HOIST__MEMORY_DEVICE;
	bool locked = memory->options.kind == HOIST_MEMORY_PINNED;
	return info->is_device_accessible || locked ? HOIST__MEMORY_PINNED : HOIST__MEMORY_HOST;
}

static bool is_cpu(const hoist_device *device)
{
	return hoist__device_is_cpu(device);
}

/* Memory that only the CPU can touch belongs to the CPU, even if it was placed near another
 * device. */
static int device_of(hoist_memory *memory, hoist_device **ret)
{
	*ret = memory->device;
	if (kind_of(memory) != HOIST__MEMORY_HOST || is_cpu(memory->device))
		return 0;
	return hoist__device_cpu(ret);
}

static int make_of(hoist_memory *memory, hoist_stream *stream, size_t bytes,
		   struct hoist__storage **ret)
{
	hoist_device *device;
	struct hoist__storage *made = NULL;
	int err = device_of(memory, &device);
	if (err == 0)
		err = hoist__storage_make(device, bytes, &made);
	if (err < 0)
		return err;
	made->kind = kind_of(memory);
	made->has_access = memory->info.is_host_accessible || memory->info.is_device_accessible ||
			   made->kind == HOIST__MEMORY_HOST;
	made->memory = hoist_memory_ref(memory);
	atomic_init(&made->xstream, stream != NULL ? hoist_stream_ref(stream) : NULL);
	*ret = made;
	return 0;
}

/* Returns the stream that the memory is taken on.  The first work that needs LAZY memory takes it,
 * and that work may be on another stream: so the memory must be ready for all streams. */
static hoist_stream *taken_on(const struct hoist__storage *storage)
{
	return storage->flags & HOIST__STORAGE_LAZY ? NULL : atomic_load(&storage->xstream);
}

static int take_block(const struct hoist__storage *storage, uintptr_t *ret)
{
	hoist_memory *memory = storage->memory;
	if (storage->flags & HOIST__STORAGE_UNPOPULATED) {
		struct hoist__pool *pool;
		int err = hoist__memory_pool(memory, &pool);
		if (err < 0)
			return err;
		return hoist__pool_alloc(pool, storage->bytes, storage->align,
					 HOIST__ALLOC_UNPOPULATED, ret);
	}
	hoist_stream *stream = taken_on(storage);
	if (stream != NULL)
		return hoist_memory_alloc_on(memory, storage->bytes, storage->align, stream, ret);
	return hoist_memory_alloc(memory, storage->bytes, storage->align, ret);
}

static void log_kept(const struct hoist__storage *storage)
{
	hoist__log(alloc, "a buffer's storage of %zu bytes was not freed: %s", storage->bytes,
		   hoist__error_text());
}

bool hoist__storage_give_block(struct hoist__storage *storage, uintptr_t address)
{
	hoist_stream *stream = atomic_load(&storage->xstream);
	if (stream != NULL) {
		int err = hoist_memory_free_on(storage->memory, address, stream);
		if (err == 0)
			return true;
		/* There was no memory to note the free with.  Then the host waits, which would
		 * break a capture. */
		if (hoist__dev_stream_forbids_wait(hoist__stream_dev_stream(stream))) {
			if (err == -EAGAIN || err == -ENOMEM)
				return false;
			log_kept(storage);
			return true;
		}
		(void)hoist__dev_stream_await(hoist__stream_dev_stream(stream));
	}
	/* The block was a live one of this resource.  So only a driver, or the caller's own
	 * function, can have failed, and no caller is left to tell. */
	if (hoist_memory_free(storage->memory, address) < 0)
		log_kept(storage);
	return true;
}

/* Gives back a block that was never handed out. */
static void give_new_block(struct hoist__storage *storage, uintptr_t address)
{
	if (!hoist__storage_give_block(storage, address))
		log_kept(storage);
}

/* A driver that maps host memory at another address is asked for that address. */
static int find_device_address(const struct hoist__storage *storage, uintptr_t address,
			       uintptr_t *ret)
{
	*ret = address;
	if (storage->kind != HOIST__MEMORY_PINNED || is_cpu(storage->device) ||
	    storage->memory->options.kind == HOIST_MEMORY_CUSTOM)
		return 0;
	return hoist__pool_device_address(hoist__device_dev(storage->device), address, ret);
}

/* Sets device memory to zero in the order of the stream, which may still have work queued on this
 * very memory.  Host memory needs no order: its resource waits for such work before it gives the
 * block out. */
static int zero(const struct hoist__storage *storage, uintptr_t address)
{
	bool ordered =
		storage->kind == HOIST__MEMORY_DEVICE || storage->kind == HOIST__MEMORY_MANAGED;
	hoist_stream *stream = taken_on(storage);
	if (stream != NULL && ordered)
		return hoist__fill_async(hoist__stream_dev_stream(stream), address, 0, 1,
					 storage->bytes);
	const struct hoist__span all = {storage->device, storage->kind, address};
	return hoist__fill(&all, 0, storage->bytes);
}

static int allocate(struct hoist__storage *storage, struct hoist__storage_place *ret)
{
	HOIST__ASSERT(storage->bytes != 0 && storage->memory != NULL);
	struct hoist__storage_place place;
	hoist__parked_bound(storage->memory, storage->bytes);
	int err = take_block(storage, &place.address);
	if (err < 0)
		return err;
	err = find_device_address(storage, place.address, &place.device_address);
	if (err == 0 && storage->flags & HOIST__STORAGE_ZERO)
		err = zero(storage, place.address);
	if (err < 0) {
		/* Giving the block back may fail, too; the caller is told the first failure. */
		struct hoist__failure failure;
		hoist__failure_keep(&failure);
		give_new_block(storage, place.address);
		return hoist__fail_again(err, &failure);
	}
	HOIST__ASSERT(place.address != 0 && place.device_address != 0);
	HOIST__ASSERT(storage->align == 0 || place.address % storage->align == 0);
	*ret = place;
	return 0;
}

/* If two threads allocate at once, the later one gives its block back.  There is no lock, so that a
 * child of fork never finds one taken. */
int hoist__storage_allocate(struct hoist__storage *storage)
{
	if (storage->bytes == 0 ||
	    atomic_load_explicit(&storage->xplace, memory_order_acquire) != NULL)
		return 0;
	struct hoist__storage_place *place = malloc(sizeof *place);
	if (place == NULL)
		return hoist__fail_nomem("a buffer's storage", sizeof *place);
	int err = allocate(storage, place);
	if (err < 0) {
		free(place);
		return err;
	}
	HOIST__ASSERT((storage->flags & HOIST__STORAGE_LAZY) != 0 && place != &storage->place);
	struct hoist__storage_place *none = NULL;
	if (!atomic_compare_exchange_strong(&storage->xplace, &none, place)) {
		give_new_block(storage, place->address);
		free(place);
	}
	return 0;
}

int hoist__storage_create(hoist_memory *memory, hoist_stream *stream, size_t bytes, size_t align,
			  unsigned flags, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = make_of(memory, stream, bytes, &made);
	if (err < 0)
		return err;
	made->flags = flags;
	made->align = align;
	if (bytes > 0 && !(flags & HOIST__STORAGE_LAZY))
		err = allocate(made, &made->place);
	hoist__storage_publish(made);
	if (err < 0) {
		hoist__storage_discard(made);
		return err;
	}
	*ret = made;
	return 0;
}

int hoist__storage_adopt(hoist_memory *memory, hoist_stream *stream, uintptr_t address,
			 size_t bytes, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = make_of(memory, stream, bytes, &made);
	if (err < 0)
		return err;
	made->place.address = address;
	if (bytes > 0)
		err = find_device_address(made, address, &made->place.device_address);
	if (err < 0) {
		hoist__storage_discard(made);
		return err;
	}
	hoist__storage_publish(made);
	*ret = made;
	return 0;
}
