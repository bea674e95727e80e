/* SPDX-License-Identifier: MIT */
/* alloc/classes.h - the block sizes of slabs.
 *
 * The classes are the multiples of the quantum up to eight quanta, then eight classes per doubling,
 * so that rounding wastes at most an eighth:
 *
 *   quantum 64:  64 128 .. 512 | 576 640 .. 1024 | 1152 1280 .. 2048 | ...  up to 256 KiB
 *
 * Above 256 KiB a slab would hold one block, and would fill its granules no better than a span of
 * as many granules.  From 512 KiB on the granules serve as the classes.
 *
 * With u = the number of quanta less one, class = u for u < 8.  For larger u, the three bits below
 * the highest bit of u choose among the eight classes of the doubling.
 */
#ifndef HOIST_ALLOC_CLASSES_H
#define HOIST_ALLOC_CLASSES_H

#include <stddef.h>

#define HOIST__CLASS_MOST_BYTES ((size_t)256 << 10)
#define HOIST__CLASSES_MOST 80 /* for the smallest quantum, 64 */

/* @bytes 1 .. HOIST__CLASS_MOST_BYTES; the quantum is 1 << @quantum_shift. */
static inline unsigned hoist__class_of(size_t bytes, unsigned quantum_shift)
{
	/* No branch: with mixed sizes it would be mispredicted.  Below eight quanta the computation
	 * uses the highest bit of eight quanta. */
	size_t u = bytes - 1;
	unsigned highest = 63 ^ (unsigned)__builtin_clzll(u | (size_t)8 << quantum_shift);
	return 8 * (highest - 3 - quantum_shift) + (unsigned)(u >> (highest - 3));
}

static inline size_t hoist__class_bytes(unsigned class, unsigned quantum_shift)
{
	if (class < 8)
		return (size_t)(class + 1) << quantum_shift;
	unsigned shift = class / 8 - 1;
	return ((size_t)(class % 8 + 9) << shift) << quantum_shift;
}

#endif
