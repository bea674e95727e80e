/* SPDX-License-Identifier: MIT */
/* hoist/buffer.h - typed, shaped memory on a device.
 *
 *     const int64_t shape[] = {1024, 768};
 *     hoist_buffer_create(device, HOIST_BF16, 2, shape, HOIST_BUFFER_ZERO, &matrix);
 *     const hoist_slice rows = HOIST_RANGE(0, 512);
 *     hoist_buffer_slice(matrix, 1, &rows, &half);    // a view: the same memory
 *     launch(hoist_buffer_address(half));             // the address for a kernel
 *     hoist_buffer_unref(half);
 *     hoist_buffer_unref(matrix);                     // the last one gives the memory back
 *
 * A Buffer is a dtype, a shape and strides over storage.  Storage is shared and reference counted.
 * Views hold their storage, and the storage holds its memory resource, or whatever else its bytes
 * need: nothing that a buffer needs goes away before the buffer.  Strides are in elements and may
 * be negative.
 *
 * A buffer's bytes are in one of these places:
 *
 *   host     hoist_buffer_data() is a pointer
 *   device   hoist_buffer_data() is NULL; hoist_buffer_address() is the driver's address, for
 *            kernels and for the driver's own calls
 *   pinned   both
 *
 * Streams: every buffer has one, its device's default stream unless the buffer was made on another.
 * A function that takes no stream first waits for the work that is queued on the buffer's own
 * stream (-ENOTSUP while that stream captures a graph), and has finished when it returns.  A
 * function that takes a stream only queues its work there: the caller orders other streams
 * (hoist_stream_wait_for()).
 *
 * The end of storage: storage goes back when the last buffer over it goes.  It is reused only
 * behind the work on it that hoist queued, and behind the streams that buffers over it were made on
 * or put on.  If your own work on any other stream, the default stream included, uses the memory,
 * name that stream to hoist_buffer_close() or hoist_buffer_free_on().
 *
 * hoist/copy.h copies and fills buffers, hoist/element.h reads, writes and prints their elements,
 * hoist/mmap.h makes buffers of files, hoist/dlpack.h and hoist/ipc.h pass buffers to other
 * libraries and processes.
 *
 * Threads: metadata is immutable.  Any thread may read it, and may make and drop views.  The caller
 * orders accesses of several threads to the same bytes.  A thread that closes a buffer must be the
 * buffer's only user.
 * Errors: a buffer that is NULL is -EINVAL, a closed one -EBADF.  Functions that return no code
 * must not be given a NULL or closed buffer, unless their comment says more.
 */
#ifndef HOIST_BUFFER_H
#define HOIST_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/dtype.h>
#include <hoist/error.h>
#include <hoist/memory.h>
#include <hoist/slice.h>
#include <hoist/stream.h>

HOIST_BEGIN

struct hoist_layout; /* hoist/layout.h */

typedef struct hoist_buffer hoist_buffer;

/* --- making buffers --- */

#define HOIST_BUFFER_PINNED 1u	  /* host memory that the device copies from and to directly */
#define HOIST_BUFFER_ZERO 2u	  /* all bytes are 0; without the flag the content is undefined */
#define HOIST_BUFFER_LAZY 4u	  /* the buffer takes its memory when the memory is first needed:
				   * see hoist_buffer_allocate() */
#define HOIST_BUFFER_SHAREABLE 8u /* on the CPU: host memory of its own that hoist/ipc.h can pass
				   * to other processes.  Not with PINNED or LAZY */

/* A new contiguous buffer in C order.  @shape has @rank extents of 0 or more; rank 0 is one
 * element.  PINNED on the CPU is mlock'ed memory; on an accelerator it is host memory registered
 * with the accelerator's driver (hoist_buffer_data() is then a pointer).
 * Returns: 0; -EINVAL (@rank outside 0..64; a negative extent; an invalid dtype; unknown flags;
 *   elements that are not whole blocks); -EOVERFLOW; -ENOMEM; -ENOSPC (the device's memory is
 *   exhausted); -EPERM (memlock limit); -ENODEV, -EREMOTEIO. */
HOIST_API int hoist_buffer_create(hoist_device *device, hoist_dtype dtype, int rank,
				  const int64_t *shape, unsigned flags, hoist_buffer **ret);

/* As hoist_buffer_create() on @stream's device, with @stream as the buffer's stream.  Earlier work
 * on @stream may still use the memory: until that work is done, only work on @stream may touch the
 * buffer.  ZERO is queued on @stream.  The memory of a LAZY buffer is ready for all streams once it
 * is taken.
 * Returns: as hoist_buffer_create(). */
HOIST_API int hoist_buffer_create_on(hoist_stream *stream, hoist_dtype dtype, int rank,
				     const int64_t *shape, unsigned flags, hoist_buffer **ret);

/* As hoist_buffer_create_on(), with memory from @memory.  PINNED and SHAREABLE are not allowed: the
 * resource's kind says where the bytes are.  @stream NULL: no stream in particular.  The buffer's
 * device is the CPU for memory that only the CPU can touch, else the resource's device.
 * Returns: as hoist_buffer_create() and hoist_memory_alloc(). */
HOIST_API int hoist_buffer_create_from(hoist_memory *memory, hoist_stream *stream,
				       hoist_dtype dtype, int rank, const int64_t *shape,
				       unsigned flags, hoist_buffer **ret);

/* Memory that the caller has, for hoist_buffer_wrap(): its place, its owner, and the call that ends
 * its use.  0 or NULL is each field's default. */
typedef struct hoist_buffer_source {
	size_t size;	      /* sizeof(hoist_buffer_source) */
	uintptr_t address;    /* of the first element; 0 only with 0 bytes */
	size_t bytes;	      /* that hoist may touch from the address on */
	size_t bytes_before;  /* that hoist may touch before the address, for negative strides */
	hoist_device *device; /* the device that the memory belongs to.  NULL: hoist asks the
			       * drivers that the process has loaded, once: registering the
			       * memory later changes nothing */
	hoist_memory *memory; /* the address is a live block of this resource.  The block belongs to
			       * the buffer from now on, and is freed to the resource.  CUSTOM: the
			       * address may also be memory that the resource's functions made
			       * without hoist; it becomes a live block of `bytes`, and the free
			       * function gets address, bytes and stream.  Not with release */
	hoist_stream *stream; /* the buffer's stream, on which the block is freed, too; only with
			       * memory */
	/* hoist calls the function once, from any thread, when no buffer uses the memory any more
	 * and all work on it that hoist queued is done; if the memory was exported, the work of its
	 * consumers is done, too ("Consumers" in hoist/memory.h).  NULL: no call; the caller keeps
	 * the memory long enough. */
	void (*release)(void *context);
	void *context;	      /* for release */
	int is_read_only;     /* 1: hoist does not write to the memory */
} hoist_buffer_source;

/* A new buffer over the memory that @source describes.  @strides are in elements; NULL: C order.
 * If the call fails, the memory stays the caller's and release is not called.
 * Returns: 0; -EINVAL (both memory and release; a stream without memory; the elements leave the
 *   given bytes: the text has both figures; no live block of the resource starts at the address;
 *   CUSTOM: the bytes overlap another live block; a stream or a resource of another device); as
 *   hoist_buffer_create(). */
HOIST_API int hoist_buffer_wrap(const hoist_buffer_source *source, hoist_dtype dtype, int rank,
				const int64_t *shape, const int64_t *strides, hoist_buffer **ret);

/* Takes the memory of a LAZY buffer's whole storage, if the storage has none yet.  Copies, fills,
 * reads, exports and hoist_buffer_host_bytes() do so by themselves.
 * Returns: 0; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_allocate(hoist_buffer *buffer);

/* --- references, and the end of a buffer --- */

HOIST_API hoist_buffer *hoist_buffer_ref(hoist_buffer *buffer); /* not NULL */
HOIST_API void hoist_buffer_unref(hoist_buffer *buffer);	/* takes NULL */

/* Lets go of the storage now, even while others hold references to this buffer.  Afterwards the
 * buffer's data is NULL, its address and bytes are 0, its memory is NULL.  Views keep their
 * storage.
 * @stream: as if hoist_buffer_free_on() had been called before; NULL: the storage goes back as it
 * would have without the close.  Closing a closed buffer does nothing.
 * Returns: 0; -EINVAL (@stream cannot order this memory: the buffer stays open); -ENOMEM. */
HOIST_API int hoist_buffer_close(hoist_buffer *buffer, hoist_stream *stream);

/* Gives a larger buffer over @buffer's memory, which must be a block of a VIRTUAL resource; closes
 * @buffer.  The new buffer is in C order and keeps @buffer's dtype and content; the added bytes are
 * undefined.  The address stays if the resource can grow the block in place: see
 * hoist_memory_grow().  A shape that needs no more bytes than the block has leaves the block as it
 * is.  The call waits for the device where consumers that have let go of an export may still use
 * the memory.  No other thread may use @buffer during the call.
 * Returns: 0; -EINVAL (as hoist_buffer_create(); @buffer does not begin with its storage); -EBADF
 *   (closed); -EBUSY (views or exports share the memory; the address was exported by the CUDA Array
 *   Interface or DLPack's exchange table; a wait is needed, and a stream captures a graph);
 *   -ENOTSUP (the memory is no block of a VIRTUAL resource; @buffer has no bytes); as
 *   hoist_memory_grow().  After a failure @buffer is as it was. */
HOIST_API int hoist_buffer_grow(hoist_buffer *buffer, int rank, const int64_t *shape,
				hoist_buffer **ret);

/* Names the stream on which the storage will be freed.  The buffer stays open.  When its storage
 * goes back, it is reused only behind the work that is queued on @stream by then.  The resource is
 * told @stream in place of the stream that the storage was allocated on.  If other buffers share
 * the storage, @stream is one more stream to wait for: theirs are still waited for, too.
 * Returns: 0; -EINVAL (NULL; @stream cannot order this memory); -ENOMEM. */
HOIST_API int hoist_buffer_free_on(hoist_buffer *buffer, hoist_stream *stream);

/* 1 after hoist_buffer_close(), else 0. */
HOIST_API int hoist_buffer_is_closed(const hoist_buffer *buffer);

/* --- properties of a buffer --- */

/* The dtype of the elements. */
HOIST_API hoist_dtype hoist_buffer_dtype(const hoist_buffer *buffer);
/* The number of axes, 0 to 64. */
HOIST_API int hoist_buffer_rank(const hoist_buffer *buffer);
HOIST_API const int64_t *hoist_buffer_shape(const hoist_buffer *buffer);   /* rank values */
HOIST_API const int64_t *hoist_buffer_strides(const hoist_buffer *buffer); /* in elements */
/* The number of elements: the product of the extents, 1 for rank 0. */
HOIST_API uint64_t hoist_buffer_elements(const hoist_buffer *buffer);
/* Bytes of the elements, packed without gaps; a part of a byte counts as a byte. */
HOIST_API size_t hoist_buffer_bytes(const hoist_buffer *buffer);

/* 1 if the elements lie in C order without gaps, wherever the first one is.  Axes of extent 1 do
 * not count.  A buffer without elements is contiguous; one with a negative stride is not. */
HOIST_API int hoist_buffer_is_contiguous(const hoist_buffer *buffer);

/* 1 for host memory that the driver of the buffer's device has registered; on the CPU: for mlock'ed
 * memory. */
HOIST_API int hoist_buffer_is_pinned(const hoist_buffer *buffer);

/* 1 if the device is the CPU: a pinned buffer of an accelerator is not "host". */
HOIST_API int hoist_buffer_is_host(const hoist_buffer *buffer);

HOIST_API hoist_device *hoist_buffer_device(const hoist_buffer *buffer); /* borrowed */

/* The buffer's stream, borrowed.  If that is its device's default stream and does not exist yet,
 * this call makes it.
 * Returns: 0; as hoist_device_default_stream(). */
HOIST_API int hoist_buffer_stream(const hoist_buffer *buffer, hoist_stream **ret);

/* The first element, for the CPU.  NULL for device memory, for a buffer without elements, for a
 * LAZY buffer without memory, and for a closed buffer. */
HOIST_API void *hoist_buffer_data(const hoist_buffer *buffer);

/* The address of the first element as the buffer's device sees it.  0 for a buffer without
 * elements, for a LAZY buffer without memory, and for a closed buffer. */
HOIST_API uintptr_t hoist_buffer_address(const hoist_buffer *buffer);

/* 1 if the first element's address is a multiple of @alignment, a power of two; @alignment 0: of
 * the dtype's own. */
HOIST_API int hoist_buffer_is_aligned(const hoist_buffer *buffer, size_t alignment);

typedef struct hoist_buffer_info {
	size_t size;	      /* in: sizeof(hoist_buffer_info) */
	uint64_t id;	      /* of this buffer: no other object of the process ever has this id */
	uint64_t storage_id;  /* of the storage, which views share; 0: closed */
	size_t storage_bytes; /* of the whole storage */
	size_t offset;	      /* bytes from the storage's beginning to the first element */
	unsigned bit_offset;  /* and bits, 0 to 7: sub-byte types */
	hoist_memory *memory; /* the resource that the storage comes from, borrowed; NULL: none */
	int device_id;	      /* as its driver counts; -1: the memory is the CPU's */
	int is_allocated;     /* 0: a LAZY buffer without memory, or a closed one */
	int is_closed;
	int is_host_accessible;
	int is_device_accessible; /* by an accelerator */
	int is_managed;
	int is_mapped;	      /* 1: another process's memory */
	int is_read_only;     /* 1: the buffer is, or its storage was frozen */
	/* 1: nobody gave strides, and hoist_buffer_strides() are those of C order.  So it is with
	 * buffers that hoist makes, with imports and wrapped memory that came without strides, and
	 * with views that keep such a layout.  Slices, reshapes, permutations and imports of
	 * hoist/ipc.h have strides of their own. */
	int has_implicit_strides;
	/* For bindings whose objects are collected: how many hold the buffer and its storage now.
	 * Another thread may change both numbers at once, unless all holders are known. */
	unsigned n_refs;	 /* references to this buffer */
	unsigned n_storage_refs; /* to its storage, of buffers, exports, loads; 0: closed */
} hoist_buffer_info;

/* Fills @info up to info->size; @buffer may be closed.
 * Returns: 0; -EINVAL (info->size is 0 or larger than this library knows). */
HOIST_API int hoist_buffer_get_info(const hoist_buffer *buffer, hoist_buffer_info *info);

/* 1 if both buffers are the same bytes: the same address and the same count of bytes.  A closed
 * buffer equals no other.  A LAZY buffer without memory equals only buffers over the same
 * storage. */
HOIST_API int hoist_buffer_equal(const hoist_buffer *a, const hoist_buffer *b);

/* --- access by the CPU --- */

/* The bytes of a contiguous buffer that the CPU can touch.  The call waits for the work on the
 * buffer's stream, and takes the memory of a LAZY buffer.  The pointer is valid as long as the
 * buffer is open.
 * Returns: 0; -EINVAL (not contiguous); -ENOTSUP (device memory; the text says to copy it); -EROFS
 *   (@for_writing is not 0, and the buffer is read-only); as hoist_buffer_create(). */
HOIST_API int hoist_buffer_host_bytes(hoist_buffer *buffer, int for_writing, void **ret,
				      size_t *ret_bytes);

/* As hoist_buffer_host_bytes(), for an array in C of the buffer's elements, aligned for them.  The
 * caller names the dtype that its C type stands for: HOIST_I32 for int32_t.  A dtype that C lacks
 * is read as the bits of its elements: uint16_t with HOIST_BF16.
 * Returns: 0; -EPROTOTYPE (the buffer's dtype is not @dtype; the text has both); -ENOTSUP (elements
 *   that are no whole bytes); -EINVAL (misaligned; @dtype is no dtype); as
 *   hoist_buffer_host_bytes(). */
HOIST_API int hoist_buffer_host_array(hoist_buffer *buffer, hoist_dtype dtype, int for_writing,
				      void **ret, uint64_t *ret_elements);

/* Forbids writing to the storage for good: every function of hoist that would write to it, through
 * any buffer, gives -EROFS from now on.  Code that has a pointer to the memory can still write.
 * Returns: 0. */
HOIST_API int hoist_buffer_freeze(hoist_buffer *buffer);

/* --- views: other buffers over the same storage, on the same stream --- */

/* A part of the buffer, as by NumPy's basic indexing.  b[-1, :] is
 *
 *     hoist_buffer_slice(b, 2, (hoist_slice[]){HOIST_AT(-1), HOIST_ALL}, &row)
 *
 * Axes beyond the first @n stay whole.  An integer drops its axis.  Bounds are clipped.  Steps may
 * be negative.
 * Returns: 0; -ERANGE (an integer is outside its axis); -EINVAL (more indices than axes; a step of
 *   0; block types: a range that is not of whole blocks); -ENOMEM. */
HOIST_API int hoist_buffer_slice(hoist_buffer *buffer, int n, const hoist_slice *slices,
				 hoist_buffer **ret);

/* The same elements in the same order in another shape, without a copy.  One extent may be -1: it
 * follows from the others.
 * Returns: 0; -EINVAL (the shape has another count of elements; the strides do not allow the
 *   shape); -ENOMEM. */
HOIST_API int hoist_buffer_reshape(hoist_buffer *buffer, int rank, const int64_t *shape,
				   hoist_buffer **ret);

/* The axes in another order: axis k of the result is axis @axes[k] of @buffer.  Negative values
 * count from the end.
 * Returns: 0; -EINVAL (@axes does not have each axis once); -ENOMEM. */
HOIST_API int hoist_buffer_permute(hoist_buffer *buffer, const int *axes, hoist_buffer **ret);

/* The bytes as another dtype, along the last axis: [2, 6] of i8 becomes [2, 3] of i16, or [2, 12]
 * of f4_e2m1fn.  The last axis must be dense; the others may be strided.
 * Returns: 0; -EINVAL (the last axis's bytes are no multiple of the new size: the text has the
 *   figures; a stride forbids the dtype); -ERANGE (rank 0 has no last axis); -ENOMEM. */
HOIST_API int hoist_buffer_view_as(hoist_buffer *buffer, hoist_dtype dtype, hoist_buffer **ret);

/* Another dtype and shape over the same bytes, beginning @byte_offset bytes into @buffer, which
 * must be contiguous.  The result may be misaligned.
 * Returns: 0; -EINVAL (the view would leave the buffer: the text has the figures; @buffer is not
 *   contiguous); as hoist_buffer_create(). */
HOIST_API int hoist_buffer_view(hoist_buffer *buffer, size_t byte_offset, hoist_dtype dtype,
				int rank, const int64_t *shape, hoist_buffer **ret);

/* Any layout over the buffer's bytes.  The layout's offset counts from @buffer's first element; its
 * itemsize must be that of @dtype.  If the layout is implicit, so are the result's strides.
 * Returns: 0; -EINVAL (another itemsize; the elements leave the bytes that @buffer covers: the text
 *   has the bytes needed and those covered); -ENOTSUP (elements that are no whole bytes);
 *   -ENOMEM. */
HOIST_API int hoist_buffer_with_layout(hoist_buffer *buffer, const struct hoist_layout *layout,
				       hoist_dtype dtype, hoist_buffer **ret);

/* The buffer's layout, beginning at its first element; implicit if the buffer's strides are.
 * Returns: 0; -ENOTSUP (elements that are no whole bytes). */
HOIST_API int hoist_buffer_get_layout(const hoist_buffer *buffer, struct hoist_layout *ret);

/* The same elements, read-only: writing to the result, or to views of it, is -EROFS, and exports of
 * it are marked read-only.  @buffer itself, and other buffers over the storage, stay as they were.
 * hoist_buffer_freeze() makes all of them read-only.
 * Returns: 0; -ENOMEM. */
HOIST_API int hoist_buffer_read_only(hoist_buffer *buffer, hoist_buffer **ret);

/* The same memory with @stream, of the same device, as the buffer's stream.  If @stream is the
 * buffer's stream already, the result is @buffer itself with one more reference.  The caller orders
 * @stream behind the work on the old stream.  The memory goes back behind both streams.
 * Returns: 0; -EINVAL (a stream of another device); -ENOMEM. */
HOIST_API int hoist_buffer_on_stream(hoist_buffer *buffer, hoist_stream *stream,
				     hoist_buffer **ret);

/* --- a second storage --- */

/* Makes @n buffers over one new storage that lie to each other as @buffers lie in theirs.  The new
 * storage has as many bytes, from the same resource; if @buffers' storage is from no resource, from
 * the device's own (pinned, if the old storage was).  @copy_contents: not 0: the bytes of the whole
 * storage are copied, once the work on all buffers' streams is done; 0: the content is undefined.
 * The results are writable, even if @buffers are read-only.
 * Returns: 0; -EINVAL (NULL; @buffers are not all over one storage: the text has the ids); -EBADF
 *   (closed); -ENOTSUP (nothing can touch the memory to copy it); as hoist_buffer_create().  After
 *   a failure @rets is as it was. */
HOIST_API int hoist_buffer_fork(size_t n, hoist_buffer *const *buffers, int copy_contents,
				hoist_buffer **rets);

HOIST_END

#endif
