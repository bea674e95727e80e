/* SPDX-License-Identifier: MIT */
/* hoist/cai.h - buffers to and from the CUDA Array Interface, version 3.
 *
 * The interface is a Python dictionary; here are its fields as a struct, for a binding to fill
 * and to read.  It describes memory and owns none: who passes it on keeps the buffer.  Newer
 * libraries speak DLPack (hoist/dlpack.h), which has more dtypes and says who owns what.
 * The keeper may drop the buffer while work that the consumer has queued on the device still runs:
 * the memory is parked then, see "Consumers" in hoist/memory.h.
 *
 * Types: NumPy's bool, integers, floats and complex numbers, in the machine's byte order.  Others
 * (bf16, the narrow floats, block types) have no typestr that two libraries agree on: -ENOTSUP in
 * both directions; pass the bytes as integers (hoist_buffer_view_as()).
 *
 * Threads: as hoist/buffer.h.
 */
#ifndef HOIST_CAI_H
#define HOIST_CAI_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>
#include <hoist/layout.h>

HOIST_BEGIN

typedef struct hoist_cai {
	size_t size;	  /* sizeof(hoist_cai) */
	int version;	  /* 3, or newer */
	char typestr[8];  /* "<f4" */
	uintptr_t data;	  /* of the first element; 0 only without elements */
	int is_read_only; /* the second value of "data" */
	int rank;
	int64_t shape[HOIST_MAX_RANK];
	int has_strides; /* 0: None, C order */
	int64_t strides[HOIST_MAX_RANK]; /* in bytes */
	int has_mask;
	/* What the memory must be waited for: 0 is None, nothing; 1: the stream below: 1 the legacy
	 * default stream, 2 the thread's default stream, or a native handle; never 0. */
	int has_stream;
	intptr_t stream;
} hoist_cai;

/* Fills @cai up to the size it says; takes the memory of a LAZY buffer.  strides are None where
 * the buffer is contiguous.  Its stream is the buffer's: who uses the memory waits for that; where
 * the handle cannot be said (HIP's default stream), the call waits, and it is None.
 * Returns: 0; -ENOTSUP (a dtype that has no typestr; memory that no device can touch); -EINVAL,
 *   -EBADF; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_to_cai(hoist_buffer *buffer, hoist_cai *cai);

#define HOIST_CAI_NO_SYNC 1u /* nothing waits for @cai's stream: the caller has seen to that */

/* Keeps the memory: release(context) is called once, by the last buffer over it, after all work
 * that hoist queued on it.  release NULL: it is the caller's to keep. */
typedef struct hoist_cai_owner {
	void (*release)(void *context);
	void *context;
} hoist_cai_owner;

/* A buffer over the memory that @cai describes, with @stream as its stream; NULL: the default
 * stream of the device that the driver says the address is of (without elements: of "gpu").  Work
 * on that stream waits for @cai's, if it is another; the host does not.  Host memory comes in as
 * the device's, without hoist_buffer_data(), as the address is the one that kernels use.
 *
 * If it fails, release is not called.  @owner NULL: none.
 * Returns: 0; -ENOTSUP (version below 3; a mask; typestr, see above); -EINVAL (the stream is 0 or
 *   below, or @stream is of another device; no driver knows the address; a stride that is no
 *   multiple of the item; a negative extent, rank above 64; unknown @flags); -EOVERFLOW;
 *   -ENODEV, -ENOMEM, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_buffer_from_cai(const hoist_cai *cai, const hoist_cai_owner *owner,
				    hoist_stream *stream, unsigned flags, hoist_buffer **ret);

HOIST_END

#endif
