/* SPDX-License-Identifier: MIT */
/* base/convert.h - arrays of one float dtype to another, while they are staged.
 *
 * f32, f16 and bf16, each to each.  Rounding is to nearest, ties to even; a value beyond the
 * range becomes infinite; a NaN stays a NaN (quiet, its sign kept, of its payload what fits);
 * subnormals are kept.  The same results as hoist/element.h gives for every element (which drops a
 * NaN's payload), whatever rounding mode the thread is in.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_CONVERT_H
#define HOIST_BASE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "hoist/dtype.h"

/* True for two different ones of f32, f16 and bf16. */
bool hoist__converts(hoist_dtype from, hoist_dtype to);

/* @n elements, of any alignment.  @to and @from may be the same address if @to_type is not wider;
 * if it is, @from may lie behind @to in one array as long as it ends with it:
 *
 *     to    [0 1 2 3 ... n-1 ]        4 bytes each
 *     from           [0 1 ... n-1]    2 bytes each
 */
void hoist__convert(void *to, hoist_dtype to_type, const void *from, hoist_dtype from_type,
		    size_t n);

#endif
