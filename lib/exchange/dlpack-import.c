/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack-import.c - imports DLPack tensors as buffers, and any memory that others own.
 * The contract is in hoist/dlpack.h and lib/exchange/dlpack.h. */
#include "config.h"

#include <inttypes.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "hoist/copy.h"
#include "hoist/dlpack.h"
#include "lib/device/device.h"
#include "lib/exchange/dlpack.h"

/* --- memory that others own --- */

/* Gives the bytes that the elements touch: [*low, *high), from the first element on.  Unlike
 * hoist__layout_bounds(), this allows a last byte that is only partly filled. */
static int touched(const struct hoist__import *import, int64_t *low, int64_t *high)
{
	unsigned bits = hoist_dtype_bits(import->dtype);
	int64_t first = 0;
	int64_t end = 0; /* in elements, counted as if they were bytes */
	int err = hoist__layout_bounds(HOIST_U8, import->rank, import->shape, import->strides,
				       &first, &end);
	if (err < 0)
		return err;
	if (__builtin_mul_overflow(first, bits, &first) ||
	    __builtin_mul_overflow(end, bits, &end) || first < INT64_MIN + 8 || end > INT64_MAX - 7)
		return hoist__fail(-EOVERFLOW, "the elements leave the address space");
	*low = -((7 - first) / 8); /* rounded outwards */
	*high = (end + 7) / 8;
	return 0;
}

static int check_range(uintptr_t address, int64_t low, int64_t high)
{
	if (high == 0)
		return 0;
	if (address == 0)
		return hoist__fail(-EINVAL, "there are elements (%lld bytes) but no data",
				   (long long)(high - low));
	if ((uint64_t)-low >= address || (uint64_t)high > UINTPTR_MAX - address)
		return hoist__fail(-EOVERFLOW,
				   "the elements are %lld bytes before to %lld behind %#" PRIxPTR
				   ", which leaves the address space",
				   -(long long)low, (long long)high, address);
	return 0;
}

static int check_stream(const struct hoist__import *import)
{
	if (import->stream == NULL || hoist_stream_device(import->stream) == import->device)
		return 0;
	return hoist__fail(-EINVAL, "the stream is of %s, the memory of %s",
			   hoist_device_spec(hoist_stream_device(import->stream)),
			   hoist_device_spec(import->device));
}

int hoist__import(const struct hoist__import *import, hoist_buffer **ret)
{
	int64_t low = 0;
	int64_t high = 0;
	int err = touched(import, &low, &high);
	if (err == 0)
		err = check_range(import->address, low, high);
	if (err == 0)
		err = check_stream(import);
	if (err < 0)
		return err;
	/* Without elements, the strides may be anything. */
	const int64_t *strides = import->strides;
	int64_t none[HOIST_MAX_RANK];
	if (low == high && strides != NULL) {
		err = hoist__layout_c_strides(import->rank, import->shape, none);
		if (err < 0)
			return err;
		strides = none;
	}
	/* The storage begins at the lowest byte that an element touches; the view's offset leads to
	 * the address that the producer gave. */
	size_t before = (size_t)-low;
	size_t bytes = (size_t)high + before;
	const struct hoist__foreign foreign = {
		.device = import->device,
		.kind = import->kind,
		.address = bytes > 0 ? import->address - before : 0,
		.device_address = bytes > 0 ? import->device_address - before : 0,
		.bytes = bytes,
		.read_only = import->read_only,
		.release = import->release,
		.context = import->context,
	};
	struct hoist__storage *storage;
	err = hoist__storage_wrap(&foreign, &storage);
	if (err < 0)
		return err;
	const struct hoist__view view = {
		.dtype = import->dtype,
		.rank = import->rank,
		.read_only = import->read_only,
		.offset = before,
		.stream = import->stream,
		.shape = import->shape,
		.strides = strides,
	};
	err = hoist__buffer_make(storage, &view, ret);
	if (err < 0)
		hoist__storage_forget(storage);
	hoist__storage_unref(storage);
	return err;
}

/* --- tensors --- */

/* A tensor of either struct: the fields that are used, and the function that ends it. */
struct offered {
	const hoist_dl_tensor *tensor;
	uint64_t flags;
	hoist_stream *stream;
	void (*release)(void *tensor);
	void *context;
};

static void release_managed(void *tensor)
{
	hoist_dlpack_release(tensor);
}

static void release_legacy(void *tensor)
{
	hoist_dlpack_release_legacy(tensor);
}

static int check_flags(uint64_t flags, hoist_dtype dtype)
{
	uint64_t unknown = flags & ~(uint64_t)(HOIST_DL_READ_ONLY | HOIST_DL_IS_COPIED |
					       HOIST_DL_SUBBYTE_PADDED);
	if (unknown != 0)
		return hoist__fail(-ENOTSUP,
				   "the flags %#" PRIx64 " are newer than this hoist, which would "
				   "have to know their meaning",
				   unknown);
	if (flags & HOIST_DL_SUBBYTE_PADDED && hoist_dtype_bits(dtype) < 8)
		return hoist__fail(
			-ENOTSUP,
			"elements of %s that take a byte each; hoist has them packed: let "
			"the producer pack them",
			hoist_dtype_name(dtype));
	return 0;
}

/* Finds the device by the tensor's own fields.  The driver knows more about host and managed
 * memory. */
static int find_place(const struct offered *offered, struct hoist__import *import)
{
	hoist_dl_device where = offered->tensor->device;
	hoist_stream *stream = offered->stream;
	int err = hoist_device_from_dlpack(where, &import->device);
	if (err < 0)
		return err;
	hoist_device_unref(import->device); /* devices live as long as the process */
	import->device_address = import->address;
	if (where.type == HOIST_DL_CPU)
		return 0;
	import->kind = where.type == HOIST_DL_CUDA_MANAGED   ? HOIST__MEMORY_MANAGED
		       : hoist__dlpack_has_no_id(where.type) ? HOIST__MEMORY_PINNED
							     : HOIST__MEMORY_DEVICE;
	if (import->kind == HOIST__MEMORY_DEVICE || import->address == 0)
		return 0;
	struct hoist__pointer pointer;
	err = hoist__pointer_find(import->address, &pointer);
	if (err < 0)
		return err;
	enum hoist__api api = hoist__dev_api(hoist__device_dev(import->device));
	if (pointer.api == api && pointer.device)
		import->device_address = pointer.device_address;
	if (pointer.api == api && pointer.managed)
		import->kind = HOIST__MEMORY_MANAGED;
	/* The memory belongs to all devices of the API: choose the device of the stream that will
	 * use it. */
	if (stream != NULL && hoist__dev_api(hoist__device_dev(hoist_stream_device(stream))) == api)
		import->device = hoist_stream_device(stream);
	return 0;
}

static int understand(const struct offered *offered, struct hoist__import *ret)
{
	const hoist_dl_tensor *tensor = offered->tensor;
	*ret = (struct hoist__import){
		.rank = tensor->rank,
		.read_only = (offered->flags & HOIST_DL_READ_ONLY) != 0,
		.shape = tensor->shape,
		.strides = tensor->strides,
		.stream = offered->stream,
		.release = offered->release,
		.context = offered->context,
	};
	int err = hoist__dlpack_dtype(tensor->dtype, &ret->dtype);
	if (err == 0)
		err = check_flags(offered->flags, ret->dtype);
	if (err < 0)
		return err;
	if (tensor->data != NULL &&
	    __builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &ret->address))
		return hoist__fail(-EOVERFLOW, "byte_offset %" PRIu64 " leaves the address space",
				   tensor->byte_offset);
	return find_place(offered, ret);
}

/* The tensor is kept as it is until there is a copy of it. */
static int copy(const struct offered *offered, struct hoist__import *import, hoist_buffer **ret)
{
	hoist_buffer *lent;
	hoist_buffer *made = NULL;
	import->release = NULL;
	int err = hoist__import(import, &lent);
	if (err < 0)
		return err;
	err = hoist__dlpack_create(import->device, offered->tensor->device.type, lent->dtype,
				   lent->rank, lent->dims, &made);
	if (err == 0)
		err = hoist_buffer_copy_into(made, lent);
	hoist_buffer_unref(lent);
	hoist_buffer *result = NULL;
	if (err == 0 && import->stream != NULL)
		err = hoist_buffer_on_stream(made, import->stream, &result);
	else if (err == 0)
		result = hoist_buffer_ref(made);
	hoist_buffer_unref(made);
	if (err < 0)
		return err;
	offered->release(offered->context);
	*ret = result;
	return 0;
}

static int take(const struct offered *offered, unsigned flags, hoist_buffer **ret)
{
	struct hoist__import import;
	unsigned unknown = flags & ~(HOIST_DLPACK_COPY | HOIST_DLPACK_CONTIGUOUS);
	if (unknown != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of an import", unknown);
	int err = understand(offered, &import);
	uint64_t elements;
	if (err == 0)
		err = hoist__layout_elements(import.rank, import.shape, &elements);
	if (err < 0)
		return err;
	if (flags & HOIST_DLPACK_CONTIGUOUS &&
	    !hoist__layout_contiguous(import.rank, import.shape, import.strides))
		return hoist__fail(-EINVAL,
				   "the tensor is not contiguous; let the producer make it so");
	return flags & HOIST_DLPACK_COPY ? copy(offered, &import, ret)
					 : hoist__import(&import, ret);
}

int hoist_buffer_from_dlpack(struct DLManagedTensorVersioned *tensor, hoist_stream *stream,
			     unsigned flags, hoist_buffer **ret)
{
	static const char what[] = "importing a DLPack tensor";
	const hoist_dl_managed *managed = (const hoist_dl_managed *)tensor;
	if (managed == NULL)
		return hoist__fail(-EINVAL, "the tensor to import is NULL");
	if (managed->major != HOIST_DLPACK_MAJOR) {
		int err =
			hoist__fail(-ENOTSUP,
				    "it is of version %u.%u, hoist knows %d; only its deleter may "
				    "be called",
				    managed->major, managed->minor, HOIST_DLPACK_MAJOR);
		return hoist__fail_in(err, "%s", what);
	}
	const struct offered offered = {&managed->tensor, managed->flags, stream, release_managed,
					tensor};
	int err = take(&offered, flags, ret);
	return err < 0 ? hoist__fail_in(err, "%s", what) : 0;
}

int hoist_buffer_from_dlpack_legacy(struct DLManagedTensor *tensor, hoist_stream *stream,
				    unsigned flags, hoist_buffer **ret)
{
	const hoist_dl_legacy *legacy = (const hoist_dl_legacy *)tensor;
	if (legacy == NULL)
		return hoist__fail(-EINVAL, "the tensor to import is NULL");
	const struct offered offered = {&legacy->tensor, 0, stream, release_legacy, tensor};
	int err = take(&offered, flags, ret);
	return err < 0 ? hoist__fail_in(err, "importing a legacy DLPack tensor") : 0;
}
