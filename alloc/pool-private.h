/* SPDX-License-Identifier: MIT */
/* alloc/pool-private.h - the pool and its functions, shared by the files of the pool's module.
 *
 *   fast.h         allocating and freeing: the fast paths
 *   pool.c         allocating and freeing: the slow paths; counting, finding
 *   magazine.c     each thread's caches: making, entering, emptying them
 *   small.c        refills of magazines, and the slabs behind them
 *   blocks.c       one block: taking it, its life, giving it back
 *   pool-create.c  making and ending a pool
 *   pool-regions.c regions and their extents
 *   grow.c         more regions: sizes, limits, budgets
 *   reclaim.c      spans; taking back cached, pending and empty memory
 *   pool-stream.c  blocks in stream order
 *   pool-stats.c   statistics, walks, checks
 *   discard.c      pages that go back while their block lives
 *   pools.c        the list of all pools; fork
 *   pool-watched.c debug levels, sanitizers, traces
 *
 * A pool's memory is divided among shards, each region wholly to one.  A thread allocates in its
 * shard, so that threads contend neither for locks nor for cache lines.  Blocks return to the shard
 * that they came from.  A shard that has no room borrows spans of the other shards, which costs no
 * memory, and after BORROWS_MOST borrowed spans the pool grows for that shard, if it may.
 *
 * `lock` guards the regions and all fields below it in the struct.  It is dropped around every
 * operation that may take long: creating and destroying regions, malloc.  Meanwhile the bytes
 * concerned stay accounted for:
 *
 *   growing    promised to regions that are being created; not yet reserved
 *   reserved   in regions, those being destroyed included
 *   releasing  the part of reserved that is being destroyed
 *   discarded  the part of reserved, in live blocks, whose pages went back already
 *
 *   reserved - discarded + growing <= limit
 */
#ifndef HOIST_ALLOC_POOL_PRIVATE_H
#define HOIST_ALLOC_POOL_PRIVATE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "alloc/magazine.h"
#include "alloc/pool.h"
#include "alloc/slab.h"
#include "alloc/spans.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/list.h"

struct hoist__deferred;
struct hoist__watch;
struct hoist__trace;

/* A region with its extents: one, or as many as registered pieces. */
struct hoist__pool_region {
	struct hoist__list link; /* in the pool's regions, or in a list to destroy.  First: Valgrind
				  * reports memory that only pointers to its middle lead to as
				  * possibly lost */
	struct hoist__region *region;
	size_t charged; /* to the budgets; changed under the pool's lock while the region is listed */
	size_t discarded; /* bytes of its block that went back; changed under the pool's lock and
			   * the shard's */
	struct hoist__shard *shard;
	bool listed; /* in the pool's regions; guarded by the pool's lock */
	size_t n_extents;
	struct hoist__pool_extent **extents;
};
_Static_assert(offsetof(struct hoist__pool_region, link) == 0, "a list leads to its start");

struct hoist__pool_extent {
	struct hoist__pool *pool;
	struct hoist__pool_region *region;
	_Atomic uintptr_t seen;	     /* the device's address of the base; 0: not asked yet */
	struct hoist__extent extent; /* last, as its bits follow */
};

/* The reasons why the fast path is off. */
#define HOIST__SLOW_WATCHED 1u /* every call is checked or traced: watch.h, trace.h */
#define HOIST__SLOW_STALE 2u   /* a child of fork, and a driver has the memory */

struct hoist__shard {
	struct hoist__lock lock; /* guards spans and large_bytes */
	struct hoist__spans spans;
	size_t large_bytes;	    /* in large blocks that left the spans */
	_Atomic unsigned n_borrows; /* spans that this shard's threads took from other shards */
	struct hoist__class classes[HOIST__CLASSES_MOST];
} __attribute__((aligned(64)));

struct hoist__pool {
	_Atomic unsigned slow;
	unsigned quantum_shift; /* constant, as are all fields down to the lock that are not atomic,
				 * a list or guarded by a lock of their own */
	uint32_t index;		/* in the threads' tables */
	uint32_t place;		/* in bytes: hoist__place_offset() */
	uint32_t number;	/* index + 1: in the records of its granules */
	bool counts;		/* statistics are kept */
	size_t slab_most;	/* requests up to here come from slabs */
	size_t cache_bytes;
	unsigned n_classes;
	unsigned n_shards;
	struct hoist__pool_options options;
	struct hoist__source source;
	struct hoist__list link;    /* in the list of all pools */
	struct hoist__list caches; /* caches_lock */
	struct hoist__watch *watch; /* NULL: the pool is not watched */
	_Atomic size_t n_refs;
	_Atomic unsigned next_shard;
	struct hoist__deferred *_Atomic deferred; /* made when first needed */
	_Atomic size_t empty_bytes;		  /* in empty extents */
	struct hoist__calls calls;

	/* The counts of ended threads and of large blocks. */
	_Atomic uint64_t n_allocs;
	_Atomic uint64_t n_frees;
	_Atomic int64_t requested;
	_Atomic int64_t requested_peak;
	_Atomic uint64_t n_exhausted;

	pthread_mutex_t trace_lock; /* guards the pointer, and orders lines */
	struct hoist__trace *trace;

	pthread_mutex_t caches_lock; /* guards the list of caches, and the caches beside their
				      * owners' work: see magazine.h */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a region was created or destroyed, or could not be created */
	struct hoist__list regions;
	size_t growing;
	size_t releasing;
	bool one_grows; /* a thread creates a shared region; others wait for it */
	size_t reserved;
	size_t reserved_peak;
	size_t discarded;
	size_t n_regions;
	_Atomic size_t n_given; /* of these, regions given by the caller */
	_Atomic size_t
		piece_most; /* no shared region has larger pieces: a larger request gets a region of
			     * its own */
	uint64_t n_growths;
	uint64_t step_ns[HOIST__N_STEPS];

	struct hoist__shard shards[];
};

static inline struct hoist__pool_extent *hoist__pool_extent_of(struct hoist__extent *extent)
{
	return HOIST__CONTAINER_OF(extent, struct hoist__pool_extent, extent);
}

/* Returns: the extent around @address, which may be any address; NULL: no extent of @pool.
 * Pre: the pool's lock is held, which keeps the extent there. */
static inline struct hoist__pool_extent *hoist__pool_extent_at(const struct hoist__pool *pool,
							       uintptr_t address)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	HOIST__ASSERT(hoist__mutex_held(&pool->lock));
	if (!hoist__granule_is_of(granule, pool->number))
		return NULL;
	struct hoist__extent *extent = atomic_load_explicit(&granule->extent, memory_order_acquire);
	return extent == NULL ? NULL : hoist__pool_extent_of(extent);
}

/* The bytes of regions that the pool still has from the system.  Pre: the pool's lock is held. */
static inline size_t hoist__pool_held(const struct hoist__pool *pool)
{
	HOIST__ASSERT(hoist__mutex_held(&pool->lock) && pool->discarded <= pool->reserved);
	return pool->reserved - pool->discarded;
}

/* True in a child of fork that has the books of the pool, but not the memory.  The books stay as
 * they are. */
static inline bool hoist__pool_is_stale(const struct hoist__pool *pool)
{
	return (atomic_load_explicit(&pool->slow, memory_order_relaxed) & HOIST__SLOW_STALE) != 0;
}

/* Adds to the bytes asked for, and updates their peak.  Inline and without a call: for a call the
 * fast paths would have to save registers. */
static inline void hoist__fold_requested(struct hoist__pool *pool, int64_t bytes)
{
	int64_t now =
		atomic_fetch_add_explicit(&pool->requested, bytes, memory_order_relaxed) + bytes;
	int64_t peak = atomic_load_explicit(&pool->requested_peak, memory_order_relaxed);
	while (now > peak &&
	       !atomic_compare_exchange_weak_explicit(&pool->requested_peak, &peak, now,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

/* Returns: the shard in which the calling thread allocates. */
static inline struct hoist__shard *hoist__shard_here(struct hoist__pool *pool)
{
	const struct hoist__cache *cache = hoist__cache_known(pool->index);
	HOIST__ASSERT(cache == NULL || (cache->pool == pool && cache->shard < pool->n_shards));
	return &pool->shards[cache == NULL ? 0 : cache->shard];
}

static inline size_t hoist__quantum(const struct hoist__pool *pool)
{
	return (size_t)1 << pool->quantum_shift;
}

struct hoist__doomed;

/* --- small.c and blocks.c --- */

/* A block that was live until the claim, and that only the claiming thread has now. */
struct hoist__claim {
	struct hoist__slab *slab; /* NULL: a large block */
	uint32_t index;		  /* in the slab */
	bool used;		  /* by streams, which deferred.h knows */
	size_t requested;
	size_t discarded; /* of these, bytes that went back already; `allocated` lacks them */
	size_t allocated;
};

/* Takes a block of the class when the magazine is empty, and refills the magazine.
 * Returns: as hoist__pool_alloc(). */
int hoist__small_refill(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class,
			struct hoist__entry *ret);

/* Puts a free block back when the magazine is full, or there is none. */
void hoist__small_flush(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class,
			const struct hoist__entry *entry);

/* Gives free blocks back to their slabs.  @doomed as in hoist__pool_span_release(). */
void hoist__small_give(struct hoist__pool *pool, const struct hoist__entry *entries, size_t n,
		       struct hoist__doomed *doomed);
/* Releases the spans of slabs that are wholly free.  Returns: true if there was one. */
bool hoist__small_shrink(struct hoist__pool *pool, struct hoist__doomed *doomed);

/* Takes a block by the slow path.  *ret is allocated, but not yet live (state 0). */
int hoist__block_take(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret, size_t *allocated);
/* Makes the block at @address live. */
void hoist__block_live(uintptr_t address, size_t requested, bool used);
/* Ends the life of the block that starts at @address.  Returns: 0; -EINVAL, with the text. */
int hoist__block_claim(struct hoist__pool *pool, uintptr_t address, struct hoist__claim *ret);
/* Frees a claimed block. */
void hoist__block_put(struct hoist__pool *pool, uintptr_t address);
/* Returns: the size that a request, which was checked, is rounded to.  The size is exact, unless
 * the request gets the whole of a region that is a little larger. */
size_t hoist__block_rounded(const struct hoist__pool *pool, size_t bytes, size_t align);
/* Returns: the start of the block, live or not, around @address; 0 if there is none. */
uintptr_t hoist__block_around(struct hoist__pool *pool, uintptr_t address);
/* Flags a live block as used by streams, until it is freed.  Returns: 0; -EINVAL. */
int hoist__block_use(struct hoist__pool *pool, uintptr_t address);

/* Count a block of @bytes in the statistics. */
void hoist__count_alloc(struct hoist__pool *pool, size_t bytes);
void hoist__count_free(struct hoist__pool *pool, size_t bytes);

/* --- pool.c --- */

/* Returns: 0 if this pool can give such a block; else the error of hoist__pool_alloc(), with the
 * text. */
int hoist__pool_check_request(const struct hoist__pool *pool, size_t bytes, size_t align,
			      unsigned flags);

/* Checks and serves any request.  @stream matters to a watched pool only. */
int hoist__pool_alloc_slow(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			   struct hoist__dev_stream *stream, uintptr_t *ret);

int hoist__pool_free_slow(struct hoist__pool *pool, uintptr_t address);

/* Serve the requests that the fast paths of fast.h did not take. */
int hoist__pool_alloc_past(struct hoist__pool *pool, size_t bytes, size_t align, uintptr_t *ret);
int hoist__pool_free_past(struct hoist__pool *pool, uintptr_t address);

/* Sets or clears the reason @why (HOIST__SLOW_*).  The fast paths are off as long as there is a
 * reason.  A thread that has a cache open uses the fast paths on until hoist__caches_empty(). */
void hoist__pool_set_slow(struct hoist__pool *pool, unsigned why, bool slow);

/* Takes a reference.  False if the pool is ending already. */
bool hoist__pool_try_ref(struct hoist__pool *pool);

/* --- pool-regions.c --- */

/* Notes whether the region is in its pool's list, for a child that is forked meanwhile.  Pre: lock
 * held. */
void hoist__pool_region_listed(struct hoist__pool *pool, struct hoist__pool_region *holder,
			       bool listed);
/* Marks all regions as not listed, so that their extents are stale in a child of fork.  Pre: no
 * lock held. */
void hoist__pool_unlist(struct hoist__pool *pool);

/* Regions to be destroyed once the lock is dropped. */
struct hoist__doomed {
	struct hoist__list regions;
	size_t bytes;
};

/* Takes empty regions out of the pool, larger ones first (by powers of two), until at most
 * @keep_bytes of them are left.  Takes O(empty regions).  Pre: lock held. */
void hoist__pool_doom(struct hoist__pool *pool, size_t keep_bytes, struct hoist__doomed *doomed);
/* The extent at @address, which may have gone since, became empty: dooms its region, unless the
 * region is kept.  Pre: no lock held. */
void hoist__pool_emptied(struct hoist__pool *pool, uintptr_t address, bool keep,
			 struct hoist__doomed *doomed);
/* Destroys the doomed regions.  Pre: no lock held. */
void hoist__pool_destroy_doomed(struct hoist__pool *pool, struct hoist__doomed *doomed);
void hoist__doomed_init(struct hoist__doomed *doomed);

/* Makes the extents of the region of @holder: one per registered piece.
 * Returns: 0; -ENOMEM; -EEXIST; -ENOTSUP. */
int hoist__pool_extents_make(struct hoist__pool *pool, struct hoist__pool_region *holder);

/* Gives bytes back to the pool's budgets. */
void hoist__pool_uncharge(struct hoist__pool *pool, size_t bytes);

/* Destroys a region that is in no list any more, and its description. */
void hoist__pool_region_destroy(struct hoist__pool *pool, struct hoist__pool_region *holder);

/* --- grow.c --- */

/* A flag beside HOIST__ALLOC_*: do not wait for a budget. */
#define HOIST__GROW_AT_ONCE 0x80000000u

/* Creates a region for the shard and takes @want from it.
 * Returns: 0 and the span; 1 if the call waited for another thread's growth instead: try again;
 *   -EDQUOT; as hoist__region_create(). */
int hoist__pool_grow(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret);

/* True for failures that may pass once memory is given back, or with a smaller region. */
static inline bool hoist__is_exhaustion(int err)
{
	return err == -ENOMEM || err == -ENOSPC || err == -EDQUOT || err == -EPERM;
}

/* True for requests that get a region of their own. */
bool hoist__pool_wants_own(const struct hoist__pool *pool, size_t bytes);

/* --- reclaim.c --- */

enum hoist__reclaim {
	HOIST__RECLAIM_PASSED, /* take back blocks that streams have passed */
	HOIST__RECLAIM_WAIT    /* also wait for one more block, empty magazines, shrink slabs */
};

/* Returns: true if anything was taken back.  Pre: no lock held. */
bool hoist__pool_reclaim(struct hoist__pool *pool, enum hoist__reclaim how);

/* Releases empty regions until at most keep_bytes of them are left.  Pre: no lock held. */
void hoist__pool_settle(struct hoist__pool *pool);

/* Takes a span.  Grows the pool, or takes memory back, if need be.  Pre: no lock held. */
int hoist__pool_span(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret);
/* Takes a span that the shard has already, for a slab.  Returns: NULL if it has none. */
struct hoist__granule *hoist__pool_span_at_hand(struct hoist__pool *pool,
						struct hoist__shard *shard,
						const struct hoist__want *want);
/* Gives a span back.  Regions that are to be destroyed are added to @doomed.  If @doomed is NULL,
 * because the caller holds a lock, these regions stay until the next trim. */
void hoist__pool_span_release(struct hoist__pool *pool, struct hoist__granule *span,
			      struct hoist__doomed *doomed);

/* --- pool-stream.c --- */

/* Defers the free of a claimed block that streams still use (deferred.h). */
int hoist__pool_defer(struct hoist__pool *pool, uintptr_t address, const struct hoist__claim *claim,
		      struct hoist__dev_stream *stream);
/* Frees a block that its streams have passed. */
void hoist__pool_passed(struct hoist__pool *pool, uintptr_t address);
/* Waits for all pending blocks, at the end of the pool. */
void hoist__pool_drain_streams(struct hoist__pool *pool);

/* --- pool-watched.c --- */

int hoist__pool_watched_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			      struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__pool_watched_free(struct hoist__pool *pool, uintptr_t address,
			     struct hoist__dev_stream *stream, bool on_stream);
/* Finds the raw block of the user's live block that starts at @address.
 * Returns: 0; -EINVAL, with the text. */
int hoist__pool_watched_raw(struct hoist__pool *pool, uintptr_t address, uintptr_t *ret);
/* Frees a claimed raw block that its streams have passed. */
void hoist__pool_watched_passed(struct hoist__pool *pool, uintptr_t raw);
/* Takes every block out of quarantine.  Returns: true if there was one. */
bool hoist__pool_watched_empty(struct hoist__pool *pool);

/* --- pools.c --- */

int hoist__pools_join(struct hoist__pool *pool); /* -ENOMEM */
void hoist__pools_part(struct hoist__pool *pool);
/* Makes all pools with this budget give back the memory that they only keep.  Pre: no lock held. */
void hoist__pools_yield(const struct hoist__budget *budget);

/* All locks of the pool but the threads' lock, in their order. */
void hoist__pool_lock_all(struct hoist__pool *pool);
void hoist__pool_unlock_all(struct hoist__pool *pool);

static inline bool hoist__memory_is_host(enum hoist__memory_kind kind)
{
	return kind == HOIST__MEMORY_HOST || kind == HOIST__MEMORY_PINNED;
}

#endif
