/* SPDX-License-Identifier: MIT */
/* alloc/magazine.h - each thread's own free blocks, by pool and size class.
 *
 *   table     a thread's caches, one per pool that the thread has used, and the lookaside
 *   cache     the blocks that one thread keeps of one pool: a magazine per class, a bound on their
 *             bytes, and the thread's counters
 *   magazine  an array of free blocks (Bonwick); popped by alloc, pushed by free
 *
 * A free subtracts its bytes from the bytes that the cache may still take (`left`).  An allocation
 * of more than HOIST__FINE_BYTES adds its bytes, and a smaller one nothing.  When `left` does not
 * suffice, the bytes in the cache are counted anew (small.c).
 *
 * Only its thread works in a cache, so the fast path has no lock and no atomic
 * read-modify-write.  Other threads must empty the cache when memory is short (trim, exhaustion):
 *
 *   owner                        emptier (holds the pool's caches_lock)
 *     busy = 1                     stop = 1, open = NULL
 *     fence                        fence of every thread (membarrier(2))
 *     open is the pool?            wait until busy is 0
 *     work; busy = 0               was it opened again just before?  Then once more
 *                                  empty the cache; stop = 0
 *
 * One of the two sees the other.  membarrier moves the whole cost of the fences to the emptier:
 * the owner's fence is a compiler fence only.
 *
 * `open` and `busy` are in the thread's lookaside, a few places that pools are mapped to.  One
 * compare of `open` tells the owner that the place leads to this pool's cache, that no other thread
 * empties the cache, and that the pool's fast paths are on.  If the compare fails,
 * hoist__cache_enter() looks at `stop`, and opens the place again.  Where the kernel or a filter
 * refuses membarrier (and under ThreadSanitizer, which does not know it), `stop` always has
 * HOIST__STOP_FENCES, no place is ever open, and the owner issues a real fence when it enters and
 * looks again: some 20 cycles more.
 *
 * The owner makes no call and takes no lock while busy.
 *
 * Counters are written by the owner alone, without read-modify-write, and read by any thread.  The
 * sum over the caches plus the counts that ended threads left in the pool is exact when no thread
 * is in a call.
 *
 * When a thread ends, its caches are emptied and freed.  When a pool ends, its caches are freed.
 * Destructors of a thread's other data may still allocate after that, without a cache.
 */
#ifndef HOIST_ALLOC_MAGAZINE_H
#define HOIST_ALLOC_MAGAZINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/slab.h"

#define HOIST__MAGAZINE_MOST 128 /* blocks; the random walk of a steady user stays within this */

struct hoist__magazine {
	struct hoist__entry *_Atomic top; /* behind the last entry that is filled */
	struct hoist__entry *end;	  /* of the array; `entries` if the class has none */
	struct hoist__entry *entries;
	size_t block_bytes; /* of the class; kept here because the cache line is at hand */
};

/* Pre: the caller is the owner, or the owner is stopped. */
static inline struct hoist__entry *hoist__magazine_top(const struct hoist__magazine *magazine)
{
	return atomic_load_explicit(&magazine->top, memory_order_relaxed);
}

static inline void hoist__magazine_set_top(struct hoist__magazine *magazine,
					   struct hoist__entry *top)
{
	atomic_store_explicit(&magazine->top, top, memory_order_relaxed);
}

static inline size_t hoist__magazine_n(const struct hoist__magazine *magazine)
{
	return (size_t)(hoist__magazine_top(magazine) - magazine->entries);
}

static inline size_t hoist__magazine_most(const struct hoist__magazine *magazine)
{
	return (size_t)(magazine->end - magazine->entries);
}

static inline bool hoist__magazine_empty(const struct hoist__magazine *magazine)
{
	return hoist__magazine_top(magazine) == magazine->entries;
}

/* Bytes asked for that a thread counts by itself before it tells the pool. */
#define HOIST__FOLD_BYTES ((int64_t)64 << 10)

#define HOIST__STOP_EMPTIED 1u /* another thread empties the cache */
#define HOIST__STOP_FENCES 2u  /* the owner's fence must be a real one */

/* The class of a size is looked up in a table, as computing it takes registers that must be saved.
 * The table's steps are 64 bytes up to 4 KiB, and 512 bytes above, where classes are that far
 * apart. */
#define HOIST__FINE_BYTES ((size_t)4096)
#define HOIST__FINE_SHIFT 6
#define HOIST__COARSE_SHIFT 9
#define HOIST__COARSE_FIRST                                                                        \
	((HOIST__FINE_BYTES >> HOIST__FINE_SHIFT) - (HOIST__FINE_BYTES >> HOIST__COARSE_SHIFT))
#define HOIST__LOOKUPS (HOIST__COARSE_FIRST + (HOIST__CLASS_MOST_BYTES >> HOIST__COARSE_SHIFT))

struct hoist__table;

struct hoist__cache {
	_Atomic uint64_t n_allocs;
	_Atomic uint64_t n_frees;
	_Atomic int64_t requested; /* not yet added to the pool's; biased by HOIST__FOLD_BYTES */
	struct hoist__pool *pool;
	_Atomic uint32_t stop; /* HOIST__STOP_*; 0: go on */
	bool counts;	       /* statistics are kept */
	unsigned shard;	       /* of the pool's classes: where this thread allocates */
	size_t left;	       /* bytes that the cache may take, at least; used by the owner
				* alone */
	/* The owner's table; NULL in a child of fork that does not have the thread, and if the
	 * thread ended while the pool did. */
	struct hoist__table *table;
	struct hoist__list link; /* in the pool's caches; guarded by its caches_lock */
	uint8_t class_of[HOIST__LOOKUPS];
	uint8_t batches[HOIST__CLASSES_MOST]; /* blocks that the class's next refill takes beside
					       * the one that is wanted; used by the owner alone */
	struct hoist__magazine magazines[HOIST__CLASSES_MOST];
	struct hoist__entry entries[];
};

/* A place of the lookaside. */
struct hoist__place {
	struct hoist__pool *_Atomic open;   /* the pool whose cache may be used at once; NULL:
					     * none */
	struct hoist__cache *_Atomic cache; /* written by the owner alone, before `open` */
	_Atomic uint32_t busy;
	uint32_t unused[3];
};
#define HOIST__PLACES 8
_Static_assert(sizeof(struct hoist__place) == 32, "two in a cache line");

struct hoist__table {
	struct hoist__place places[HOIST__PLACES];
	uint32_t n;		      /* of `caches` */
	struct hoist__cache **caches; /* by the pools' indices; the array is replaced by its thread
				       * alone, under the threads' lock */
};

struct hoist__thread {
	struct hoist__table *table; /* never NULL.  Other threads write to the table: where they
				     * still may, it outlives the thread */
	bool ended;		    /* the thread's caches ended; it gets no more */
};

/* Initial-exec: access is an offset from a register, where the general model makes a call. */
extern __thread struct hoist__thread hoist__this_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* True if the owner's fence must be a real one.  Constant once there is a cache. */
extern bool hoist__cache_fences __attribute__((visibility("hidden")));

/* Returns: this thread's cache of the pool with @index; NULL if it has none (yet). */
static inline struct hoist__cache *hoist__cache_known(uint32_t index)
{
	const struct hoist__table *table = hoist__this_thread.table;
	return index < table->n ? table->caches[index] : NULL;
}

/* Returns: the offset in bytes of the place of the pool with @index, in every thread's
 * lookaside. */
static inline uint32_t hoist__place_offset(uint32_t index)
{
	return index % HOIST__PLACES * (uint32_t)sizeof(struct hoist__place);
}

static inline struct hoist__place *hoist__place_at(uint32_t offset)
{
	return (void *)((char *)hoist__this_thread.table + offset);
}

static inline struct hoist__cache *hoist__place_cache(const struct hoist__place *place)
{
	return atomic_load_explicit(&place->cache, memory_order_relaxed);
}

static inline void hoist__place_leave(struct hoist__place *place)
{
	atomic_store_explicit(&place->busy, 0, memory_order_release);
}

/* True if the place leads to @pool's cache, which is entered now.  The caller must call
 * hoist__place_leave() in either case. */
static inline bool hoist__place_enter(struct hoist__place *place, const struct hoist__pool *pool)
{
	atomic_store_explicit(&place->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return atomic_load_explicit(&place->open, memory_order_relaxed) == pool;
}

static inline bool hoist__place_is_open(const struct hoist__place *place,
					const struct hoist__pool *pool)
{
	return atomic_load_explicit(&place->open, memory_order_relaxed) == pool;
}

/* Enters this thread's @cache.  False if another thread empties the cache: call
 * hoist__cache_wait(), then try again. */
bool hoist__cache_enter(struct hoist__cache *cache);
void hoist__cache_leave(struct hoist__cache *cache);
void hoist__cache_wait(struct hoist__pool *pool);

/* --- magazine.c --- */

/* Gives the pool its index among the live pools.  Returns: 0; -ENOMEM; a negative errno value if
 * the process can have no more keys for its threads' ends. */
int hoist__caches_join(struct hoist__pool *pool);
/* Frees all of the pool's caches without emptying them.  Pre: no block is in use. */
void hoist__caches_part(struct hoist__pool *pool);
/* Returns: a reference to the pool with this number; NULL if there is none, or the pool is
 * ending. */
struct hoist__pool *hoist__caches_pool(uint32_t number);
/* Another pool may get the pool's index from now on.  Pre: the pool's regions have ended. */
void hoist__caches_leave(const struct hoist__pool *pool);

/* Makes this thread's cache of @pool.  Returns: NULL if memory is exhausted, or the thread is
 * ending; the caller goes on without a cache. */
struct hoist__cache *hoist__cache_create(struct hoist__pool *pool);

/* Returns: the bytes of the blocks in the magazines of @cache. */
size_t hoist__cache_bytes(const struct hoist__cache *cache);

/* Empties every thread's cache of @pool into the pool's slabs.  A thread that enters a cache
 * afterwards sees all writes before this call, such as the one that turns the fast paths off.
 * Returns: true if any cache had a block. */
bool hoist__caches_empty(struct hoist__pool *pool);

/* Pre: the pool's caches_lock is held. */
#define HOIST__EACH_CACHE(pool, cache)                                                             \
	for (struct hoist__list *link_ = (pool)->caches.next;                                      \
	     link_ != &(pool)->caches &&                                                           \
	     ((cache) = HOIST__CONTAINER_OF(link_, struct hoist__cache, link), true);              \
	     link_ = link_->next)

/* The threads' lock, held across fork.  In the child only this thread's caches have an owner. */
void hoist__caches_lock(void);
void hoist__caches_unlock(void);
void hoist__caches_forked(struct hoist__pool *pool);

#endif
