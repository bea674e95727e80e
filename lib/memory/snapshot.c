/* SPDX-License-Identifier: MIT */
/* lib/memory/snapshot.c - copies regions and blocks of a pool, or of books.
 * The contract is in lib/memory/snapshot.h. */
#include "config.h"

#include "lib/memory/snapshot.h"

#include <stdlib.h>

#include "base/error.h"

/* Returns: @array with room for one more element of @bytes; NULL on failure, which the snapshot
 * keeps, as visitors return nothing. */
static void *grow(struct hoist__snapshot *snapshot, void *array, size_t n, size_t *most,
		  size_t bytes)
{
	if (snapshot->err < 0)
		return NULL;
	if (n < *most)
		return array;
	size_t more = *most == 0 ? 64 : 2 * *most;
	void *made = realloc(array, more * bytes);
	if (made == NULL)
		snapshot->err = hoist__fail_nomem("a snapshot", more * bytes);
	else
		*most = more;
	return made;
}

static void add_region(void *arg, const struct hoist__region *region)
{
	struct hoist__snapshot *snapshot = arg;
	struct hoist__region *regions = grow(snapshot, snapshot->regions, snapshot->n_regions,
					     &snapshot->most_regions, sizeof *regions);
	if (regions == NULL)
		return;
	snapshot->regions = regions;
	regions[snapshot->n_regions++] = *region;
}

static void add_block(void *arg, uintptr_t address, size_t bytes, size_t requested,
		      enum hoist__block_state state)
{
	struct hoist__snapshot *snapshot = arg;
	struct hoist__snapshot_block *blocks = grow(snapshot, snapshot->blocks, snapshot->n_blocks,
						    &snapshot->most_blocks, sizeof *blocks);
	if (blocks == NULL)
		return;
	snapshot->blocks = blocks;
	blocks[snapshot->n_blocks++] =
		(struct hoist__snapshot_block){address, bytes, requested, state};
}

int hoist__snapshot_pool(struct hoist__snapshot *snapshot, struct hoist__pool *pool)
{
	static const struct hoist__pool_visitor visitor = {add_region, add_block};
	hoist__pool_walk(pool, &visitor, snapshot);
	return snapshot->err;
}

static int add_book(void *arg, const struct hoist__book *book)
{
	struct hoist__snapshot *snapshot = arg;
	add_block(snapshot, hoist__book_address(book), book->allocated, book->bytes,
		  HOIST__BLOCK_LIVE);
	return snapshot->err;
}

int hoist__snapshot_books(struct hoist__snapshot *snapshot, struct hoist__books *books)
{
	return hoist__books_walk(books, add_book, snapshot);
}
