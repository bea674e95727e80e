/* SPDX-License-Identifier: MIT */
/* base/blocks.h - the values of GGUF's quantised blocks, as f32.
 *
 * A block holds small integers and the scales that they are multiplied by.  The layouts of the
 * blocks are those that ggml's files have; the values are, to the last bit, those of gguf-py's
 * dequantize(), which does the same operations in f32, in the same order.  A NaN stays a NaN.
 *
 * Threads: pure functions.
 */
#ifndef HOIST_BASE_BLOCKS_H
#define HOIST_BASE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "hoist/dtype.h"

/* True for q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq4_nl, iq4_xs and mxfp4. */
bool hoist__blocks_are_known(hoist_dtype type);

/* Writes the values of @n_elements, a multiple of the elements of a block, in order.  @blocks has
 * any alignment.
 * Returns: 0; -ENOTSUP (the type is not known); -EINVAL (@n_elements is not a multiple). */
int hoist__blocks_to_f32(hoist_dtype type, const void *blocks, size_t n_elements, float *ret);

#endif
