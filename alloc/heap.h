/* SPDX-License-Identifier: MIT */
/* alloc/heap.h - an arena of jemalloc's own, over a pool of ours.
 *
 * For programs that have jemalloc (jemalloc.h): its size classes, its packing of small
 * blocks, its caches, but every byte is of the pool's regions: on their node, pinned.
 *
 *   alloc, free      jemalloc's arena, through a cache (tcache) that a thread has for each
 *                    heap.  Caches that arenas share hand out each other's blocks; without
 *                    a cache every call takes the arena's locks
 *   extent           what jemalloc carves blocks from: a run of pages.  One that it asks
 *                    for is a block of the pool; never more than what it needs now
 *   part             what jemalloc gives back: an extent, or a piece of one
 *
 * jemalloc's hooks and what we let them do:
 *
 *   alloc   hoist__pool_alloc(), in the thread of the caller.  Growth ahead of need, which
 *           jemalloc asks for with a lock held, is refused: it then asks for the extent
 *           alone, without one.  So a slow registration blocks who needs it, no one else,
 *           and no extent has a tail that was never used and never comes back
 *   dalloc  always taken, and soon: the arena's decay is 0, so free extents are the pool's,
 *           not jemalloc's.  As jemalloc may hold locks here that its fork handler wants,
 *           the hook takes none: the part is pushed on a list, linked through its own first
 *           bytes, and who made the call hands it to the pool afterwards
 *   split   allowed.  A block of the pool goes back whole, when all parts of it came back
 *   merge, commit, decommit, purge
 *           refused: parts of two blocks are never one; pages that a driver has registered
 *           are never exchanged for others, as the device keeps those that it knows
 *
 * jemalloc's books (the arena, some 128 B an extent) are not in the pool's memory but in
 * plain memory: its fork handlers write there, and a child of fork does not have what a
 * driver pinned.
 *
 * Threads: any function but destroy from any thread.  A thread's cache ends with it.
 * The pool's exhausted function may free blocks of a heap, but not allocate from one.
 * After jemalloc's part of a thread has ended (in destructors of its thread-specific data)
 * the thread may free, but not allocate.
 * fork: a child may go on, also where other threads were in a call: what was in their
 * caches stays there.  If a driver has the memory, all is -ESTALE in the child.
 */
#ifndef HOIST_ALLOC_HEAP_H
#define HOIST_ALLOC_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"

#define HOIST__HEAP_ALIGN ((size_t)16) /* of every block */

struct hoist__heap;

/* A heap over @pool (HOST or PINNED), of which it keeps a reference; takes nothing of it
 * yet.  Limits, exhaustion and placement are the pool's.  Its regions must not be jemalloc's
 * already (a source that calls the program's malloc): it would know the same pages twice.
 * Returns: 0; -EINVAL (a pool of device memory); -ENOTSUP (no jemalloc in the program, with
 *   how to get it; too old a one); -EAGAIN (jemalloc has no arena left: some 4000);
 *   -ENOMEM. */
int hoist__heap_create(struct hoist__pool *pool, struct hoist__heap **ret);

/* Takes NULL.  Ends all blocks, those in use too; no other thread is in a call. */
void hoist__heap_destroy(struct hoist__heap *heap);

/* @bytes 1 and up; @align a power of two up to 2 MiB (0: HOIST__HEAP_ALIGN).  Content is
 * undefined.
 * Returns: 0; -EINVAL; as hoist__pool_alloc(), with its text; -ENOMEM (jemalloc's books);
 *   -EDEADLK (in a pool's exhausted function, called for a heap); -ENOTSUP (in a thread that
 *   jemalloc has left); -ESTALE. */
int hoist__heap_alloc(struct hoist__heap *heap, size_t bytes, size_t align, uintptr_t *ret);

/* Returns: 0; -EINVAL if @address is not in memory of the pool; -ESTALE.  Any other address
 *   that is not the start of a live block (double free, interior) breaks jemalloc's books:
 *   it does not look. */
int hoist__heap_free(struct hoist__heap *heap, uintptr_t address);

/* The bytes that the block at @address may use: as many as asked for, or more.
 * Returns: 0; -EINVAL, as hoist__heap_free(). */
int hoist__heap_bytes(struct hoist__heap *heap, uintptr_t address, size_t *ret);

/* Empties this thread's cache now, those of other threads at their next call; then
 * hoist__pool_trim(). */
void hoist__heap_trim(struct hoist__heap *heap, size_t keep_bytes);

struct hoist__heap_stats {
	bool detailed;		/* false: this jemalloc keeps no statistics */
	size_t allocated_bytes; /* in live blocks with rounding, and in threads' caches; if
				 * not detailed: active_bytes */
	size_t active_bytes;	/* pages that hold such */
	size_t mapped_bytes;	/* blocks of the pool */
	size_t books_bytes;	/* jemalloc's, outside the pool; if not detailed: 0 */
	uint64_t n_allocs;	/* ever */
	uint64_t n_frees;
};

/* What jemalloc counts is gathered for all of its arenas: not for a fast path. */
void hoist__heap_stats(struct hoist__heap *heap, struct hoist__heap_stats *ret);

#endif
