/* SPDX-License-Identifier: MIT */
/* hoist/element.h - single elements of buffers, and buffers as text.
 *
 * These are for looking and for tests, on any device: each call waits for the work on the
 * buffer's stream and moves one element.  What moves many is in hoist/copy.h.
 *
 * Threads: any; the bytes are the callers' to order.
 */
#ifndef HOIST_ELEMENT_H
#define HOIST_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/number.h>

HOIST_BEGIN

/* The element with the @n @indices, one for each axis; negative ones count from the axis's end.
 * Rank 0 takes no index, or the one index 0.
 * Returns: 0; -EINVAL (not as many indices as axes, with both counts); -ERANGE for an index outside
 *   its axis; -ENOTSUP for a block type; -EBADF; as hoist_buffer_read(). */
HOIST_API int hoist_buffer_get(hoist_buffer *buffer, int n, const int64_t *indices,
			       hoist_number *ret);

/* Stores @value there; @flags: HOIST_TOWARD_ZERO, HOIST_SATURATE.  An element that shares a byte
 * with others (sub-byte types) is written by reading the byte and writing it back.
 * Returns: also -EDOM for a value outside the dtype, and what else hoist_number_encode() says of
 *   it; -EROFS. */
HOIST_API int hoist_buffer_set(hoist_buffer *buffer, int n, const int64_t *indices,
			       hoist_number value, unsigned flags);

/* The one element of a buffer that has only one, of any rank.
 * Returns: also -EINVAL, with the count, for a buffer of any other. */
HOIST_API int hoist_buffer_item(hoist_buffer *buffer, hoist_number *ret);

/* A new buffer of rank 0 on @device that holds @value.
 * Returns: as hoist_number_encode() and hoist_buffer_create(). */
HOIST_API int hoist_buffer_scalar(hoist_number value, hoist_dtype dtype, hoist_device *device,
				  hoist_buffer **ret);

#define HOIST_DESCRIBE_VALUES 1u

/* The buffer in words, as much of it as fits in @bytes with its terminator; @text may be NULL if
 * @bytes is 0.  Without flags no element is read:
 *     hoist.Buffer(dtype=f32, shape=(2, 3), device=cuda:0)
 * strides= follows where the buffer is not contiguous, pinned, read-only, closed where it is.
 * With VALUES the elements come first, as NumPy writes them:
 *     hoist.Buffer([[ 1.0,  2.5,  nan],
 *                   [ 0.0, -inf,  0.1]], dtype=f32, shape=(2, 3), device=cuda:0)
 * Above 1000 elements, axes longer than 6 show the first and the last three around "...", and of
 * a device's memory no more than 16 KiB beside them is read; with many axes less is shown.  Floats
 * have the fewest digits that read back as the same element, and all of those before the point.
 * Returns: the length of the whole text, without the terminator, as snprintf() does; -EINVAL;
 *   -ENOMEM; with VALUES: -ENOTSUP for a block type, -EBADF, as hoist_buffer_read(). */
HOIST_API int64_t hoist_buffer_describe(hoist_buffer *buffer, unsigned flags, char *text,
					size_t bytes);

HOIST_END

#endif
