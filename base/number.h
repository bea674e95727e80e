/* SPDX-License-Identifier: MIT */
/* base/number.h - what is behind hoist/number.h: elements at any bit, and as text.
 *
 * An element's pattern is its bits from bit 0 of the first byte on, little-endian.  A sub-byte
 * element at bit b of a byte may reach into the next one.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_NUMBER_H
#define HOIST_BASE_NUMBER_H

#include <stddef.h>

#include "base/dtype.h"
#include "hoist/number.h"

#define HOIST__PATTERN_BYTES 16 /* of the widest element */

/* 0; -EINVAL if @dtype is none, -ENOTSUP if it is a block type: what all below need. */
int hoist__number_check(hoist_dtype dtype, const struct hoist__dtype_info **ret);

/* Rounds and checks, see hoist/number.h; bits above the element's are 0.
 * Returns: 0; -EINVAL, -EDOM. */
int hoist__number_pack(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
		       unsigned char pattern[HOIST__PATTERN_BYTES]);

/* The element that begins @bit bits (0..7; 0 but for sub-byte types) into @bytes. */
hoist_number hoist__number_load(const struct hoist__dtype_info *info, const void *bytes,
				unsigned bit);
void hoist__number_store(const struct hoist__dtype_info *info,
			 const unsigned char pattern[HOIST__PATTERN_BYTES], void *bytes,
			 unsigned bit);

/* How many bytes such an element touches. */
static inline size_t hoist__number_span(const struct hoist__dtype_info *info, unsigned bit)
{
	return (bit + info->bits + 7) / 8;
}

#define HOIST__NUMBER_TEXT 64

/* As Python writes it: True, -3, 0.1, 1e-07, nan, 1.0+2.0j.  Floats have the fewest digits that
 * become the same element when read as a double and stored as @dtype, a dtype of the number's
 * kind; only before the point are there all.  Whatever the locale, the decimal point is a point.
 * Returns: the length. */
size_t hoist__number_text(hoist_number number, hoist_dtype dtype, char text[HOIST__NUMBER_TEXT]);

#endif
