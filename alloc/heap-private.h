/* SPDX-License-Identifier: MIT */
/* alloc/heap-private.h - shared by the files of the heap.
 *
 *   heap.c        making and ending a heap; allocating, freeing
 *   heap-hooks.c  extents: from the pool, and back to it
 *   heap-cache.c  each thread's caches; fork
 *
 * Locks: one lock for all heaps guards the lists of caches and the list of pool blocks of which
 * jemalloc has given back a part.  jemalloc may be called under this lock, as no hook takes it.  It
 * comes before the pool's locks.
 */
#ifndef HOIST_ALLOC_HEAP_PRIVATE_H
#define HOIST_ALLOC_HEAP_PRIVATE_H

#include <stdatomic.h>

#include "alloc/granule.h"
#include "alloc/heap.h"
#include "alloc/jemalloc.h"
#include "base/list.h"

/* A part lies in the first bytes of the memory that jemalloc gave back. */
struct hoist__heap_part {
	struct hoist__heap_part *next;
	uintptr_t address; /* where the pool's block starts, once that is known */
	size_t bytes;
};

#define HOIST__HEAP_BUCKETS 64

struct hoist__heap {
	struct hoist__je_hooks hooks; /* first: jemalloc knows the heap by it */
	struct hoist__je je;
	struct hoist__pool *pool;
	uint32_t pool_number;
	uint64_t id; /* never used again */
	unsigned arena;
	int flags;		/* for mallocx(), without a cache */
	bool books_by_hooks;	/* jemalloc before 5.3: a request for zeroed memory is for its
				 * books */
	struct hoist__dev *dev; /* the device whose driver has the memory, or NULL */
	_Atomic unsigned n_refs;
	_Atomic unsigned n_trims;
	_Atomic size_t mapped;
	_Atomic uint64_t n_allocs; /* without a cache, and of caches that ended */
	_Atomic uint64_t n_frees;
	struct hoist__heap_part *_Atomic returned; /* not yet given back to the pool */

	/* Guarded by the heaps' lock. */
	struct hoist__list caches;
	struct hoist__heap_part *partial[HOIST__HEAP_BUCKETS]; /* by the block's address */
};

/* One thread's part of one heap.  Only that thread uses the tcache. */
struct hoist__heap_cache {
	struct hoist__heap *heap;
	int flags;	 /* for mallocx() and dallocx(): the arena, the tcache */
	bool has_tcache; /* else jemalloc had none left */
	unsigned tcache;
	unsigned n_trims;	   /* of the heap's, seen */
	unsigned generation;	   /* of the process in which its thread lives */
	_Atomic uint64_t n_allocs; /* written by the thread alone */
	_Atomic uint64_t n_frees;
	struct hoist__list of_thread;
	struct hoist__list of_heap;
};

#define HOIST__HEAP_RECENT 8

struct hoist__heap_thread {
	struct hoist__heap_recent {
		uint64_t id; /* the heap's; 0: none */
		struct hoist__heap_cache *cache;
	} recent[HOIST__HEAP_RECENT]; /* by id */
	struct hoist__list caches;    /* the heaps' lock; not yet a list if next is NULL */
	unsigned growing;	      /* hooks that the thread is in */
	int err;		      /* why a hook had no extent */
	bool ended;		      /* the thread's caches ended; it gets no more */
};

extern __thread struct hoist__heap_thread hoist__heap_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Returns: 0; -ESTALE in a child of fork that does not have the memory. */
static inline int hoist__heap_check(const struct hoist__heap *heap)
{
	return heap->dev == NULL ? 0 : hoist__dev_check(heap->dev);
}

/* True if the pool's regions hold @address.  Takes two loads. */
static inline bool hoist__heap_holds(const struct hoist__heap *heap, uintptr_t address)
{
	return hoist__granule_is_of(hoist__granule_of(address), heap->pool_number);
}

/* --- heap.c --- */

struct hoist__heap *hoist__heap_ref(struct hoist__heap *heap);
/* The last reference gives up the heap's reference to the pool. */
void hoist__heap_unref(struct hoist__heap *heap);

/* --- heap-hooks.c --- */

extern const struct hoist__je_hooks hoist__heap_hooks;

/* Hands the parts that jemalloc gave back to the pool.  Pre: no lock is held. Returns: the number
 * of parts. */
size_t hoist__heap_drain(struct hoist__heap *heap);

/* --- heap-cache.c --- */

int hoist__heaps_setup(void);
void hoist__heaps_lock(void);
void hoist__heaps_unlock(void);

/* Returns: this thread's cache of @heap, made if the thread has none; NULL if memory is exhausted,
 * or the thread is ending. */
struct hoist__heap_cache *hoist__heap_cache_find(struct hoist__heap *heap);

static inline struct hoist__heap_cache *hoist__heap_cache_of(struct hoist__heap *heap)
{
	const struct hoist__heap_recent *recent =
		&hoist__heap_thread.recent[heap->id % HOIST__HEAP_RECENT];
	return recent->id == heap->id ? recent->cache : hoist__heap_cache_find(heap);
}

/* Empties this thread's cache into the arena. */
void hoist__heap_cache_flush(struct hoist__heap_cache *cache);

/* Ends all threads' caches.  Pre: none is in use. */
void hoist__heap_caches_end(struct hoist__heap *heap);

#endif
