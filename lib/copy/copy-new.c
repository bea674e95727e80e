/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-new.c - copies into new buffers, and brings buffers to the device that needs them.
 * The contract is in hoist/copy.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hoist/compat.h"
#include "hoist/copy.h"
#include "lib/copy/copy.h"
#include "lib/device/device.h"

/* Copies into @made, and drops @made on failure. */
static int fill_new(hoist_buffer *made, hoist_buffer *src, hoist_stream *stream, hoist_buffer **ret)
{
	const struct hoist__pair pair = {made, src, 0, NULL};
	hoist_stream *other = hoist__buffer_known_stream(src);
	int err = 0;
	/* Work on the source may still run on the source's own stream. */
	if (stream != NULL && other != NULL && src->elements > 0)
		err = hoist__stream_order(stream, other);
	if (err == 0)
		err = hoist__pair_run(&pair, stream);
	if (err < 0) {
		hoist_buffer_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}

static int fail_stream(const char *what)
{
	return hoist__fail(-EINVAL, "the stream to %s on is NULL", what);
}

int hoist_buffer_copy(hoist_buffer *src, hoist_device *device, hoist_buffer **ret)
{
	hoist_buffer *made;
	int err = hoist__buffer_check(src, "the buffer");
	if (err == 0)
		err = hoist__buffer_new(device != NULL ? device : src->device, NULL, src->dtype,
					src->rank, src->dims, 0, &made);
	return err < 0 ? err : fill_new(made, src, NULL, ret);
}

int hoist_buffer_copy_to_stream(hoist_buffer *src, hoist_stream *stream, hoist_buffer **ret)
{
	hoist_buffer *made;
	int err = hoist__buffer_check(src, "the buffer");
	if (err == 0 && stream == NULL)
		err = fail_stream("copy");
	if (err == 0)
		err = hoist__buffer_new(hoist_stream_device(stream), stream, src->dtype, src->rank,
					src->dims, 0, &made);
	return err < 0 ? err : fill_new(made, src, stream, ret);
}

int hoist_buffer_clone_from(hoist_buffer *src, hoist_memory *memory, hoist_stream *stream,
			    hoist_buffer **ret)
{
	hoist_buffer *made;
	int err = hoist__buffer_check(src, "the buffer");
	if (err == 0 && stream == NULL)
		err = fail_stream("copy");
	if (err == 0)
		err = hoist_buffer_create_from(memory, stream, src->dtype, src->rank, src->dims, 0,
					       &made);
	return err < 0 ? err : fill_new(made, src, stream, ret);
}

int hoist_buffer_clone(hoist_buffer *src, hoist_stream *stream, hoist_buffer **ret)
{
	int err = hoist__buffer_check(src, "the buffer");
	if (err == 0 && stream == NULL)
		err = fail_stream("copy");
	if (err < 0)
		return err;
	hoist_memory *memory = hoist__storage_memory(src->storage);
	if (memory == NULL)
		return hoist__fail(
			-EINVAL,
			"the %zu bytes of a buffer on %s are from no resource that could "
			"give more; copy it to a device or into a buffer",
			src->bytes, hoist_device_spec(src->device));
	return hoist_buffer_clone_from(src, memory, stream, ret);
}

int hoist_buffer_contiguous(hoist_buffer *src, hoist_device *device, hoist_buffer **ret)
{
	return hoist_buffer_copy(src, device, ret);
}

/* --- on a device --- */

/* Memory that is pinned for an accelerator is near it, but not on it. */
static bool is_on(const hoist_buffer *buffer, const hoist_device *device)
{
	if (buffer->device != device)
		return false;
	return hoist__device_is_cpu(device) ||
	       hoist__storage_kind(buffer->storage) != HOIST__MEMORY_PINNED;
}

int hoist_buffer_to(hoist_buffer *buffer, hoist_device *device, hoist_buffer **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer");
	if (err < 0)
		return err;
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to bring a buffer to is NULL");
	if (!is_on(buffer, device))
		return hoist_buffer_copy(buffer, device, ret);
	*ret = hoist_buffer_ref(buffer);
	return 0;
}

int hoist_buffer_to_stream(hoist_buffer *buffer, hoist_stream *stream, hoist_buffer **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer");
	if (err < 0)
		return err;
	if (stream == NULL)
		return fail_stream("have a buffer");
	if (buffer->device == hoist_stream_device(stream))
		return hoist_buffer_on_stream(buffer, stream, ret);
	return hoist_buffer_copy_to_stream(buffer, stream, ret);
}

/* --- lists --- */

static void drop(hoist_buffer **buffers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(buffers[i]);
	free(buffers);
}

/* Exactly one of @devices and @streams is not NULL. */
static int to_each(hoist_buffer *buffer, size_t n, hoist_device *const *devices,
		   hoist_stream *const *streams, hoist_buffer **rets)
{
	int err = hoist__buffer_check(buffer, "the buffer");
	if (err < 0 || n == 0)
		return err;
	if ((devices == NULL && streams == NULL) || rets == NULL)
		return hoist__fail(-EINVAL, "a list of %zu is NULL", n);
	hoist_buffer **made = calloc(n, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a list of buffers", n * sizeof *made);
	size_t i = 0;
	for (; err == 0 && i < n; i++)
		err = devices != NULL ? hoist_buffer_to(buffer, devices[i], &made[i])
				      : hoist_buffer_to_stream(buffer, streams[i], &made[i]);
	if (err < 0) {
		struct hoist__failure failure;
		hoist__failure_keep(&failure);
		drop(made, n);
		return hoist__fail_because(err, &failure, "%zu of %zu: %s", i - 1, n, failure.text);
	}
	/* The caller's list is written only when every buffer has been made. */
	memcpy(rets, made, n * sizeof *made);
	free(made);
	return 0;
}

int hoist_buffer_to_all(hoist_buffer *buffer, size_t n, hoist_device *const *devices,
			hoist_buffer **rets)
{
	return to_each(buffer, n, devices, NULL, rets);
}

int hoist_buffer_to_streams(hoist_buffer *buffer, size_t n, hoist_stream *const *streams,
			    hoist_buffer **rets)
{
	return to_each(buffer, n, NULL, streams, rets);
}
