/* SPDX-License-Identifier: MIT */
/* hoist/buffer.h - typed, shaped memory on a device.
 *
 * A Buffer is a dtype, a shape and strides over storage.  Storage is shared and
 * reference counted: views hold it, and it holds its memory resource or whatever else
 * its bytes need, so that nothing a buffer needs can go away before it.  Strides are
 * in elements and may be negative.
 *
 * Where the bytes are:
 *   host     hoist_buffer_data() is a pointer
 *   device   hoist_buffer_data() is NULL; hoist_buffer_address() is the driver's
 *            address, for kernels and for the driver's own calls
 *   pinned   both
 *
 * Streams: every buffer has one, its device's default stream unless it was made on
 * another.  Functions that take no stream first wait for the work that is queued on the
 * buffer's own (-ENOTSUP while that captures a graph), and are done when they return.  Those that
 * take one only queue their work there: the caller orders other streams (hoist_stream_wait_for()).
 * Storage goes back when the last buffer over it goes, behind what hoist queued that uses it, and
 * behind the streams that buffers over it were made on or put on.  Work of your own on any other
 * stream, the default one included, is named to hoist_buffer_close() or hoist_buffer_free_on().
 *
 * hoist/copy.h copies and fills buffers, hoist/element.h reads and writes their elements
 * and prints them, hoist/mmap.h makes them of files, hoist/dlpack.h and hoist/ipc.h
 * pass them to other libraries and processes.
 *
 * Threads: metadata is immutable and may be read from any thread, and views be made and
 * dropped; the bytes are the callers' to order.  Who closes a buffer must be its only user.
 * A buffer that is NULL is -EINVAL, a closed one -EBADF; the functions that return no code
 * need one that is neither, unless they say more.
 */
#ifndef HOIST_BUFFER_H
#define HOIST_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/dtype.h>
#include <hoist/error.h>
#include <hoist/layout.h>
#include <hoist/memory.h>
#include <hoist/stream.h>

HOIST_BEGIN

typedef struct hoist_buffer hoist_buffer;

/* --- making buffers --- */

#define HOIST_BUFFER_PINNED 1u	  /* host memory that the device copies from and to directly */
#define HOIST_BUFFER_ZERO 2u	  /* all bytes 0; without it, content is undefined */
#define HOIST_BUFFER_LAZY 4u	  /* takes its memory when that is first needed: see
				   * hoist_buffer_allocate() */
#define HOIST_BUFFER_SHAREABLE 8u /* on the CPU: host memory of its own that hoist/ipc.h can pass
				   * to other processes.  Not with PINNED or LAZY */

/* A contiguous buffer in C order.  @shape has @rank extents of 0 or more; rank 0
 * is one element.  PINNED on the CPU is mlock'ed memory; on an accelerator it is
 * host memory registered with its driver (data is then a pointer).
 * Returns: 0; -EINVAL (rank outside 0..64, a negative extent, an invalid dtype,
 *   unknown flags, elements that are not whole blocks); -EOVERFLOW;
 *   -ENOMEM; -ENOSPC device memory; -EPERM memlock limit; -ENODEV, -EREMOTEIO. */
HOIST_API int hoist_buffer_create(hoist_device *device, hoist_dtype dtype, int rank,
				  const int64_t *shape, unsigned flags, hoist_buffer **ret);

/* The same on @stream's device, with @stream as its stream: the memory may be one that
 * earlier work on @stream still uses, so that only work on @stream may touch it until
 * that has passed; ZERO is queued on it.  LAZY memory is ready for all streams once it is taken. */
HOIST_API int hoist_buffer_create_on(hoist_stream *stream, hoist_dtype dtype, int rank,
				     const int64_t *shape, unsigned flags, hoist_buffer **ret);

/* The same with memory from @memory (not PINNED or SHAREABLE: the resource's kind says where
 * bytes are); @stream NULL: none in particular.  The device is the CPU's for what only the
 * CPU can touch, else the resource's.
 * Returns: also what hoist_memory_alloc() says of the resource. */
HOIST_API int hoist_buffer_create_from(hoist_memory *memory, hoist_stream *stream, hoist_dtype dtype,
				       int rank, const int64_t *shape, unsigned flags,
				       hoist_buffer **ret);

/* Memory that the caller has: what keeps it, and what is done when the last buffer over it
 * has gone.  0 or NULL is the default. */
typedef struct hoist_buffer_source {
	size_t size;	      /* sizeof(hoist_buffer_source) */
	uintptr_t address;    /* of the first element; 0 only with 0 bytes */
	size_t bytes;	      /* that may be touched from there on */
	size_t bytes_before;  /* and before it, for strides that are negative */
	hoist_device *device; /* whose memory it is.  NULL: the drivers that the process has loaded
			       * are asked, once: registering the memory later changes nothing */
	hoist_memory *memory; /* the address is a live block of this resource, and the buffer's
			       * from now on: freed to it.  CUSTOM: also what its functions made
			       * without hoist, which becomes a live block of @bytes: its free
			       * function gets address, bytes and stream.  Not with release */
	hoist_stream *stream; /* the buffer's stream, and the one the block is freed on; only with
			       * memory */
	/* Called once, from any thread, when no buffer uses the memory any more and all work that
	 * hoist queued on it is done, and, if it was exported, that of its consumers ("Consumers" in
	 * hoist/memory.h); NULL: the memory is the caller's to keep. */
	void (*release)(void *context);
	void *context;
	int is_read_only;     /* 1: hoist does not write to it */
} hoist_buffer_source;

/* A buffer over it; @strides in elements, NULL: C order.  If it fails, nothing was taken over.
 * Returns: 0; -EINVAL (memory and release both; a stream without memory; the elements leave the
 *   bytes there are, with both figures; no live block of @memory starts there; CUSTOM: the bytes
 *   overlap another live block; a stream or a resource of another device); as hoist_buffer_create(). */
HOIST_API int hoist_buffer_wrap(const hoist_buffer_source *source, hoist_dtype dtype, int rank,
				const int64_t *shape, const int64_t *strides, hoist_buffer **ret);

/* Takes the memory of a LAZY buffer, all of its storage, if that has none yet.  Copies, fills,
 * reads, exports and hoist_buffer_host_bytes() do so by themselves.
 * Returns: 0; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_allocate(hoist_buffer *buffer);

HOIST_API hoist_buffer *hoist_buffer_ref(hoist_buffer *buffer); /* not NULL */
HOIST_API void hoist_buffer_unref(hoist_buffer *buffer);	/* takes NULL */

/* Lets go of the storage now, whoever still has references to this buffer: its data is then
 * NULL, its address and bytes 0, its memory NULL.  Views keep theirs.  @stream: as
 * hoist_buffer_free_on() before it; NULL: the storage goes back as it would have.  Closing again
 * does nothing.
 * Returns: 0; -EINVAL for a stream that cannot order this memory: the buffer is open then;
 *   -ENOMEM. */
HOIST_API int hoist_buffer_close(hoist_buffer *buffer, hoist_stream *stream);

/* Another buffer over @buffer's memory made larger, in C order, with the content and dtype of
 * @buffer, whose memory is a block of a VIRTUAL resource; @buffer is closed.  What is new is
 * undefined.  See hoist_memory_grow(): the address stays, if it can.  A shape that needs no more
 * bytes than there are changes none.  No other thread may use @buffer meanwhile.  Work of consumers
 * that have let go of an export is waited for, with the device.
 * Returns: 0; -EINVAL (as hoist_buffer_create(); @buffer does not begin with its storage); -EBADF
 *   (closed); -EBUSY (views or exports share the memory; its address was exported by the CUDA Array
 *   Interface or DLPack's exchange; a wait is needed, and a stream captures a graph); -ENOTSUP
 *   (@buffer's memory is no block of a VIRTUAL resource, or it has no bytes); as
 *   hoist_memory_grow().  After each @buffer is as it was. */
HOIST_API int hoist_buffer_grow(hoist_buffer *buffer, int rank, const int64_t *shape,
				hoist_buffer **ret);

/* The buffer stays open; its storage will go back behind what is queued on @stream by then, and
 * its resource be told that stream, in place of the one that the storage was allocated on.  Where
 * other buffers share the storage it is one stream more that is waited for: theirs still are, too.
 * Returns: 0; -EINVAL (NULL; a stream that cannot order this memory); -ENOMEM. */
HOIST_API int hoist_buffer_free_on(hoist_buffer *buffer, hoist_stream *stream);
HOIST_API int hoist_buffer_is_closed(const hoist_buffer *buffer);

/* --- what is known of a buffer --- */

HOIST_API hoist_dtype hoist_buffer_dtype(const hoist_buffer *buffer);
HOIST_API int hoist_buffer_rank(const hoist_buffer *buffer);
HOIST_API const int64_t *hoist_buffer_shape(const hoist_buffer *buffer);   /* rank values */
HOIST_API const int64_t *hoist_buffer_strides(const hoist_buffer *buffer); /* in elements */
HOIST_API uint64_t hoist_buffer_elements(const hoist_buffer *buffer);
HOIST_API size_t hoist_buffer_bytes(const hoist_buffer *buffer); /* of the elements, packed; a part
								  * of a byte counts as one */

/* C order without gaps, from wherever it begins.  Axes of extent 1 do not count, a buffer without
 * elements is contiguous; a negative stride never is. */
HOIST_API int hoist_buffer_is_contiguous(const hoist_buffer *buffer);

/* Host memory that its device's driver has registered; on the CPU: mlock'ed memory. */
HOIST_API int hoist_buffer_is_pinned(const hoist_buffer *buffer);

/* 1 if the device is the CPU: a pinned buffer of an accelerator is not "host". */
HOIST_API int hoist_buffer_is_host(const hoist_buffer *buffer);

HOIST_API hoist_device *hoist_buffer_device(const hoist_buffer *buffer); /* borrowed */

/* The buffer's stream, borrowed.  Its device's default stream is made by this, if it is that one.
 * Returns: 0; as hoist_device_default_stream(). */
HOIST_API int hoist_buffer_stream(const hoist_buffer *buffer, hoist_stream **ret);

/* Memory that the CPU can touch: the first element.  Device memory: NULL.  Without elements, or
 * memory (LAZY), or closed: NULL. */
HOIST_API void *hoist_buffer_data(const hoist_buffer *buffer);

/* The address as the buffer's device sees it; 0 where there is none, as above. */
HOIST_API uintptr_t hoist_buffer_address(const hoist_buffer *buffer);

/* The first element's address is a multiple of @alignment, a power of two; 0: the dtype's own. */
HOIST_API int hoist_buffer_is_aligned(const hoist_buffer *buffer, size_t alignment);

typedef struct hoist_buffer_info {
	size_t size;	      /* in: sizeof(hoist_buffer_info) */
	uint64_t id;	      /* of this buffer: no other object of the process ever has it */
	uint64_t storage_id;  /* of the storage, which views share; 0: closed */
	size_t storage_bytes; /* of the whole storage */
	size_t offset;	      /* bytes from its beginning to the first element */
	unsigned bit_offset;  /* and bits, 0 to 7: sub-byte types */
	hoist_memory *memory; /* borrowed; where the storage comes from; NULL: not from a resource */
	int device_id;	      /* as its driver counts; -1 where the memory is the CPU's */
	int is_allocated;
	int is_closed;
	int is_host_accessible;
	int is_device_accessible; /* by an accelerator */
	int is_managed;
	int is_mapped;	      /* another process's memory */
	int is_read_only;     /* it, or its storage for good (hoist_buffer_freeze()) */
	/* Nobody gave strides: hoist_buffer_strides() are those of C order.  So it is with what
	 * hoist makes, with imports and wrapped memory that came without strides, and with views
	 * that keep such a layout.  Slices, reshapes, permutations and what hoist/ipc.h imports
	 * have strides of their own. */
	int has_implicit_strides;
} hoist_buffer_info;

/* Fills @info up to the size it says; a closed buffer has one.
 * Returns: 0; -EINVAL if info->size is 0 or larger than this library knows. */
HOIST_API int hoist_buffer_get_info(const hoist_buffer *buffer, hoist_buffer_info *info);

/* 1 if both are the same bytes: address, and count of bytes.  Closed buffers equal none, and LAZY
 * ones without memory only those over the same storage. */
HOIST_API int hoist_buffer_equal(const hoist_buffer *a, const hoist_buffer *b);

/* The bytes of a contiguous buffer that the CPU can touch, once the buffer's stream has done its
 * work; takes the memory of a LAZY one.  They stay as long as the buffer is open.
 * Returns: 0; -EINVAL (not contiguous); -ENOTSUP (device memory; the text says to copy it);
 *   -EROFS if @for_writing and the buffer is read-only; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_host_bytes(hoist_buffer *buffer, int for_writing, void **ret,
				      size_t *ret_bytes);

/* The same as an array in C of the buffer's elements, aligned for them.  @dtype is what the caller
 * takes them for: int32_t with HOIST_I32.  A type of C that is not there is the bits of the element:
 * uint16_t with HOIST_BF16.
 * Returns: 0; -EPROTOTYPE (the buffer's dtype is another than @dtype; the text has both); -ENOTSUP
 *   (also dtypes whose elements are no whole bytes); -EINVAL (also misaligned, no dtype); else as
 *   hoist_buffer_host_bytes(). */
HOIST_API int hoist_buffer_host_array(hoist_buffer *buffer, hoist_dtype dtype, int for_writing,
				      void **ret, uint64_t *ret_elements);

/* From now on, for good, nothing of hoist writes to this storage, whichever buffer is named:
 * -EROFS.  What has a pointer to it still can. */
HOIST_API int hoist_buffer_freeze(hoist_buffer *buffer);

/* --- views: other buffers over the same storage, on the same stream --- */

/* As NumPy's basic indexing: hoist_buffer_slice(b, 2, (hoist_slice[]){HOIST_AT(-1), HOIST_ALL}, &row).
 * Axes beyond @n stay whole; integers drop their axis; bounds are clipped; steps may be negative.
 * Returns: 0; -ERANGE for an integer outside its axis; -EINVAL (more indices than axes, a step of 0;
 *   block types: a range that is not of whole blocks); -ENOMEM. */
HOIST_API int hoist_buffer_slice(hoist_buffer *buffer, int n, const hoist_slice *slices,
				 hoist_buffer **ret);

/* The same elements in the same order in another shape, without a copy; one extent may be -1.
 * Returns: 0; -EINVAL (other count of elements; the strides do not allow it); -ENOMEM. */
HOIST_API int hoist_buffer_reshape(hoist_buffer *buffer, int rank, const int64_t *shape,
				   hoist_buffer **ret);

/* The axes in another order: axis k of the result is @axes[k] of @buffer; negative ones count from
 * the end.  Returns: 0; -EINVAL unless each axis is there once; -ENOMEM. */
HOIST_API int hoist_buffer_permute(hoist_buffer *buffer, const int *axes, hoist_buffer **ret);

/* The bytes as another dtype, along the last axis: [2, 6] of i8 is [2, 3] of i16, and [2, 12] of
 * f4_e2m1fn.  That axis must be dense, the others may be strided.
 * Returns: 0; -EINVAL (the last axis's bytes are no multiple of the new size, with the figures; a
 *   stride forbids it); -ERANGE (rank 0 has no last axis); -ENOMEM. */
HOIST_API int hoist_buffer_view_as(hoist_buffer *buffer, hoist_dtype dtype, hoist_buffer **ret);

/* Another dtype and shape over the same bytes, beginning @byte_offset bytes into @buffer, which
 * must be contiguous.  It may be misaligned.
 * Returns: 0; -EINVAL if the view would leave the buffer (the text has the figures) or @buffer is
 *   not contiguous; else as hoist_buffer_create(). */
HOIST_API int hoist_buffer_view(hoist_buffer *buffer, size_t byte_offset, hoist_dtype dtype,
				int rank, const int64_t *shape, hoist_buffer **ret);

/* Any layout over the buffer's bytes, its offset counted from @buffer's first element, its
 * itemsize that of @dtype.  Of an implicit one the result has no strides that were given.
 * Returns: 0; -EINVAL (itemsize; the elements leave what @buffer itself covers, with the bytes
 *   needed and those there are); -ENOTSUP (dtypes whose elements are no whole bytes). */
HOIST_API int hoist_buffer_with_layout(hoist_buffer *buffer, const hoist_layout *layout,
				       hoist_dtype dtype, hoist_buffer **ret);

/* The buffer's layout, beginning at its first element; implicit where no strides were given.
 * Returns: 0; -ENOTSUP as above. */
HOIST_API int hoist_buffer_get_layout(const hoist_buffer *buffer, hoist_layout *ret);

/* The same elements, read-only: writing to the result, or to views of it, is -EROFS, and what it
 * is exported to is told so.  @buffer itself, and others over the storage, stay as they were.
 * hoist_buffer_freeze() is for all of them.
 * Returns: 0; -ENOMEM. */
HOIST_API int hoist_buffer_read_only(hoist_buffer *buffer, hoist_buffer **ret);

/* The same memory with @stream, of the same device, as its stream; @buffer itself, with one more
 * reference, if that is its stream.  What is queued on the old stream is the caller's to order;
 * the memory goes back behind both.
 * Returns: 0; -EINVAL for another device's stream; -ENOMEM. */
HOIST_API int hoist_buffer_on_stream(hoist_buffer *buffer, hoist_stream *stream, hoist_buffer **ret);

/* @rets: buffers that lie to each other as @n buffers over one storage do, over one new storage: of
 * as many bytes, from the same resource, or of the device's own (pinned, where it was) where
 * @buffers' is from none.  With @copy_contents, of the whole storage, once the work on all
 * buffers' streams is done; without, content is undefined.  What was read-only is not.
 * Returns: 0; -EINVAL (NULL; not all of one storage, with the ids); -EBADF; -ENOTSUP (nothing can
 *   touch the memory to copy); as hoist_buffer_create(), after which @rets is as it was. */
HOIST_API int hoist_buffer_fork(size_t n, hoist_buffer *const *buffers, int copy_contents,
				hoist_buffer **rets);

HOIST_END

#endif
