/* SPDX-License-Identifier: MIT */
/* hoist/dlpack.h - buffers to and from other libraries, without a copy: DLPack 1.x.
 *
 *	struct DLManagedTensorVersioned *tensor;
 *	hoist_buffer_to_dlpack(buffer, NULL, &tensor);   // out: waits for the buffer's stream
 *	const hoist_dl_managed *seen = (const hoist_dl_managed *)tensor;
 *	... seen->tensor.data ...
 *	hoist_dlpack_release(tensor);
 *
 *	hoist_buffer_from_dlpack(theirs, NULL, 0, &in);  // in: the tensor is hoist's now
 *
 * The functions take DLPack's own structs, by their tags.  A program that includes dlpack/dlpack.h,
 * before or after this header, passes its DLManagedTensorVersioned as it is.  A program without
 * that header uses the types below, which have the same layout in memory.
 *
 * An exported tensor keeps the storage alive until the tensor's deleter is called, even if the
 * buffer is closed or dropped before, and until the consumer's work is done: see
 * hoist_buffer_to_dlpack().
 *
 * An imported tensor is kept until the last buffer over it has gone.  hoist then calls its deleter
 * once, after all work that hoist queued on the memory: in the thread that dropped that buffer, or,
 * if a function that a CPU stream calls was the last to hold the buffer, perhaps in another thread.
 *
 * DLPack's name for a place:
 *
 *   buffer                                            type             id
 *   the CPU's memory, also mlock'ed                   CPU              0
 *   device memory                                     CUDA, ROCM       its driver's number
 *   host memory that a driver knows                   CUDA_HOST, ROCM_HOST    0
 *   managed memory (HIP's: as what its driver knows)  CUDA_MANAGED     0
 *
 * Threads: as hoist/buffer.h.
 * Errors, unless a comment says more: -EINVAL (NULL), -EBADF (a closed buffer), -ENOMEM,
 * -EREMOTEIO, -ESTALE; -ENOTSUP (DLPack, or hoist, has no means to express it).
 */
#ifndef HOIST_DLPACK_H
#define HOIST_DLPACK_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/buffer.h>

#if defined(__GNUC__)
#define HOIST_MAY_ALIAS __attribute__((may_alias))
#else
#define HOIST_MAY_ALIAS
#endif

HOIST_BEGIN

/* DLPack's structs, which DLPack's header defines. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
struct DLPackExchangeAPI;

/* --- the same structs, for programs without dlpack.h --- */

#define HOIST_DLPACK_MAJOR 1 /* the version that hoist exports; the major version that it imports */
#define HOIST_DLPACK_MINOR 3

enum {
	HOIST_DL_CPU = 1,
	HOIST_DL_CUDA = 2,
	HOIST_DL_CUDA_HOST = 3,
	HOIST_DL_OPENCL = 4, /* hoist has no such devices */
	HOIST_DL_VULKAN = 7, /* nor these three */
	HOIST_DL_METAL = 8,
	HOIST_DL_VPI = 9,
	HOIST_DL_ROCM = 10,
	HOIST_DL_ROCM_HOST = 11,
	HOIST_DL_EXT_DEV = 12, /* hoist has no such devices */
	HOIST_DL_CUDA_MANAGED = 13, /* hoist has none of the devices below */
	HOIST_DL_ONE_API = 14,
	HOIST_DL_WEB_GPU = 15,
	HOIST_DL_HEXAGON = 16,
	HOIST_DL_MAIA = 17,
	HOIST_DL_TRN = 18
};

/* Type codes: hoist_dtype_info.dlpack_code (hoist/dtype.h) has the code of each dtype. */

/* hoist_dl_managed.flags */
#define HOIST_DL_READ_ONLY 1u	   /* the consumer must not write */
#define HOIST_DL_IS_COPIED 2u	   /* the memory is a copy for this consumer alone */
#define HOIST_DL_SUBBYTE_PADDED 4u /* elements of less than a byte take one byte each */

typedef struct HOIST_MAY_ALIAS hoist_dl_device {
	int32_t type; /* HOIST_DL_CPU ... */
	int32_t id;
} hoist_dl_device;

typedef struct HOIST_MAY_ALIAS hoist_dl_dtype {
	uint8_t code;
	uint8_t bits; /* of one lane */
	uint16_t lanes;
} hoist_dl_dtype;

typedef struct HOIST_MAY_ALIAS hoist_dl_tensor {
	void *data; /* the first element is byte_offset bytes behind */
	hoist_dl_device device;
	int32_t rank;
	hoist_dl_dtype dtype;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: C order */
	uint64_t byte_offset;
} hoist_dl_tensor;

/* DLManagedTensor: the legacy struct, without flags and version. */
typedef struct HOIST_MAY_ALIAS hoist_dl_legacy {
	hoist_dl_tensor tensor;
	void *context;
	void (*deleter)(struct DLManagedTensor *self); /* ends the use of the tensor; may be NULL */
} hoist_dl_legacy;

/* DLManagedTensorVersioned. */
typedef struct HOIST_MAY_ALIAS hoist_dl_managed {
	uint32_t major;
	uint32_t minor;
	void *context;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	hoist_dl_tensor tensor;
} hoist_dl_managed;

/* Calls the deleter if there is one: for a tensor that no consumer took.  Takes NULL. */
HOIST_API void hoist_dlpack_release(struct DLManagedTensorVersioned *tensor);
/* As hoist_dlpack_release(), for the legacy struct. */
HOIST_API void hoist_dlpack_release_legacy(struct DLManagedTensor *tensor);

/* --- devices and streams in DLPack's terms --- */

/* The place of the buffer's memory: the result of `__dlpack_device__`.
 * Returns: 0; -ENOTSUP (memory that neither the CPU nor a device may touch); the errors above. */
HOIST_API int hoist_buffer_dlpack_device(const hoist_buffer *buffer, hoist_dl_device *ret);

/* The device whose streams order work on a tensor at the place @where; a new reference.  For types
 * without an id: the first device of their API.
 * Returns: 0; -ENOTSUP (hoist has no devices of the type); -ENODEV (the machine has no such device,
 *   or no driver); -ENOMEM. */
HOIST_API int hoist_device_from_dlpack(hoist_dl_device where, hoist_device **ret);

/* The value that a consumer passes to a producer's `__dlpack__` as `stream`, so that the consumer
 * can use the memory on @stream when the call returns: the native handle; 1 for CUDA's legacy
 * default stream.
 * Returns: 0; -ENOTSUP (a stream of the CPU: pass None); -EINVAL (NULL). */
HOIST_API int hoist_stream_to_dlpack(hoist_stream *stream, intptr_t *ret);

/* --- out --- */

/* hoist_dlpack_options.copy: the argument `copy` of `__dlpack__`, None, True and False. */
enum { HOIST_DLPACK_COPY_IF_NEEDED, HOIST_DLPACK_COPY_ALWAYS, HOIST_DLPACK_COPY_NEVER };

/* 0 is each field's default. */
typedef struct hoist_dlpack_options {
	size_t size; /* sizeof(hoist_dlpack_options) */
	int copy;    /* COPY_ALWAYS: a packed deep copy, writable, flagged IS_COPIED */
	/* The place where the consumer wants the tensor; type 0: where the buffer is.  A buffer
	 * that is elsewhere is copied: to CPU, CUDA, ROCM, CUDA_HOST, ROCM_HOST and CUDA_MANAGED.
	 * Memory that the CPU may touch counts as on CPU, too. */
	hoist_dl_device device;
	/* The reader of the tensor.  0: any: the call waits until the work on the buffer's stream
	 * is done.  1: the consumer's queue, which `stream` names: the queue waits, the call does
	 * not. */
	int has_stream;
	/* CUDA   1 the legacy default stream, 2 the thread's default stream, -1, or a CUstream; not
	 *        0
	 * ROCm   0 the default stream, -1, or a hipStream_t; not 1 and 2
	 * CPU    -1 only
	 * -1: neither waits; the consumer orders its work itself. */
	intptr_t stream;
	/* 1: the caller promises that only work on `stream`, or work that `stream` waits for, uses
	 * the tensor, and that `stream` outlives the tensor.  The memory then comes back without a
	 * wait for the device: when `stream` has passed the work that is queued when the deleter is
	 * called.  Needs a `stream` other than -1 and CUDA's 2. */
	int only_stream;
} hoist_dlpack_options;

/* Exports the buffer as a tensor; @options NULL: all defaults.  Takes the memory of a LAZY buffer.
 *
 *   data      the first element; NULL if there is none.  byte_offset is always 0, because many
 *             consumers ignore it.  The address is aligned for the element only: DLPack's 256 bytes
 *             are no promise of its producers
 *   strides   always present; shape and strides are NULL for rank 0
 *   flags     READ_ONLY if the buffer is read-only or was frozen; freezing the buffer later does
 *             not change the tensor
 *   dtypes    bool is DLPack's; sub-byte types are packed, and begin with a whole byte
 *
 * A consumer says which struct it knows (`max_version`): with major 1 or more this one, else the
 * legacy one.  Two interfaces export otherwise: cuda.core's Buffer gives int8 of one axis (call
 * hoist_buffer_view() first); MAX's pinned buffers do not wait (pass -1 as `stream`).
 *
 * The deleter may be called in any thread, while work that the consumer queued on streams of the
 * tensor's device (CUDA_HOST, ROCM_HOST and CUDA_MANAGED: of any device of that driver) still runs.
 * The consumer must queue no more work.  Neither the deleter nor the end of the buffer waits for
 * that work.  The memory is parked, see "Consumers" in hoist/memory.h, and reused only after a wait
 * for the whole device, unless `only_stream` was promised.  The same holds for memory that was
 * imported or wrapped: its own deleter, or release, is called that much later.  While `stream`
 * captures a graph hoist cannot use the promise, and parks the memory, too.
 * Returns: 0; -ENOTSUP (block types; elements that begin within a byte; memory that neither the CPU
 *   nor a device may touch; a device that hoist cannot copy to; COPY_NEVER where a copy would be
 *   needed); -EINVAL (`stream` is not allowed for the device; only_stream without a `stream`); the
 *   errors above. */
HOIST_API int hoist_buffer_to_dlpack(hoist_buffer *buffer, const hoist_dlpack_options *options,
				     struct DLManagedTensorVersioned **ret);

/* As hoist_buffer_to_dlpack(), with the legacy struct.  That struct cannot say that the consumer
 * must not write: a read-only buffer is -ENOTSUP, unless it is copied. */
HOIST_API int hoist_buffer_to_dlpack_legacy(hoist_buffer *buffer,
					    const hoist_dlpack_options *options,
					    struct DLManagedTensor **ret);

/* --- in --- */

#define HOIST_DLPACK_COPY 1u	   /* a deep copy on the same device; the deleter is called before
				    * the call returns */
#define HOIST_DLPACK_CONTIGUOUS 2u /* -EINVAL unless the tensor is in C order without gaps: the rule
				    * of MAX's from_dlpack().  Without the flag any strides are
				    * accepted: all of hoist accepts them, and the caller can copy
				    * later */

/* A buffer over @tensor, with @stream as its stream; NULL: its device's default stream.  The
 * producer was given that stream, or has waited: the call does not wait, except for COPY.
 *
 * If the call succeeds, the tensor is hoist's.  If it fails, the tensor is still the caller's,
 * unchanged, whatever the failure: the caller then calls the deleter (hoist_dlpack_release()).
 * With a tensor of another major version nothing else may be done.
 *
 * byte_offset counts.  Strides of NULL mean C order.  hoist believes the tensor's device type.
 * READ_ONLY makes a read-only buffer.  Alignment is not checked.
 * Returns: 0; -ENOTSUP (another major version; a device type or dtype that hoist does not have;
 *   more than one lane; padded sub-byte elements; flags that hoist does not know); -ENODEV; -EINVAL
 *   (a rank above 64; a negative extent; no data; no shape; a stream of another device; unknown
 *   @flags); -EOVERFLOW; the errors above. */
HOIST_API int hoist_buffer_from_dlpack(struct DLManagedTensorVersioned *tensor,
				       hoist_stream *stream, unsigned flags, hoist_buffer **ret);

/* As hoist_buffer_from_dlpack(), for the legacy struct.  The buffer is never read-only. */
HOIST_API int hoist_buffer_from_dlpack_legacy(struct DLManagedTensor *tensor, hoist_stream *stream,
					      unsigned flags, hoist_buffer **ret);

/* --- the exchange table --- */

/* DLPackExchangeAPI: functions by which libraries exchange objects of a type without going through
 * Python.  Each function returns 0, or -1. */
typedef struct HOIST_MAY_ALIAS hoist_dl_exchange {
	uint32_t major;
	uint32_t minor;
	void *previous; /* a table for an older major; NULL */
	int (*allocate)(hoist_dl_tensor *prototype, struct DLManagedTensorVersioned **ret,
			void *error_context,
			void (*set_error)(void *error_context, const char *kind, const char *text));
	int (*to_managed)(void *object, struct DLManagedTensorVersioned **ret);
	int (*from_managed)(struct DLManagedTensorVersioned *tensor, void **ret);
	int (*to_tensor)(void *object, hoist_dl_tensor *ret);
	int (*current_stream)(int32_t device_type, int32_t device_id, void **ret);
} hoist_dl_exchange;

/* The table whose objects are hoist_buffers, for a binding to wrap or to call.  The table is
 * static.  No function of the table waits for a stream, or makes a stream wait.
 *
 *   managed_tensor_allocator    a buffer, not zeroed, of the prototype's dtype, shape and device
 *                               (managed memory too); a failure is also reported to SetError, with
 *                               the name of a Python exception as its kind
 *   ..._from_py_object_no_sync  hoist_buffer_to_dlpack()
 *   ..._to_py_object_no_sync    hoist_buffer_from_dlpack(), a new reference.  The function takes
 *   the
 *                               tensor from the caller even if it fails: it calls the deleter then
 *   dltensor_from_...           the tensor without a reference: its pointers are the buffer's.  The
 *                               buffer may end while work of the consumer's still runs, as above.
 *                               -1 for a read-only buffer, because the struct cannot say so
 *   current_work_stream         the native handle of the device's default stream; NULL for the CPU
 *
 * After -1, hoist_error() has the text. */
HOIST_API const struct DLPackExchangeAPI *hoist_dlpack_exchange_api(void);

HOIST_END

#endif
