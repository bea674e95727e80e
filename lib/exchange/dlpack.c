/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack.c - devices and dtypes in DLPack's terms.
 * The contract is in hoist/dlpack.h and lib/exchange/dlpack.h. */
#include "config.h"

#include <stdio.h>

#include "base/error.h"
#include "hoist/dlpack.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/exchange/dlpack.h"

/* The structs have DLPack's layout in memory.  The numbers here are those of 64-bit systems, for
 * builds without a dlpack.h to compare with.  tests/api/dlpack.c compares at run time with other
 * libraries. */
#define AT(type, field, offset)                                                                    \
	_Static_assert(offsetof(type, field) == (offset), #type "." #field " is elsewhere")
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(hoist_dl_tensor) == 48, "DLTensor");
AT(hoist_dl_tensor, data, 0);
AT(hoist_dl_tensor, device.type, 8);
AT(hoist_dl_tensor, device.id, 12);
AT(hoist_dl_tensor, rank, 16);
AT(hoist_dl_tensor, dtype.code, 20);
AT(hoist_dl_tensor, dtype.bits, 21);
AT(hoist_dl_tensor, dtype.lanes, 22);
AT(hoist_dl_tensor, shape, 24);
AT(hoist_dl_tensor, strides, 32);
AT(hoist_dl_tensor, byte_offset, 40);
_Static_assert(sizeof(hoist_dl_legacy) == 64, "DLManagedTensor");
AT(hoist_dl_legacy, tensor, 0);
AT(hoist_dl_legacy, context, 48);
AT(hoist_dl_legacy, deleter, 56);
_Static_assert(sizeof(hoist_dl_managed) == 80, "DLManagedTensorVersioned");
AT(hoist_dl_managed, major, 0);
AT(hoist_dl_managed, minor, 4);
AT(hoist_dl_managed, context, 8);
AT(hoist_dl_managed, deleter, 16);
AT(hoist_dl_managed, flags, 24);
AT(hoist_dl_managed, tensor, 32);
_Static_assert(sizeof(hoist_dl_exchange) == 56, "DLPackExchangeAPI");
AT(hoist_dl_exchange, previous, 8);
AT(hoist_dl_exchange, allocate, 16);
AT(hoist_dl_exchange, current_stream, 48);
#endif

/* --- dtypes --- */

int hoist__dlpack_dtype(hoist_dl_dtype given, hoist_dtype *ret)
{
	if (given.lanes != 1)
		return hoist__fail(-ENOTSUP,
				   "elements of %u lanes; one is all that hoist has, make the "
				   "lanes an axis",
				   given.lanes);
	if (hoist_dtype_from_dlpack(given.code, given.bits, ret) == 0)
		return 0;
	return hoist__fail(-ENOTSUP, "hoist has no dtype for DLPack's type %u with %u bits",
			   given.code, given.bits);
}

/* --- devices --- */

bool hoist__dlpack_has_no_id(int32_t type)
{
	return type == HOIST_DL_CPU || type == HOIST_DL_CUDA_HOST || type == HOIST_DL_ROCM_HOST ||
	       type == HOIST_DL_CUDA_MANAGED;
}

/* DLPack's types for pinned and managed memory have no ordinal: the id stays 0. */
int hoist_buffer_dlpack_device(const hoist_buffer *buffer, hoist_dl_device *ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to ask for its DLPack device");
	if (err < 0)
		return err;
	if (!hoist__storage_has_access(buffer->storage))
		return hoist__fail(-ENOTSUP,
				   "neither the CPU nor a device may touch the buffer's memory; "
				   "DLPack has no type for that");
	const struct hoist__dev *dev = hoist__device_dev(buffer->device);
	bool cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	hoist_dl_device where = {HOIST_DL_CPU, 0};
	if (hoist__dev_api(dev) != HOIST__API_CPU)
		switch (hoist__storage_kind(buffer->storage)) {
		case HOIST__MEMORY_DEVICE:
			where.type = cuda ? HOIST_DL_CUDA : HOIST_DL_ROCM;
			where.id = hoist__dev_ordinal(dev);
			break;
		case HOIST__MEMORY_MANAGED:
			where.type = cuda ? HOIST_DL_CUDA_MANAGED : HOIST_DL_ROCM_HOST;
			break;
		case HOIST__MEMORY_PINNED:
			where.type = cuda ? HOIST_DL_CUDA_HOST : HOIST_DL_ROCM_HOST;
			break;
		case HOIST__MEMORY_HOST:
			break;
		}
	*ret = where;
	return 0;
}

static const char *api_of(int32_t type)
{
	switch (type) {
	case HOIST_DL_CPU:
		return "cpu";
	case HOIST_DL_CUDA:
	case HOIST_DL_CUDA_HOST:
	case HOIST_DL_CUDA_MANAGED:
		return "cuda";
	case HOIST_DL_ROCM:
	case HOIST_DL_ROCM_HOST:
		return "hip";
	default:
		return NULL;
	}
}

int hoist_device_from_dlpack(hoist_dl_device where, hoist_device **ret)
{
	const char *api = api_of(where.type);
	if (api == NULL)
		return hoist__fail(-ENOTSUP,
				   "DLPack's device type %d is not supported; hoist has the CPU, "
				   "CUDA and ROCm",
				   (int)where.type);
	int id = hoist__dlpack_has_no_id(where.type) ? 0 : where.id;
	int n;
	int err = hoist_device_count(api, &n);
	if (err < 0)
		return err;
	if (id < 0 || id >= n)
		return hoist__fail(-ENODEV, "device %d of %s is not here; there are %d", id, api,
				   n);
	char spec[32];
	(void)snprintf(spec, sizeof spec, "%s:%d", api, id);
	return hoist_device_open(spec, ret);
}

static int take_managed(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape,
			hoist_buffer **ret)
{
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_MANAGED,
		.device = device,
	};
	hoist_memory *memory;
	int err = hoist_memory_create(&options, &memory);
	if (err < 0)
		return err;
	err = hoist_buffer_create_from(memory, NULL, dtype, rank, shape, 0, ret);
	hoist_memory_unref(memory); /* the buffer has its own reference */
	return err;
}

int hoist__dlpack_create(hoist_device *device, int32_t type, hoist_dtype dtype, int rank,
			 const int64_t *shape, hoist_buffer **ret)
{
	bool pinned = type == HOIST_DL_CUDA_HOST || type == HOIST_DL_ROCM_HOST;
	if (type == HOIST_DL_CUDA_MANAGED)
		return take_managed(device, dtype, rank, shape, ret);
	return hoist_buffer_create(device, dtype, rank, shape, pinned ? HOIST_BUFFER_PINNED : 0,
				   ret);
}

/* --- streams --- */

/* The numbers of CUDA and of the CUDA Array Interface; DLPack has none for ROCm. */
#define LEGACY_STREAM 1

void *hoist__dlpack_native(intptr_t number)
{
	return number == LEGACY_STREAM ? NULL : (void *)number;
}

int hoist_stream_to_dlpack(hoist_stream *stream, intptr_t *ret)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to name for DLPack is NULL");
	hoist_device *device = hoist_stream_device(stream);
	enum hoist__api api = hoist__dev_api(hoist__device_dev(device));
	if (api == HOIST__API_CPU)
		return hoist__fail(-ENOTSUP, "DLPack has no streams of the CPU; give None");
	intptr_t native = (intptr_t)hoist_stream_native(stream);
	*ret = native == 0 && api == HOIST__API_CUDA ? LEGACY_STREAM : native;
	return 0;
}
