/* SPDX-License-Identifier: MIT */
/* lib/memory/snapshot.h - a copy of a resource's regions and blocks at one moment, so that it can
 * be written out without the resource's locks. */
#ifndef HOIST_LIB_MEMORY_SNAPSHOT_H
#define HOIST_LIB_MEMORY_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "alloc/books.h"
#include "alloc/pool.h"

struct hoist__snapshot_block {
	uintptr_t address;
	size_t bytes;
	size_t requested;
	enum hoist__block_state state;
};

struct hoist__snapshot {
	struct hoist__region *regions; /* copies, whose pointers must not be followed */
	size_t n_regions;
	size_t most_regions;
	struct hoist__snapshot_block *blocks;
	size_t n_blocks;
	size_t most_blocks;
	int err; /* the first failure */
};

/* Add the regions and blocks of @pool, or the blocks of @books.  Returns: 0; -ENOMEM. */
int hoist__snapshot_pool(struct hoist__snapshot *snapshot, struct hoist__pool *pool);
int hoist__snapshot_books(struct hoist__snapshot *snapshot, struct hoist__books *books);

#endif
