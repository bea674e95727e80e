/* SPDX-License-Identifier: MIT */
/* base/number.h - the parts behind hoist/number.h: elements at any bit, and as text.
 *
 * An element's pattern is its bits from bit 0 of the first byte on, little-endian.  A sub-byte
 * element at bit b of a byte may reach into the next byte.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_NUMBER_H
#define HOIST_BASE_NUMBER_H

#include <stddef.h>

#include "base/dtype.h"
#include "hoist/number.h"

#define HOIST__PATTERN_BYTES 16 /* of the widest element */

/* Checks a dtype for the functions below.
 * Returns: 0; -EINVAL if @dtype is none, -ENOTSUP if it is a block type. */
int hoist__number_check(hoist_dtype dtype, const struct hoist__dtype_info **ret);

/* Rounds and checks, see hoist/number.h.  Bits above the element's are 0.
 * Returns: 0; -EINVAL, -EDOM. */
int hoist__number_pack(hoist_number number, unsigned flags, const struct hoist__dtype_info *info,
		       unsigned char pattern[HOIST__PATTERN_BYTES]);

/* Load and store the element that begins @bit bits into @bytes: 0..7, and 0 except for sub-byte
 * types. */
hoist_number hoist__number_load(const struct hoist__dtype_info *info, const void *bytes,
				unsigned bit);
void hoist__number_store(const struct hoist__dtype_info *info,
			 const unsigned char pattern[HOIST__PATTERN_BYTES], void *bytes,
			 unsigned bit);

/* Returns how many bytes such an element touches. */
static inline size_t hoist__number_span(const struct hoist__dtype_info *info, unsigned bit)
{
	return (bit + info->bits + 7) / 8;
}

#define HOIST__NUMBER_TEXT 64

/* Writes the number as Python does: True, -3, 0.1, 1e-07, nan, 1.0+2.0j.  A float has the fewest
 * digits that become the same element when read as a double and stored as @dtype; but all digits
 * before the point.  @dtype must be of the number's kind.  The decimal point is a point in any
 * locale.
 * Returns: the length. */
size_t hoist__number_text(hoist_number number, hoist_dtype dtype, char text[HOIST__NUMBER_TEXT]);

#endif
