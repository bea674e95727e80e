/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer.c - references, closing, and the properties of a buffer.
 * The contract is in hoist/buffer.h and lib/buffer/buffer-private.h. */
#include "config.h"

#include "lib/buffer/buffer-private.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "hoist/user.h"
#include "lib/core/options.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"

/* --- the checks that all calls begin with --- */

int hoist__buffer_check(const hoist_buffer *buffer, const char *what)
{
	if (buffer == NULL)
		return hoist__fail(-EINVAL, "%s is NULL", what);
	if (buffer->storage == NULL)
		return hoist__fail(-EBADF, "%s was closed", what);
	return 0;
}

static bool is_read_only(const hoist_buffer *buffer)
{
	return buffer->read_only || hoist__storage_is_read_only(buffer->storage);
}

int hoist__buffer_check_writable(const hoist_buffer *buffer, const char *what)
{
	int err = hoist__buffer_check(buffer, what);
	if (err < 0 || !is_read_only(buffer))
		return err;
	return hoist__fail(-EROFS, "%s cannot be written to: its memory is %s; copy it first", what,
			   buffer->read_only ? "read-only" : "frozen or read-only");
}

hoist_stream *hoist__buffer_known_stream(const hoist_buffer *buffer)
{
	return buffer->stream != NULL ? buffer->stream : hoist__device_known_stream(buffer->device);
}

/* The check comes first: waiting for a stream that captures would break the capture. */
int hoist__buffer_settle(hoist_buffer *buffer)
{
	hoist_stream *stream = hoist__buffer_known_stream(buffer);
	int err = stream != NULL ? hoist__stream_check_capture(stream) : 0;
	if (err == 0)
		err = hoist__storage_allocate(buffer->storage);
	if (err == 0 && stream != NULL)
		err = hoist_stream_synchronize(stream);
	return err;
}

struct hoist__span hoist__buffer_span(const hoist_buffer *buffer, int64_t offset)
{
	const struct hoist__span span = {
		buffer->device,
		hoist__storage_kind(buffer->storage),
		hoist__storage_address(buffer->storage) + buffer->offset + (uintptr_t)offset,
	};
	return span;
}

/* --- making --- */

/* A buffer of elements below a byte ends with a byte that may be partly used. */
static int count_bytes(hoist_dtype dtype, uint64_t elements, size_t *ret)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	if (info == NULL || info->bits % 8 == 0)
		return hoist_dtype_bytes(dtype, elements, ret);
	uint64_t bits;
	if (hoist__mul_overflow(elements, info->bits, &bits) || bits > INT64_MAX - 7)
		return hoist__fail(-EOVERFLOW, "%llu elements of %s do not fit in memory",
				   (unsigned long long)elements, info->name);
	*ret = (size_t)((bits + 7) / 8);
	return 0;
}

int hoist__buffer_measure(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *elements,
			  size_t *bytes)
{
	int err = hoist__layout_elements(rank, shape, elements);
	return err < 0 ? err : count_bytes(dtype, *elements, bytes);
}

/* Takes no reference to the storage: the new buffer gets the caller's. */
static int build(struct hoist__storage *storage, const struct hoist__view *view, hoist_buffer **ret)
{
	uint64_t elements = view->elements;
	size_t bytes = view->bytes;
	int err = 0;
	if (bytes == 0)
		err = hoist__buffer_measure(view->dtype, view->rank, view->shape, &elements,
					    &bytes);
	if (err < 0)
		return err;
	size_t n = (size_t)view->rank;
	size_t size = sizeof(hoist_buffer) + 2 * n * sizeof(int64_t);
	hoist_buffer *made = malloc(size);
	if (made == NULL)
		return hoist__fail_nomem("a buffer", size);
	*made = (hoist_buffer){
		.dtype = view->dtype,
		.rank = view->rank,
		.bit = view->bit,
		.read_only = view->read_only,
		.implicit = view->strides == NULL,
		.device = hoist__storage_device(storage),
		.id = hoist__next_id(),
		.offset = view->offset,
		.bytes = bytes,
		.elements = elements,
	};
	atomic_init(&made->xrefs, 1);
	made->strides = made->dims + n;
	if (n > 0)
		memcpy(made->dims, view->shape, n * sizeof(int64_t));
	if (view->strides == NULL)
		err = hoist__layout_c_strides(view->rank, view->shape, made->strides);
	else if (n > 0)
		memcpy(made->strides, view->strides, n * sizeof(int64_t));
	if (err < 0) {
		free(made);
		return err;
	}
	made->contiguous = view->strides == NULL ||
			   hoist__layout_contiguous(made->rank, made->dims, made->strides);
	made->storage = storage;
	made->stream = view->stream != NULL ? hoist_stream_ref(view->stream) : NULL;
	*ret = made;
	return 0;
}

int hoist__buffer_make(struct hoist__storage *storage, const struct hoist__view *view,
		       hoist_buffer **ret)
{
	int err = build(storage, view, ret);
	if (err == 0)
		(void)hoist__storage_ref(storage);
	return err;
}

int hoist__buffer_make_last(struct hoist__storage *storage, const struct hoist__view *view,
			    hoist_buffer **ret)
{
	int err = build(storage, view, ret);
	if (err < 0)
		hoist__storage_unref(storage);
	return err;
}

/* --- references --- */

hoist_buffer *hoist_buffer_ref(hoist_buffer *buffer)
{
	atomic_fetch_add_explicit(&buffer->xrefs, 1, memory_order_relaxed);
	return buffer;
}

void hoist_buffer_unref(hoist_buffer *buffer)
{
	if (buffer == NULL || !hoist__unref(&buffer->xrefs))
		return;
	hoist__storage_unref(buffer->storage);
	if (buffer->stream != NULL)
		hoist_stream_unref(buffer->stream);
	/* The caller's release function runs last, when nothing of the buffer is left. */
	struct hoist__user user = buffer->user;
	free(buffer);
	hoist__user_end(&user);
}

int hoist_buffer_close(hoist_buffer *buffer, hoist_stream *stream)
{
	if (buffer == NULL)
		return hoist__buffer_check(buffer, "the buffer to close");
	if (buffer->storage == NULL)
		return 0;
	/* The only step that can fail comes first, so that a failure leaves the buffer open. */
	int err = stream != NULL ? hoist__storage_free_on(buffer->storage, stream) : 0;
	if (err < 0)
		return hoist__fail_in(err, "closing a buffer");
	struct hoist__storage *storage = buffer->storage;
	buffer->storage = NULL;
	/* With 0 bytes, the calls that accept a closed buffer never look at its storage. */
	buffer->bytes = 0;
	hoist__storage_unref(storage);
	return 0;
}

int hoist_buffer_free_on(hoist_buffer *buffer, hoist_stream *stream)
{
	int err = hoist__buffer_check(buffer, "the buffer to free on a stream");
	if (err == 0 && stream == NULL)
		err = hoist__fail(-EINVAL, "the stream to free a buffer on is NULL");
	if (err == 0)
		err = hoist__storage_free_on(buffer->storage, stream);
	return err;
}

int hoist_buffer_is_closed(const hoist_buffer *buffer)
{
	return buffer->storage == NULL;
}

int hoist_buffer_allocate(hoist_buffer *buffer)
{
	int err = hoist__buffer_check(buffer, "the buffer to allocate");
	return err < 0 ? err : hoist__storage_allocate(buffer->storage);
}

int hoist_buffer_freeze(hoist_buffer *buffer)
{
	int err = hoist__buffer_check(buffer, "the buffer to freeze");
	if (err == 0)
		hoist__storage_freeze(buffer->storage);
	return err;
}

/* --- properties --- */

hoist_dtype hoist_buffer_dtype(const hoist_buffer *buffer)
{
	return buffer->dtype;
}

int hoist_buffer_rank(const hoist_buffer *buffer)
{
	return buffer->rank;
}

const int64_t *hoist_buffer_shape(const hoist_buffer *buffer)
{
	return buffer->dims;
}

const int64_t *hoist_buffer_strides(const hoist_buffer *buffer)
{
	return buffer->strides;
}

uint64_t hoist_buffer_elements(const hoist_buffer *buffer)
{
	return buffer->elements;
}

size_t hoist_buffer_bytes(const hoist_buffer *buffer)
{
	return buffer->bytes;
}

int hoist_buffer_is_contiguous(const hoist_buffer *buffer)
{
	return buffer->contiguous;
}

int hoist_buffer_is_pinned(const hoist_buffer *buffer)
{
	return buffer->storage != NULL &&
	       hoist__storage_kind(buffer->storage) == HOIST__MEMORY_PINNED;
}

int hoist_buffer_is_host(const hoist_buffer *buffer)
{
	return hoist__device_is_cpu(buffer->device);
}

hoist_device *hoist_buffer_device(const hoist_buffer *buffer)
{
	return buffer->device;
}

int hoist_buffer_stream(const hoist_buffer *buffer, hoist_stream **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to ask for its stream");
	hoist_stream *stream = err == 0 ? hoist__buffer_known_stream(buffer) : NULL;
	if (err == 0 && stream == NULL) {
		err = hoist_device_default_stream(buffer->device, &stream);
		if (err == 0)
			hoist_stream_unref(stream); /* the device keeps its own reference */
	}
	if (err == 0)
		*ret = stream;
	return err;
}

void *hoist_buffer_data(const hoist_buffer *buffer)
{
	if (buffer->bytes == 0 || !hoist__storage_is_on_host(buffer->storage))
		return NULL;
	uintptr_t base = hoist__storage_address(buffer->storage);
	return base != 0 ? (void *)(base + buffer->offset) : NULL;
}

uintptr_t hoist_buffer_address(const hoist_buffer *buffer)
{
	if (buffer->bytes == 0)
		return 0;
	uintptr_t base = hoist__storage_device_address(buffer->storage);
	return base != 0 ? base + buffer->offset : 0;
}

int hoist_buffer_is_aligned(const hoist_buffer *buffer, size_t alignment)
{
	if (alignment == 0)
		alignment = hoist__dtype_info(buffer->dtype)->align;
	return buffer->bit == 0 && hoist_buffer_address(buffer) % alignment == 0;
}

static void describe_storage(const hoist_buffer *buffer, hoist_buffer_info *info)
{
	const struct hoist__storage *storage = buffer->storage;
	enum hoist__memory_kind kind = hoist__storage_kind(storage);
	bool access = hoist__storage_has_access(storage);
	bool accelerator = !hoist__device_is_cpu(buffer->device);
	info->storage_id = hoist__storage_id(storage);
	info->storage_bytes = hoist__storage_bytes(storage);
	info->offset = buffer->offset;
	info->bit_offset = buffer->bit;
	info->memory = hoist__storage_memory(storage);
	info->is_allocated = info->storage_bytes == 0 || hoist__storage_address(storage) != 0;
	info->is_host_accessible = hoist__storage_is_on_host(storage);
	info->is_device_accessible = access && accelerator && kind != HOIST__MEMORY_HOST;
	info->is_managed = kind == HOIST__MEMORY_MANAGED;
	info->is_mapped = hoist__storage_is_mapped(storage);
	info->is_read_only = is_read_only(buffer);
	info->n_storage_refs = hoist__storage_n_refs(storage);
	if (info->is_device_accessible)
		info->device_id = hoist__dev_ordinal(hoist__device_dev(buffer->device));
}

int hoist_buffer_get_info(const hoist_buffer *buffer, hoist_buffer_info *info)
{
	if (buffer == NULL)
		return hoist__buffer_check(buffer, "the buffer to describe");
	hoist_buffer_info known = {
		.size = sizeof known,
		.id = buffer->id,
		.device_id = -1,
		.is_closed = buffer->storage == NULL,
		.has_implicit_strides = buffer->implicit,
		.n_refs = atomic_load(&buffer->xrefs),
	};
	if (buffer->storage != NULL)
		describe_storage(buffer, &known);
	return hoist__options_out("hoist_buffer_info", info, &known, sizeof known);
}

int hoist_buffer_equal(const hoist_buffer *a, const hoist_buffer *b)
{
	if (a == NULL || b == NULL || a->storage == NULL || b->storage == NULL)
		return 0;
	if (a->bytes != b->bytes || a->device != b->device || a->bit != b->bit)
		return 0;
	if (a->storage == b->storage)
		return a->bytes == 0 || a->offset == b->offset;
	/* Two LAZY buffers without memory both have address 0, and are not the same. */
	uintptr_t address = hoist_buffer_address(a);
	return address == hoist_buffer_address(b) && (address != 0 || a->bytes == 0);
}

int hoist_buffer_set_user(hoist_buffer *buffer, void *expected, void *data,
			  void (*release)(void *data))
{
	return hoist__user_set(buffer != NULL ? &buffer->user : NULL, "buffer", expected, data,
			       release);
}

void *hoist_buffer_get_user(const hoist_buffer *buffer)
{
	return hoist__user_get(&buffer->user);
}
