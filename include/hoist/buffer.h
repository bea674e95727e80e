/* SPDX-License-Identifier: MIT */
/* hoist/buffer.h - typed, shaped memory on a device.
 *
 * A Buffer is a dtype, a shape and strides over storage.  Storage is shared and
 * reference counted: views hold it, and it holds its memory and its device, so
 * that nothing a buffer needs can go away before it.  Strides are in elements.
 *
 * Where the bytes are:
 *   host     hoist_buffer_data() is a pointer
 *   device   hoist_buffer_data() is NULL; hoist_buffer_address() is the driver's
 *            address, for kernels and for the driver's own calls
 *
 * Threads: metadata is immutable and may be read from any thread; the bytes are
 * the callers' to order.
 */
#ifndef HOIST_BUFFER_H
#define HOIST_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/dtype.h>
#include <hoist/error.h>
#include <hoist/stream.h>

HOIST_BEGIN

typedef struct hoist_buffer hoist_buffer;

#define HOIST_BUFFER_PINNED 1u /* host memory that @device copies from and to directly */
#define HOIST_BUFFER_ZERO 2u   /* all bytes 0; without it, content is undefined */

/* A contiguous buffer in C order.  @shape has @rank extents of 0 or more; rank 0
 * is one element.  PINNED on the CPU is mlock'ed memory; on an accelerator it is
 * host memory registered with its driver (data is then a pointer).
 * Returns: 0; -EINVAL (rank outside 0..64, a negative extent, an invalid dtype,
 *   unknown flags, elements that are not whole bytes or blocks); -EOVERFLOW;
 *   -ENOMEM; -ENOSPC device memory; -EPERM memlock limit; -ENODEV, -EREMOTEIO. */
HOIST_API int hoist_buffer_create(hoist_device *device, hoist_dtype dtype, int rank,
				  const int64_t *shape, unsigned flags, hoist_buffer **ret);

HOIST_API hoist_buffer *hoist_buffer_ref(hoist_buffer *buffer);
HOIST_API void hoist_buffer_unref(hoist_buffer *buffer); /* takes NULL */

HOIST_API hoist_dtype hoist_buffer_dtype(const hoist_buffer *buffer);
HOIST_API int hoist_buffer_rank(const hoist_buffer *buffer);
HOIST_API const int64_t *hoist_buffer_shape(const hoist_buffer *buffer);   /* rank values */
HOIST_API const int64_t *hoist_buffer_strides(const hoist_buffer *buffer); /* in elements */
HOIST_API uint64_t hoist_buffer_elements(const hoist_buffer *buffer);
HOIST_API size_t hoist_buffer_bytes(const hoist_buffer *buffer); /* of the elements */
HOIST_API int hoist_buffer_is_contiguous(const hoist_buffer *buffer);
HOIST_API int hoist_buffer_is_pinned(const hoist_buffer *buffer);
HOIST_API hoist_device *hoist_buffer_device(const hoist_buffer *buffer); /* borrowed */

/* Host memory (the CPU's, or pinned): the first element.  Device memory: NULL.
 * Without elements: NULL. */
HOIST_API void *hoist_buffer_data(const hoist_buffer *buffer);

/* The address as the buffer's device sees it. */
HOIST_API uintptr_t hoist_buffer_address(const hoist_buffer *buffer);

/* A view: another dtype and shape over the same bytes, beginning @byte_offset
 * bytes into @buffer (which must be contiguous).
 * Returns: 0; -EINVAL if the view would leave the buffer (the text has the
 *   figures) or @buffer is not contiguous; else as hoist_buffer_create(). */
HOIST_API int hoist_buffer_view(hoist_buffer *buffer, size_t byte_offset, hoist_dtype dtype,
				int rank, const int64_t *shape, hoist_buffer **ret);

/* Copies all elements of @src into @dst: same dtype and element count, both
 * contiguous, on any two devices.  The bytes have arrived when it returns.  Copies
 * between pageable host memory and a device pass through pinned memory.
 * Returns: 0; -EINVAL; -EPERM, -ENOMEM, -ENOSPC, -EREMOTEIO. */
HOIST_API int hoist_buffer_copy_into(hoist_buffer *dst, hoist_buffer *src);

/* A new contiguous buffer on @device with the bytes of @src (contiguous). */
HOIST_API int hoist_buffer_copy(hoist_buffer *src, hoist_device *device, hoist_buffer **ret);

/* Reads @bytes raw bytes of a contiguous buffer, from @offset on, into host
 * memory; and the other way.  Synchronous.
 * Returns: 0; -EINVAL beyond the buffer or not contiguous; as copy_into. */
HOIST_API int hoist_buffer_read(hoist_buffer *buffer, size_t offset, void *host, size_t bytes);
HOIST_API int hoist_buffer_write(hoist_buffer *buffer, size_t offset, const void *host,
				 size_t bytes);

HOIST_END

#endif
