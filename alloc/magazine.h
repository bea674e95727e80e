/* SPDX-License-Identifier: MIT */
/* alloc/magazine.h - each thread's own free blocks, by pool and size class.
 *
 *   table     a thread's caches, one per pool that it has used, and the lookaside
 *   cache     what one thread keeps of one pool: a magazine per class, a bound on their
 *             bytes, and the thread's counters
 *   magazine  an array of free blocks (Bonwick); popped by alloc, pushed by free
 *
 * A free counts its bytes off what the cache may still take, an allocation counts nothing: who
 * finds nothing left has all that is there counted anew (small.c).
 *
 * Only its thread works in a cache, so the fast path has no lock and no atomic
 * read-modify-write.  Others must empty it when memory is short (trim, exhaustion):
 *
 *   owner                        emptier (holds the threads' lock)
 *     busy = 1                     stop = 1, open = NULL
 *     fence                        fence of every thread (membarrier(2))
 *     open is the pool?            wait until busy is 0
 *     work; busy = 0               was it opened again just before?  Then once more
 *                                  empty the cache; stop = 0
 *
 * One of the two sees the other.  membarrier moves the whole price of the fences to the
 * emptier: the owner's is one that only the compiler heeds.
 *
 * `open`, with `busy`, is in the thread's lookaside, a few places that pools are mapped to: one
 * compare tells the owner that the place leads to this pool's cache, that nobody empties that,
 * and that the pool's fast paths are on.  Where it does not, hoist__cache_enter() looks at
 * `stop`, and opens the place again.  Where the kernel or a filter refuses membarrier (and under
 * ThreadSanitizer, which does not know it), `stop` always has HOIST__STOP_FENCES, no place is
 * ever open, and the owner who enters fences and looks again: some 20 cycles more.
 *
 * The owner makes no call and takes no lock while busy.
 *
 * Counters are the owner's, stored without read-modify-write and read by anyone: the sum over
 * caches and what ended threads left in the pool is exact when nobody is in a call.
 *
 * A thread's caches are emptied and freed when it ends, a pool's when it ends.  Destructors of
 * a thread's other data may still allocate behind that, without a cache.
 */
#ifndef HOIST_ALLOC_MAGAZINE_H
#define HOIST_ALLOC_MAGAZINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/slab.h"

#define HOIST__MAGAZINE_MOST 128 /* blocks; the random walk of a steady user stays within */

struct hoist__magazine {
	struct hoist__entry *_Atomic top; /* behind the last one that is filled */
	struct hoist__entry *end;	  /* of the array; `entries` if the class has none */
	struct hoist__entry *entries;
	size_t block_bytes; /* of the class; here, as the cache line is at hand */
};

/* For the owner, or with him stopped. */
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

#define HOIST__STOP_EMPTIED 1u /* someone empties the cache */
#define HOIST__STOP_FENCES 2u  /* the owner's fence must be a real one */

/* The class of a size is looked up, as computing it takes registers that must be saved: by 64 bytes
 * up to 4 KiB, and by 512 above, where classes are that far apart. */
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
	_Atomic int64_t requested; /* not yet added to the pool's; HOIST__FOLD_BYTES more */
	struct hoist__pool *pool;
	_Atomic uint32_t stop; /* HOIST__STOP_*; 0: go on */
	bool counts;	       /* statistics are kept */
	unsigned shard;	       /* of the pool's classes: where this thread allocates */
	size_t left;	       /* bytes that it may take, at least; the owner's */
	/* The owner's; NULL in a child of fork that has not this thread. */
	struct hoist__table *table;
	struct hoist__list link; /* in the pool's caches; the threads' lock */
	uint8_t class_of[HOIST__LOOKUPS];
	struct hoist__magazine magazines[HOIST__CLASSES_MOST];
	struct hoist__entry entries[];
};

/* A place of the lookaside. */
struct hoist__place {
	struct hoist__pool *_Atomic open;   /* whose cache may be worked in at once; NULL: none */
	struct hoist__cache *_Atomic cache; /* written by the owner alone, before `open` */
	_Atomic uint32_t busy;
	uint32_t unused[3];
};
#define HOIST__PLACES 8
_Static_assert(sizeof(struct hoist__place) == 32, "two in a cache line");

struct hoist__table {
	struct hoist__place places[HOIST__PLACES];
	uint32_t n; /* caches, by the pools' indices */
	struct hoist__cache *_Atomic caches[];
};

struct hoist__thread {
	struct hoist__table *table; /* never NULL; for others to write to, it outlives the thread
				     * where that must be */
	bool ended;		    /* its caches did; it gets no more */
};

/* Initial-exec: an offset from a register, where the general way is a call. */
extern __thread struct hoist__thread hoist__this_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The owner's fence must be a real one; constant once there is a cache. */
extern bool hoist__cache_fences __attribute__((visibility("hidden")));

/* This thread's cache of the pool with @index; NULL if it has none (yet). */
static inline struct hoist__cache *hoist__cache_known(uint32_t index)
{
	const struct hoist__table *table = hoist__this_thread.table;
	return index < table->n ? atomic_load_explicit(&table->caches[index], memory_order_relaxed)
				: NULL;
}

/* Where the pool with @index is in every thread's lookaside, in bytes. */
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

/* True if @pool's cache is there, entered; else hoist__place_leave() is owed, too. */
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

/* This thread's @cache, entered.  False if someone empties it: hoist__cache_wait(), then try
 * again. */
bool hoist__cache_enter(struct hoist__cache *cache);
void hoist__cache_leave(struct hoist__cache *cache);
void hoist__cache_wait(void);

/* For what only the owner writes. */
static inline void hoist__cache_add(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

/* --- magazine.c --- */

/* Gives the pool its index among those that live.  -ENOMEM; -ENOTSUP if the process can have
 * no more keys for its threads' ends. */
int hoist__caches_join(struct hoist__pool *pool);
/* Frees all of its caches, without emptying them: no block may be in use. */
void hoist__caches_part(struct hoist__pool *pool);
/* A reference to the pool with this number; NULL if there is none, or it is ending. */
struct hoist__pool *hoist__caches_pool(uint32_t number);
/* The pool's index may be another's from now on: its regions have ended. */
void hoist__caches_leave(const struct hoist__pool *pool);

/* This thread's cache of @pool, made now; NULL if memory is exhausted, or the thread is at its
 * end: go on without. */
struct hoist__cache *hoist__cache_create(struct hoist__pool *pool);

/* In its magazines. */
size_t hoist__cache_bytes(const struct hoist__cache *cache);

/* Empties every thread's cache of @pool into its slabs.  Whoever enters one afterwards sees what
 * was written before, such as that the fast paths are off.
 * Returns: true if anything came of it. */
bool hoist__caches_empty(struct hoist__pool *pool);

/* The sums over the caches of @pool, added to what @ret has. */
struct hoist__cache_sums {
	size_t bytes;
	uint64_t n_allocs;
	uint64_t n_frees;
	int64_t requested;
};
void hoist__caches_sum(struct hoist__pool *pool, struct hoist__cache_sums *ret);

/* The threads' lock, across fork; in the child only this thread's caches have an owner. */
void hoist__caches_lock(void);
void hoist__caches_unlock(void);
void hoist__caches_forked(struct hoist__pool *pool);

#endif
