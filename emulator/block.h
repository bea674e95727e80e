/* SPDX-License-Identifier: MIT */
/* emulator/block.h - allocations and registrations; private to memory.c, register.c, span.c and
 * pool*.c.  All functions [locked]. */
#ifndef HOIST_EMULATOR_BLOCK_H
#define HOIST_EMULATOR_BLOCK_H

#include <sys/mman.h>

#include "emulator/pool.h"
#include "emulator/stream.h"

/* Since Linux 5.14, which the C library may not know. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct hoist__emu_piece;
struct hoist__emu_window;

struct hoist__emu_block {
	struct hoist__emu_range range;
	struct hoist__list node;	  /* placed: in device->blocks, by address */
	struct hoist__emu_device *device; /* NULL: a registration */
	/* of a pool, which has the block's place; otherwise NULL */
	struct hoist__emu_piece *piece;
	struct hoist__emu_window *window; /* of another process; otherwise NULL */
	size_t rounded;			  /* the bytes it takes of the device */
	unsigned users;			  /* queued operations */
	unsigned busy;			  /* operations that are copying a chunk now */
	int preferred;			  /* managed: EMU_PREFER_..., or a device's ordinal */
	bool managed;			  /* mapped for the host, as a registration is */
	bool owned;			  /* a registration of memory that the driver allocated */
	bool dead;			  /* freed while operations use it */
};

/* Maps @device's addresses and bytes unless they are mapped: 0 or EMU_OUT_OF_MEMORY. */
int hoist__emu_map_device(struct hoist__emu_device *device);

/* Returns the bytes that a block of @bytes takes of its device. */
size_t hoist__emu_round(size_t bytes);

/* Counts rounded bytes as taken from the block's device, or as given back. */
void hoist__emu_block_take(const struct hoist__emu_block *block);
void hoist__emu_block_give(const struct hoist__emu_block *block);

/* True if the device's limit leaves room for @bytes more, rounded. */
bool hoist__emu_has_room(const struct hoist__emu_device *device, size_t bytes);

/* Finds a place for block->rounded bytes on block->device, and takes them: 0 or EMU_OUT_OF_MEMORY.
 * unplace gives the place back, not the bytes. */
int hoist__emu_block_place(struct hoist__emu_block *block);
void hoist__emu_block_unplace(struct hoist__emu_block *block);

/* Begins an allocation of @bytes for a caller who asked for its address at @asked: refuses what no
 * kind of memory allows, and makes a block without a place.
 * Returns: 0; EMU_INVALID_VALUE (@bytes is 0, @asked is NULL); EMU_OUT_OF_MEMORY; as
 *   hoist__emu_unsafe(). */
int hoist__emu_block_new(size_t bytes, const void *asked, struct hoist__emu_block **ret);

/* Ends a block: now, or when its last user has ended. */
void hoist__emu_block_discard(struct hoist__emu_block *block);

/* Takes a block that was freed or unregistered out of service: 0, or EMU_ILLEGAL_ADDRESS if queued
 * operations still use it. */
int hoist__emu_block_retire(struct hoist__emu_block *block);

bool hoist__emu_is_device_address(uintptr_t address);

/* True if the program still has memory there. */
bool hoist__emu_is_mapped(uintptr_t address, size_t bytes);

/* --- pools: see pool.h --- */

struct hoist__emu_piece {
	struct hoist__list node; /* in pool->free, unless a block has it */
	struct hoist__emu_pool *pool;
	struct hoist__emu_block place;
	unsigned n_releases; /* queued releases; also of earlier blocks, if the piece is used
			      * again */
	/* free: the stream it was freed on; for comparison only */
	struct hoist__emu_stream *stream;
	struct hoist__emu_mark *mark; /* free: of the last release; NULL: nothing to wait for */
};

struct hoist__emu_pool {
	struct hoist__emu_range range; /* [this, this + 1): its handle */
	struct hoist__list node;       /* in device->pools */
	struct hoist__emu_device *device;
	enum hoist__emu_pool_kind kind;
	struct hoist__list free; /* pieces without a block */
	size_t n_pieces;	 /* all pieces */
	uint64_t max_bytes;	 /* 0: no limit */
	uint64_t values[EMU_POOL_ATTRIBUTES];
	uint64_t peers; /* bit n: device n may access it, besides its own device */
	bool closing;	/* destroyed; ends with its last piece */
	uint64_t id;	/* of a shareable pool: its name for other processes; otherwise 0 */
	bool imported;	/* another process's, whose arena this is */
	int fd;
};

/* Returns NULL if @handle is not a pool. */
struct hoist__emu_pool *hoist__emu_pool_find(struct hoist__emu_pool *handle);

/* Gives back free pieces whose releases have passed, until no more than @keep is reserved.  A
 * destroyed pool ends here. */
void hoist__emu_pool_settle(struct hoist__emu_pool *pool, uint64_t keep);

#endif
