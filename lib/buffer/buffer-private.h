/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-private.h - shared by the files of the Buffer.
 *
 *   buffer.c          references, closing, properties of a buffer
 *   buffer-create.c   new buffers: of a device, a stream, a resource, the caller's memory
 *   buffer-host.c     bytes and elements in place, for the CPU
 *   buffer-view.c     slices, reshapes, other dtypes: new buffers over the same storage
 *   buffer-grow.c     a buffer whose memory becomes larger
 *   buffer-item.c     elements (hoist/element.h); buffer-print.c
 *   mmap.c            buffers over files
 *   storage.c         the bytes; portions.c: bytes that go back range by range
 *
 * lib/copy has the copies, fills and forks of buffers.
 *
 * An element's place: element (i0, i1, ...) begins at bit
 *     8 * (storage address + offset) + bit + bits(dtype) * sum(ik * strides[k])
 * and lies within the storage, for every index.  bit is 0 except for sub-byte types.  Elements of
 * block types have no place: their last axis has stride 1 and whole blocks, and the other strides
 * are whole blocks.
 */
#ifndef HOIST_LIB_BUFFER_BUFFER_PRIVATE_H
#define HOIST_LIB_BUFFER_BUFFER_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "hoist/buffer.h"
#include "lib/buffer/storage.h"
#include "lib/core/user.h"
#include "lib/memory/transfer.h"

/* Immutable, except for the count, the user's pointer, and closing. */
struct hoist_buffer {
	_Atomic unsigned xrefs;
	hoist_dtype dtype;
	int rank;
	unsigned bit;	/* 0..7 */
	bool read_only; /* this buffer is; its storage may be as well */
	bool contiguous;
	bool implicit;			/* no strides were given: `strides` are those of C order */
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

/* Checks that a buffer is usable.  @what is its role in the message: "the buffer".
 * Returns: 0; -EINVAL for NULL, -EBADF for a closed buffer. */
int hoist__buffer_check(const hoist_buffer *buffer, const char *what);

/* The same for a buffer that will be written to: also -EROFS. */
int hoist__buffer_check_writable(const hoist_buffer *buffer, const char *what);

/* Returns the buffer's stream, borrowed.  NULL if it is a default stream that nobody has asked for
 * yet: then it has no work. */
hoist_stream *hoist__buffer_known_stream(const hoist_buffer *buffer);

/* Takes the memory of a lazy buffer, and waits for the work on the buffer's stream: functions
 * without a stream do this before they touch bytes.  Pre: checked.
 * Returns: also -ENOTSUP if that stream captures a graph. */
int hoist__buffer_settle(hoist_buffer *buffer);

/* Returns the strides that were given for the buffer, for views and other buffers of the same
 * layout; NULL if none were given. */
static inline const int64_t *hoist__buffer_given_strides(const hoist_buffer *buffer)
{
	return buffer->implicit ? NULL : buffer->strides;
}

/* The first byte, if the bytes lie one behind the other in host memory that was taken and that no
 * driver has a part in; NULL: they do not, or it takes more to know.  Takes NULL, and a closed
 * buffer. */
void *hoist__buffer_plain(const hoist_buffer *buffer);

/* The same, if the bytes may be written to. */
void *hoist__buffer_plain_writable(const hoist_buffer *buffer);

/* Returns the span that begins @offset bytes behind the first element's byte.  Pre: the buffer has
 * its memory. */
struct hoist__span hoist__buffer_span(const hoist_buffer *buffer, int64_t offset);

/* Counts the elements and the bytes: packed, a part of a byte counted as one.
 * Returns: 0; -EINVAL (rank, extents, dtype, no whole blocks); -EOVERFLOW. */
int hoist__buffer_measure(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *elements,
			  size_t *bytes);

/* Describes a new buffer over a storage. */
struct hoist__view {
	hoist_dtype dtype;
	int rank;
	unsigned bit;
	bool read_only;
	size_t offset;
	uint64_t elements;    /* from hoist__buffer_measure(), as is `bytes` */
	size_t bytes;	      /* 0: not measured yet */
	hoist_stream *stream; /* NULL: the device's default one */
	const int64_t *shape;
	const int64_t *strides; /* NULL: none were given; C order */
};

/* Makes a buffer that takes a reference to the storage.  Pre: @view's elements lie in the storage,
 * its extents and strides are sound.
 * Returns: 0; -EOVERFLOW, -ENOMEM. */
int hoist__buffer_make(struct hoist__storage *storage, const struct hoist__view *view,
		       hoist_buffer **ret);

/* The same, but takes over the caller's reference to the storage, also on failure. */
int hoist__buffer_make_last(struct hoist__storage *storage, const struct hoist__view *view,
			    hoist_buffer **ret);

/* Makes a contiguous buffer on @device, with @stream (may be NULL) as its stream.  PINNED: see
 * hoist_buffer_create(). */
int hoist__buffer_new(hoist_device *device, hoist_stream *stream, hoist_dtype dtype, int rank,
		      const int64_t *shape, unsigned flags, hoist_buffer **ret);

#endif
