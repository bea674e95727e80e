/* SPDX-License-Identifier: MIT */
/* hoist/dlpack.h - buffers to and from other libraries, without a copy: DLPack 1.x.
 *
 * The functions take DLPack's own structs, by their tags: a program that includes
 * dlpack/dlpack.h, before or after this header, passes its DLManagedTensorVersioned as it is.
 * One that does not have that header looks into them through the types below, which are the
 * same in memory:
 *
 *	struct DLManagedTensorVersioned *tensor;
 *	hoist_buffer_to_dlpack(buffer, NULL, &tensor);
 *	const hoist_dl_managed *seen = (const hoist_dl_managed *)tensor;
 *	... seen->tensor.data ...
 *	hoist_dlpack_release(tensor);
 *
 * What goes out keeps the storage alive until its deleter is called, whoever closes or drops the
 * buffer, and until the consumer's work is done: see hoist_buffer_to_dlpack().
 * What comes in is kept until the last buffer over it has gone.  Its deleter is then called once,
 * after all work that hoist queued on it: in the thread that dropped that buffer, or, if the
 * function of a CPU stream was the last to hold it, perhaps in another.
 *
 * Where a tensor is:
 *
 *   buffer                                            type             id
 *   the CPU's memory, also mlock'ed                   CPU              0
 *   device memory                                     CUDA, ROCM       its driver's number
 *   host memory that a driver knows                   CUDA_HOST, ROCM_HOST    0
 *   managed memory (HIP's: as what its driver knows)  CUDA_MANAGED     0
 *
 * Threads: as hoist/buffer.h.  Errors, unless a comment says more: -EINVAL for NULL, -EBADF for a
 * closed buffer, -ENOMEM, -EREMOTEIO, -ESTALE; -ENOTSUP for what DLPack, or hoist, cannot say.
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

/* DLPack's, defined in its header. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
struct DLPackExchangeAPI;

/* --- the same, for who has no dlpack.h --- */

#define HOIST_DLPACK_MAJOR 1 /* what hoist gives out, and the major that it takes */
#define HOIST_DLPACK_MINOR 3

enum {
	HOIST_DL_CPU = 1,
	HOIST_DL_CUDA = 2,
	HOIST_DL_CUDA_HOST = 3,
	HOIST_DL_OPENCL = 4, /* from here on: hoist has no such devices, but for ROCM... */
	HOIST_DL_VULKAN = 7,
	HOIST_DL_METAL = 8,
	HOIST_DL_VPI = 9,
	HOIST_DL_ROCM = 10,
	HOIST_DL_ROCM_HOST = 11,
	HOIST_DL_EXT_DEV = 12,
	HOIST_DL_CUDA_MANAGED = 13, /* ... and these */
	HOIST_DL_ONE_API = 14,
	HOIST_DL_WEB_GPU = 15,
	HOIST_DL_HEXAGON = 16,
	HOIST_DL_MAIA = 17,
	HOIST_DL_TRN = 18
};

/* Type codes: those of hoist's dtypes are in hoist_dtype_info (hoist/dtype.h), as dlpack_code. */

#define HOIST_DL_READ_ONLY 1u	   /* of `flags` */
#define HOIST_DL_IS_COPIED 2u	   /* a copy, the consumer's alone */
#define HOIST_DL_SUBBYTE_PADDED 4u /* elements of less than a byte take one each */

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
	void *data; /* the first element is byte_offset behind it */
	hoist_dl_device device;
	int32_t rank;
	hoist_dl_dtype dtype;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: C order */
	uint64_t byte_offset;
} hoist_dl_tensor;

/* DLManagedTensor: no flags, no version. */
typedef struct HOIST_MAY_ALIAS hoist_dl_legacy {
	hoist_dl_tensor tensor;
	void *context;
	void (*deleter)(struct DLManagedTensor *self); /* frees all; may be NULL */
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

/* Calls the deleter if there is one: what is done with a tensor that nobody took.  NULL is
 * ignored. */
HOIST_API void hoist_dlpack_release(struct DLManagedTensorVersioned *tensor);
HOIST_API void hoist_dlpack_release_legacy(struct DLManagedTensor *tensor);

/* --- where things are --- */

/* What `__dlpack_device__` tells.
 * Returns: 0; -ENOTSUP for memory that neither the CPU nor a device may touch. */
HOIST_API int hoist_buffer_dlpack_device(const hoist_buffer *buffer, hoist_dl_device *ret);

/* The device of a tensor: that whose streams order work on it; a new reference.  For the types
 * that have no id, the first of their api.
 * Returns: 0; -ENOTSUP (a type that hoist has no devices of); -ENODEV (no such device here, or
 *   no driver). */
HOIST_API int hoist_device_from_dlpack(hoist_dl_device where, hoist_device **ret);

/* What a consumer hands to a producer, so that its memory can be used on @stream when the call
 * returns: `stream` of `__dlpack__`.  The native handle; of CUDA's legacy default stream, 1.
 * Returns: 0; -ENOTSUP (the CPU's streams: None). */
HOIST_API int hoist_stream_to_dlpack(hoist_stream *stream, intptr_t *ret);

/* --- out --- */

/* As `copy` of `__dlpack__`: None, True, False. */
enum { HOIST_DLPACK_COPY_IF_NEEDED, HOIST_DLPACK_COPY_ALWAYS, HOIST_DLPACK_COPY_NEVER };

/* 0 is the default of each. */
typedef struct hoist_dlpack_options {
	size_t size; /* sizeof(hoist_dlpack_options) */
	int copy;    /* COPY_ALWAYS: a packed deep copy, writable, flagged IS_COPIED */
	/* Where the consumer wants it; type 0: where it is.  What is elsewhere is copied: to CPU,
	 * CUDA, ROCM, CUDA_HOST, ROCM_HOST and CUDA_MANAGED.  Memory that the CPU may touch is on
	 * CPU, too. */
	hoist_dl_device device;
	/* Who reads it.  0: anyone: the call waits until the work on the buffer's stream is done.
	 * 1: the consumer's queue, by `stream`; the call does not wait, that queue does. */
	int has_stream;
	/* CUDA   1 the legacy default stream, 2 the thread's default stream, -1, or a CUstream; not 0
	 * ROCm   0 the default stream, -1, or a hipStream_t; not 1 and 2
	 * CPU    -1 alone
	 * -1: nobody waits, the consumer sees to that itself. */
	intptr_t stream;
	/* 1: the caller promises that nothing but work on `stream`, or work that `stream` waits for,
	 * uses the tensor, and that `stream` outlives it.  Then the memory comes back when `stream`
	 * has passed what is queued when the deleter is called, without a wait for the device.
	 * Needs a `stream` other than -1 and CUDA's 2. */
	int only_stream;
} hoist_dlpack_options;

/* The buffer as a tensor; @options NULL is all defaults.  Takes the memory of a LAZY buffer.
 *
 *   data      the first element; NULL if there is none; byte_offset is always 0, as many consumers
 *             do not look at it.  No more aligned than the element is: DLPack's 256 bytes are
 *             no promise of its producers
 *   strides   always there; shape and strides are NULL for rank 0
 *   flags     READ_ONLY if the buffer is, or was frozen; what is frozen later, the consumer has
 *             as it was
 *   dtypes    bool is DLPack's; sub-byte types are packed, and begin with a whole byte
 *
 * Consumers say which struct they know (`max_version`): with major 1 or more this one, else the
 * legacy one.  What other interfaces give instead: cuda.core's Buffer exports int8 of one axis,
 * that is hoist_buffer_view() first; MAX's pinned buffers do not wait, that is -1.
 *
 * The deleter may be called in any thread, while work that the consumer has queued on streams of
 * the tensor's device still runs; the consumer queues no more.  (Of CUDA_HOST, ROCM_HOST and
 * CUDA_MANAGED: of any device of that driver.)  Neither the deleter nor the end of the buffer
 * waits for that work: the memory is parked, see "Consumers" in hoist/memory.h, and reused only
 * after a wait for the whole device, unless `only_stream` was promised.  So is memory that was
 * imported or wrapped: its own deleter, or release, is called that much later.  While `stream`
 * captures a graph the promise cannot be used, and the memory is parked too.
 * Returns: 0; -ENOTSUP (block types; elements that begin within a byte; memory that nobody may
 *   touch; a device that hoist cannot copy to; COPY_NEVER where a copy would be needed); -EINVAL
 *   (a stream that is none, only_stream without one; see above). */
HOIST_API int hoist_buffer_to_dlpack(hoist_buffer *buffer, const hoist_dlpack_options *options,
				     struct DLManagedTensorVersioned **ret);

/* The same as a legacy struct, which cannot say that it must not be written to: a buffer that is
 * read-only is -ENOTSUP then, unless it is copied. */
HOIST_API int hoist_buffer_to_dlpack_legacy(hoist_buffer *buffer,
					    const hoist_dlpack_options *options,
					    struct DLManagedTensor **ret);

/* --- in --- */

#define HOIST_DLPACK_COPY 1u	   /* a deep copy on the same device; the deleter is called before
				    * the call returns */
#define HOIST_DLPACK_CONTIGUOUS 2u /* -EINVAL unless in C order without gaps: MAX's from_dlpack().
				    * Without it any strides are taken, as all else in hoist takes
				    * them and a copy is easily made later */

/* A buffer over @tensor, with @stream as its stream; NULL: its device's default one.  The producer
 * was told that stream, or has waited: nothing here waits, but for COPY.
 *
 * On success the tensor is hoist's.  If it fails it is still the caller's, untouched, in all
 * cases: then call its deleter (hoist_dlpack_release()).  Of another major version, that is all
 * that may be done with it.
 *
 * byte_offset is honoured.  Strides NULL are C order.  Memory is taken as what the tensor's
 * device type says it is.  READ_ONLY makes a read-only buffer.  Alignment is not looked at.
 * Returns: 0; -ENOTSUP (another major version; a device type or dtype that hoist has not; more
 *   than one lane; padded sub-byte elements; flags that hoist does not know); -ENODEV; -EINVAL
 *   (rank above 64, a negative extent, no data, no shape; a stream of another device; unknown
 *   @flags); -EOVERFLOW. */
HOIST_API int hoist_buffer_from_dlpack(struct DLManagedTensorVersioned *tensor,
				       hoist_stream *stream, unsigned flags, hoist_buffer **ret);

/* The same for the legacy struct; it is never read-only. */
HOIST_API int hoist_buffer_from_dlpack_legacy(struct DLManagedTensor *tensor, hoist_stream *stream,
					      unsigned flags, hoist_buffer **ret);

/* --- the exchange table --- */

/* DLPackExchangeAPI: how libraries exchange objects of a type without going through Python.  They
 * return 0, or -1. */
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

/* The table whose objects are hoist_buffers, for a binding to wrap or to call; it is static.  None
 * of its functions waits for a stream, or makes one wait.
 *
 *   managed_tensor_allocator    a buffer, not zeroed, of the prototype's dtype, shape and device
 *                               (managed memory too); what fails is also told to SetError, with the
 *                               name of a Python exception as its kind
 *   ..._from_py_object_no_sync  hoist_buffer_to_dlpack()
 *   ..._to_py_object_no_sync    hoist_buffer_from_dlpack(), a new reference.  The tensor is taken
 *                               from the caller, also if it fails: its deleter is called then
 *   dltensor_from_...           the same without a reference: what it points to is the buffer's,
 *                               which may end while work of the consumer's still runs, as above.
 *                               -1 for a read-only buffer, as it could not say so
 *   current_work_stream         the native handle of the device's default stream; the CPU's is NULL
 *
 * After -1, hoist_error() has the text. */
HOIST_API const struct DLPackExchangeAPI *hoist_dlpack_exchange_api(void);

HOIST_END

#endif
