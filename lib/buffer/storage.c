/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage.c - the bytes behind buffers: references, the streams that use them, foreign
 * memory.
 * The contract is in lib/buffer/storage.h. */
#include "config.h"

#include "lib/buffer/storage-private.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/memory/memory.h"

/* A storage with this many streams looks for streams that are over. */
#define MANY_USERS 8u

/* Each thread takes this many ids at a time, so that threads that make views share no cache
 * line. */
#define IDS 256

uint64_t hoist__next_id(void)
{
	static _Atomic uint64_t xtaken;
	static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t next;
	static _Thread_local __attribute__((tls_model("initial-exec"))) uint64_t end;
	if (next == end) {
		next = atomic_fetch_add_explicit(&xtaken, IDS, memory_order_relaxed);
		end = next + IDS;
	}
	return ++next;
}

void hoist__storage_init(struct hoist__storage *storage, hoist_device *device, size_t bytes)
{
	atomic_init(&storage->xrefs, 1);
	storage->device = device;
	storage->kind = HOIST__MEMORY_HOST;
	storage->has_access = true;
	storage->bytes = bytes;
	storage->id = hoist__next_id();
}

int hoist__storage_make(hoist_device *device, size_t bytes, struct hoist__storage **ret)
{
	struct hoist__storage *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a buffer's storage", sizeof *made);
	hoist__storage_init(made, device, bytes);
	*ret = made;
	return 0;
}

void hoist__storage_discard(struct hoist__storage *storage)
{
	HOIST__ASSERT(atomic_load(&storage->xusers) == NULL);
	struct hoist__storage_place *place = atomic_load(&storage->xplace);
	hoist_stream *stream = atomic_load(&storage->xstream);
	if (stream != NULL)
		hoist_stream_unref(stream);
	if (place != &storage->place)
		free(place);
	if (storage->memory != NULL)
		hoist_memory_unref(storage->memory);
	if (storage->ended != NULL)
		storage->ended(storage->ended_context);
	free(storage);
}

void hoist__storage_watch(struct hoist__storage *storage, void (*ended)(void *context),
			  void *context)
{
	HOIST__ASSERT(storage->ended == NULL);
	storage->ended = ended;
	storage->ended_context = context;
}

void hoist__storage_publish(struct hoist__storage *storage)
{
	HOIST__ASSERT(atomic_load(&storage->xplace) == NULL);
	atomic_init(&storage->xplace, storage->place.address != 0 ? &storage->place : NULL);
}

void hoist__storage_forget(struct hoist__storage *storage)
{
	atomic_store(&storage->xplace, NULL);
	storage->release = NULL;
}

int hoist__storage_none(hoist_device *device, struct hoist__storage **ret)
{
	return hoist__storage_make(device, 0, ret);
}

/* --- from elsewhere --- */

int hoist__storage_wrap(const struct hoist__foreign *foreign, struct hoist__storage **ret)
{
	struct hoist__storage *made = NULL;
	int err = hoist__storage_make(foreign->device, foreign->bytes, &made);
	if (err < 0)
		return err;
	made->kind = foreign->kind;
	made->read_only = foreign->read_only;
	made->mapped = foreign->mapped;
	made->has_access = !foreign->no_access;
	made->release = foreign->release;
	made->discard = foreign->discard;
	made->page_bytes = foreign->page_bytes;
	made->context = foreign->context;
	made->place.address = foreign->address;
	made->place.device_address =
		foreign->device_address != 0 ? foreign->device_address : foreign->address;
	hoist__storage_publish(made);
	*ret = made;
	return 0;
}

void *hoist__storage_context(const struct hoist__storage *storage)
{
	return storage->context;
}

static void close_map(void *context)
{
	struct hoist__file_map *map = context;
	hoist__file_map_close(map);
	free(map);
}

int hoist__storage_map(hoist_device *device, struct hoist__file_map *map, bool read_only,
		       struct hoist__storage **ret)
{
	struct hoist__file_map *kept = malloc(sizeof *kept);
	if (kept == NULL)
		return hoist__fail_nomem("a map", sizeof *kept);
	*kept = *map;
	const struct hoist__foreign foreign = {
		.device = device,
		.address = (uintptr_t)map->data,
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

/* Adds the chain of users from @first to @last. */
static void push_users(struct hoist__storage *storage, struct hoist__storage_user *first,
		       struct hoist__storage_user *last)
{
	HOIST__ASSERT(first != NULL && last != NULL);
	last->next = atomic_load(&storage->xusers);
	while (!atomic_compare_exchange_weak(&storage->xusers, &last->next, first)) {
	}
}

/* Drops the streams that nobody else refers to and whose work is done.  Only the walker may call
 * this. */
static void prune_users(struct hoist__storage *storage)
{
	HOIST__ASSERT(atomic_load(&storage->xwalked));
	struct hoist__storage_user *user = atomic_exchange(&storage->xusers, NULL);
	struct hoist__storage_user *first = NULL;
	struct hoist__storage_user *last = NULL;
	while (user != NULL) {
		struct hoist__storage_user *next = user->next;
		if (hoist__stream_is_over(user->stream)) {
			hoist_stream_unref(user->stream);
			free(user);
		} else {
			user->next = first;
			first = user;
			last = last == NULL ? user : last;
		}
		user = next;
	}
	if (first != NULL)
		push_users(storage, first, last);
}

/* One thread at a time walks along the users.  Another thread, or a child that was forked from the
 * middle of a walk, is told that the stream is no user.  Then the stream is added twice, and waited
 * for twice. */
static bool is_user(struct hoist__storage *storage, const hoist_stream *stream)
{
	if (atomic_exchange(&storage->xwalked, true))
		return false;
	unsigned n = 0;
	const struct hoist__storage_user *user = atomic_load(&storage->xusers);
	for (; user != NULL && user->stream != stream; user = user->next)
		n++;
	bool found = user != NULL;
	if (!found && n >= MANY_USERS)
		prune_users(storage);
	atomic_store(&storage->xwalked, false);
	return found;
}

int hoist__storage_use(struct hoist__storage *storage, hoist_stream *stream)
{
	uintptr_t address = hoist__storage_address(storage);
	if (storage->bytes == 0)
		return 0;
	if (address != 0 && hoist__storage_has_block(storage) && storage->memory->ops->use != NULL)
		return hoist_memory_use(storage->memory, address, stream);
	if (is_user(storage, stream))
		return 0;
	struct hoist__storage_user *user = malloc(sizeof *user);
	if (user == NULL)
		return hoist__fail_nomem("the stream of a buffer", sizeof *user);
	user->stream = hoist_stream_ref(stream);
	push_users(storage, user, user);
	return 0;
}

int hoist__storage_free_on(struct hoist__storage *storage, hoist_stream *stream)
{
	/* @stream does not order the work that others queue: if there are other references, the
	 * streams that they use, and the block's own stream, stay as they are.  Nobody can take
	 * another reference while the caller has the only one. */
	if (!hoist__storage_has_block(storage) ||
	    atomic_load_explicit(&storage->xrefs, memory_order_acquire) > 1)
		return hoist__storage_use(storage, stream);
	int err = hoist__memory_check_stream(storage->memory, stream);
	if (err < 0)
		return err;
	hoist_stream *before = atomic_exchange(&storage->xstream, hoist_stream_ref(stream));
	if (before != NULL)
		hoist_stream_unref(before);
	return 0;
}

/* A failure of work on a stream is reported by that stream.
 * Returns: NULL; or the device of a stream that may be capturing: its capture must end first. */
static hoist_device *wait_for_users(struct hoist__storage *storage)
{
	struct hoist__storage_user *user;
	while ((user = atomic_load(&storage->xusers)) != NULL) {
		struct hoist__dev_stream *stream = hoist__stream_dev_stream(user->stream);
		if (hoist__dev_stream_forbids_wait(stream))
			return hoist_stream_device(user->stream);
		(void)hoist__dev_stream_await(stream);
		atomic_store(&storage->xusers, user->next);
		hoist_stream_unref(user->stream);
		free(user);
	}
	return NULL;
}

/* --- references --- */

struct hoist__storage *hoist__storage_ref(struct hoist__storage *storage)
{
	HOIST__ASSERT(atomic_load(&storage->xrefs) != 0);
	atomic_fetch_add_explicit(&storage->xrefs, 1, memory_order_relaxed);
	return storage;
}

/* Returns: NULL, the bytes are nobody's any more; or the device of a stream whose capture must end
 * first. */
static hoist_device *let_go(struct hoist__storage *storage)
{
	uintptr_t address = hoist__storage_address(storage);
	hoist_device *capturing = wait_for_users(storage);
	if (capturing == NULL && hoist__storage_has_block(storage) && address != 0 &&
	    !hoist__storage_give_block(storage, address))
		capturing = hoist_stream_device(atomic_load(&storage->xstream));
	return capturing;
}

/* While a stream captures, the storage is parked: no wait for its device begins before the capture
 * has ended.  Parking is refused if such a wait has just been made; then the storage can end. */
static void *end(void *context)
{
	struct hoist__storage *storage = context;
	hoist_device *capturing;
	HOIST__ASSERT(atomic_load(&storage->xrefs) <= 1);
	while ((capturing = let_go(storage)) != NULL) {
		if (hoist__storage_park_for(storage, capturing))
			return NULL;
		if (hoist__dev_check(hoist__device_dev(capturing)) < 0) {
			hoist__log(alloc, "a buffer's storage of %zu bytes is kept: %s",
				   storage->bytes, hoist__error_text());
			return NULL;
		}
	}
	if (storage->release != NULL)
		storage->release(storage->context);
	hoist__storage_discard(storage);
	return NULL;
}

/* The wait for the users may be for the very work that is running here: then another thread
 * waits. */
void hoist__storage_end(struct hoist__storage *storage)
{
	if (atomic_load(&storage->xusers) == NULL || !hoist__in_cpu_stream())
		(void)end(storage);
	else if (hoist__leave_cpu_stream(end, storage) < 0)
		hoist__log(device,
			   "a buffer's storage that a stream of the cpu dropped is kept: "
			   "%s",
			   hoist__error_text());
}

void hoist__storage_unref(struct hoist__storage *storage)
{
	if (storage == NULL || !hoist__unref(&storage->xrefs))
		return;
	if (atomic_load_explicit(&storage->xpasses, memory_order_relaxed) == 0 ||
	    hoist__storage_is_of_graph(storage) || !hoist__storage_park(storage))
		hoist__storage_end(storage);
}

unsigned hoist__storage_n_refs(const struct hoist__storage *storage)
{
	return atomic_load_explicit(&storage->xrefs, memory_order_acquire);
}

bool hoist__storage_is_alone(const struct hoist__storage *storage)
{
	return hoist__storage_n_refs(storage) == 1;
}

void hoist__storage_move(struct hoist__storage *storage, uintptr_t address)
{
	HOIST__ASSERT(storage->memory != NULL && storage->release == NULL);
	HOIST__ASSERT(atomic_load(&storage->xusers) == NULL);
	storage->place.address = address;
	storage->place.device_address = address;
}

/* --- properties --- */

void hoist__storage_freeze(struct hoist__storage *storage)
{
	atomic_store(&storage->xfrozen, true);
}

uintptr_t hoist__storage_address(const struct hoist__storage *storage)
{
	const struct hoist__storage_place *place =
		atomic_load_explicit(&storage->xplace, memory_order_acquire);
	return place != NULL ? place->address : 0;
}

uintptr_t hoist__storage_device_address(const struct hoist__storage *storage)
{
	const struct hoist__storage_place *place =
		atomic_load_explicit(&storage->xplace, memory_order_acquire);
	return place != NULL ? place->device_address : 0;
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

hoist_stream *hoist__storage_stream(const struct hoist__storage *storage)
{
	return atomic_load(&storage->xstream);
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

bool hoist__storage_is_on_host(const struct hoist__storage *storage)
{
	return storage->kind != HOIST__MEMORY_DEVICE && storage->has_access;
}
