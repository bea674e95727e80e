/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/storage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "lib/memory.h"
#include "lib/objects.h"
#include "lib/transfer.h"

/* A stream whose work uses the bytes, where no resource keeps that. */
struct user {
	struct user *next;
	hoist_stream *stream; /* referenced */
};

/* Constant once made, but for what begins with x. */
struct hoist__storage {
	_Atomic unsigned xrefs;
	enum hoist__memory_kind kind;
	bool read_only;
	bool mapped;
	bool has_access;
	atomic_bool xfrozen;
	hoist_device *device;
	hoist_memory *memory; /* referenced; NULL unless the bytes are a block of it */
	_Atomic uintptr_t xaddress;
	uintptr_t xdevice_address; /* written before xaddress */
	size_t bytes;
	uint64_t id;
	unsigned flags; /* of hoist__storage_create() */
	size_t align;
	void (*release)(void *context);
	void *context;
	pthread_mutex_t lock;
	struct user *xusers;   /* lock */
	hoist_stream *xstream; /* lock; referenced; the block is freed on it */
};

static _Atomic uint64_t xlast_id;

uint64_t hoist__next_id(void)
{
	return atomic_fetch_add_explicit(&xlast_id, 1, memory_order_relaxed) + 1;
}

static int make(hoist_device *device, size_t bytes, struct hoist__storage **ret)
{
	struct hoist__storage *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a buffer's storage", sizeof *made);
	atomic_init(&made->xrefs, 1);
	pthread_mutex_init(&made->lock, NULL);
	made->device = device;
	made->kind = HOIST__MEMORY_HOST;
	made->has_access = true;
	made->bytes = bytes;
	made->id = hoist__next_id();
	*ret = made;
	return 0;
}

static void discard(struct hoist__storage *storage)
{
	pthread_mutex_destroy(&storage->lock);
	if (storage->xstream != NULL)
		hoist_stream_unref(storage->xstream);
	if (storage->memory != NULL)
		hoist_memory_unref(storage->memory);
	free(storage);
}

/* --- of a resource --- */

/* How bytes of @memory are to be copied: as pinned ones where a driver has registered them. */
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

/* What only the CPU can touch is the CPU's, whichever device it was placed near. */
static int device_of(hoist_memory *memory, hoist_device **ret)
{
	*ret = memory->device;
	if (kind_of(memory) != HOIST__MEMORY_HOST || is_cpu(memory->device))
		return 0;
	int err = hoist_device_open("cpu", ret);
	if (err == 0)
		hoist_device_unref(*ret); /* devices live as long as the process */
	return err;
}

static int make_of(hoist_memory *memory, hoist_stream *stream, size_t bytes,
		   struct hoist__storage **ret)
{
	hoist_device *device;
	struct hoist__storage *made = NULL;
	int err = device_of(memory, &device);
	if (err == 0)
		err = make(device, bytes, &made);
	if (err < 0)
		return err;
	made->kind = kind_of(memory);
	made->has_access = memory->info.is_host_accessible || memory->info.is_device_accessible ||
			   made->kind == HOIST__MEMORY_HOST;
	made->memory = hoist_memory_ref(memory);
	made->xstream = stream != NULL ? hoist_stream_ref(stream) : NULL;
	*ret = made;
	return 0;
}

static int take_block(const struct hoist__storage *storage, uintptr_t *ret)
{
	hoist_memory *memory = storage->memory;
	if (storage->flags & HOIST__STORAGE_UNPOPULATED) {
		struct hoist__pool *pool;
		int err = hoist__memory_pool(memory, &pool);
		if (err < 0)
			return err;
		return hoist__pool_alloc(pool, storage->bytes, storage->align, HOIST__ALLOC_LAZY,
					 ret);
	}
	if (storage->xstream != NULL)
		return hoist_memory_alloc_on(memory, storage->bytes, storage->align,
					     storage->xstream, ret);
	return hoist_memory_alloc(memory, storage->bytes, storage->align, ret);
}

static void give_block(struct hoist__storage *storage, uintptr_t address)
{
	int err = storage->xstream != NULL
			  ? hoist_memory_free_on(storage->memory, address, storage->xstream)
			  : hoist_memory_free(storage->memory, address);
	/* It was a live block of this resource: only a driver, or the caller's own function, can
	 * have failed, and there is nobody to tell. */
	if (err < 0)
		hoist__log(alloc, "a buffer's storage of %zu bytes was not freed: %s",
			   storage->bytes, hoist__error_text());
}

/* Where a driver maps host memory elsewhere, it says where. */
static int find_device_address(const struct hoist__storage *storage, uintptr_t address,
			       uintptr_t *ret)
{
	*ret = address;
	if (storage->kind != HOIST__MEMORY_PINNED || is_cpu(storage->device) ||
	    storage->memory->options.kind == HOIST_MEMORY_CUSTOM)
		return 0;
	return hoist__dev_host_address(hoist__device_dev(storage->device), (void *)address, ret);
}

/* In the order of the stream, which may have work queued on this very memory; host memory waits
 * for that before it is given out. */
static int zero(const struct hoist__storage *storage, uintptr_t address)
{
	bool ordered =
		storage->kind == HOIST__MEMORY_DEVICE || storage->kind == HOIST__MEMORY_MANAGED;
	if (storage->xstream != NULL && ordered)
		return hoist__fill_async(hoist__stream_dev_stream(storage->xstream), address, 0, 1,
					 storage->bytes);
	const struct hoist__span all = {storage->device, storage->kind, address};
	return hoist__fill(&all, 0, storage->bytes);
}

/* Under the lock, or before others know the storage. */
static int allocate(struct hoist__storage *storage)
{
	uintptr_t address = 0;
	uintptr_t device_address = 0;
	int err = take_block(storage, &address);
	if (err < 0)
		return err;
	err = find_device_address(storage, address, &device_address);
	if (err == 0 && storage->flags & HOIST__STORAGE_ZERO)
		err = zero(storage, address);
	if (err < 0) {
		char text[HOIST__ERROR_BYTES];
		hoist__error_copy(text, sizeof text);
		give_block(storage, address);
		return hoist__fail(err, "%s", text);
	}
	storage->xdevice_address = device_address;
	atomic_store_explicit(&storage->xaddress, address, memory_order_release);
	return 0;
}

int hoist__storage_allocate(struct hoist__storage *storage)
{
	if (storage->bytes == 0 ||
	    atomic_load_explicit(&storage->xaddress, memory_order_acquire) != 0)
		return 0;
	pthread_mutex_lock(&storage->lock);
	int err = atomic_load(&storage->xaddress) == 0 ? allocate(storage) : 0;
	pthread_mutex_unlock(&storage->lock);
	return err;
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
		err = allocate(made);
	if (err < 0) {
		discard(made);
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
	if (bytes > 0)
		err = find_device_address(made, address, &made->xdevice_address);
	if (err < 0) {
		discard(made);
		return err;
	}
	atomic_init(&made->xaddress, address);
	*ret = made;
	return 0;
}

void hoist__storage_forget(struct hoist__storage *storage)
{
	atomic_store(&storage->xaddress, 0);
	storage->release = NULL;
}

int hoist__storage_none(hoist_device *device, struct hoist__storage **ret)
{
	return make(device, 0, ret);
}

/* --- from elsewhere --- */

int hoist__storage_wrap(const struct hoist__foreign *foreign, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = make(foreign->device, foreign->bytes, &made);
	if (err < 0)
		return err;
	made->kind = foreign->kind;
	made->read_only = foreign->read_only;
	made->mapped = foreign->mapped;
	made->has_access = !foreign->no_access;
	made->release = foreign->release;
	made->context = foreign->context;
	made->xdevice_address = foreign->device_address;
	atomic_init(&made->xaddress, foreign->address);
	*ret = made;
	return 0;
}

static void close_map(void *context)
{
	struct hoist__map *map = context;
	hoist__map_close(map);
	free(map);
}

int hoist__storage_map(hoist_device *device, struct hoist__map *map, bool read_only,
		       struct hoist__storage **ret)
{
	struct hoist__map *kept = malloc(sizeof *kept);
	if (kept == NULL)
		return hoist__fail_nomem("a map", sizeof *kept);
	*kept = *map;
	const struct hoist__foreign foreign = {
		.device = device,
		.address = (uintptr_t)map->data,
		.device_address = (uintptr_t)map->data,
		.bytes = map->bytes,
		.read_only = read_only,
		.release = close_map,
		.context = kept,
	};
	int err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		free(kept);
	else
		memset(map, 0, sizeof *map);
	return err;
}

/* --- streams --- */

int hoist__storage_use(struct hoist__storage *storage, hoist_stream *stream)
{
	uintptr_t address = hoist__storage_address(storage);
	if (address == 0)
		return 0;
	if (storage->memory != NULL && storage->memory->ops->use != NULL)
		return hoist_memory_use(storage->memory, address, stream);
	pthread_mutex_lock(&storage->lock);
	struct user *user = storage->xusers;
	while (user != NULL && user->stream != stream)
		user = user->next;
	bool known = user != NULL;
	if (!known) {
		user = malloc(sizeof *user);
		if (user != NULL) {
			user->next = storage->xusers;
			user->stream = hoist_stream_ref(stream);
			storage->xusers = user;
		}
	}
	pthread_mutex_unlock(&storage->lock);
	return user != NULL ? 0 : hoist__fail_nomem("the stream of a buffer", sizeof *user);
}

int hoist__storage_free_on(struct hoist__storage *storage, hoist_stream *stream)
{
	if (storage->memory == NULL)
		return hoist__storage_use(storage, stream);
	int err = hoist__memory_check_stream(storage->memory, stream);
	if (err < 0)
		return err;
	pthread_mutex_lock(&storage->lock);
	hoist_stream *before = storage->xstream;
	storage->xstream = hoist_stream_ref(stream);
	pthread_mutex_unlock(&storage->lock);
	if (before != NULL)
		hoist_stream_unref(before);
	return 0;
}

/* What failed on a stream is its own to report. */
static void wait_for_users(struct hoist__storage *storage)
{
	while (storage->xusers != NULL) {
		struct user *user = storage->xusers;
		storage->xusers = user->next;
		(void)hoist__stream_synchronize(hoist__stream_dev_stream(user->stream));
		hoist_stream_unref(user->stream);
		free(user);
	}
}

/* --- references --- */

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
	uintptr_t address = hoist__storage_address(storage);
	wait_for_users(storage);
	if (storage->memory != NULL && address != 0)
		give_block(storage, address);
	if (storage->release != NULL)
		storage->release(storage->context);
	discard(storage);
}

/* --- what is known --- */

void hoist__storage_freeze(struct hoist__storage *storage)
{
	atomic_store(&storage->xfrozen, true);
}

uintptr_t hoist__storage_address(const struct hoist__storage *storage)
{
	return atomic_load_explicit(&storage->xaddress, memory_order_acquire);
}

uintptr_t hoist__storage_device_address(const struct hoist__storage *storage)
{
	return hoist__storage_address(storage) != 0 ? storage->xdevice_address : 0;
}

size_t hoist__storage_bytes(const struct hoist__storage *storage)
{
	return storage->bytes;
}

uint64_t hoist__storage_id(const struct hoist__storage *storage)
{
	return storage->id;
}

hoist_device *hoist__storage_device(const struct hoist__storage *storage)
{
	return storage->device;
}

hoist_memory *hoist__storage_memory(const struct hoist__storage *storage)
{
	return storage->memory;
}

enum hoist__memory_kind hoist__storage_kind(const struct hoist__storage *storage)
{
	return storage->kind;
}

bool hoist__storage_is_read_only(const struct hoist__storage *storage)
{
	return storage->read_only || atomic_load_explicit(&storage->xfrozen, memory_order_relaxed);
}

bool hoist__storage_is_mapped(const struct hoist__storage *storage)
{
	return storage->mapped;
}

bool hoist__storage_has_access(const struct hoist__storage *storage)
{
	return storage->has_access;
}
