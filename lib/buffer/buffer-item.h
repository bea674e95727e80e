/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-item.h - the places of a buffer's elements, for code that touches single
 * elements.
 *
 * A place is counted in bits from the byte in which the first element begins.  Element e of a
 * buffer, counted in strides, is at bit + bits(dtype) * e.  A place may be negative.  It always
 * fits, as all elements lie in memory.
 */
#ifndef HOIST_LIB_BUFFER_BUFFER_ITEM_H
#define HOIST_LIB_BUFFER_BUFFER_ITEM_H

#include "base/number.h"
#include "lib/buffer/buffer-private.h"

/* Checks the buffer, and that the CPU or a device can touch its elements.  @what is the buffer's
 * role in the message.
 * Returns: 0; -EINVAL, -EBADF, -ENOTSUP. */
int hoist__buffer_check_elements(const hoist_buffer *buffer, const char *what,
				 const struct hoist__dtype_info **ret);

static inline int64_t hoist__place_of(const hoist_buffer *buffer,
				      const struct hoist__dtype_info *info, int64_t element)
{
	return (int64_t)buffer->bit + element * (int64_t)info->bits;
}

/* Returns the byte of a place, rounded down; hoist__place_bit() has the bit within that byte. */
static inline int64_t hoist__place_byte(int64_t place)
{
	return place >> 3;
}

static inline unsigned hoist__place_bit(int64_t place)
{
	return (unsigned)(place & 7);
}

/* Reads @n bytes, from @offset bytes behind the first element's byte on.  Pre: settled.
 * Returns: as hoist__transfer(). */
int hoist__buffer_peek(const hoist_buffer *buffer, int64_t offset, void *host, size_t n);

#endif
