/* SPDX-License-Identifier: MIT */
/* alloc/watch.h - what the slow path of a watched pool does to its blocks.
 *
 * A pool is watched when its debug level is above 0, or when the program runs under
 * AddressSanitizer or Valgrind (host kinds).  Its fast path is off then; every allocation and
 * free goes through pool-watched.c, which calls here around the allocator proper.  Nothing
 * here allocates or frees pool memory.
 *
 * Words: a raw block is what the allocator proper gave; the user's block lies within.
 *
 *   level 1   freed memory is filled with HOIST__POISON_FREE; when it is given out again
 *             the fill is checked (host kinds), and filled with HOIST__POISON_NEW
 *   level 2   also: redzones of at least HOIST__REDZONE_BYTES before and behind the
 *             user's bytes, checked when freed (device memory: filled and read by the
 *             driver, pattern.h); and freed blocks wait in a quarantine, first in first out,
 *             until HOIST__QUARANTINE_BYTES of others were freed behind them; their fill is
 *             checked when they leave (host and device)
 *
 *   raw          before    user's bytes    behind       end of raw
 *   |  at level 2: red |                 | red         |
 *
 * Red is what lies next to the user's bytes, HOIST__REDZONE_MOST of either side; what large
 * alignments and rounding leave beyond that is nobody's.
 *
 * Blocks whose content must stay as it is (LAZY ones: zero, and not yet there) are noted, and
 * otherwise left alone.
 *
 * Under ASan and Valgrind, free memory of host kinds is hidden and a user's block shown to the
 * byte, at every level (annotate.h).  Memory that device work may still use, because it was
 * freed on a stream, stays shown until that has passed.
 *
 * What is known of a block is in a table beside, keyed by raw address.  It stays there when the
 * block is free again, until the region ends: memory that was never freed was never filled, and
 * whoever finds the fill changed can say whose block it was.
 *
 * Threads: any; one lock inside, not held across driver calls.  What is filled and checked
 * is the caller's alone meanwhile.
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

/* What to ask the allocator proper for, so that @bytes (up to 2^47) at @align (0: the quantum)
 * have their redzones. */
void hoist__watch_size(const struct hoist__watch *watch, size_t bytes, size_t align,
		       size_t *raw_bytes, size_t *raw_align);

/* A raw block of @raw_allocated bytes was allocated for that: checks, fills, notes it.
 * @untouched: its content stays as it is, and it has no redzones; it was allocated for @bytes.
 * Returns: 0 and the user's address; -ENOMEM; -EFAULT if the block was written to while it was
 *   free: the text says where, what was there and which bytes.  Nothing is noted on failure, and
 *   the raw block is the caller's to give back: it is filled anew. */
int hoist__watch_allocated(struct hoist__watch *watch, uintptr_t raw, size_t raw_allocated,
			   size_t bytes, size_t align, bool untouched, uintptr_t *ret);

/* What is known of the user's block in @raw: where it begins and its bytes.
 * Returns: 0; -EINVAL if it does not begin at @address; *user is 0 then if there is none. */
int hoist__watch_known(struct hoist__watch *watch, uintptr_t raw, uintptr_t address,
		       uintptr_t *user, size_t *user_bytes);

/* The user's block in @raw ends: checks redzones, fills. (The caller made sure that it is live
 * and that no stream uses it any more.)  The raw block then belongs to the quarantine (*ret = 0)
 * or again to the caller (*ret = raw).
 * Returns: 0; -EFAULT if a redzone was overwritten (the work is done all the same). */
int hoist__watch_freed(struct hoist__watch *watch, uintptr_t raw, uintptr_t *ret);

/* A raw block that leaves the quarantine: because enough was freed behind it, or (@all) in any
 * case.
 * Returns: 0 and *ret (0: none leaves); -EFAULT and *ret: it was written to meanwhile. */
int hoist__watch_leaves(struct hoist__watch *watch, bool all, uintptr_t *ret);

size_t hoist__watch_quarantined(const struct hoist__watch *watch);  /* bytes */
bool hoist__watch_holds(struct hoist__watch *watch, uintptr_t raw); /* in quarantine */

/* A fault was found where nobody could be told: keeps the thread's text, the first one's. */
void hoist__watch_keep_fault(struct hoist__watch *watch);
/* Tells it.  Returns: 0 if there is none; -EFAULT, with the text. */
int hoist__watch_tell_fault(struct hoist__watch *watch);

/* A region came: its free memory is hidden.  It goes: shown again, and nothing is known of it. */
void hoist__watch_region(struct hoist__watch *watch, uintptr_t base, size_t bytes);
void hoist__watch_region_ends(struct hoist__watch *watch, uintptr_t base, size_t bytes);

void hoist__watch_lock(struct hoist__watch *watch); /* across fork */
void hoist__watch_unlock(struct hoist__watch *watch);

#endif
