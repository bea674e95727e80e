/* SPDX-License-Identifier: MIT */
/* alloc/pool-private.h - what pool.c (blocks) and grow.c (regions) share.
 *
 * The lock guards all that is not constant.  It is dropped around everything that
 * may take long: creating and destroying regions, and malloc.  Meanwhile the
 * bytes concerned stay accounted for:
 *
 *   pending    promised to regions that are being created; not yet reserved
 *   reserved   in regions, those being destroyed included
 *   releasing  the part of reserved that is being destroyed
 *
 *   reserved + pending <= limit
 */
#ifndef HOIST_ALLOC_POOL_PRIVATE_H
#define HOIST_ALLOC_POOL_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/pool.h"
#include "alloc/spans.h"
#include "base/list.h"

struct hoist__pool_region {
	struct hoist__extent extent;
	struct hoist__region *region;
	struct hoist__list link; /* in the pool's regions, or in a list to destroy */
};

struct hoist__pool {
	_Atomic size_t n_refs;
	struct hoist__pool_options options; /* constant; defaults filled in */
	size_t granule;			    /* constant */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a region came, went, or failed to come */
	struct hoist__spans spans;
	struct hoist__list regions;
	size_t pending;
	size_t releasing;
	bool growing;			/* a thread creates a shared region; others wait for it */
	struct hoist__pool_stats stats; /* reserved_bytes lives here */
};

/* Regions to be destroyed once the lock is dropped. */
struct hoist__doomed {
	struct hoist__list regions;
	size_t bytes;
};

/* All with the lock held, and held again on return. */

/* Makes sure of HOIST__SPANS_NEEDED spare descriptors.  May drop the lock.
 * Returns: 0; -ENOMEM. */
int hoist__pool_need_spares(struct hoist__pool *pool);

/* Creates a region and takes @want from it.  Drops the lock.
 * Returns: 0 and the span; 1 if another thread's work was waited for instead:
 *   try again; -EDQUOT; as hoist__region_create(). */
int hoist__pool_grow(struct hoist__pool *pool, const struct hoist__want *want, unsigned flags,
		     struct hoist__span **ret);

/* Takes empty regions out until at most @keep_bytes of them are left. */
void hoist__pool_doom(struct hoist__pool *pool, size_t keep_bytes, struct hoist__doomed *doomed);
void hoist__pool_doom_one(struct hoist__pool *pool, struct hoist__extent *extent,
			  struct hoist__doomed *doomed);

/* Destroys them, dropping the lock. */
void hoist__pool_destroy_doomed(struct hoist__pool *pool, struct hoist__doomed *doomed);

/* True for requests that get a region of their own. */
bool hoist__pool_wants_own(const struct hoist__pool *pool, const struct hoist__want *want);

/* "device", "pinned", "host". */
const char *hoist__memory_kind_name(enum hoist__memory_kind kind);

#endif
