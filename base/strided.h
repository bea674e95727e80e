/* SPDX-License-Identifier: MIT */
/* base/strided.h - copies elements between two strided arrays in host memory.
 *
 * A nest is the loops that such a copy needs, made once and in canonical form.  A part that can be
 * one memcpy() is one.  A caller with a better way for the inner loops (a driver's 2-D or 3-D copy)
 * finds them in the nest:
 *
 *   loops       outermost first, none of extent 1; strides of both sides in bytes
 *   item        the bytes of the innermost run, contiguous on both sides; a multiple of
 *               the size of one element.  rank 0: the whole copy is this run
 *   direction   every dst stride is above 0 (axes are flipped, both sides alike); src
 *               strides may be negative, or 0 (a broadcast; a fill has nothing else)
 *   order       by dst stride, largest first
 *   merged      no two neighbouring loops that could be one, and none that belongs to item
 *
 * If dst has the stride 0 on an axis, its elements are written more than once: the last index of
 * that axis wins, and the nest has no loop for the axis.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_STRIDED_H
#define HOIST_BASE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"

struct hoist__nest {
	int rank;
	size_t item;
	int64_t dst_offset; /* bytes from the first element of each side to where the nest begins */
	int64_t src_offset;
	int64_t extents[HOIST__MAX_RANK];
	int64_t dst_strides[HOIST__MAX_RANK];
	int64_t src_strides[HOIST__MAX_RANK];
};

/* Makes the nest for copying all elements of a tensor of @shape.  The strides of both sides are in
 * elements (any sign, 0 allowed); elements have @bytes bytes.  Strides and extents are those of
 * real memory: nothing overflows.  Strides of axes of extent 1 do not matter.
 * Returns: true; false if there are no elements (then *ret is not set). */
bool hoist__nest_make(int rank, const int64_t *shape, const int64_t *dst_strides,
		      const int64_t *src_strides, size_t bytes, struct hoist__nest *ret);

/* Runs the nest.  @dst and @src are the addresses of the first elements (the offsets are added
 * here), of any alignment; the two sides must not overlap. */
void hoist__nest_copy(const struct hoist__nest *nest, void *dst, const void *src);

/* The same for elements of @bits bits (1 to 64; dtypes have 4 and 6), packed without padding, the
 * lowest bits of a byte first.  Element e is bits [e*bits, (e+1)*bits) from the base.  The first
 * element begins @dst_bit and @src_bit bits (0..7) into its byte.  Bits of @dst beside its elements
 * stay.  Bytes that hold none of the elements are not touched. */
void hoist__bits_copy(int rank, const int64_t *shape, unsigned bits, void *dst, unsigned dst_bit,
		      const int64_t *dst_strides, const void *src, unsigned src_bit,
		      const int64_t *src_strides);

#endif
