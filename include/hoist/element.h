/* SPDX-License-Identifier: MIT */
/* hoist/element.h - single elements of buffers, and buffers as text.
 *
 *     const int64_t last[] = {-1, -1};
 *     char text[1024];
 *     hoist_buffer_set(matrix, 2, last, hoist_number_f64(0.5), 0);   // matrix[-1, -1] = 0.5
 *     hoist_buffer_describe(matrix, HOIST_DESCRIBE_VALUES, text, sizeof text);
 *     puts(text);
 *
 * The functions are meant for inspection and for tests.  They work on any device: each call waits
 * for the work on the buffer's stream and moves one element.  hoist/copy.h moves many elements.
 *
 * Threads: any.  The caller orders accesses of several threads to the same bytes.
 */
#ifndef HOIST_ELEMENT_H
#define HOIST_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/number.h>

HOIST_BEGIN

/* --- single elements --- */

/* Reads the element at @indices: @n indices, one for each axis.  Negative indices count from the
 * axis's end.  A buffer of rank 0 takes no index, or the one index 0.
 * Returns: 0; -EINVAL (@n is not the number of axes; the text has both); -ERANGE (an index is
 *   outside its axis); -ENOTSUP (a block type); -EBADF (closed); as hoist_buffer_read(). */
HOIST_API int hoist_buffer_get(hoist_buffer *buffer, int n, const int64_t *indices,
			       hoist_number *ret);

/* Stores @value as the element at @indices.  @flags: HOIST_TOWARD_ZERO, HOIST_SATURATE
 * (hoist/number.h).  An element that shares a byte with others (sub-byte types) is written by
 * reading the byte and writing the whole byte back.
 * Returns: as hoist_buffer_get() and hoist_number_encode(), so -EDOM for a value outside the dtype;
 *   -EROFS (the buffer is read-only or frozen). */
HOIST_API int hoist_buffer_set(hoist_buffer *buffer, int n, const int64_t *indices,
			       hoist_number value, unsigned flags);

/* Reads the only element of a buffer of any rank that has exactly one.
 * Returns: as hoist_buffer_get(); -EINVAL (the buffer has another number of elements, which the
 *   text gives). */
HOIST_API int hoist_buffer_item(hoist_buffer *buffer, hoist_number *ret);

/* A new buffer of rank 0 on @device that holds @value as @dtype.
 * Returns: 0; as hoist_number_encode() and hoist_buffer_create(). */
HOIST_API int hoist_buffer_scalar(hoist_number value, hoist_dtype dtype, hoist_device *device,
				  hoist_buffer **ret);

/* --- text --- */

#define HOIST_DESCRIBE_VALUES 1u

/* Describes the buffer in words.  @text gets as much of the description as fits in @bytes with its
 * terminator, and may be NULL if @bytes is 0.  Without flags no element is read:
 *
 *     hoist.Buffer(dtype=f32, shape=(2, 3), device=cuda:0)
 *
 * "strides=" follows for a buffer that is not contiguous, and "pinned", "read-only" and "closed"
 * where they apply.
 * With HOIST_DESCRIBE_VALUES the elements come first, as NumPy writes them:
 *
 *     hoist.Buffer([[ 1.0,  2.5,  nan],
 *                   [ 0.0, -inf,  0.1]], dtype=f32, shape=(2, 3), device=cuda:0)
 *
 * A buffer of more than 1000 elements shows the first and the last three of each axis longer than
 * 6, with "..." between them; with many axes less is shown.  A device's memory is read in pieces of
 * at most 16 KiB around the shown elements.  Floats have the fewest digits that read back as the
 * same element, and all digits before the point.
 * Returns: the length of the whole text without the terminator, as snprintf() does; -EINVAL;
 *   -ENOMEM; with VALUES also -ENOTSUP (a block type), -EBADF (closed), as hoist_buffer_read(). */
HOIST_API int64_t hoist_buffer_describe(hoist_buffer *buffer, unsigned flags, char *text,
					size_t bytes);

HOIST_END

#endif
