/* SPDX-License-Identifier: MIT */
/* alloc/spans.h - which parts of which regions are in use.
 *
 * Pure bookkeeping over addresses: it reads no memory it manages, makes no
 * system call, allocates nothing by itself and has no lock.
 *
 *   extent   the addresses of one region
 *   span     a part of an extent, either live (handed out) or free
 *
 * Invariants, checked by hoist__spans_check():
 *   - the spans of an extent, in order, cover it exactly
 *   - no two neighbours are both free
 *   - a live span is in `live` (by address); a free span that is a whole extent
 *     is in `empty`, any other free span in `free` (both by size, then address)
 *
 * Taking is best fit, the lowest address among equals: partly used extents are
 * filled before an empty one is broken, so that empty ones stay empty.
 */
#ifndef HOIST_ALLOC_SPANS_H
#define HOIST_ALLOC_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/tree.h"

struct hoist__span;

struct hoist__extent {
	uintptr_t base;
	size_t bytes;
	struct hoist__span *first; /* at the lowest address */
	bool keep;		   /* when empty, offer it again */
};

struct hoist__span {
	struct hoist__tree_node node; /* in live, free or empty */
	uintptr_t address;
	size_t bytes;
	size_t requested;	  /* what the user asked for; 0: the span is free */
	struct hoist__span *prev; /* neighbours within the extent */
	struct hoist__span *next; /* also the link of the list of spares */
	struct hoist__extent *extent;
};

struct hoist__span_chunk; /* some descriptors in one piece of host memory */

struct hoist__spans {
	struct hoist__tree live;
	struct hoist__tree free;
	struct hoist__tree empty;
	size_t empty_bytes; /* in `empty` */
	struct hoist__span *spares;
	size_t n_spares;
	struct hoist__span_chunk *chunks;
	uint64_t random;
};

/* The most descriptors that one call of take or add uses up. */
#define HOIST__SPANS_NEEDED ((size_t)3)

void hoist__spans_init(struct hoist__spans *spans);
void hoist__spans_done(struct hoist__spans *spans); /* frees the chunks */

/* Descriptors come in chunks: made without the owner's lock, given under it.
 * Returns: the chunk; NULL if memory is exhausted, with the text set. */
struct hoist__span_chunk *hoist__span_chunk_create(void);
void hoist__spans_give(struct hoist__spans *spans, struct hoist__span_chunk *chunk);

/* @extent has base, bytes and keep set; it becomes empty.  Uses one descriptor. */
void hoist__spans_add(struct hoist__spans *spans, struct hoist__extent *extent);
/* @extent is empty. */
void hoist__spans_remove(struct hoist__spans *spans, struct hoist__extent *extent);
/* The largest empty extent; NULL if none is empty. */
struct hoist__extent *hoist__spans_largest_empty(const struct hoist__spans *spans);

struct hoist__want {
	size_t requested; /* at least 1 */
	size_t bytes;	  /* this, rounded up to the granule */
	size_t align;	  /* a power of two */
};

/* A part of a partly used extent, or of an empty one of at most @most_empty bytes.
 * NULL if there is none.  Needs HOIST__SPANS_NEEDED spares. */
struct hoist__span *hoist__spans_take(struct hoist__spans *spans, const struct hoist__want *want,
				      size_t most_empty);

/* The whole of an empty extent that wastes at most an eighth; NULL if none. */
struct hoist__span *hoist__spans_take_whole(struct hoist__spans *spans,
					    const struct hoist__want *want);

/* A part of this empty extent; the whole of it if @whole.  NULL if it does not fit. */
struct hoist__span *hoist__spans_take_from(struct hoist__spans *spans, struct hoist__extent *extent,
					   const struct hoist__want *want, bool whole);

/* Makes a live span free and merges it with free neighbours.
 * Returns: its extent, if that is empty now; else NULL. */
struct hoist__extent *hoist__spans_release(struct hoist__spans *spans, struct hoist__span *span);

/* The live span that starts at, or contains, @address; NULL if none. */
struct hoist__span *hoist__spans_at(const struct hoist__spans *spans, uintptr_t address);
struct hoist__span *hoist__spans_around(const struct hoist__spans *spans, uintptr_t address);

/* Asserts the invariants of one extent, in O(its spans). */
void hoist__spans_check(const struct hoist__spans *spans, const struct hoist__extent *extent);

#endif
