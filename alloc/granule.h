/* SPDX-License-Identifier: MIT */
/* alloc/granule.h - the page map: from an address to the extent, slab or block there.
 *
 * Memory of regions is counted in granules of 64 KiB.  Every granule of every region of the process
 * has a record of 64 bytes in the map, beside the memory (0.1 %).  Two loads find a record: a root
 * by the address's upper half, a leaf by the next 16 bits.  Leaves cover 4 GiB, are reserved when
 * first needed, committed where used, and stay mapped, so a record can be read for any address at
 * any time.  A page of records none of which has an extent goes back to the system, and reads as
 * zero from then on.
 *
 *   extent   the extent that the granule is part of; NULL: no region of ours.  The extent's
 *            description ends with its region: only a thread that holds a block there, or the lock
 *            of its pool, may read the description
 *   owner    the number of the pool that the region belongs to; 0: no region of ours.  A check of
 *            an arbitrary address needs only this field, which can be read at any time
 *   slab     the slab that covers the granule; NULL: none
 *   state    of a live large block that starts here, see slab.h; else 0
 *   address, n, n_before, kind, links    in the first granule of a span: spans.h
 *   address, reciprocal, class_index     in each granule of a slab: a copy of the slab's fields
 *            that a free needs, which saves the free a cache line.  Valid while `slab` is
 *            unchanged.  A reader without the lock must re-check `slab` after reading them
 *
 * Writers: extent, owner and slab are set before any caller can know an address in the granule, and
 * are cleared when no block is left there.  The thread that frees a block exchanges state.  All
 * other fields are guarded by the lock of the pool's spans.
 */
#ifndef HOIST_ALLOC_GRANULE_H
#define HOIST_ALLOC_GRANULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__GRANULE_SHIFT 16
#define HOIST__GRANULE_BYTES ((size_t)1 << HOIST__GRANULE_SHIFT)
#define HOIST__ADDRESS_BITS 48 /* of user space on x86-64 and arm64, and of devices */

#if defined(__SANITIZE_THREAD__)
#define HOIST__TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOIST__TSAN 1
#endif
#endif

/* ThreadSanitizer does not know fences, and need not see the order that these make: only a wrong
 * address depends on it, or there is a separate path for ThreadSanitizer (magazine.c). */
#ifdef HOIST__TSAN
#define hoist__fence(order) ((void)(order))
#else
#define hoist__fence(order) atomic_thread_fence(order)
#endif

struct hoist__extent;
struct hoist__slab;

enum hoist__span_kind {
	HOIST__SPAN_NONE,  /* not the first granule of a span */
	HOIST__SPAN_FREE,  /* in the index */
	HOIST__SPAN_EMPTY, /* free, and all of its extent: in the list of empty ones */
	HOIST__SPAN_BLOCK, /* one large block */
	HOIST__SPAN_SLAB
};

struct hoist__granule {
	struct hoist__extent *_Atomic extent;
	struct hoist__slab *_Atomic slab;
	_Atomic uint64_t state;
	uintptr_t address;
	union {
		struct {
			struct hoist__granule *next; /* in a list of the index */
			struct hoist__granule *prev;
		};
		struct {
			uint64_t reciprocal;
			uint16_t class_index;
		};
	};
	uint32_t n;	   /* granules of the span that starts here */
	uint32_t n_before; /* of the span before this one in the extent; 0: none */
	enum hoist__span_kind kind;
	_Atomic uint32_t owner;
} __attribute__((aligned(64)));

#define HOIST__LEAF_BITS 16
#define HOIST__LEAF_GRANULES ((size_t)1 << HOIST__LEAF_BITS)
#define HOIST__ROOT_BITS (HOIST__ADDRESS_BITS - HOIST__LEAF_BITS - HOIST__GRANULE_SHIFT)

/* A leaf is mapped with the counts of its pages, 4 KiB at least, and one huge page more, so that
 * its records can begin at the start of a huge page. */
#define HOIST__LEAF_BYTES (HOIST__LEAF_GRANULES * sizeof(struct hoist__granule))
#define HOIST__LEAF_COUNTS_BYTES (HOIST__LEAF_BYTES / 4096 * sizeof(uint16_t))
#define HOIST__LEAF_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HOIST__LEAF_MAPPED_BYTES                                                                   \
	(HOIST__LEAF_BYTES + HOIST__LEAF_COUNTS_BYTES + HOIST__LEAF_HUGE_PAGE_BYTES)

extern struct hoist__granule *_Atomic hoist__granule_root[(size_t)1 << HOIST__ROOT_BITS]
	__attribute__((visibility("hidden")));

static inline struct hoist__granule *hoist__granule_in(struct hoist__granule *leaf,
						       uintptr_t address)
{
	return &leaf[(address >> HOIST__GRANULE_SHIFT) & (HOIST__LEAF_GRANULES - 1)];
}

/* Returns: the record of the granule around @address; NULL if no region was ever in its 4 GiB. */
static inline struct hoist__granule *hoist__granule_of(uintptr_t address)
{
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	if (__builtin_expect(root >> HOIST__ROOT_BITS != 0, 0))
		return NULL;
	struct hoist__granule *leaf =
		atomic_load_explicit(&hoist__granule_root[root], memory_order_acquire);
	if (__builtin_expect(leaf == NULL, 0))
		return NULL;
	return hoist__granule_in(leaf, address);
}

/* True if the granule belongs to a region of the pool with the number @owner. */
static inline bool hoist__granule_is_of(const struct hoist__granule *granule, uint32_t owner)
{
	return granule != NULL &&
	       atomic_load_explicit(&granule->owner, memory_order_acquire) == owner;
}

/* True if the fields that were read from the record until now describe @slab.  False only for a
 * wrong address that is freed while its slab goes away. */
static inline bool hoist__granule_still(const struct hoist__granule *granule,
					const struct hoist__slab *slab)
{
	hoist__fence(memory_order_acquire);
	return atomic_load_explicit(&granule->slab, memory_order_relaxed) == slab;
}

/* True if the extent belongs to a process that this one was forked from.  The extent's memory need
 * not be mapped here (MADV_DONTFORK), so its granules may be taken. */
bool hoist__extent_is_stale(const struct hoist__extent *extent);

/* The n'th granule behind that at @address; both are granules of one extent. */
static inline struct hoist__granule *hoist__granule_at(uintptr_t address, size_t n)
{
	address += n << HOIST__GRANULE_SHIFT;
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	return hoist__granule_in(
		atomic_load_explicit(&hoist__granule_root[root], memory_order_acquire), address);
}

/* Makes the granules of [base, base + n granules) parts of @extent and of the extent's owner.  May
 * map memory.
 * Returns: 0; -ENOMEM; -ENOTSUP (above 48 bits); -EEXIST if another extent has one of them.  On
 *   failure nothing is changed. */
int hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent);

/* Undoes hoist__granules_take(), and gives back the pages of the map that only these granules
 * needed. */
void hoist__granules_release(uintptr_t base, size_t n);

/* The map's lock, held across fork.  It is the last in the order of locks. */
void hoist__granules_lock(void);
void hoist__granules_unlock(void);

#endif
