/* SPDX-License-Identifier: MIT */
/* lib/memory/parked.h - memory that was lent to consumers whose streams nobody knows.
 *
 * Work that a consumer (DLPack, the CUDA Array Interface) queued goes on when the consumer lets go.
 * So the memory stays as it is, parked, until a wait for the whole device that began after the
 * consumer let go has ended; host and managed memory waits for all devices of its driver.
 * hoist__parked_sweep() makes one wait for all that is parked, and ends what has passed.
 *
 * Only a caller that needs memory waits: a resource or budget that is exhausted, a trim, the end of
 * a resource, and an allocation of a Buffer that finds more than 1/32 of the device's memory (and
 * 64 MiB) parked.  Up to that growing is preferred.  No wait is begun while a stream that hoist
 * knows captures a graph.  A child of fork parks nothing of its parent's.
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

/* All but the link is the owner's to set before hoist__park(), and constant from there on. */
struct hoist__parked {
	hoist_device *device;
	hoist_memory *memory; /* the bytes are a block of it; NULL: memory from elsewhere */
	enum hoist__memory_kind kind;
	size_t bytes;
	uint64_t passes; /* hoist__dev_next_wait() when the consumer let go */
	void (*end)(struct hoist__parked *entry); /* called once; perhaps in another thread */
	struct hoist__list link;
};

/* Takes over @entry, which nobody else refers to: true if it is parked.  False if consumers' work
 * is over already, or is another process's. */
bool hoist__park(struct hoist__parked *entry);

/* Waits until consumers' work on the memory of @entry, which is not parked, is over.
 * Returns: 0; -EBUSY (a stream captures a graph); -EAGAIN, -EREMOTEIO, -ESTALE. */
int hoist__parked_await(const struct hoist__parked *entry);

/* Ends what is parked of @device (NULL: of all) and has passed; with @wait, waits for the
 * devices first.  Returns: true if there was any. */
bool hoist__parked_sweep(hoist_device *device, bool wait);

/* Comes before an allocation of @bytes of @memory: sweeps, if too much is parked on its device, or
 * more than its budget has left. */
void hoist__parked_bound(const hoist_memory *memory, size_t bytes);

#endif
