/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-create.c - makes buffers: of a device, a stream, a resource.
 * The contract is in hoist/buffer.h. */
#include "config.h"

#include "alloc/shared.h"
#include "base/error.h"
#include "base/layout.h"
#include "lib/buffer/buffer-private.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/memory/device-memory.h"
#include "lib/memory/memory.h"

#define ALL_FLAGS                                                                                  \
	(HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO | HOIST_BUFFER_LAZY | HOIST_BUFFER_SHAREABLE)

static int check_flags(unsigned flags, unsigned allowed)
{
	unsigned unknown = flags & ~ALL_FLAGS;
	if (unknown != 0)
		return hoist__fail(-EINVAL, "0x%x are no flags of a buffer", unknown);
	unsigned wrong = flags & ~allowed;
	if (wrong != 0)
		return hoist__fail(-EINVAL,
				   "the flags 0x%x say where bytes are; here the resource does",
				   wrong);
	if (flags & HOIST_BUFFER_SHAREABLE && flags & (HOIST_BUFFER_PINNED | HOIST_BUFFER_LAZY))
		return hoist__fail(-EINVAL, "a shareable buffer is neither pinned nor lazy");
	return 0;
}

/* --- over a storage --- */

int hoist__buffer_over(struct hoist__storage *storage, size_t offset, hoist_dtype dtype, int rank,
		       const int64_t *shape, hoist_buffer **ret)
{
	uint64_t elements;
	size_t bytes = 0;
	int err = hoist__buffer_measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return err;
	size_t room = hoist__storage_bytes(storage);
	if (offset > room || bytes > room - offset)
		return hoist__fail(-EINVAL,
				   "%llu elements of %s (%zu bytes) from byte %zu on leave the "
				   "%zu bytes there are",
				   (unsigned long long)elements, hoist_dtype_name(dtype), bytes,
				   offset, room);
	const struct hoist__view view = {
		.dtype = dtype, .rank = rank, .shape = shape, .offset = offset};
	return hoist__buffer_make(storage, &view, ret);
}

/* --- of a device, a stream, a resource --- */

struct wanted {
	hoist_dtype dtype;
	int rank;
	const int64_t *shape;
	unsigned flags;
	uint64_t elements;
	size_t bytes;
};

static int measure(struct wanted *wanted)
{
	return hoist__buffer_measure(wanted->dtype, wanted->rank, wanted->shape, &wanted->elements,
				     &wanted->bytes);
}

static unsigned storage_flags(unsigned flags)
{
	return (flags & HOIST_BUFFER_LAZY ? HOIST__STORAGE_LAZY : 0) |
	       (flags & HOIST_BUFFER_ZERO ? HOIST__STORAGE_ZERO : 0);
}

/* Takes over the caller's reference to @storage. */
static int over(struct hoist__storage *storage, hoist_stream *stream, const struct wanted *wanted,
		hoist_buffer **ret)
{
	const struct hoist__view view = {
		.dtype = wanted->dtype,
		.rank = wanted->rank,
		.shape = wanted->shape,
		.elements = wanted->elements,
		.bytes = wanted->bytes,
		.stream = stream,
	};
	return hoist__buffer_make_last(storage, &view, ret);
}

static int of_memory(hoist_memory *memory, hoist_stream *stream, const struct wanted *wanted,
		     hoist_buffer **ret)
{
	struct hoist__storage *storage;
	int err = hoist__storage_create(memory, stream, wanted->bytes, 0,
					storage_flags(wanted->flags), &storage);
	return err < 0 ? err : over(storage, stream, wanted, ret);
}

/* The kernel gives the memory as zeros. */
static int shared_storage(hoist_device *device, size_t bytes, struct hoist__storage **ret)
{
	struct hoist__shared *shared;
	int err = hoist__shared_create(bytes, &shared);
	if (err < 0)
		return err;
	const struct hoist__foreign foreign = {
		.device = device,
		.address = hoist__shared_address(shared),
		.bytes = bytes,
		.release = hoist__shared_close,
		.context = shared,
	};
	err = hoist__storage_wrap(&foreign, ret);
	if (err < 0)
		hoist__shared_close(shared);
	return err;
}

static int shareable(hoist_device *device, hoist_stream *stream, const struct wanted *wanted,
		     hoist_buffer **ret)
{
	if (!hoist__device_is_cpu(device))
		return hoist__fail(-EINVAL,
				   "shareable buffers are the CPU's; those of %s can be exported "
				   "as they are",
				   hoist_device_spec(device));
	struct hoist__storage *storage;
	int err = wanted->bytes > 0 ? shared_storage(device, wanted->bytes, &storage)
				    : hoist__storage_none(device, &storage);
	if (err < 0)
		return err;
	err = stream != NULL ? hoist__storage_use(storage, stream) : 0;
	if (err < 0) {
		hoist__storage_unref(storage);
		return err;
	}
	return over(storage, stream, wanted, ret);
}

/* Pre: @flags were checked. */
static int create(hoist_device *device, hoist_stream *stream, struct wanted *wanted,
		  hoist_buffer **ret)
{
	int err = measure(wanted);
	if (err < 0)
		return err;
	if (wanted->flags & HOIST_BUFFER_SHAREABLE)
		return shareable(device, stream, wanted, ret);
	hoist_memory *memory;
	err = hoist__device_buffers(device, wanted->flags & HOIST_BUFFER_PINNED, &memory);
	return err < 0 ? err : of_memory(memory, stream, wanted, ret);
}

int hoist__buffer_new(hoist_device *device, hoist_stream *stream, hoist_dtype dtype, int rank,
		      const int64_t *shape, unsigned flags, hoist_buffer **ret)
{
	struct wanted wanted = {dtype, rank, shape, flags, 0, 0};
	int err = check_flags(flags, ALL_FLAGS);
	if (err == 0)
		err = create(device, stream, &wanted, ret);
	return err < 0 ? hoist__fail_in(err, "a buffer on %s", hoist_device_spec(device)) : 0;
}

int hoist_buffer_create(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape,
			unsigned flags, hoist_buffer **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to make a buffer on is NULL");
	return hoist__buffer_new(device, NULL, dtype, rank, shape, flags, ret);
}

int hoist_buffer_create_on(hoist_stream *stream, hoist_dtype dtype, int rank, const int64_t *shape,
			   unsigned flags, hoist_buffer **ret)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to make a buffer on is NULL");
	return hoist__buffer_new(hoist_stream_device(stream), stream, dtype, rank, shape, flags,
				 ret);
}

int hoist_buffer_create_from(hoist_memory *memory, hoist_stream *stream, hoist_dtype dtype,
			     int rank, const int64_t *shape, unsigned flags, hoist_buffer **ret)
{
	struct wanted wanted = {dtype, rank, shape, flags, 0, 0};
	if (memory == NULL)
		return hoist__fail(-EINVAL, "the memory resource to make a buffer of is NULL");
	int err = check_flags(flags, HOIST_BUFFER_ZERO | HOIST_BUFFER_LAZY);
	if (err == 0 && stream != NULL)
		err = hoist__memory_check_stream(memory, stream);
	if (err == 0)
		err = measure(&wanted);
	if (err == 0)
		err = of_memory(memory, stream, &wanted, ret);
	return err < 0 ? hoist__fail_in(err, "a buffer of \"%s\"", memory->name) : 0;
}
