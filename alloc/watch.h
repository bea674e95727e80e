/* SPDX-License-Identifier: MIT */
/* alloc/watch.h - poison, redzones and quarantine for the blocks of a watched pool.
 *
 * A pool is watched when its debug level is above 0, or when the program runs under
 * AddressSanitizer or Valgrind (host kinds).  Its fast path is off then.  Every allocation and free
 * goes through pool-watched.c, which calls the functions here around the allocator proper.
 * These functions allocate and free no pool memory.
 *
 * Words: a raw block is a block as the allocator proper gave it; the user's block lies within.
 *
 *   level 1   freed memory is filled with HOIST__POISON_FREE; when it is given out again
 *             the fill is checked (host kinds), and the block filled with HOIST__POISON_NEW
 *   level 2   also: redzones of at least HOIST__REDZONE_BYTES before and behind the
 *             user's bytes, checked when freed (device memory: filled and read by the
 *             driver, pattern.h); and freed blocks wait in a quarantine, first in first out,
 *             until HOIST__QUARANTINE_BYTES of others were freed behind them; their fill is
 *             checked when they leave (host and device)
 *
 *   raw          before    user's bytes    behind       end of raw
 *   |  at level 2: red |                 | red         |
 *
 * A redzone is next to the user's bytes and has at most HOIST__REDZONE_MOST bytes on either side.
 * Bytes beyond that, which large alignments and rounding leave, are not checked.
 *
 * Blocks whose content must stay as it is (UNPOPULATED ones: zero, and not populated yet) are noted, and
 * otherwise left alone.
 *
 * Under ASan and Valgrind, free memory of host kinds is hidden and a user's block shown to the
 * byte, at every level (annotate.h).  A block that was freed on a stream stays shown until the
 * stream has passed the free, because device work may still use it.
 *
 * A table beside the memory has an entry per block, keyed by raw address.  The entry stays when the
 * block is free again, until the region ends: memory that was never freed was never filled, and a
 * check that finds the fill changed can say whose block it was.
 *
 * Threads: any.  There is one lock inside, not held across driver calls.  While a block is filled
 * or checked, the caller alone has it.
 */
#ifndef HOIST_ALLOC_WATCH_H
#define HOIST_ALLOC_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"
#include "device/device.h"

#define HOIST__POISON_NEW 0xa5
#define HOIST__POISON_FREE 0xdb
#define HOIST__POISON_RED 0xfd
#define HOIST__REDZONE_BYTES ((size_t)64)
#define HOIST__REDZONE_MOST ((size_t)4096)
#define HOIST__QUARANTINE_BYTES ((size_t)16 << 20)

struct hoist__watch;

struct hoist__watch_options {
	enum hoist__memory_kind kind; /* host kinds are read and written directly */
	struct hoist__dev *dev;	      /* for device and managed memory */
	unsigned debug;
};

/* True if the program runs under a sanitizer that wants to know of blocks. */
bool hoist__watch_annotates(void);

int hoist__watch_create(const struct hoist__watch_options *options, struct hoist__watch **ret);
void hoist__watch_destroy(struct hoist__watch *watch); /* takes NULL; quarantine must be empty */

/* Gives the size and alignment to ask the allocator proper for, so that @bytes (up to 2^47) at
 * @align (0: the quantum) have their redzones. */
void hoist__watch_size(const struct hoist__watch *watch, size_t bytes, size_t align,
		       size_t *raw_bytes, size_t *raw_align);

/* Checks, fills and notes a raw block of @raw_allocated bytes, which was allocated for such a
 * request. @untouched: the content stays as it is, and there are no redzones: the raw block was
 * allocated for @bytes.
 * Returns: 0 and the user's address; -ENOMEM; -EFAULT if the block was written to while it was
 *   free: the text says which block, where, and which bytes were found.  On failure nothing is
 *   noted, and the caller must give the raw block back, which is filled anew. */
int hoist__watch_allocated(struct hoist__watch *watch, uintptr_t raw, size_t raw_allocated,
			   size_t bytes, size_t align, bool untouched, uintptr_t *ret);

/* Finds where the user's block in @raw begins, and its bytes.
 * Returns: 0; -EINVAL if no user's block begins at @address; *user is 0 if @raw has none at all. */
int hoist__watch_known(struct hoist__watch *watch, uintptr_t raw, uintptr_t address,
		       uintptr_t *user, size_t *user_bytes);

/* Ends the user's block in @raw: checks the redzones and fills.  Pre: the block is live, and no
 * stream uses it any more.  The raw block then belongs to the quarantine (*ret = 0) or again to the
 * caller (*ret = raw).
 * Returns: 0; -EFAULT if a redzone was overwritten (the work is done all the same). */
int hoist__watch_freed(struct hoist__watch *watch, uintptr_t raw, uintptr_t *ret);

/* Takes the oldest raw block out of the quarantine, if enough was freed behind it, or (@all) in any
 * case.
 * Returns: 0 and *ret (0: none leaves); -EFAULT and *ret: the block was written to meanwhile. */
int hoist__watch_leaves(struct hoist__watch *watch, bool all, uintptr_t *ret);

size_t hoist__watch_quarantined(const struct hoist__watch *watch);  /* bytes */
bool hoist__watch_holds(struct hoist__watch *watch, uintptr_t raw); /* in quarantine */

/* Keeps the thread's text for a fault that was found where no caller could be told.  The first
 * fault stays. */
void hoist__watch_keep_fault(struct hoist__watch *watch);
/* Tells the fault that was kept.  Returns: 0 if there is none; -EFAULT, with the text. */
int hoist__watch_tell_fault(struct hoist__watch *watch);

/* A new region: hides its free memory.  A region that ends: shows it again, and drops its
 * entries. */
void hoist__watch_region(struct hoist__watch *watch, uintptr_t base, size_t bytes);
void hoist__watch_region_ends(struct hoist__watch *watch, uintptr_t base, size_t bytes);

void hoist__watch_lock(struct hoist__watch *watch); /* across fork */
void hoist__watch_unlock(struct hoist__watch *watch);

#endif
