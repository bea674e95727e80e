/* SPDX-License-Identifier: MIT */
/* bench/copy-loops.h - copies as one writes them by hand, the peers of hoist's copies. */
#ifndef HOIST_BENCH_COPY_LOOPS_H
#define HOIST_BENCH_COPY_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Three nested loops, outermost first; strides in items. */
struct copy_loops {
	int64_t n[3];
	int64_t dst[3];
	int64_t src[3];
	size_t item; /* bytes: 1, 2 or 4 */
};

typedef void copy_by_hand(const struct copy_loops *loops, void *dst, const void *src);

/* All items contiguous on both sides. */
copy_by_hand copy_memcpy;
copy_by_hand copy_words; /* a loop of 8 bytes at a time; an even number of items */

/* Columns contiguous on both sides. */
copy_by_hand copy_rows;	       /* a memcpy() for each */
copy_by_hand copy_fixed_rows;  /* the same of a size known to the compiler: 256 B, 1 or 4 KiB */
copy_by_hand copy_items_dense; /* item by item */

/* Any strides. */
copy_by_hand copy_items;	 /* item by item */
copy_by_hand copy_items_swapped; /* with rows as the innermost loop */
copy_by_hand copy_items_blocked; /* blocks of rows and columns, 64 bytes on a side */

/* Whether all items of @dst are those of @src. */
bool copy_is_right(const struct copy_loops *loops, const void *dst, const void *src);

#endif
