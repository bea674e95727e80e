/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-grow.c - hoist_buffer_grow(): a buffer whose memory becomes larger.
 * The contract is in hoist/buffer.h.
 *
 * Buffers and storages do not change.  So the larger buffer and storage are made beforehand,
 * over the same block: nothing can fail once the block has grown.  Then the new storage owns the
 * block. */
#include "config.h"

#include "base/error.h"
#include "hoist/memory-driver.h"
#include "lib/buffer/buffer-private.h"
#include "lib/memory/memory.h"

static int check(hoist_buffer *buffer)
{
	int err = hoist__buffer_check(buffer, "the buffer to grow");
	if (err < 0)
		return err;
	const hoist_memory *memory = hoist__storage_memory(buffer->storage);
	if (memory == NULL || memory->ops->grow == NULL)
		return hoist__fail(-ENOTSUP, "its memory cannot grow; HOIST_MEMORY_VIRTUAL can");
	if (buffer->offset != 0 || buffer->bit != 0)
		return hoist__fail(-EINVAL,
				   "the buffer begins %zu bytes into its storage; only a buffer at "
				   "its storage's beginning can grow",
				   buffer->offset);
	if (!hoist__storage_is_alone(buffer->storage))
		return hoist__fail(-EBUSY, "views or exports share its memory, whose address may "
					   "change; drop them first");
	int waited = hoist__storage_await_consumers(buffer->storage);
	return waited < 0 ? waited : hoist__storage_allocate(buffer->storage);
}

/* Makes the larger buffer over the block as it is now, and gives a reference to its storage. */
static int prepare(const hoist_buffer *buffer, int rank, const int64_t *shape, size_t bytes,
		   struct hoist__storage **storage, hoist_buffer **ret)
{
	struct hoist__storage *old = buffer->storage;
	const struct hoist__view view = {
		.dtype = buffer->dtype,
		.rank = rank,
		.shape = shape,
		.stream = buffer->stream,
		.read_only = buffer->read_only || hoist__storage_is_read_only(old),
	};
	int err = hoist__storage_adopt(hoist__storage_memory(old), hoist__storage_stream(old),
				       hoist__storage_address(old), bytes, storage);
	if (err == 0) {
		err = hoist__buffer_make(*storage, &view, ret);
		if (err < 0) {
			hoist__storage_forget(*storage);
			hoist__storage_unref(*storage);
		}
	}
	return err;
}

static int grow(hoist_buffer *buffer, int rank, const int64_t *shape, hoist_buffer **ret)
{
	uint64_t elements;
	size_t bytes = 0;
	uintptr_t address;
	struct hoist__storage *storage;
	hoist_buffer *made;
	int err = check(buffer);
	if (err == 0)
		err = hoist__buffer_measure(buffer->dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return err;
	struct hoist__storage *old = buffer->storage;
	if (bytes < hoist__storage_bytes(old))
		bytes = hoist__storage_bytes(old);
	/* All else that may fail comes before the block grows, so that a failure leaves the buffer
	 * as it was. */
	err = prepare(buffer, rank, shape, bytes, &storage, &made);
	if (err < 0)
		return err;
	address = hoist__storage_address(old);
	if (address != 0)
		err = hoist_memory_grow(hoist__storage_memory(old), address, bytes, &address);
	else if (bytes != 0)
		err = hoist__fail(-ENOTSUP, "the buffer has no bytes, and so no block to grow");
	if (err < 0) {
		hoist__storage_forget(storage);
		hoist_buffer_unref(made);
	} else {
		hoist__storage_move(storage, address);
		hoist__storage_forget(old);
		(void)hoist_buffer_close(buffer, NULL); /* without a stream it cannot fail */
		*ret = made;
	}
	hoist__storage_unref(storage);
	return err;
}

int hoist_buffer_grow(hoist_buffer *buffer, int rank, const int64_t *shape, hoist_buffer **ret)
{
	int err = grow(buffer, rank, shape, ret);
	return err < 0 ? hoist__fail_in(err, "growing a buffer") : 0;
}
