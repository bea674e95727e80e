/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack.h - what the files of DLPack and the CUDA Array Interface share.
 *
 *   dlpack.c           devices and dtypes in DLPack's words
 *   dlpack-export.c    buffers as tensors
 *   dlpack-import.c    tensors as buffers; memory that others own
 *   dlpack-exchange.c  the table of functions
 *   cai.c              the CUDA Array Interface
 */
#ifndef HOIST_LIB_DLPACK_H
#define HOIST_LIB_DLPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "hoist/dlpack.h"
#include "lib/buffer/buffer-private.h"

/* --- dlpack.c --- */

/* The dtype of a tensor.  Returns: 0; -ENOTSUP. */
int hoist__dlpack_dtype(hoist_dl_dtype given, hoist_dtype *ret);

/* Memory of the host, or managed: its id says nothing. */
bool hoist__dlpack_has_no_id(int32_t type);

/* A contiguous buffer in memory of that type, of a device that has such; its content is undefined.
 * Returns: 0; as hoist_buffer_create(). */
int hoist__dlpack_create(hoist_device *device, int32_t type, hoist_dtype dtype, int rank,
			 const int64_t *shape, hoist_buffer **ret);

/* The native handle that the numbers 1 and 2 stand for; others stand for themselves. */
void *hoist__dlpack_native(intptr_t number);

/* --- dlpack-export.c --- */

/* Describes @buffer, which is open and has its memory, as it is; shape and strides point into it.
 * Returns: 0; -ENOTSUP. */
int hoist__dlpack_describe(const hoist_buffer *buffer, hoist_dl_tensor *ret);

/* --- dlpack-import.c --- */

/* Elements in somebody else's memory, and what is done when no buffer uses them. */
struct hoist__import {
	hoist_device *device;
	enum hoist__memory_kind kind;
	uintptr_t address;	  /* of the first element; any value if there are none */
	uintptr_t device_address; /* the same, as kernels see it */
	hoist_dtype dtype;
	int rank;
	bool read_only;
	const int64_t *shape;
	const int64_t *strides; /* in elements; NULL: C order */
	hoist_stream *stream;	/* NULL: the device's default one */
	void (*release)(void *context);
	void *context;
};

/* If it fails, release is not called.
 * Returns: 0; -EINVAL (rank, an extent; no address; a stream of another device); -EOVERFLOW;
 *   -ENOMEM. */
int hoist__import(const struct hoist__import *import, hoist_buffer **ret);

#endif
