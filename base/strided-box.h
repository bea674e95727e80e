/* SPDX-License-Identifier: MIT */
/* base/strided-box.h - the inner loops of a strided copy, for base/strided.c alone.
 *
 * The innermost loops of a nest make a box: [0], in it rows [1], in these columns [2].  Each has n
 * steps, of so many bytes in dst and in src.  (A device's copy of rows is struct hoist__box, in
 * device/device.h.)
 */
#ifndef HOIST_BASE_STRIDED_BOX_H
#define HOIST_BASE_STRIDED_BOX_H

#include <stddef.h>
#include <stdint.h>

struct hoist__loops {
	size_t item;
	int64_t n[3];
	int64_t dst[3];
	int64_t src[3];
};

/* Copies item by item, in the order of the loops. */
void hoist__loops_copy(const struct hoist__loops *box, char *dst, const char *src);

/* Copies columns that repeat one item: src[2] is 0, dst[2] is the item. */
void hoist__loops_fill(const struct hoist__loops *box, char *dst, const char *src);

/* Copies rows and columns in blocks, for a src whose lines run along the rows and a dst whose lines
 * run along the columns; [0] must be a single step. */
void hoist__loops_tile(const struct hoist__loops *box, char *dst, const char *src);

#endif
