/* SPDX-License-Identifier: MIT */
/* lib/memory/snapshot.h - what a resource holds at one moment, copied, so that it can be written out
 * without its locks. */
#ifndef HOIST_LIB_SNAPSHOT_H
#define HOIST_LIB_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"
#include "lib/memory/books.h"

struct hoist__snapshot_block {
	uintptr_t address;
	size_t bytes;
	size_t requested;
	enum hoist__block_state state;
};

struct hoist__snapshot {
	struct hoist__region *regions; /* copies: pointers in them are not to be followed */
	size_t n_regions;
	size_t most_regions;
	struct hoist__snapshot_block *blocks;
	size_t n_blocks;
	size_t most_blocks;
	int err; /* the first failure */
};

/* Regions and blocks of @pool, or blocks of @books, are added.  Returns: 0; -ENOMEM. */
int hoist__snapshot_pool(struct hoist__snapshot *snapshot, struct hoist__pool *pool);
int hoist__snapshot_books(struct hoist__snapshot *snapshot, struct hoist__books *books);

#endif
