/* SPDX-License-Identifier: MIT */
/* alloc/heap.h - a jemalloc arena over one of our pools.
 *
 * For programs that have jemalloc (jemalloc.h).  Size classes, the packing of small blocks and
 * the caches are jemalloc's, but every byte comes from the pool's regions: on their node, pinned.
 *
 *   alloc, free      jemalloc's arena, through a cache (tcache) that each thread has per heap.
 *                    Arenas that shared a cache would hand out each other's blocks.  Without a
 *                    cache every call would take the arena's locks
 *   extent           a run of pages that jemalloc carves blocks from.  An extent that jemalloc asks
 *                    for is a block of the pool, never larger than jemalloc needs now
 *   part             memory that jemalloc gives back: an extent, or a piece of one
 *
 * jemalloc's hooks, and how the heap answers them:
 *
 *   alloc   hoist__pool_alloc(), in the thread of the caller.  jemalloc asks for growth ahead of
 *           need with a lock held.  The hook refuses that, and jemalloc then asks for the extent
 *           alone, without a lock.  So a slow registration blocks only the thread that needs the
 *           extent, and no extent has a tail that was never used and never comes back
 *   dalloc  always accepted, and called soon: the arena's decay is 0, so free extents belong to the
 *           pool, not to jemalloc.  jemalloc may hold locks here that its fork handler wants, so
 *           the hook takes none.  It pushes the part on a list that is linked through the parts'
 *           first bytes.  The thread that made the call hands the list to the pool afterwards
 *   split   allowed.  A block of the pool goes back whole, once all of its parts came back
 *   merge, commit, decommit, purge
 *           refused.  Parts of two blocks are never merged.  Pages that a driver has registered are
 *           never replaced, as the device keeps using the pages that it knows
 *
 * jemalloc's books (the arena, some 128 B an extent) lie in plain memory, not in the pool's.
 * jemalloc's fork handlers write to them, and a child of fork does not have memory that a driver
 * pinned.
 *
 * Threads: any function but destroy from any thread.  A thread's cache ends with the thread.
 * The pool's exhausted function may free blocks of a heap, but not allocate from one.
 * After jemalloc's part of a thread has ended (in destructors of its thread-specific data)
 * the thread may free, but not allocate.
 * fork: a child may go on, even if other threads were in a call.  Blocks in those threads'
 * caches stay there.  If a driver has the memory, every call in the child returns -ESTALE.
 */
#ifndef HOIST_ALLOC_HEAP_H
#define HOIST_ALLOC_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"

#define HOIST__HEAP_ALIGN ((size_t)16) /* of every block */

struct hoist__heap;

/* Creates a heap over @pool (HOST or PINNED).  The heap keeps a reference to the pool, and takes no
 * memory from it yet.  Limits, exhaustion and placement are the pool's.  The pool's regions must
 * not come from jemalloc (a source that calls the program's malloc): jemalloc would then manage the
 * same pages twice.
 * Returns: 0; -EINVAL (a pool of device memory); -ENOTSUP (no jemalloc in the program, with how to
 *   get it; or too old a jemalloc); -EAGAIN (jemalloc has no arena left: some 4000); -ENOMEM. */
int hoist__heap_create(struct hoist__pool *pool, struct hoist__heap **ret);

/* Takes NULL.  Ends all blocks, also those in use.  Pre: no other thread is in a call. */
void hoist__heap_destroy(struct hoist__heap *heap);

/* @bytes 1 and up; @align a power of two up to 2 MiB (0: HOIST__HEAP_ALIGN).  Content is
 * undefined.
 * Returns: 0; -EINVAL; as hoist__pool_alloc(), with its text; -ENOMEM (jemalloc's books);
 *   -EDEADLK (in a pool's exhausted function, called for a heap); -ENOTSUP (in a thread that
 *   jemalloc has left); -ESTALE. */
int hoist__heap_alloc(struct hoist__heap *heap, size_t bytes, size_t align, uintptr_t *ret);

/* Returns: 0; -EINVAL if @address is not in memory of the pool; -ESTALE.  Any other address
 *   that is not the start of a live block (double free, interior) breaks jemalloc's books: jemalloc
 *   does not check it. */
int hoist__heap_free(struct hoist__heap *heap, uintptr_t address);

/* Gives the usable bytes of the block at @address: as many as asked for, or more.
 * Returns: 0; -EINVAL, as hoist__heap_free(). */
int hoist__heap_bytes(struct hoist__heap *heap, uintptr_t address, size_t *ret);

/* Empties this thread's cache now, and the caches of other threads at their next call.  Then calls
 * hoist__pool_trim(). */
void hoist__heap_trim(struct hoist__heap *heap, size_t keep_bytes);

struct hoist__heap_stats {
	bool detailed;		/* false: this jemalloc keeps no statistics */
	size_t allocated_bytes; /* in live blocks with rounding, and in threads' caches; if
				 * not detailed: active_bytes */
	size_t active_bytes;	/* pages that hold such blocks */
	size_t mapped_bytes;	/* blocks of the pool */
	size_t books_bytes;	/* jemalloc's, outside the pool; if not detailed: 0 */
	uint64_t n_allocs;	/* ever */
	uint64_t n_frees;
};

/* jemalloc gathers its counts over all of its arenas, so this is too slow for a fast path. */
void hoist__heap_stats(struct hoist__heap *heap, struct hoist__heap_stats *ret);

#endif
