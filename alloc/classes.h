/* SPDX-License-Identifier: MIT */
/* alloc/classes.h - which sizes slabs have.
 *
 * Multiples of the quantum up to eight of them, then eight classes a doubling, so
 * that rounding wastes at most an eighth:
 *
 *   quantum 64:  64 128 .. 512 | 576 640 .. 1024 | 1152 1280 .. 2048 | ...  up to 256 KiB
 *
 * Above, a slab would hold one block, and fill its granules no better than a span of that many
 * granules does: from 512 KiB on the classes are the granules.
 *
 * With u = the number of quanta less one, class = u for u < 8; above, the three bits below
 * u's highest one choose among the eight of its doubling.
 */
#ifndef HOIST_ALLOC_CLASSES_H
#define HOIST_ALLOC_CLASSES_H

#include <stddef.h>

#define HOIST__CLASS_MOST_BYTES ((size_t)256 << 10)
#define HOIST__CLASSES_MOST 80 /* for the smallest quantum, 64 */

/* @bytes 1 .. HOIST__CLASS_MOST_BYTES; the quantum is 1 << @quantum_shift. */
static inline unsigned hoist__class_of(size_t bytes, unsigned quantum_shift)
{
	/* Without a branch, which mixed sizes would have predicted wrongly: below eight quanta the
	 * highest bit is taken to be that of eight. */
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
