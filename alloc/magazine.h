/* SPDX-License-Identifier: MIT */
/* alloc/magazine.h - each thread's own free blocks, by pool and size class.
 *
 *   thread    an array of caches, one per pool that the thread has used (thread-local)
 *   cache     what one thread keeps of one pool: a magazine per class, a bound on their
 *             bytes, and the thread's counters
 *   magazine  an array of free blocks (Bonwick); popped by alloc, pushed by free
 *
 * Only its thread works in a cache, so the fast path has no lock and no atomic
 * read-modify-write.  Others must empty it when memory is short (trim, exhaustion):
 *
 *   owner                        emptier (holds the threads' lock)
 *     busy = 1                     stop = 1
 *     fence                        fence of every thread (membarrier(2))
 *     stop? then leave, wait       wait until busy is 0
 *     work; busy = 0               empty it; stop = 0
 *
 * One of the two sees the other.  membarrier moves the whole price of the fences to the
 * emptier: the owner's is one that only the compiler heeds.  Where the kernel or a filter
 * refuses membarrier (and under ThreadSanitizer, which does not know it), `stop` always has
 * HOIST__STOP_FENCES, and the owner who meets it fences and looks again: some 20 cycles more.
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
	struct hoist__entry *top; /* behind the last one that is filled */
	struct hoist__entry *end; /* of the array; `entries` if the class has none */
	struct hoist__entry *entries;
	size_t block_bytes; /* of the class; here, as the cache line is at hand */
};

static inline size_t hoist__magazine_n(const struct hoist__magazine *magazine)
{
	return (size_t)(magazine->top - magazine->entries);
}

static inline size_t hoist__magazine_most(const struct hoist__magazine *magazine)
{
	return (size_t)(magazine->end - magazine->entries);
}

#define HOIST__STOP_EMPTIED 1u /* someone empties the cache */
#define HOIST__STOP_FENCES 2u  /* the owner's fence must be a real one */

struct hoist__cache {
	_Atomic uint32_t busy;
	_Atomic uint32_t stop; /* HOIST__STOP_*; 0: go on */
	_Atomic size_t bytes;  /* in the magazines */
	_Atomic uint64_t n_allocs;
	_Atomic uint64_t n_frees;
	_Atomic int64_t requested; /* not yet added to the pool's */
	struct hoist__pool *pool;
	unsigned shard; /* of the pool's classes: where this thread allocates */
	/* The owner's array; NULL in a child of fork that has not this thread. */
	struct hoist__cache *_Atomic *owner;
	struct hoist__list link; /* in the pool's caches; the threads' lock */
	struct hoist__magazine magazines[HOIST__CLASSES_MOST];
	struct hoist__entry entries[];
};

struct hoist__thread {
	struct hoist__cache *_Atomic *caches; /* by the pools' indices */
	uint32_t n;
	bool ended; /* its caches did; it gets no more */
};

/* Initial-exec: an offset from a register, where the general way is a call. */
extern __thread struct hoist__thread hoist__this_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The owner's fence must be a real one; constant once there is a cache. */
extern bool hoist__cache_fences __attribute__((visibility("hidden")));

/* This thread's cache of the pool with @index; NULL if it has none (yet). */
static inline struct hoist__cache *hoist__cache_known(uint32_t index)
{
	if (__builtin_expect(index >= hoist__this_thread.n, 0))
		return NULL;
	return atomic_load_explicit(&hoist__this_thread.caches[index], memory_order_relaxed);
}

static inline void hoist__cache_leave(struct hoist__cache *cache)
{
	atomic_store_explicit(&cache->busy, 0, memory_order_release);
}

static inline void hoist__cache_busy(struct hoist__cache *cache)
{
	atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

/* Enters a cache whose `stop` is not 0.  Returns: as hoist__cache_enter(). */
bool hoist__cache_enter_stopped(struct hoist__cache *cache);

/* False if someone empties it: hoist__cache_wait(), then try again. */
static inline bool hoist__cache_enter(struct hoist__cache *cache)
{
	hoist__cache_busy(cache);
	return __builtin_expect(atomic_load_explicit(&cache->stop, memory_order_acquire) == 0, 1) ||
	       hoist__cache_enter_stopped(cache);
}

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

/* Empties every thread's cache of @pool into its slabs.
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
