/* SPDX-License-Identifier: MIT */
/* lib/exchange/dlpack-exchange.c - the table of functions by which libraries exchange objects.
 * The contract is in hoist/dlpack.h. */
#include "config.h"

#include "base/error.h"
#include "hoist/dlpack.h"
#include "lib/device/device.h"
#include "lib/exchange/dlpack.h"

/* No function of the table waits, or makes the other side wait. */
static const hoist_dlpack_options no_sync = {
	.size = sizeof no_sync,
	.has_stream = 1,
	.stream = -1,
};

/* Returns Python's name for the kind of error: DLPack takes the kinds from Python. */
static const char *kind_of(int err)
{
	return err == -ENOMEM || err == -ENOSPC || err == -EDQUOT ? "MemoryError"
	       : err == -EINVAL					  ? "ValueError"
	       : err == -EOVERFLOW				  ? "OverflowError"
	       : err == -ENOTSUP				  ? "BufferError"
								  : "RuntimeError";
}

static int create(const hoist_dl_tensor *prototype, hoist_buffer **ret)
{
	hoist_dtype dtype;
	hoist_device *device;
	int err = hoist__dlpack_dtype(prototype->dtype, &dtype);
	if (err == 0)
		err = hoist_device_from_dlpack(prototype->device, &device);
	if (err < 0)
		return err;
	err = hoist__dlpack_create(device, prototype->device.type, dtype, prototype->rank,
				   prototype->shape, ret);
	hoist_device_unref(device);
	return err;
}

static int allocate(hoist_dl_tensor *prototype, struct DLManagedTensorVersioned **ret,
		    void *error_context,
		    void (*set_error)(void *error_context, const char *kind, const char *text))
{
	hoist_buffer *buffer = NULL;
	int err = prototype != NULL ? create(prototype, &buffer)
				    : hoist__fail(-EINVAL, "the prototype is NULL");
	if (err == 0)
		err = hoist_buffer_to_dlpack(buffer, &no_sync, ret);
	if (err < 0 && set_error != NULL)
		set_error(error_context, kind_of(err), hoist__error_text());
	hoist_buffer_unref(buffer);
	return err < 0 ? -1 : 0;
}

static int to_managed(void *object, struct DLManagedTensorVersioned **ret)
{
	return hoist_buffer_to_dlpack(object, &no_sync, ret) < 0 ? -1 : 0;
}

static int from_managed(struct DLManagedTensorVersioned *tensor, void **ret)
{
	hoist_buffer *buffer;
	if (hoist_buffer_from_dlpack(tensor, NULL, 0, &buffer) < 0) {
		hoist_dlpack_release(tensor);
		return -1;
	}
	*ret = buffer;
	return 0;
}

static int describe(hoist_buffer *buffer, hoist_dl_tensor *ret)
{
	int err = hoist__buffer_check_writable(buffer, "the buffer to describe, which says nothing "
						       "of being read-only,");
	if (err == 0)
		err = hoist__storage_allocate(buffer->storage);
	if (err == 0)
		err = hoist__dlpack_describe(buffer, ret);
	if (err == 0)
		hoist__storage_lend(buffer->storage);
	return err;
}

static int to_tensor(void *object, hoist_dl_tensor *ret)
{
	return describe(object, ret) < 0 ? -1 : 0;
}

static int native_of(hoist_device *device, void **ret)
{
	hoist_stream *stream;
	int err = hoist_device_default_stream(device, &stream);
	if (err < 0)
		return err;
	*ret = hoist_stream_native(stream);
	hoist_stream_unref(stream); /* the device keeps its own reference */
	return 0;
}

static int current_stream(int32_t device_type, int32_t device_id, void **ret)
{
	const hoist_dl_device where = {device_type, device_id};
	hoist_device *device;
	int err = hoist_device_from_dlpack(where, &device);
	if (err < 0)
		return -1;
	if (hoist__device_is_cpu(device))
		*ret = NULL;
	else
		err = native_of(device, ret);
	hoist_device_unref(device);
	return err < 0 ? -1 : 0;
}

static const hoist_dl_exchange table = {
	.major = HOIST_DLPACK_MAJOR,
	.minor = HOIST_DLPACK_MINOR,
	.allocate = allocate,
	.to_managed = to_managed,
	.from_managed = from_managed,
	.to_tensor = to_tensor,
	.current_stream = current_stream,
};

const struct DLPackExchangeAPI *hoist_dlpack_exchange_api(void)
{
	return (const struct DLPackExchangeAPI *)(const void *)&table;
}
