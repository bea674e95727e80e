/* SPDX-License-Identifier: MIT */
/* alloc/slab.h - blocks of one size in a span, and their description beside the span.
 *
 *   class   one size (classes.h) of one pool and shard: its slabs that have free blocks, and a
 *           lock.  A thread allocates from its shard as long as the shard can have slabs without
 *           growth of the pool, so that threads share neither slabs nor the cache lines that
 *           describe them.  Blocks return to their slab, whichever thread frees them
 *   slab    a span cut into blocks of the class's size: a bit per block (1: free), a summary of
 *           the words that are not 0, and a word of state per block
 *
 * Blocks leave and come back in batches (the magazines'), with one lock per batch.  The bits say
 * which blocks are in the slab.  A block that has left the slab is live, in a magazine, or held by
 * deferred.h or watch.h, and only its state word tells which of them are live:
 *
 *   state   0                    not live
 *           bytes | flags        live: the bytes asked for
 *
 * The thread that allocates stores the state.  The thread that frees exchanges it for 0: a free
 * that gets 0 back has freed nothing.  The same word in the granule's record serves large blocks
 * (64 bits).
 *
 * Invariants, checked by hoist__class_check():
 *   - exactly the slabs with a free block are in their class's `partial` list
 *   - n_free is the number of bits; n_out, of the class, is the number of blocks that left
 *   - at most one slab of a class is wholly free, and never one that is large
 *
 * Descriptors are kept for reuse until the pool ends: a descriptor that a wrong address leads to
 * may be stale, but is still mapped.
 *
 * Locks: each class has one; the spans' lock may be taken under it, never the reverse.
 */
#ifndef HOIST_ALLOC_SLAB_H
#define HOIST_ALLOC_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/classes.h"
#include "alloc/granule.h"
#include "base/list.h"
#include "base/lock.h"

#define HOIST__SLAB_BLOCKS_MOST 1024
#define HOIST__SLAB_GRANULES_MOST 16

/* Division by a block's bytes b, with r = 2^64 / b, rounded up: for offsets below 2^32 the upper
 * half of offset * r is the quotient, and the lower half is below r if and only if there is no
 * remainder (Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019). */
__extension__ typedef unsigned __int128 hoist__uint128;

/* True if @offset is a multiple of the number that @reciprocal belongs to. */
static inline bool hoist__is_multiple(uintptr_t offset, uint64_t reciprocal, uint32_t *quotient)
{
	hoist__uint128 product = (hoist__uint128)offset * reciprocal;
	*quotient = (uint32_t)(product >> 64);
	return (uint64_t)product < reciprocal;
}

/* Flags in a state word: streams use the block (deferred.h). */
#define HOIST__STATE_USED (UINT32_C(1) << 31)
#define HOIST__STATE_BYTES_MASK (HOIST__STATE_USED - 1)
#define HOIST__LARGE_USED (UINT64_C(1) << 63)
#define HOIST__LARGE_BYTES_MASK (HOIST__LARGE_USED - 1)

struct hoist__pool;

struct hoist__class {
	struct hoist__lock lock;
	struct hoist__list partial;
	struct hoist__list full;   /* slabs without a free block: leak checkers find them here */
	struct hoist__list spares; /* descriptors without a span */
	uint32_t block_bytes;
	uint32_t n_blocks;   /* in a slab */
	uint32_t n_granules; /* of a slab */
	uint32_t n_wholly_free;
	uint32_t index;	     /* in its shard */
	uint64_t reciprocal; /* 2^64 / block_bytes, rounded up */
	size_t n_slabs;
	size_t n_out;
} __attribute__((aligned(64)));

struct hoist__slab {
	/* Read by every free, and constant while the slab has a span. */
	struct hoist__pool *pool;
	struct hoist__class *class;
	uint32_t block_bytes;
	uint32_t n_blocks;
	uint64_t reciprocal;
	uintptr_t base;
	uint32_t class_index; /* of the class, in its shard */
	/* Guarded by the class's lock, in a cache line of their own. */
	struct hoist__list link __attribute__((aligned(64))); /* partial, full or spares */
	uint32_t n_free;
	uint32_t words; /* bit i: free[i] is not 0 */
	uint64_t free[HOIST__SLAB_BLOCKS_MOST / 64];
	/* At a fixed offset, so that a free finds a state without reading the fields above.  There
	 * is one word more than there are blocks.  It belongs to the address behind the last block,
	 * and is always 0. */
	_Atomic uint32_t states[] __attribute__((aligned(64)));
};

/* A free block in a magazine, or on its way between a magazine and the slab. */
struct hoist__entry {
	uintptr_t address;
	_Atomic uint32_t *state;
};

/* True if blocks of this size fit slabs of at most @most_granules. */
bool hoist__class_possible(size_t block_bytes, size_t most_granules);

/* Chooses the geometry, for slabs of at most @most_granules.  Pre: that is possible, and @class is
 * zeroed. */
void hoist__class_init(struct hoist__class *class, unsigned index, size_t block_bytes,
		       size_t most_granules);
void hoist__class_done(struct hoist__class *class); /* frees spare descriptors */

/* Makes a descriptor.  Returns: NULL if memory is exhausted, with the text. */
struct hoist__slab *hoist__slab_create(struct hoist__pool *pool, struct hoist__class *class);
/* Returns: the bytes of a descriptor, without malloc's own overhead. */
size_t hoist__slab_bytes(const struct hoist__class *class);

/* --- with the class's lock held --- */

/* Takes a descriptor without a span (NULL if there is none), and gives it back. */
struct hoist__slab *hoist__class_spare(struct hoist__class *class);
void hoist__class_return_spare(struct hoist__class *class, struct hoist__slab *slab);

/* Adds a slab, whose base is set: all its blocks are free. */
void hoist__class_add(struct hoist__class *class, struct hoist__slab *slab);

/* Takes up to @n free blocks.  Returns: how many. */
size_t hoist__class_take(struct hoist__class *class, struct hoist__entry *entries, size_t n);

/* Takes one block back.  Returns: the block's slab, taken out of the class, if the class can do
 * without the slab's span (the caller unmarks granules, releases the span and discards the slab);
 * else NULL. */
struct hoist__slab *hoist__class_give(struct hoist__class *class, struct hoist__slab *slab,
				      uintptr_t address);

/* Takes a wholly free slab out of the class likewise.  Returns: NULL if there is none. */
struct hoist__slab *hoist__class_shrink(struct hoist__class *class);

void hoist__class_check(const struct hoist__class *class);

/* --- */

/* Returns: the index of the block of @slab around @address; n_blocks if behind the last block. */
static inline uint32_t hoist__slab_index(const struct hoist__slab *slab, uintptr_t address)
{
	return (uint32_t)((hoist__uint128)(address - slab->base) * slab->reciprocal >> 64);
}

static inline uintptr_t hoist__slab_block(const struct hoist__slab *slab, uint32_t index)
{
	return slab->base + (uintptr_t)index * slab->block_bytes;
}

/* True if a block starts at @address; *index says which. */
static inline bool hoist__slab_at(const struct hoist__slab *slab, uintptr_t address,
				  uint32_t *index)
{
	return hoist__is_multiple(address - slab->base, slab->reciprocal, index) &&
	       *index < slab->n_blocks;
}

static inline bool hoist__slab_has_free(const struct hoist__slab *slab, uint32_t index)
{
	return slab->free[index / 64] >> (index % 64) & 1;
}

#endif
