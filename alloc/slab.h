/* SPDX-License-Identifier: MIT */
/* alloc/slab.h - blocks of one size in a span, with all that is known of them beside it.
 *
 *   class   one size (classes.h) of one pool and shard: its slabs that have free blocks, a
 *           lock.  A thread allocates from its shard as long as that can have slabs without
 *           growth of the pool, so that threads do not share slabs, nor the cache lines that
 *           describe them; blocks return to their slab, whoever frees them
 *   slab    a span cut into blocks of that size: a bit per block (1: free), a summary of
 *           the words that are not 0, and a word of state per block
 *
 * Blocks leave and come back in batches (the magazines'): a lock for many.  Bits say what is
 * in the slab; a block that has left it is live, in a magazine, or held by deferred.h or
 * watch.h, and only its state word tells which:
 *
 *   state   0                    not live
 *           bytes | flags        live: the bytes asked for
 *
 * It is stored by who allocates and exchanged for 0 by who frees: who gets 0 back freed
 * nothing.  The same word in the granule's record serves large blocks (64 bits).
 *
 * Invariants, checked by hoist__class_check():
 *   - a slab with a free block, and none without, is in its class's `partial` list
 *   - n_free is the number of bits; n_out, of the class, of blocks that left
 *   - at most one slab of a class is wholly free, and none that is large
 *
 * Descriptors are kept for reuse until the pool ends: one that a wrong address leads to may
 * be stale, but is there.
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

/* Division by a block's bytes, with r = 2^64 / them, rounded up: for offsets below 2^32 the upper
 * half of offset * r is the quotient, and the lower half is below r if and only if there is no
 * remainder (Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019). */
__extension__ typedef unsigned __int128 hoist__uint128;

/* True if @offset is a multiple of what @reciprocal is of. */
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
	/* Read by every free, constant while it has a span. */
	struct hoist__pool *pool;
	struct hoist__class *class;
	uint32_t block_bytes;
	uint32_t n_blocks;
	uint64_t reciprocal;
	uintptr_t base;
	uint32_t class_index; /* of the class, in its shard */
	/* The class's lock; a cache line of its own. */
	struct hoist__list link __attribute__((aligned(64))); /* partial or spares */
	uint32_t n_free;
	uint32_t words; /* bit i: free[i] is not 0 */
	uint64_t free[HOIST__SLAB_BLOCKS_MOST / 64];
	/* At a fixed place: found without reading what is above.  One more than there are blocks,
	 * which is always 0: of the address behind the last block. */
	_Atomic uint32_t states[] __attribute__((aligned(64)));
};

/* A free block on its way: in a magazine, or between it and the slab. */
struct hoist__entry {
	uintptr_t address;
	_Atomic uint32_t *state;
};

/* True if blocks of this size fit slabs of at most @most_granules. */
bool hoist__class_possible(size_t block_bytes, size_t most_granules);

/* Chooses the geometry, for slabs of at most @most_granules, where that is possible; all else
 * of @class is zero. */
void hoist__class_init(struct hoist__class *class, unsigned index, size_t block_bytes,
		       size_t most_granules);
void hoist__class_done(struct hoist__class *class); /* frees spare descriptors */

/* A descriptor from malloc.  NULL: exhausted, with the text. */
struct hoist__slab *hoist__slab_create(struct hoist__pool *pool, struct hoist__class *class);
/* What one takes, but for malloc's own part. */
size_t hoist__slab_bytes(const struct hoist__class *class);

/* --- with the class's lock held --- */

/* A descriptor without a span; NULL if there is none.  And back. */
struct hoist__slab *hoist__class_spare(struct hoist__class *class);
void hoist__class_return_spare(struct hoist__class *class, struct hoist__slab *slab);

/* All blocks of the slab, whose base is set, are free from now on. */
void hoist__class_add(struct hoist__class *class, struct hoist__slab *slab);

/* Up to @n free blocks.  Returns: how many. */
size_t hoist__class_take(struct hoist__class *class, struct hoist__entry *entries, size_t n);

/* Takes one block back.  Returns: its slab, taken out of the class, if the class can do without
 * its span (the caller unmarks granules, releases the span and discards the slab); else NULL. */
struct hoist__slab *hoist__class_give(struct hoist__class *class, struct hoist__slab *slab,
				      uintptr_t address);

/* A wholly free slab, taken out likewise; NULL if there is none. */
struct hoist__slab *hoist__class_shrink(struct hoist__class *class);

void hoist__class_check(const struct hoist__class *class);

/* --- */

/* The block of @slab around @address: its index; n_blocks if behind the last one. */
static inline uint32_t hoist__slab_index(const struct hoist__slab *slab, uintptr_t address)
{
	return (uint32_t)((hoist__uint128)(address - slab->base) * slab->reciprocal >> 64);
}

static inline uintptr_t hoist__slab_block(const struct hoist__slab *slab, uint32_t index)
{
	return slab->base + (uintptr_t)index * slab->block_bytes;
}

/* True if @address is where a block starts; *index is which. */
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
