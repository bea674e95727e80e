/* SPDX-License-Identifier: MIT */
/* alloc/pool-private.h - what the files of the pool share.
 *
 *   fast.h         allocating and freeing: the fast paths
 *   pool.c         the same, the slow way; counting, finding
 *   small.c        what magazines fall back on: refills, slabs
 *   blocks.c       one block: taking it, its life, giving it back
 *   pool-create.c  making and ending a pool
 *   pool-regions.c regions and their extents
 *   grow.c         more regions: sizes, limits, budgets
 *   reclaim.c      spans; taking back what is cached, pending or empty
 *   pool-stream.c  blocks in stream order
 *   pool-stats.c   statistics, walks, checks
 *   pools.c        the list of all pools; fork
 *   pool-watched.c debug levels, sanitizers, traces
 *
 * A pool's memory is divided among shards, a region wholly to one.  A thread allocates in its
 * shard, so that threads meet neither in locks nor in cache lines; blocks return to where they
 * came from.  A shard that has no room borrows of the others, which costs no memory, and after
 * BORROWS_MOST times has the pool grow for itself, if it may.
 *
 * `lock` guards the regions and all below it in the struct.  It is dropped around everything
 * that may take long: creating and destroying regions, malloc.  Meanwhile the bytes
 * concerned stay accounted for:
 *
 *   growing    promised to regions that are being created; not yet reserved
 *   reserved   in regions, those being destroyed included
 *   releasing  the part of reserved that is being destroyed
 *
 *   reserved + growing <= limit
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
#include "base/list.h"

#define HOIST__LIKELY(x) __builtin_expect(!!(x), 1)
#define HOIST__UNLIKELY(x) __builtin_expect(!!(x), 0)

struct hoist__deferred;
struct hoist__watch;
struct hoist__trace;

/* A region with its extents: one, or as many as registered pieces. */
struct hoist__pool_region {
	struct hoist__list link; /* in the pool's regions, or in a list to destroy.  First: Valgrind
				  * calls what only pointers to its middle lead to possibly lost */
	struct hoist__region *region;
	size_t charged; /* to the budgets */
	struct hoist__shard *shard;
	bool listed; /* in the pool's regions; the pool's lock */
	size_t n_extents;
	struct hoist__pool_extent **extents;
};
_Static_assert(offsetof(struct hoist__pool_region, link) == 0, "a list leads to its start");

struct hoist__pool_extent {
	struct hoist__pool *pool;
	struct hoist__pool_region *region;
	_Atomic uintptr_t seen;	     /* where the device sees the base; 0: not asked yet */
	struct hoist__extent extent; /* last: its bits follow */
};

/* Why the fast path is off. */
#define HOIST__SLOW_WATCHED 1u /* every call is looked at: watch.h */
#define HOIST__SLOW_STALE 2u   /* a child of fork, and memory of a driver */

struct hoist__shard {
	struct hoist__lock lock; /* the spans, and what follows it */
	struct hoist__spans spans;
	size_t large_bytes;	    /* in large blocks that left the spans */
	_Atomic unsigned n_borrows; /* spans that this shard's threads took of others */
	struct hoist__class classes[HOIST__CLASSES_MOST];
} __attribute__((aligned(64)));

struct hoist__pool {
	_Atomic unsigned slow;
	unsigned quantum_shift; /* constant, as is all down to the lock but what is atomic */
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
	struct hoist__list caches;  /* the threads' lock */
	struct hoist__watch *watch; /* NULL: nothing to look at */
	_Atomic size_t n_refs;
	_Atomic unsigned next_shard;
	struct hoist__deferred *_Atomic deferred; /* made when first needed */
	_Atomic size_t empty_bytes;		  /* in empty extents */
	struct hoist__calls calls;

	/* What ended threads and large blocks counted. */
	_Atomic uint64_t n_allocs;
	_Atomic uint64_t n_frees;
	_Atomic int64_t requested;
	_Atomic int64_t requested_peak;
	_Atomic uint64_t n_exhausted;

	pthread_mutex_t trace_lock; /* guards the pointer, and orders lines */
	struct hoist__trace *trace;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a region came, went, or failed to come */
	struct hoist__list regions;
	size_t growing;
	size_t releasing;
	bool one_grows; /* a thread creates a shared region; others wait for it */
	size_t reserved;
	size_t reserved_peak;
	size_t n_regions;
	_Atomic size_t n_given; /* of these, the caller's */
	_Atomic size_t
		piece_most; /* no shared region has larger pieces: what needs more has its own */
	uint64_t n_growths;
	uint64_t step_ns[HOIST__N_STEPS];

	struct hoist__shard shards[];
};

static inline struct hoist__pool_extent *hoist__pool_extent_of(struct hoist__extent *extent)
{
	return HOIST__CONTAINER_OF(extent, struct hoist__pool_extent, extent);
}

/* The extent around @address, any address; NULL: none of @pool's.  With its lock held, which keeps
 * the extent there. */
static inline struct hoist__pool_extent *hoist__pool_extent_at(const struct hoist__pool *pool,
							       uintptr_t address)
{
	const struct hoist__granule *granule = hoist__granule_of(address);
	if (!hoist__granule_is_of(granule, pool->number))
		return NULL;
	struct hoist__extent *extent = atomic_load_explicit(&granule->extent, memory_order_acquire);
	return extent == NULL ? NULL : hoist__pool_extent_of(extent);
}

/* In a child of fork that has the books, but not the memory: they stay as they were. */
static inline bool hoist__pool_is_stale(const struct hoist__pool *pool)
{
	return (atomic_load_explicit(&pool->slow, memory_order_relaxed) & HOIST__SLOW_STALE) != 0;
}

/* Adds to the bytes asked for, and to their peak.  Inline and without a call, for which the fast
 * paths would save registers. */
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

/* Where the calling thread allocates. */
static inline struct hoist__shard *hoist__shard_here(struct hoist__pool *pool)
{
	const struct hoist__cache *cache = hoist__cache_known(pool->index);
	return &pool->shards[cache == NULL ? 0 : cache->shard];
}

static inline size_t hoist__quantum(const struct hoist__pool *pool)
{
	return (size_t)1 << pool->quantum_shift;
}

struct hoist__doomed;

/* --- small.c and blocks.c --- */

/* A block that was live until the claim: nobody else has it now. */
struct hoist__claim {
	struct hoist__slab *slab; /* NULL: a large block */
	uint32_t index;		  /* in the slab */
	bool used;		  /* by streams: deferred.h knows */
	size_t requested;
	size_t allocated;
};

/* A block of the class, past an empty magazine; refills that.
 * Returns: as hoist__pool_alloc(). */
int hoist__small_refill(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class,
			struct hoist__entry *ret);

/* Pushes a free block, past a full magazine or without one. */
void hoist__small_flush(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class,
			const struct hoist__entry *entry);

/* Free blocks back to their slabs; @doomed as hoist__pool_span_release(). */
void hoist__small_give(struct hoist__pool *pool, const struct hoist__entry *entries, size_t n,
		       struct hoist__doomed *doomed);
/* The spans of slabs that are wholly free.  Returns: true if there was one. */
bool hoist__small_shrink(struct hoist__pool *pool, struct hoist__doomed *doomed);

/* The block at @address, allocated but not yet live (state 0), by the slow way. */
int hoist__block_take(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
		      uintptr_t *ret, size_t *allocated);
/* Makes it live. */
void hoist__block_live(uintptr_t address, size_t requested, bool used);
/* Ends its life.  Returns: 0; -EINVAL, with the text. */
int hoist__block_claim(struct hoist__pool *pool, uintptr_t address, struct hoist__claim *ret);
/* A claimed block is free again. */
void hoist__block_put(struct hoist__pool *pool, uintptr_t address);
/* What a request for that many bytes, which was checked, is rounded to: exactly, unless it gets
 * the whole of a region that is a little larger. */
size_t hoist__block_rounded(const struct hoist__pool *pool, size_t bytes, size_t align);
/* The start of the block, live or not, around @address; 0 if there is none. */
uintptr_t hoist__block_around(struct hoist__pool *pool, uintptr_t address);
/* Flags a live block as used by streams, until it is freed. -EINVAL. */
int hoist__block_use(struct hoist__pool *pool, uintptr_t address);

/* Adds to the statistics. */
void hoist__count_alloc(struct hoist__pool *pool, size_t bytes);
void hoist__count_free(struct hoist__pool *pool, size_t bytes);

/* --- pool.c --- */

/* Returns: 0 if a pool like this can give such a block; what hoist__pool_alloc() says, with the
 * text. */
int hoist__pool_check_request(const struct hoist__pool *pool, size_t bytes, size_t align,
			      unsigned flags);

/* Any request, checked; @stream matters to a watched pool only. */
int hoist__pool_alloc_slow(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			   struct hoist__dev_stream *stream, uintptr_t *ret);

int hoist__pool_free_slow(struct hoist__pool *pool, uintptr_t address);

/* What the fast paths of fast.h did not take. */
int hoist__pool_alloc_past(struct hoist__pool *pool, size_t bytes, size_t align, uintptr_t *ret);
int hoist__pool_free_past(struct hoist__pool *pool, uintptr_t address);

/* The fast paths are off as long as there is a reason, HOIST__SLOW_*; @why begins or ends.  Who has
 * a cache open uses them on until hoist__caches_empty(). */
void hoist__pool_set_slow(struct hoist__pool *pool, unsigned why, bool slow);

/* A reference, unless the pool ends already. */
bool hoist__pool_try_ref(struct hoist__pool *pool);

/* --- pool-regions.c --- */

/* Whether the region is in its pool's list, for a child of a fork in the meantime.  Lock held. */
void hoist__pool_region_listed(struct hoist__pool *pool, struct hoist__pool_region *holder,
			       bool listed);
/* A fork will not find the pool any more, nor its regions.  No lock held. */
void hoist__pool_unlist(struct hoist__pool *pool);

/* Regions to be destroyed once the lock is dropped. */
struct hoist__doomed {
	struct hoist__list regions;
	size_t bytes;
};

/* Takes empty regions out, larger ones first (by powers of two), until at most @keep_bytes of them
 * are left.  Lock held.  In O(empty ones). */
void hoist__pool_doom(struct hoist__pool *pool, size_t keep_bytes, struct hoist__doomed *doomed);
/* The extent at @address, which may be there no more, became empty: dooms its region, unless that
 * is kept.  No lock held. */
void hoist__pool_emptied(struct hoist__pool *pool, uintptr_t address, bool keep,
			 struct hoist__doomed *doomed);
/* Destroys them; no lock held. */
void hoist__pool_destroy_doomed(struct hoist__pool *pool, struct hoist__doomed *doomed);
void hoist__doomed_init(struct hoist__doomed *doomed);

/* Describes the region of @holder: one extent per registered piece. -ENOMEM; -EEXIST;
 * -ENOTSUP. */
int hoist__pool_extents_make(struct hoist__pool *pool, struct hoist__pool_region *holder);

/* Gives bytes back to the pool's budgets. */
void hoist__pool_uncharge(struct hoist__pool *pool, size_t bytes);

/* Destroys a region that no pool knows any more, and what stands for it. */
void hoist__pool_region_destroy(struct hoist__pool *pool, struct hoist__pool_region *holder);

/* --- grow.c --- */

/* A flag beside HOIST__ALLOC_*: no waiting for a budget. */
#define HOIST__GROW_AT_ONCE 0x80000000u

/* Creates a region for the shard and takes @want from it.
 * Returns: 0 and the span; 1 if another thread's work was waited for instead:
 *   try again; -EDQUOT; as hoist__region_create(). */
int hoist__pool_grow(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret);

/* True for failures that memory given back, or a smaller region, may help against. */
static inline bool hoist__is_exhaustion(int err)
{
	return err == -ENOMEM || err == -ENOSPC || err == -EDQUOT || err == -EPERM;
}

/* True for requests that get a region of their own. */
bool hoist__pool_wants_own(const struct hoist__pool *pool, size_t bytes);

/* --- reclaim.c --- */

enum hoist__reclaim {
	HOIST__RECLAIM_PASSED, /* what streams have passed */
	HOIST__RECLAIM_WAIT    /* also: wait for one more; empty magazines; shrink slabs */
};

/* Returns: true if anything came of it.  No lock held. */
bool hoist__pool_reclaim(struct hoist__pool *pool, enum hoist__reclaim how);

/* Releases empty regions above those that are kept.  No lock held. */
void hoist__pool_settle(struct hoist__pool *pool);

/* A span, after growth or what helps against exhaustion. No lock held. */
int hoist__pool_span(struct hoist__pool *pool, struct hoist__shard *shard,
		     const struct hoist__want *want, unsigned flags, struct hoist__granule **ret);
/* One that the shard has already, for a slab; NULL if none. */
struct hoist__granule *hoist__pool_span_at_hand(struct hoist__pool *pool,
						struct hoist__shard *shard,
						const struct hoist__want *want);
/* Gives one back.  Regions that are to go are added to @doomed; where that is NULL, because the
 * caller holds a lock, they stay until the next trim. */
void hoist__pool_span_release(struct hoist__pool *pool, struct hoist__granule *span,
			      struct hoist__doomed *doomed);

/* --- pool-stream.c --- */

/* A claimed block that streams still use (deferred.h). */
int hoist__pool_defer(struct hoist__pool *pool, uintptr_t address, const struct hoist__claim *claim,
		      struct hoist__dev_stream *stream);
/* A block that streams have passed: free again. */
void hoist__pool_passed(struct hoist__pool *pool, uintptr_t address);
/* The end of the pool: waits for them all. */
void hoist__pool_drain_streams(struct hoist__pool *pool);

/* --- pool-watched.c --- */

int hoist__pool_watched_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			      struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__pool_watched_free(struct hoist__pool *pool, uintptr_t address,
			     struct hoist__dev_stream *stream, bool on_stream);
/* The raw block of the user's live block that starts at @address. -EINVAL, with the text. */
int hoist__pool_watched_raw(struct hoist__pool *pool, uintptr_t address, uintptr_t *ret);
/* A claimed block that streams have passed. */
void hoist__pool_watched_passed(struct hoist__pool *pool, uintptr_t raw);
/* Everything out of quarantine. Returns: true if anything was. */
bool hoist__pool_watched_empty(struct hoist__pool *pool);

/* --- pools.c --- */

int hoist__pools_join(struct hoist__pool *pool); /* -ENOMEM */
void hoist__pools_part(struct hoist__pool *pool);
/* Pools with this budget give back what they only keep; without locks. */
void hoist__pools_yield(const struct hoist__budget *budget);

/* All locks but the threads', in their order. */
void hoist__pool_lock_all(struct hoist__pool *pool);
void hoist__pool_unlock_all(struct hoist__pool *pool);

static inline bool hoist__memory_is_host(enum hoist__memory_kind kind)
{
	return kind == HOIST__MEMORY_HOST || kind == HOIST__MEMORY_PINNED;
}

/* "device", "pinned", "host", "managed". */
const char *hoist__memory_kind_name(enum hoist__memory_kind kind);

#endif
