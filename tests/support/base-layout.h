/* SPDX-License-Identifier: MIT */
/* Layouts in words, for tables of cases.
 *
 *   a layout     "C 5,3,7"  "F 5,7"  "2,0,1 5,3,7" (the order of the axes)  "implicit 2,3"
 *                "strides 5,1 3,5"; rank 0 is a "-" in the place of a list
 *   what is done, in turn: "[1:-1, ::-1, 0]"  "permute 1,2,0"  "reshape 6,-1"  "squeeze"
 *                "flatten 0,-1"  "mask 6" (flattens)  "unsqueeze 0"  "broadcast 7,3"
 *                "repack 8" "repack 8,axis" "repack 8,axis,keep_dim" "repack 8,axis,keep_dim,data"
 *                "dense C" "dense F" "dense K" "dense 1,0"; separated by semicolons
 *   the result   "(5,7)/(7,1)@0": shape, strides, offset; "implicit (5,7)"
 */
#ifndef HOIST_TESTS_BASE_LAYOUT_H
#define HOIST_TESTS_BASE_LAYOUT_H

#include "hoist/layout.h"

/* "5,3,7" or "-".  Returns: how many. */
int read_list(const char *text, int64_t *ret);

/* Makes the layout; it must be possible. */
hoist_layout read_layout(const char *text, int64_t itemsize);

/* Does everything in @steps to @layout, in place.
 * Returns: 0; the first step's error, with @layout as it was before that step. */
int do_steps(const char *steps, hoist_layout *layout);

/* Writes the layout in words. */
const char *write_layout(const hoist_layout *layout, char *text, size_t bytes);

#endif
