/* SPDX-License-Identifier: MIT */
/* lib/memory/parked.h - memory that was lent to consumers whose streams are unknown.
 *
 * Work that a consumer (DLPack, the CUDA Array Interface) queued goes on when the consumer lets go.
 * So the memory stays parked until a wait for the whole device that began after the consumer let go
 * has ended.  Host and managed memory waits for all devices of its driver.
 * hoist__parked_sweep() makes one wait for all parked memory, and ends the entries that have
 * passed.
 *
 * Only a caller that needs memory waits: a resource or budget that is exhausted, a trim, the end of
 * a resource, and an allocation of a Buffer that finds more than 1/32 of the device's memory (and
 * 64 MiB) parked.  Up to that bound growing is preferred.  No wait is begun while a stream that
 * hoist knows captures a graph.  A child of fork parks nothing of its parent's.
 *
 * Threads: any.
 */
#ifndef HOIST_LIB_MEMORY_PARKED_H
#define HOIST_LIB_MEMORY_PARKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"
#include "base/list.h"
#include "hoist/device.h"
#include "hoist/memory.h"

/* The owner sets all fields but the link before hoist__park().  They are constant from then on. */
struct hoist__parked {
	hoist_device *device;
	hoist_memory *memory; /* the resource whose block the bytes are; NULL: memory from
			       * elsewhere */
	enum hoist__memory_kind kind;
	size_t bytes;
	uint64_t passes; /* hoist__dev_next_wait() when the consumer let go */
	void (*end)(struct hoist__parked *entry); /* called once; perhaps in another thread */
	struct hoist__list link;
};

/* Takes over @entry, which nothing else refers to.  True if the entry is parked.  False if the
 * consumers' work is over already, or is another process's. */
bool hoist__park(struct hoist__parked *entry);

/* Waits until the consumers' work on the memory of @entry, which is not parked, is over.
 * Returns: 0; -EBUSY (a stream captures a graph); -EAGAIN, -EREMOTEIO, -ESTALE. */
int hoist__parked_await(const struct hoist__parked *entry);

/* Ends the parked entries of @device (NULL: of all devices) that have passed.  With @wait, waits
 * for the devices first.  Returns: true if there was one. */
bool hoist__parked_sweep(hoist_device *device, bool wait);

/* Called before an allocation of @bytes of @memory.  Sweeps if too much is parked on the device, or
 * if the budget has less than @bytes left. */
void hoist__parked_bound(const hoist_memory *memory, size_t bytes);

#endif
