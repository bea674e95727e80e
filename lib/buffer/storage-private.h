/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage-private.h - what the files of the storage share.
 *
 *   storage.c         references, streams, memory from elsewhere, what is known
 *   storage-block.c   blocks of a resource, taken at once or lazily
 *   storage-parked.c  what consumers' work may still use
 */
#ifndef HOIST_LIB_STORAGE_PRIVATE_H
#define HOIST_LIB_STORAGE_PRIVATE_H

#include <stdatomic.h>

#include "base/list.h"
#include "lib/buffer/storage.h"

struct hoist__place {
	uintptr_t address;
	uintptr_t device_address; /* of the same byte, as the device's kernels see it */
};

/* A stream whose work uses the bytes, where no resource keeps that. */
struct hoist__storage_user {
	struct hoist__storage_user *next;
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
	struct hoist__place *_Atomic xplace; /* NULL: no bytes, or none yet */
	struct hoist__place place; /* what it points to, but for LAZY ones: these malloc it */
	size_t bytes;
	uint64_t id;
	unsigned flags; /* of hoist__storage_create() */
	size_t align;
	void (*release)(void *context);
	void *context;
	struct hoist__storage_user *_Atomic xusers; /* added by all, removed by the walker */
	atomic_bool xwalked;			    /* somebody walks along them */
	hoist_stream *_Atomic xstream;		    /* referenced; the block is freed on it */
	_Atomic uint64_t xpasses;		    /* with which wait consumers' work is over;
						     * 0: there was none; or LENT */
	uint64_t passes;			    /* the same, once it is parked */
	struct hoist__list link;		    /* in the parked ones */
};

#define HOIST__STORAGE_LENT UINT64_MAX /* the first wait after the storage's end */

/* True if the memory goes back in the order of its stream, and is not parked: a stream captures a
 * graph whose replays use the memory (hoist_memory_release_captured()), or the memory is a graph's. */
bool hoist__storage_is_of_graph(const struct hoist__storage *storage);

/* Takes over @storage, which nobody refers to: true if it is parked. */
bool hoist__storage_park(struct hoist__storage *storage);

/* Gives back what it has, and the struct; perhaps in another thread. */
void hoist__storage_end(struct hoist__storage *storage);

/* One reference, host memory, nothing owned.  Returns: 0; -ENOMEM. */
int hoist__storage_make(hoist_device *device, size_t bytes, struct hoist__storage **ret);

/* Frees the struct and what it refers to; not the bytes. */
void hoist__storage_discard(struct hoist__storage *storage);

/* Others may see `place` from here on, if it has an address. */
void hoist__storage_publish(struct hoist__storage *storage);

/* Gives the block at @address back to the resource.
 * Returns: false if the block is still taken: its stream captures, and must have ended that. */
bool hoist__storage_give_block(struct hoist__storage *storage, uintptr_t address);

#endif
