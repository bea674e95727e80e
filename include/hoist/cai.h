/* SPDX-License-Identifier: MIT */
/* hoist/cai.h - buffers to and from the CUDA Array Interface, version 3.
 *
 *     hoist_cai cai = {.size = sizeof cai};
 *     hoist_buffer_to_cai(buffer, &cai);                     // out: fills the dictionary's fields
 *
 *     const hoist_cai_owner owner = {drop_python_object, object};
 *     hoist_buffer_from_cai(&theirs, &owner, NULL, 0, &in);  // in: a buffer over their memory
 *
 * The interface is a Python dictionary.  This header has its fields as a struct, for a binding to
 * fill and to read.  The struct describes memory and owns none: the exporter keeps the buffer as
 * long as a consumer uses the memory.  Newer libraries speak DLPack (hoist/dlpack.h), which has
 * more dtypes and names the owner of the memory.
 *
 * The exporter may drop the buffer while work that the consumer has queued on the device still
 * runs: the memory is parked then, see "Consumers" in hoist/memory.h.
 *
 * Types: NumPy's bool, integers, floats and complex numbers, in the machine's byte order.  Other
 * types (bf16, the narrow floats, block types) have no typestr that two libraries agree on, and are
 * -ENOTSUP in both directions: pass the bytes as integers (hoist_buffer_view_as()).
 *
 * Threads: as hoist/buffer.h.
 */
#ifndef HOIST_CAI_H
#define HOIST_CAI_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>

HOIST_BEGIN

typedef struct hoist_cai {
	size_t size;	  /* sizeof(hoist_cai) */
	int version;	  /* 3, or newer */
	char typestr[8];  /* "<f4" */
	uintptr_t data;	  /* of the first element; 0 only without elements */
	int is_read_only; /* the second value of the dictionary's "data" */
	int rank;
	int64_t shape[HOIST_MAX_RANK];
	int has_strides; /* 0: None: C order */
	int64_t strides[HOIST_MAX_RANK]; /* in bytes */
	int has_mask;
	/* 0: None: the memory may be used at once.  1: the user of the memory waits for `stream`
	 * first. */
	int has_stream;
	intptr_t stream; /* 1: the legacy default stream; 2: the thread's default stream; else a
			  * native handle; never 0 */
} hoist_cai;

/* Fills @cai up to cai->size.  Takes the memory of a LAZY buffer.  The strides are None if the
 * buffer is contiguous.  The stream is the buffer's.  HIP's default stream has no handle that the
 * struct can hold: the call then waits, and the stream is None.
 * Returns: 0; -ENOTSUP (a dtype that has no typestr; memory that no device can touch); -EINVAL
 *   (NULL; cai->size), -EBADF (closed); as hoist_buffer_create(). */
HOIST_API int hoist_buffer_to_cai(hoist_buffer *buffer, hoist_cai *cai);

#define HOIST_CAI_NO_SYNC 1u /* hoist does not wait for @cai's stream: the caller has done so */

/* Keeps imported memory alive.  hoist calls release(context) once, when the last buffer over the
 * memory has gone, after all work on it that hoist queued.  release NULL: no call; the caller keeps
 * the memory long enough. */
typedef struct hoist_cai_owner {
	void (*release)(void *context);
	void *context;
} hoist_cai_owner;

/* A buffer over the memory that @cai describes, with @stream as its stream.  @stream NULL: the
 * default stream of the device that the address belongs to, as its driver says (without elements:
 * of "gpu").  Work on the buffer's stream waits for @cai's stream, if that is another; the host
 * does not wait.  Host memory is imported as the device's memory, without hoist_buffer_data(),
 * because the address is the one for kernels.
 *
 * @owner NULL: no release function.  If the call fails, release is not called.
 * Returns: 0; -ENOTSUP (a version below 3; a mask; a typestr that is not supported, see above);
 *   -EINVAL (@cai's stream is 0 or below; @stream is of another device; no driver knows the
 *   address; a stride that is no multiple of the item; a negative extent; a rank above 64; unknown
 *   @flags); -EOVERFLOW; -ENODEV, -ENOMEM, -EREMOTEIO, -ESTALE. */
HOIST_API int hoist_buffer_from_cai(const hoist_cai *cai, const hoist_cai_owner *owner,
				    hoist_stream *stream, unsigned flags, hoist_buffer **ret);

HOIST_END

#endif
