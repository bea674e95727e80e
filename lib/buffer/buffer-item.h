/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-item.h - where the elements of a buffer are, for those that touch single ones.
 *
 * Places are in bits from the byte in which the first element begins: element e of a buffer,
 * counted in strides, is at bit + bits(dtype) * e, which may be negative and fits, as all of them
 * lie in memory.
 */
#ifndef HOIST_LIB_BUFFER_ITEM_H
#define HOIST_LIB_BUFFER_ITEM_H

#include "base/number.h"
#include "lib/buffer/buffer-private.h"

/* Checks the buffer and that its elements have addresses that somebody can touch; @what is its role
 * in the text.
 * Returns: 0; -EINVAL, -EBADF, -ENOTSUP. */
int hoist__buffer_check_elements(const hoist_buffer *buffer, const char *what,
				 const struct hoist__dtype_info **ret);

static inline int64_t hoist__place_of(const hoist_buffer *buffer,
				      const struct hoist__dtype_info *info, int64_t element)
{
	return (int64_t)buffer->bit + element * (int64_t)info->bits;
}

/* Its byte, rounded down, and the bit in that. */
static inline int64_t hoist__place_byte(int64_t place)
{
	return place >> 3;
}

static inline unsigned hoist__place_bit(int64_t place)
{
	return (unsigned)(place & 7);
}

/* Reads @n bytes from byte @offset of the first element on.  Pre: settled.
 * Returns: as hoist__transfer(). */
int hoist__buffer_peek(const hoist_buffer *buffer, int64_t offset, void *host, size_t n);

#endif
