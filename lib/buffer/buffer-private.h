/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-private.h - what the files of the Buffer share.
 *
 *   buffer.c          references, closing, what is known of a buffer
 *   buffer-create.c   new buffers: of a device, a stream, a resource, the caller's memory
 *   buffer-host.c     bytes and elements in place, for the CPU
 *   buffer-view.c     slices, reshapes, other dtypes: new buffers over the same storage
 *   buffer-fork.c     the views of one storage, over another one
 *   buffer-item.c     elements (hoist/element.h); buffer-print.c
 *   copy.c ...        copies and fills (hoist/copy.h); transfer.c moves runs of bytes
 *   storage.c         the bytes
 *
 * An element's place: element (i0, i1, ...) begins at bit
 *     8 * (storage address + offset) + bit + bits(dtype) * sum(ik * strides[k])
 * and lies within the storage, for every index.  bit is 0 but for sub-byte types.  Elements of
 * block types have no place; their last axis has stride 1 and whole blocks, other strides are
 * whole blocks.
 */
#ifndef HOIST_LIB_BUFFER_PRIVATE_H
#define HOIST_LIB_BUFFER_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "hoist/buffer.h"
#include "lib/memory/objects.h"
#include "lib/buffer/storage.h"
#include "lib/memory/transfer.h"
#include "lib/core/user.h"

/* Immutable but for the count, the user's pointer, and closing. */
struct hoist_buffer {
	_Atomic unsigned xrefs;
	hoist_dtype dtype;
	int rank;
	unsigned bit;	/* 0..7 */
	bool read_only; /* this buffer; its storage may be as well */
	bool contiguous;
	bool implicit;			/* no strides were given; `strides` are those of C order */
	struct hoist__storage *storage; /* NULL: closed */
	hoist_device *device;
	hoist_stream *stream; /* referenced; NULL: the device's default one */
	struct hoist__user user;
	uint64_t id;
	size_t offset; /* bytes from the storage's beginning to the first element */
	size_t bytes;  /* of the elements, packed; a part of a byte counts as one */
	uint64_t elements;
	int64_t *strides; /* in `dims`, behind the shape */
	int64_t dims[];
};

/* 0; -EINVAL for NULL, -EBADF for a closed one; @what is its role in the text: "the buffer". */
int hoist__buffer_check(const hoist_buffer *buffer, const char *what);

/* The same for what will be written to: also -EROFS. */
int hoist__buffer_check_writable(const hoist_buffer *buffer, const char *what);

/* The buffer's stream, borrowed; NULL if it is a default stream that nobody asked for yet, and
 * so has no work. */
hoist_stream *hoist__buffer_known_stream(const hoist_buffer *buffer);

/* Takes the memory of a lazy one, and waits for the work on the buffer's stream: what functions
 * without a stream do before they touch bytes.  Pre: checked.
 * Returns: also -ENOTSUP if that stream captures a graph. */
int hoist__buffer_settle(hoist_buffer *buffer);

/* The strides that were given, as views and other buffers of its layout have them; NULL: none. */
static inline const int64_t *hoist__buffer_given_strides(const hoist_buffer *buffer)
{
	return buffer->implicit ? NULL : buffer->strides;
}

/* Where the byte @offset bytes behind the first element's is.  Pre: its memory was taken. */
struct hoist__span hoist__buffer_span(const hoist_buffer *buffer, int64_t offset);

/* How many elements, and how many bytes: packed, a part of a byte counted as one.
 * Returns: 0; -EINVAL (rank, extents, dtype, no whole blocks); -EOVERFLOW. */
int hoist__buffer_measure(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *elements,
			  size_t *bytes);

/* What a new buffer over a storage is made of. */
struct hoist__view {
	hoist_dtype dtype;
	int rank;
	unsigned bit;
	bool read_only;
	size_t offset;
	uint64_t elements;    /* as hoist__buffer_measure() has it, with `bytes` */
	size_t bytes;	      /* 0: not measured yet */
	hoist_stream *stream; /* NULL: the device's default one */
	const int64_t *shape;
	const int64_t *strides; /* NULL: none were given, C order */
};

/* The buffer, with a reference to the storage.  @view's elements are known to lie in it, its
 * extents and strides to be sound.  Returns: 0; -EOVERFLOW, -ENOMEM. */
int hoist__buffer_make(struct hoist__storage *storage, const struct hoist__view *view,
		       hoist_buffer **ret);

/* The same with the caller's own reference to the storage, also if it fails. */
int hoist__buffer_make_last(struct hoist__storage *storage, const struct hoist__view *view,
			    hoist_buffer **ret);

/* A contiguous buffer on @device (PINNED: see hoist_buffer_create()), with @stream (may be NULL)
 * as its stream. */
int hoist__buffer_new(hoist_device *device, hoist_stream *stream, hoist_dtype dtype, int rank,
		      const int64_t *shape, unsigned flags, hoist_buffer **ret);

#endif
