/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage-parked.c - storages that a consumer's work may still use.
 * The contract is in lib/buffer/storage.h; lib/memory/parked.h has the list of parked memory. */
#include "config.h"

#include <errno.h>

#include "base/assert.h"
#include "base/error.h"
#include "lib/buffer/storage-private.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"
#include "lib/memory/memory.h"

void hoist__storage_lend(struct hoist__storage *storage)
{
	atomic_store(&storage->xpasses, HOIST__STORAGE_LENT);
}

void hoist__storage_returned(struct hoist__storage *storage)
{
	uint64_t next = hoist__dev_next_wait();
	uint64_t known = atomic_load(&storage->xpasses);
	while (known < next && !atomic_compare_exchange_weak(&storage->xpasses, &known, next)) {
	}
}

bool hoist__storage_is_of_graph(const struct hoist__storage *storage)
{
	hoist_stream *own = atomic_load(&storage->xstream);
	bool captures = false;
	if (storage->memory != NULL && storage->memory->ops == &hoist__memory_graph_ops)
		return true;
	if (own == NULL || !hoist__dev_stream_may_capture(hoist__stream_dev_stream(own)))
		return false;
	int err = hoist__dev_stream_capturing(hoist__stream_dev_stream(own), &captures);
	return err == 0 && captures;
}

static void end(struct hoist__parked *entry)
{
	hoist__storage_end(HOIST__CONTAINER_OF(entry, struct hoist__storage, parked));
}

static void fill_entry(struct hoist__storage *storage, uint64_t passes)
{
	HOIST__ASSERT(storage->bytes != 0 && passes != 0 && passes != HOIST__STORAGE_LENT);
	storage->parked = (struct hoist__parked){
		.device = storage->device,
		.memory = storage->memory,
		.kind = storage->kind,
		.bytes = storage->bytes,
		.passes = passes,
		.end = end,
	};
}

bool hoist__storage_park(struct hoist__storage *storage)
{
	uint64_t passes = atomic_load(&storage->xpasses);
	if (passes == 0 || storage->kind == HOIST__MEMORY_HOST || storage->bytes == 0 ||
	    hoist__storage_address(storage) == 0 || hoist__device_is_cpu(storage->device))
		return false;
	fill_entry(storage, passes == HOIST__STORAGE_LENT ? hoist__dev_next_wait() : passes);
	HOIST__ASSERT(hoist__storage_address(storage) != 0);
	return hoist__park(&storage->parked);
}

bool hoist__storage_park_for(struct hoist__storage *storage, hoist_device *device)
{
	fill_entry(storage, hoist__dev_next_wait());
	if (storage->kind == HOIST__MEMORY_HOST || hoist__device_is_cpu(storage->device)) {
		storage->parked.device = device;
		storage->parked.kind = HOIST__MEMORY_PINNED; /* every device may use it */
	}
	return hoist__park(&storage->parked);
}

int hoist__storage_await_consumers(struct hoist__storage *storage)
{
	uint64_t passes = atomic_load(&storage->xpasses);
	if (passes == 0)
		return 0;
	if (passes == HOIST__STORAGE_LENT)
		return hoist__fail(-EBUSY,
				   "its address was exported (the CUDA Array Interface, DLPack's "
				   "exchange), and somebody may use it; copy the buffer instead");
	fill_entry(storage, passes);
	return hoist__parked_await(&storage->parked);
}
