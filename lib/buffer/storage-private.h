/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage-private.h - shared by the files of the storage.
 *
 *   storage.c         references, streams, memory from elsewhere, properties
 *   storage-block.c   blocks of a resource, taken at once or lazily
 *   storage-parked.c  storages that consumers' work may still use
 *   portions.c        storages over ranges of another one (portions.h)
 */
#ifndef HOIST_LIB_BUFFER_STORAGE_PRIVATE_H
#define HOIST_LIB_BUFFER_STORAGE_PRIVATE_H

#include <stdatomic.h>

#include "lib/buffer/storage.h"
#include "lib/memory/parked.h"

struct hoist__storage_place {
	uintptr_t address;
	uintptr_t device_address; /* the same byte, as the device's kernels see it */
};

/* A stream whose work uses the bytes, if the resource does not keep track of streams. */
struct hoist__storage_user {
	struct hoist__storage_user *next;
	hoist_stream *stream; /* with a reference */
};

/* Constant once made, except for the fields that begin with x. */
struct hoist__storage {
	_Atomic unsigned xrefs;
	enum hoist__memory_kind kind;
	bool read_only;
	bool mapped;
	bool has_access;
	atomic_bool xfrozen;
	hoist_device *device;
	hoist_memory *memory; /* referenced; the bytes are one of its blocks, or, with `release`, a
			       * portion of one; NULL: neither */
	struct hoist__storage_place *_Atomic xplace; /* NULL: no bytes, or no memory yet */
	struct hoist__storage_place place; /* `xplace` points here; LAZY storages allocate theirs */
	size_t bytes;
	uint64_t id;
	unsigned flags; /* as given to hoist__storage_create() */
	size_t align;
	void (*release)(void *context);
	int (*discard)(void *context, uintptr_t address, size_t bytes); /* as hoist__foreign's */
	size_t page_bytes;
	void *context;
	void (*ended)(void *context); /* hoist__storage_watch() */
	void *ended_context;
	struct hoist__storage_user *_Atomic xusers; /* all threads add, only the walker removes */
	atomic_bool xwalked;			    /* a thread is walking along the users */
	hoist_stream *_Atomic xstream;		    /* referenced; the block is freed on it */
	/* consumers' work is over with this wait; 0: there are no consumers; or LENT */
	_Atomic uint64_t xpasses;
	struct hoist__parked parked;		    /* set when the storage is parked */
};

/* True if the storage itself frees a block to its resource. */
static inline bool hoist__storage_has_block(const struct hoist__storage *storage)
{
	return storage->memory != NULL && storage->release == NULL;
}

#define HOIST__STORAGE_LENT UINT64_MAX /* the first wait after the storage's end */

/* True if the memory goes back in the order of its stream, and is not parked: the stream captures a
 * graph whose replays use the memory (hoist_memory_release_captured()), or the memory is a graph's
 * own. */
bool hoist__storage_is_of_graph(const struct hoist__storage *storage);

/* Parks @storage, to which nobody refers, and takes it over.
 * Returns: true if the storage is parked. */
bool hoist__storage_park(struct hoist__storage *storage);

/* The same for bytes of any kind that a stream of @device, which may be capturing, uses.  Memory of
 * the CPU waits for all devices of the stream's driver. */
bool hoist__storage_park_for(struct hoist__storage *storage, hoist_device *device);

/* Gives back the storage's memory, and frees the struct; perhaps in another thread. */
void hoist__storage_end(struct hoist__storage *storage);

/* Makes a storage of zeroes one of host memory that owns nothing, with one reference. */
void hoist__storage_init(struct hoist__storage *storage, hoist_device *device, size_t bytes);

/* The same in memory of its own, which hoist__storage_discard() frees.
 * Returns: 0; -ENOMEM. */
int hoist__storage_make(hoist_device *device, size_t bytes, struct hoist__storage **ret);

/* Frees the struct and drops its references; leaves the bytes alone. */
void hoist__storage_discard(struct hoist__storage *storage);

/* Lets other threads see `place` from here on, if it has an address. */
void hoist__storage_publish(struct hoist__storage *storage);

/* Gives the block at @address back to the resource.
 * Returns: false if the block is still taken: its stream captures a graph, and the capture must end
 *   first. */
bool hoist__storage_give_block(struct hoist__storage *storage, uintptr_t address);

#endif
