/* SPDX-License-Identifier: MIT */
/* alloc/spans.h - which granules of which extents are in use.
 *
 * An extent is a region's addresses, or one registered piece of them: no span crosses its ends.  A
 * span is a run of granules of an extent, described by the record of its first granule (granule.h):
 * a large block, a slab, or free.
 *
 * Free spans are found by a two-level bitmap index (TLSF, Masmano et al. 2004).  The first level is
 * by powers of two, each with 32 lists of sizes.  Below 32 granules (2 MiB) a list holds exactly
 * one size.  A take looks at the first few spans in the list of its own size, then takes from the
 * next list up that is not empty: every span there fits.  So a take is constant time, and a fit is
 * at most 1/32 larger than the best.  The rest of a span is free again at once.  Merging is
 * immediate: both neighbours are found from the record.
 *
 * Extents that are free as a whole are not in the index but in a list, so that partly used
 * extents are filled first and empty ones stay releasable.
 *
 * Invariants, checked by hoist__spans_check():
 *   - the spans of an extent, in order, cover it exactly; n_before is right
 *   - no two neighbours are both free
 *   - `starts` has a bit for each first granule, and `groups` one for each word not 0
 *   - a free span is in the list of its size; bitmaps say which lists are not empty
 *
 * Spans are pure bookkeeping: they read none of the memory that they manage, make no call, allocate
 * nothing, and have no lock: the pool has one.
 */
#ifndef HOIST_ALLOC_SPANS_H
#define HOIST_ALLOC_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/granule.h"
#include "base/list.h"

#define HOIST__SPAN_LISTS 32
#define HOIST__SPAN_LEVELS 29 /* up to 2^32 granules */

struct hoist__extent {
	uintptr_t base; /* a multiple of the granule */
	size_t n;	/* granules */
	size_t bytes;	/* at most n granules, and more than n - 1 */
	uint32_t owner; /* the number of its pool, for the records of its granules */
	bool keep;	/* offer the extent when it is empty; else only hoist__spans_take_from()
			 * takes from it */
	bool empty;
	_Atomic unsigned process; /* the process that alone has the extent (hoist__fork_now()): a
				   * driver has the memory, or a thread is making or ending the
				   * extent; 0: children of fork have it, too */
	struct hoist__list link;  /* in the list of empty ones */
	uint64_t *starts;
	uint64_t *groups;
	uint64_t bits[]; /* starts, then groups */
};

struct hoist__spans {
	uint32_t levels; /* bit i: level i has a list that is not empty */
	uint32_t lists[HOIST__SPAN_LEVELS];
	struct hoist__granule *heads[HOIST__SPAN_LEVELS][HOIST__SPAN_LISTS];
	struct hoist__list empty;
	size_t empty_bytes;
	size_t free_granules; /* in free spans, those of empty extents included */
};

void hoist__spans_init(struct hoist__spans *spans);

/* Returns: the bytes of the bits behind an extent of @n granules. */
size_t hoist__extent_bits_bytes(size_t n);

/* Adds @extent, which becomes empty.  Pre: base, n, bytes, owner and keep are set, there is room
 * for the bits (zeroed), and the granules are taken. */
void hoist__spans_add(struct hoist__spans *spans, struct hoist__extent *extent);
/* Removes @extent.  Pre: @extent is empty. */
void hoist__spans_remove(struct hoist__spans *spans, struct hoist__extent *extent);
/* Returns: the largest empty extent that is offered; NULL if none is. */
struct hoist__extent *hoist__spans_largest_empty(const struct hoist__spans *spans);

struct hoist__want {
	size_t n;		    /* granules, at least 1 */
	size_t align;		    /* in granules: 1 .. 32, a power of two */
	enum hoist__span_kind kind; /* BLOCK or SLAB */
	size_t bytes;		    /* at most n granules: the last of an extent may be cut */
};

/* Takes a span of a partly used extent, or of an empty one of at most @most_empty bytes.
 * Returns: NULL if there is none. */
struct hoist__granule *hoist__spans_take(struct hoist__spans *spans, const struct hoist__want *want,
					 size_t most_empty);

/* Takes the whole of an empty extent, if at most an eighth of it is wasted.  Returns: NULL if there
 * is none. */
struct hoist__granule *hoist__spans_take_whole(struct hoist__spans *spans,
					       const struct hoist__want *want);

/* Takes a part of this empty extent, or (@whole) all of it.  Returns: NULL if @want does not
 * fit. */
struct hoist__granule *hoist__spans_take_from(struct hoist__spans *spans,
					      struct hoist__extent *extent,
					      const struct hoist__want *want, bool whole);

/* Frees the span that starts at @granule and merges it with free neighbours.
 * Returns: the extent of the span, if the extent is empty now; else NULL. */
struct hoist__extent *hoist__spans_release(struct hoist__spans *spans,
					   struct hoist__granule *granule);

/* Returns: the first granule of the span around @address, which is in @extent. */
struct hoist__granule *hoist__spans_around(const struct hoist__extent *extent, uintptr_t address);

/* Returns: the bytes of a span: whole granules, unless the span ends with its extent. */
size_t hoist__span_bytes(const struct hoist__granule *granule);
/* The same, if the extent is known. */
size_t hoist__span_bytes_in(const struct hoist__extent *extent,
			    const struct hoist__granule *granule);

/* Returns: the granules of the largest free span. */
size_t hoist__spans_largest(const struct hoist__spans *spans);

/* Asserts the invariants of one extent, in O(its granules). */
void hoist__spans_check(const struct hoist__spans *spans, const struct hoist__extent *extent);

#endif
