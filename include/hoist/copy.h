/* SPDX-License-Identifier: MIT */
/* hoist/copy.h - copying, moving and filling buffers.
 *
 * A copy goes from any device to any other, between any strides:
 *
 *   contiguous                one transfer
 *   strided, in host memory   the shortest loops that the two layouts allow
 *   strided, with a device    the driver's 2-D and 3-D copies where they take the layout in few
 *                             calls; else packed, through pinned slots of 8 MiB in all.
 *                             What lies between the elements of a destination is never written
 *
 * A destination whose elements overlap each other (a stride of 0) is -EINVAL, and so is one of
 * which that cannot be told: some axis's stride does not step over all that the axes with smaller
 * ones reach, which no slicing, reshaping or permuting makes.  Source and destination may be views
 * of one storage that overlap: the result is as if through a third place, and, unless both are
 * contiguous, memory for that is taken.
 *
 * Without a stream, a function waits for the work on the streams of both buffers, and has copied
 * when it returns.  On a stream it is queued behind that stream's work alone; both buffers must
 * keep their content, not their references, until the stream has passed it.  The call then
 *
 *   returns at once   device and device of one api; on a stream of the device, it and host
 *                     memory that is pinned for its api (or managed); managed and managed or
 *                     pinned memory of its api; host and host, on a stream of the CPU
 *   blocks            pageable host memory and a device, devices of two apis, host and host on
 *                     a device's stream, layouts that take the driver a thousand calls, many
 *                     short rows between two devices, sides that overlap, or bits that are no
 *                     whole bytes: until the stream got there and all is copied.  -ENOTSUP while
 *                     the stream captures a graph
 *
 * A stream is of a device that has one of the two memories; between host memories any will do.
 * A driver is never given pageable memory.
 *
 * Sub-byte elements that share bytes with others can be copied from any device, and into host
 * memory; into a device's only without gaps between them: -ENOTSUP else.
 *
 * Writing to a buffer that is read-only or frozen is -EROFS.  All functions: -EINVAL for NULL,
 * -EBADF for a closed buffer, -ENOMEM, -EPERM (memory to copy through), -ENODEV, -EREMOTEIO,
 * -ESTALE, and as hoist_buffer_create() where they make buffers or take the memory of LAZY ones.
 * If the driver fails in the middle, the destination's content is undefined.
 */
#ifndef HOIST_COPY_H
#define HOIST_COPY_H

#include <stddef.h>

#include <hoist/buffer.h>

HOIST_BEGIN

/* --- into buffers there are --- */

/* Copies all elements of @src into @dst, element by element where the shapes agree.  Where they
 * do not, but the counts do, both must be contiguous.  A buffer into itself is no work, whatever
 * its strides.
 * Returns: 0; -EINVAL (the dtypes or counts differ, with both; the shapes do, and one is not
 *   contiguous; elements of @dst overlap). */
HOIST_API int hoist_buffer_copy_into(hoist_buffer *dst, hoist_buffer *src);

/* The same on @stream, which is not NULL.
 * Returns: also -EINVAL (the stream's device has neither memory); -ENOTSUP as said above. */
HOIST_API int hoist_buffer_copy_on(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream);

/* What other interfaces do, for hoist_buffer_copy_with(); 0: as above.  The default copies all
 * layouts, as most of them do not need to be refused.
 *
 *   CONTIGUOUS  -EINVAL unless both are, the destination being looked at first: MAX's
 *               Buffer.inplace_copy_from()
 *   BYTES       both must be contiguous and of as many bytes; dtypes, shapes and counts may
 *               differ: cuda.core's Buffer.copy_to() and copy_from(), the Rust Buffer's
 *   WAIT        returns when it is done, also on a stream: StridedMemoryView.copy_from() with
 *               blocking=True
 *   WAIT_HOST   the same if the CPU can touch either memory: its blocking=None */
#define HOIST_COPY_CONTIGUOUS 1u
#define HOIST_COPY_BYTES 2u
#define HOIST_COPY_WAIT 4u
#define HOIST_COPY_WAIT_HOST 8u

/* @stream NULL: as hoist_buffer_copy_into().  Returns: also -EINVAL for unknown flags. */
HOIST_API int hoist_buffer_copy_with(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
				     unsigned flags);

/* The same.  Memory that the copy itself needs comes from @memory (NULL: hoist's own), and goes back
 * before the call returns, or when @stream has passed the copy: up to 8 MiB for a copy between a
 * device and other memory; as many bytes as the elements have where source and destination overlap
 * or elements are no whole bytes.  Between devices of two APIs, only the source's side goes through
 * @memory.  (StridedMemoryView.copy_from(allocator=).)
 * Returns: also -EINVAL (the CPU cannot touch @memory; for a device: @memory is not pinned for its
 *   API); what hoist_memory_alloc() says of it. */
HOIST_API int hoist_buffer_copy_through(hoist_buffer *dst, hoist_buffer *src, hoist_stream *stream,
					unsigned flags, hoist_memory *memory);

/* Copies @srcs[i] into @dsts[i] for all @n, in this order; pairs without bytes, of a buffer with
 * itself, and those that were there before are skipped.  Nothing is written before all pairs were
 * checked.  @stream NULL: done when it returns; copies of one device are queued together and waited
 * for once.  With one, all destinations must be on the same device.
 * Returns: 0; -EINVAL (which pair, and as above; two devices with a stream). */
HOIST_API int hoist_buffer_copy_batch(size_t n, hoist_buffer *const *dsts,
				      hoist_buffer *const *srcs, hoist_stream *stream);

/* --- into new buffers: contiguous, not pinned, aligned for their dtype --- */

/* A deep copy on @device; NULL: on @src's own. */
HOIST_API int hoist_buffer_copy(hoist_buffer *src, hoist_device *device, hoist_buffer **ret);

/* A deep copy on @stream's device, with that stream; queued there, behind what is queued on
 * @src's own stream now. */
HOIST_API int hoist_buffer_copy_to_stream(hoist_buffer *src, hoist_stream *stream,
					  hoist_buffer **ret);

/* A deep copy with memory from the resource that @src's memory is from, of its kind therefore,
 * with @stream as its stream; queued there as above.
 * Returns: also -EINVAL if @src's memory is from no resource. */
HOIST_API int hoist_buffer_clone(hoist_buffer *src, hoist_stream *stream, hoist_buffer **ret);

/* The same with memory from @memory, whatever @src's is from.
 * Returns: also -EINVAL if @memory is NULL or @stream cannot order it. */
HOIST_API int hoist_buffer_clone_from(hoist_buffer *src, hoist_memory *memory, hoist_stream *stream,
				      hoist_buffer **ret);

/* hoist_buffer_copy(), by the name that other interfaces have for it: always a copy, also of
 * what is contiguous.  They disagree on where: NULL is @src's own device here, as nobody asks for
 * a transfer by this name; MAX's Buffer.contiguous() always gives one on the CPU: pass that. */
HOIST_API int hoist_buffer_contiguous(hoist_buffer *src, hoist_device *device, hoist_buffer **ret);

/* --- where they are wanted: a copy only if needed --- */

/* @buffer itself, with one more reference, if it is on @device, and not merely pinned for it:
 * such a one is copied to the device's memory.  Else as hoist_buffer_copy(). */
HOIST_API int hoist_buffer_to(hoist_buffer *buffer, hoist_device *device, hoist_buffer **ret);

/* On the device of @stream, also pinned: @buffer itself if that is its stream, else another
 * buffer over the same memory (hoist_buffer_on_stream()).  On others as
 * hoist_buffer_copy_to_stream(). */
HOIST_API int hoist_buffer_to_stream(hoist_buffer *buffer, hoist_stream *stream, hoist_buffer **ret);

/* The same for each of @n devices or streams, in their order; 0 is none.  All or nothing: after a
 * failure there are no new references, and @rets is as it was. */
HOIST_API int hoist_buffer_to_all(hoist_buffer *buffer, size_t n, hoist_device *const *devices,
				  hoist_buffer **rets);
HOIST_API int hoist_buffer_to_streams(hoist_buffer *buffer, size_t n, hoist_stream *const *streams,
				      hoist_buffer **rets);

/* --- from and to the caller's memory --- */

/* Raw bytes of a contiguous buffer, @offset bytes from its first element on.  Where its elements
 * have but a part of the last byte, only that part is written.
 * Returns: 0; -EINVAL (the range leaves the buffer; not contiguous; @host is NULL). */
HOIST_API int hoist_buffer_read(hoist_buffer *buffer, size_t offset, void *host, size_t bytes);
HOIST_API int hoist_buffer_write(hoist_buffer *buffer, size_t offset, const void *host,
				 size_t bytes);

/* All elements, packed in C order at @host, whatever the buffer's strides; a last byte that they
 * do not fill comes out filled up with 0.  @bytes must be exactly hoist_buffer_bytes(): -EINVAL
 * else, with both. */
HOIST_API int hoist_buffer_copy_in(hoist_buffer *dst, const void *host, size_t bytes);
HOIST_API int hoist_buffer_copy_out(hoist_buffer *src, void *host, size_t bytes);

/* --- filling --- */

/* Sets the bytes of all elements, packed, to @pattern over and over: @width bytes, which are 1, 2,
 * 4, 8 or 16.  Where the buffer is not contiguous, each element begins with the pattern: its size
 * must be a multiple of @width.  hoist/element.h fills with numbers.
 * Returns: 0; -EINVAL (another width; the bytes are no multiple of it, with both; the elements of
 *   @buffer overlap); -ENOTSUP (sub-byte elements that do not fill whole bytes). */
HOIST_API int hoist_buffer_fill(hoist_buffer *buffer, const void *pattern, size_t width);

/* The same on @stream, a stream of the buffer's device; the pattern is read before it returns.
 * On the host memory of an accelerator, and between gaps in a device's memory, it blocks, as
 * copies do. */
HOIST_API int hoist_buffer_fill_on(hoist_buffer *buffer, const void *pattern, size_t width,
				   hoist_stream *stream);

HOIST_END

#endif
