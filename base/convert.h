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

#endif
