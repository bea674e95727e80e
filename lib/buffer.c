/* SPDX-License-Identifier: MIT */
/* lib/buffer.c - dtype, shape and strides over shared storage. */
#include "config.h"

#include "hoist/buffer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/layout.h"
#include "lib/objects.h"
#include "lib/storage.h"
#include "lib/transfer.h"

/* Immutable but for the count. */
struct hoist_buffer {
	_Atomic unsigned xrefs;
	struct hoist__storage *storage;
	size_t offset; /* of the first element in the storage */
	size_t bytes;  /* of the elements */
	uint64_t elements;
	hoist_dtype dtype;
	int rank;
	int64_t *strides; /* in `dims`, behind the shape */
	int64_t dims[];
};

static int check_buffer(const hoist_buffer *buffer)
{
	return buffer != NULL ? 0 : hoist__fail(-EINVAL, "the buffer is NULL");
}

/* How many elements and bytes a shape has; checks all of it. */
static int measure(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *elements,
		   size_t *bytes)
{
	int err = hoist__layout_elements(rank, shape, elements);
	if (err == 0)
		err = hoist_dtype_bytes(dtype, *elements, bytes);
	return err;
}

int hoist__buffer_over(struct hoist__storage *storage, size_t offset, hoist_dtype dtype, int rank,
		       const int64_t *shape, hoist_buffer **ret)
{
	uint64_t elements;
	size_t bytes;
	int err = measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return err;
	size_t room = hoist__storage_bytes(storage);
	if (offset > room || bytes > room - offset)
		return hoist__fail(-EINVAL,
				   "%llu elements of %s (%zu bytes) from byte %zu on leave the "
				   "%zu bytes there are",
				   (unsigned long long)elements, hoist_dtype_name(dtype), bytes,
				   offset, room);
	size_t n = (size_t)rank;
	size_t size = sizeof(hoist_buffer) + 2 * n * sizeof(int64_t);
	hoist_buffer *made = malloc(size);
	if (made == NULL)
		return hoist__fail_nomem("a buffer", size);
	atomic_init(&made->xrefs, 1);
	made->offset = offset;
	made->bytes = bytes;
	made->elements = elements;
	made->dtype = dtype;
	made->rank = rank;
	made->strides = made->dims + n;
	if (n > 0)
		memcpy(made->dims, shape, n * sizeof(int64_t));
	err = hoist__layout_c_strides(rank, shape, made->strides);
	if (err < 0) {
		free(made);
		return err;
	}
	made->storage = hoist__storage_ref(storage);
	*ret = made;
	return 0;
}

static struct hoist__span span_of(const hoist_buffer *buffer, size_t offset)
{
	const struct hoist__span span = {
		hoist__storage_device(buffer->storage),
		hoist__storage_kind(buffer->storage),
		hoist__storage_address(buffer->storage) + buffer->offset + offset,
	};
	return span;
}

static int create(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape,
		  unsigned flags, hoist_buffer **ret)
{
	uint64_t elements;
	size_t bytes;
	int err = measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return err;
	struct hoist__pool *pool = NULL;
	if (bytes > 0)
		err = flags & HOIST_BUFFER_PINNED ? hoist__device_pinned_pool(device, &pool)
						  : hoist__device_pool(device, &pool);
	if (err < 0)
		return err;
	struct hoist__storage *storage;
	err = hoist__storage_alloc(device, pool, bytes, 0, 0, &storage);
	if (err < 0)
		return err;
	hoist_buffer *made = NULL;
	err = hoist__buffer_over(storage, 0, dtype, rank, shape, &made);
	hoist__storage_unref(storage);
	if (err == 0 && flags & HOIST_BUFFER_ZERO) {
		const struct hoist__span all = span_of(made, 0);
		err = hoist__fill(&all, 0, bytes);
	}
	if (err < 0) {
		hoist_buffer_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}

int hoist_buffer_create(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape,
			unsigned flags, hoist_buffer **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "a buffer needs a device; it is NULL");
	unsigned unknown = flags & ~(HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO);
	if (unknown != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of a buffer", unknown);
	int err = create(device, dtype, rank, shape, flags, ret);
	if (err < 0)
		return hoist__fail_in(err, "a buffer on %s", hoist_device_spec(device));
	return 0;
}

hoist_buffer *hoist_buffer_ref(hoist_buffer *buffer)
{
	atomic_fetch_add_explicit(&buffer->xrefs, 1, memory_order_relaxed);
	return buffer;
}

void hoist_buffer_unref(hoist_buffer *buffer)
{
	if (buffer == NULL ||
	    atomic_fetch_sub_explicit(&buffer->xrefs, 1, memory_order_acq_rel) != 1)
		return;
	hoist__storage_unref(buffer->storage);
	free(buffer);
}

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
	return hoist__layout_contiguous(buffer->rank, buffer->dims, buffer->strides);
}

int hoist_buffer_is_pinned(const hoist_buffer *buffer)
{
	return hoist__storage_kind(buffer->storage) == HOIST__MEMORY_PINNED;
}

hoist_device *hoist_buffer_device(const hoist_buffer *buffer)
{
	return hoist__storage_device(buffer->storage);
}

void *hoist_buffer_data(const hoist_buffer *buffer)
{
	if (buffer->bytes == 0 || hoist__storage_kind(buffer->storage) == HOIST__MEMORY_DEVICE)
		return NULL;
	return (void *)(hoist__storage_address(buffer->storage) + buffer->offset);
}

uintptr_t hoist_buffer_address(const hoist_buffer *buffer)
{
	if (buffer->bytes == 0)
		return 0;
	return hoist__storage_device_address(buffer->storage) + buffer->offset;
}

int hoist_buffer_view(hoist_buffer *buffer, size_t byte_offset, hoist_dtype dtype, int rank,
		      const int64_t *shape, hoist_buffer **ret)
{
	int err = check_buffer(buffer);
	if (err < 0)
		return err;
	/* Against the buffer's own bytes: the storage may go on behind them. */
	uint64_t elements;
	size_t bytes;
	err = measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return hoist__fail_in(err, "a view");
	if (byte_offset > buffer->bytes || bytes > buffer->bytes - byte_offset)
		return hoist__fail(-EINVAL,
				   "a view of %zu bytes from byte %zu on leaves its buffer of %zu "
				   "bytes",
				   bytes, byte_offset, buffer->bytes);
	return hoist__buffer_over(buffer->storage, buffer->offset + byte_offset, dtype, rank, shape,
				  ret);
}

static int copy_all(hoist_buffer *dst, hoist_buffer *src)
{
	const struct hoist__span to = span_of(dst, 0);
	const struct hoist__span from = span_of(src, 0);
	int err = hoist__transfer(&to, &from, src->bytes);
	if (err < 0)
		return hoist__fail_in(err, "copying %zu bytes from %s to %s", src->bytes,
				      hoist_device_spec(from.device), hoist_device_spec(to.device));
	return 0;
}

int hoist_buffer_copy_into(hoist_buffer *dst, hoist_buffer *src)
{
	int err = check_buffer(dst);
	if (err == 0)
		err = check_buffer(src);
	if (err < 0)
		return err;
	if (dst->dtype != src->dtype || dst->elements != src->elements)
		return hoist__fail(-EINVAL,
				   "copying %llu elements of %s into a buffer of %llu of %s; both "
				   "must agree",
				   (unsigned long long)src->elements, hoist_dtype_name(src->dtype),
				   (unsigned long long)dst->elements, hoist_dtype_name(dst->dtype));
	return copy_all(dst, src);
}

int hoist_buffer_copy(hoist_buffer *src, hoist_device *device, hoist_buffer **ret)
{
	int err = check_buffer(src);
	if (err < 0)
		return err;
	hoist_buffer *made;
	err = hoist_buffer_create(device, src->dtype, src->rank, src->dims, 0, &made);
	if (err < 0)
		return err;
	err = copy_all(made, src);
	if (err < 0) {
		hoist_buffer_unref(made);
		return err;
	}
	*ret = made;
	return 0;
}

/* The checks of read and write; @verb for the text. */
static int check_range(const hoist_buffer *buffer, const char *verb, size_t offset,
		       const void *host, size_t bytes)
{
	int err = check_buffer(buffer);
	if (err < 0)
		return err;
	if (offset > buffer->bytes || bytes > buffer->bytes - offset)
		return hoist__fail(-EINVAL,
				   "%s %zu bytes from byte %zu on leaves the buffer of %zu", verb,
				   bytes, offset, buffer->bytes);
	if (host == NULL && bytes > 0)
		return hoist__fail(-EINVAL, "%s %zu bytes: the host memory is NULL", verb, bytes);
	return 0;
}

int hoist_buffer_read(hoist_buffer *buffer, size_t offset, void *host, size_t bytes)
{
	int err = check_range(buffer, "reading", offset, host, bytes);
	if (err < 0)
		return err;
	const struct hoist__span from = span_of(buffer, offset);
	const struct hoist__span to = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	err = hoist__transfer(&to, &from, bytes);
	if (err < 0)
		return hoist__fail_in(err, "reading %zu bytes from %s", bytes,
				      hoist_device_spec(from.device));
	return 0;
}

int hoist_buffer_write(hoist_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
	int err = check_range(buffer, "writing", offset, host, bytes);
	if (err < 0)
		return err;
	const struct hoist__span to = span_of(buffer, offset);
	const struct hoist__span from = {NULL, HOIST__MEMORY_HOST, (uintptr_t)host};
	err = hoist__transfer(&to, &from, bytes);
	if (err < 0)
		return hoist__fail_in(err, "writing %zu bytes to %s", bytes,
				      hoist_device_spec(to.device));
	return 0;
}
