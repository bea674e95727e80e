/* SPDX-License-Identifier: MIT */
/* hoist/copy.h - copying, moving and filling buffers.
 *
 *     hoist_buffer_copy_into(there, here);             // done when the call returns
 *     hoist_buffer_copy_on(on_device, pinned, stream); // queued on the stream
 *     hoist_buffer_to(weight, device, &weight_there);  // a copy only if needed
 *     hoist_buffer_read(weight_there, 0, bytes, 64);   // the first 64 bytes, to the caller
 *     const float one = 1;
 *     hoist_buffer_fill(there, &one, sizeof one);
 *
 * A copy goes from any device to any other, between any strides:
 *
 *   contiguous                one transfer
 *   strided, in host memory   the shortest loops that the two layouts allow
 *   strided, with a device    the driver's 2-D and 3-D copies where they take the layout in few
 *                             calls; else packed, through pinned slots of 8 MiB in all.
 *                             Bytes between the elements of a destination are never written
 *
 * A destination whose elements overlap each other (a stride of 0) is -EINVAL.  So is a destination
 * of which hoist cannot tell: the stride of some axis does not step over all bytes that the axes
 * with smaller strides reach.  Slicing, reshaping and permuting never make such strides.
 * Source and destination may be views of one storage that overlap: the result is as if the elements
 * went through a third place.  Memory for that place is taken unless both are contiguous.
 *
 * A function without a stream waits for the work on the streams of both buffers, and has copied
 * when it returns.  A function with a stream queues the copy behind that stream's work alone.
 * Until the stream has passed the copy, the content of both buffers must not change; the caller may
 * drop its references.  The call then
 *
 *   returns at once   device and device of one API; on a stream of a device, that device and host
 *                     memory that is pinned for its API (or managed); managed and managed or
 *                     pinned memory of its API; host and host, on a stream of the CPU
 *   blocks            until the stream got there and all is copied: pageable host memory and a
 *                     device; devices of two APIs; host and host on a device's stream; layouts
 *                     that take the driver a thousand calls; many short rows between two devices;
 *                     sides that overlap; elements that are no whole bytes.  -ENOTSUP while the
 *                     stream captures a graph
 *
 * The stream's device must have one of the two memories.  Between host memories any stream will do.
 * hoist never gives pageable memory to a driver.
 *
 * Sub-byte elements that share bytes with others can be copied from any device and into host
 * memory.  Into a device's memory they can be copied only without gaps between them: else -ENOTSUP.
 *
 * Threads: as hoist/buffer.h.
 * Errors: writing to a buffer that is read-only or frozen is -EROFS.  All functions: -EINVAL
 * (NULL); -EBADF (a closed buffer); -ENOMEM, -EPERM (memory to copy through); -ENODEV, -EREMOTEIO,
 * -ESTALE; and as hoist_buffer_create() where they make buffers or take the memory of LAZY ones.
 * If the driver fails in the middle, the destination's content is undefined.
 */
#ifndef HOIST_COPY_H
#define HOIST_COPY_H

#include <stddef.h>

#include <hoist/buffer.h>

HOIST_BEGIN

/* --- into existing buffers --- */

/* Copies all elements of @src into @dst, element by element where the shapes are equal.  Where the
 * shapes differ but the counts of elements are equal, both buffers must be contiguous.  Copying a
 * buffer into itself does nothing, whatever its strides.
 * Returns: 0; -EINVAL (the dtypes or counts differ: the text has both; the shapes differ and one
 *   buffer is not contiguous; elements of @dst overlap); the errors above. */
HOIST_API int hoist_buffer_copy_into(hoist_buffer *dst, hoist_buffer *src);

/* As hoist_buffer_copy_into(), queued on @stream, which must not be NULL.
 * Returns: as hoist_buffer_copy_into(); -EINVAL (the stream's device has neither memory); -ENOTSUP
 *   (the copy would block while the stream captures a graph). */
HOIST_API int hoist_buffer_copy_on(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream);

/* Flags of hoist_buffer_copy_with(), for the rules of other interfaces.  0: the rules above, which
 * copy all layouts.
 *
 *   CONTIGUOUS  -EINVAL unless both buffers are contiguous; @dst is looked at first: MAX's
 *               Buffer.inplace_copy_from()
 *   BYTES       both buffers must be contiguous and have the same number of bytes; dtypes, shapes
 *               and counts may differ: copy_to() and copy_from() of cuda.core's Buffer, and those
 *               of the Rust Buffer
 *   WAIT        the call returns when the copy is done, also on a stream:
 *               StridedMemoryView.copy_from() with blocking=True
 *   WAIT_HOST   WAIT, if the CPU can touch either memory: copy_from() with blocking=None */
#define HOIST_COPY_CONTIGUOUS 1u
#define HOIST_COPY_BYTES 2u
#define HOIST_COPY_WAIT 4u
#define HOIST_COPY_WAIT_HOST 8u

/* As hoist_buffer_copy_on(), with @flags; @stream NULL: as hoist_buffer_copy_into().
 * Returns: as these; -EINVAL (unknown flags). */
HOIST_API int hoist_buffer_copy_with(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
				     unsigned flags);

/* As hoist_buffer_copy_with(), with the resource for memory that the copy itself needs; @memory
 * NULL: hoist's own.  The memory goes back before the call returns, or when @stream has passed the
 * copy.  A copy between a device and other memory takes up to 8 MiB; a copy where source and
 * destination overlap, or where elements are no whole bytes, takes as many bytes as the elements
 * have.  Between devices of two APIs, only the source's side goes through @memory.  This is
 * StridedMemoryView.copy_from(allocator=).
 * Returns: as hoist_buffer_copy_with() and hoist_memory_alloc(); -EINVAL (the CPU cannot touch
 *   @memory; for a copy with a device: @memory is not pinned for the device's API). */
HOIST_API int hoist_buffer_copy_through(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
					unsigned flags, hoist_memory *memory);

/* Copies @srcs[i] into @dsts[i] for all @n pairs, in this order.  Pairs without bytes, pairs of a
 * buffer with itself, and pairs that came before are skipped.  All pairs are checked before a byte
 * is written.  @stream NULL: the copies are done when the call returns; copies of one device are
 * queued together and waited for once.  With a stream, all destinations must be on one device.
 * Returns: 0; -EINVAL (as hoist_buffer_copy_into(), with the number of the pair; destinations on
 *   two devices with a stream); the errors above. */
HOIST_API int hoist_buffer_copy_batch(size_t n, hoist_buffer *const *dsts,
				      hoist_buffer *const *srcs, hoist_stream *stream);

/* --- into new buffers: contiguous, not pinned, aligned for their dtype --- */

/* A deep copy of @src on @device; NULL: on @src's own device. */
HOIST_API int hoist_buffer_copy(hoist_buffer *src, hoist_device *device, hoist_buffer **ret);

/* A deep copy of @src on @stream's device, with @stream as its stream.  The copy is queued on
 * @stream, behind the work that is queued on @src's own stream now. */
HOIST_API int hoist_buffer_copy_to_stream(hoist_buffer *src, hoist_stream *stream,
					  hoist_buffer **ret);

/* As hoist_buffer_copy_to_stream(), with memory from the resource that @src's memory is from, and
 * so of the same kind.
 * Returns: as hoist_buffer_copy_to_stream(); -EINVAL (@src's memory is from no resource). */
HOIST_API int hoist_buffer_clone(hoist_buffer *src, hoist_stream *stream, hoist_buffer **ret);

/* As hoist_buffer_clone(), with memory from @memory.
 * Returns: as hoist_buffer_copy_to_stream(); -EINVAL (@memory is NULL; @stream cannot order its
 *   memory). */
HOIST_API int hoist_buffer_clone_from(hoist_buffer *src, hoist_memory *memory, hoist_stream *stream,
				      hoist_buffer **ret);

/* --- to a device or a stream: a copy only if needed --- */

/* @buffer itself with one more reference, if its memory is on @device; else a copy, as
 * hoist_buffer_copy().  Memory that is merely pinned for @device is copied to the device's own. */
HOIST_API int hoist_buffer_to(hoist_buffer *buffer, hoist_device *device, hoist_buffer **ret);

/* A buffer with @stream as its stream.  If @buffer is on the device of @stream, also pinned:
 * @buffer itself if @stream is its stream, else another buffer over the same memory
 * (hoist_buffer_on_stream()).  If @buffer is on another device: a copy, as
 * hoist_buffer_copy_to_stream(). */
HOIST_API int hoist_buffer_to_stream(hoist_buffer *buffer, hoist_stream *stream,
				     hoist_buffer **ret);

/* --- from and to the caller's memory --- */

/* Reads @bytes raw bytes of a contiguous buffer to @host, from @offset bytes behind the buffer's
 * first element on.  If the elements cover only a part of the last byte, only that part is written.
 * Returns: 0; -EINVAL (the range leaves the buffer; not contiguous; @host is NULL); the errors
 *   above. */
HOIST_API int hoist_buffer_read(hoist_buffer *buffer, size_t offset, void *host, size_t bytes);

/* Writes @bytes raw bytes from @host, as hoist_buffer_read() reads them.  If the elements cover
 * only a part of the last byte, only that part is written.
 * Returns: as hoist_buffer_read(). */
HOIST_API int hoist_buffer_write(hoist_buffer *buffer, size_t offset, const void *host,
				 size_t bytes);

/* Copies all elements from @host, where they are packed in C order, whatever the buffer's strides.
 * Returns: 0; -EINVAL (@bytes is not exactly hoist_buffer_bytes(): the text has both); the errors
 *   above. */
HOIST_API int hoist_buffer_copy_in(hoist_buffer *dst, const void *host, size_t bytes);

/* Copies all elements to @host, packed in C order, whatever the buffer's strides.  If the elements
 * do not fill the last byte, its other bits come out as 0.
 * Returns: as hoist_buffer_copy_in(). */
HOIST_API int hoist_buffer_copy_out(hoist_buffer *src, void *host, size_t bytes);

/* --- filling --- */

/* Repeats @pattern, of @width bytes (1, 2, 4, 8 or 16), over the bytes of all elements, packed.  In
 * a buffer that is not contiguous each element begins with the pattern: the element's size must be
 * a multiple of @width.  hoist_number_encode() makes a pattern of a number.
 * Returns: 0; -EINVAL (another width; the bytes are no multiple of @width: the text has both; the
 *   elements of @buffer overlap); -ENOTSUP (sub-byte elements that do not fill whole bytes); the
 *   errors above. */
HOIST_API int hoist_buffer_fill(hoist_buffer *buffer, const void *pattern, size_t width);

/* As hoist_buffer_fill(), queued on @stream, a stream of the buffer's device.  The pattern is read
 * before the call returns.  On the host memory of an accelerator, and where a device's memory has
 * gaps between the elements, the call blocks as copies do. */
HOIST_API int hoist_buffer_fill_on(hoist_buffer *buffer, const void *pattern, size_t width,
				   hoist_stream *stream);

HOIST_END

#endif
