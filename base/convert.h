/* SPDX-License-Identifier: MIT */
/* base/convert.h - converts arrays from one float dtype to another, while they are staged.
 *
 * Each of f32, f16 and bf16 to each other.  Rounding is to nearest, ties to even.  A value beyond
 * the range becomes infinite.  A NaN stays a NaN: quiet, with its sign, and with as much of its
 * payload as fits.  Subnormals are kept.  For every element the result is the same as
 * hoist/element.h gives (which drops a NaN's payload), in any rounding mode of the thread.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_CONVERT_H
#define HOIST_BASE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hoist/dtype.h"

/* True if @from and @to are two different dtypes among f32, f16 and bf16. */
bool hoist__converts(hoist_dtype from, hoist_dtype to);

/* Converts @n elements, of any alignment.  If @to_type is not wider, @to and @from may be the same
 * address.  If it is wider, @from may lie behind @to in one array, as long as both end together:
 *
 *     to    [0 1 2 3 ... n-1 ]        4 bytes each
 *     from           [0 1 ... n-1]    2 bytes each
 */
void hoist__convert(void *to, hoist_dtype to_type, const void *from, hoist_dtype from_type,
		    size_t n);

/* --- one element --- */

#define HOIST__INLINE static inline __attribute__((always_inline))

HOIST__INLINE uint32_t hoist__bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* Returns @a if @first is not 0, otherwise @b, without a branch. */
HOIST__INLINE uint32_t hoist__choose(int32_t first, uint32_t a, uint32_t b)
{
	uint32_t mask = -(uint32_t)(first != 0);
	return (a & mask) | (b & ~mask);
}

/* The bits of the f32 that has the value of an f16, given by its bits. */
HOIST__INLINE uint32_t hoist__from_f16(uint32_t bits)
{
	uint32_t sign = (bits & 0x8000) << 16;
	int32_t magnitude = (int32_t)(bits & 0x7fff);
	/* Exponents from 15 to 127 above; infinities and NaNs keep the largest exponent. */
	uint32_t normal = ((uint32_t)magnitude << 13) + 0x38000000;
	uint32_t special = ((uint32_t)magnitude << 13) | 0x7f800000;
	special |= hoist__choose(magnitude > 0x7c00, 0x00400000, 0);
	/* Zero and subnormals are multiples of 2^-24. */
	uint32_t small = hoist__bits_of((float)magnitude * 0x1p-24f);
	uint32_t value = hoist__choose(magnitude >= 0x7c00, special, normal);
	return sign | hoist__choose(magnitude < 0x0400, small, value);
}

#endif
