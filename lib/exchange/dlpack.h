/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack.h - shared by the files of DLPack and the CUDA Array Interface.
 *
 *   dlpack.c           devices and dtypes in DLPack's terms
 *   dlpack-export.c    buffers as tensors
 *   dlpack-import.c    tensors as buffers; memory that others own
 *   dlpack-exchange.c  the table of functions
 *   cai.c              the CUDA Array Interface
 */
#ifndef HOIST_LIB_EXCHANGE_DLPACK_H
#define HOIST_LIB_EXCHANGE_DLPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "hoist/dlpack.h"
#include "lib/buffer/buffer-private.h"

/* --- dlpack.c --- */

/* Gives the dtype of a tensor.
 * Returns: 0; -ENOTSUP. */
int hoist__dlpack_dtype(hoist_dl_dtype given, hoist_dtype *ret);

/* True for host or managed memory: the id of such a device means nothing. */
bool hoist__dlpack_has_no_id(int32_t type);

/* Makes a contiguous buffer, with undefined content, in memory of type @type.  Pre: @device has
 * such memory.
 * Returns: 0; as hoist_buffer_create(). */
int hoist__dlpack_create(hoist_device *device, int32_t type, hoist_dtype dtype, int rank,
			 const int64_t *shape, hoist_buffer **ret);

/* Returns the native handle for a stream's number: NULL for 1, the legacy default stream.  Any
 * other number is the handle; 2 is the driver's own for the thread's default stream. */
void *hoist__dlpack_native(intptr_t number);

/* --- dlpack-export.c --- */

/* Describes @buffer as it is; shape and strides point into it.  Pre: @buffer is open and has its
 * memory.
 * Returns: 0; -ENOTSUP. */
int hoist__dlpack_describe(const hoist_buffer *buffer, hoist_dl_tensor *ret);

/* --- dlpack-import.c --- */

/* Elements in memory of another owner, and the function to call when no buffer uses them any
 * more. */
struct hoist__import {
	hoist_device *device;
	enum hoist__memory_kind kind;
	uintptr_t address;	  /* of the first element; any value if there are no elements */
	uintptr_t device_address; /* of the same element, as kernels see it */
	hoist_dtype dtype;
	int rank;
	bool read_only;
	const int64_t *shape;
	const int64_t *strides; /* in elements; NULL: C order */
	hoist_stream *stream;	/* NULL: the device's default one */
	void (*release)(void *context);
	void *context;
};

/* Makes a buffer over the memory.  On failure, release is not called.
 * Returns: 0; -EINVAL (rank, an extent; no address; a stream of another device); -EOVERFLOW;
 *   -ENOMEM. */
int hoist__import(const struct hoist__import *import, hoist_buffer **ret);

#endif
