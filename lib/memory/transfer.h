/* SPDX-License-Identifier: MIT */
/* lib/memory/transfer.h - moves runs of bytes between any two places, and waits for them.
 *
 *   from \ to      host             pinned           device
 *   host           memmove          memmove          bounce
 *   pinned         memmove          memmove          direct
 *   device         bounce           direct           same device: direct
 *                                                    same api: peer copy
 *                                                    else: through host memory
 *
 *   direct   one asynchronous copy on a stream of our own
 *   bounce   through two pinned slots of the device's staging pool: while the
 *            device copies one, the host copies the other
 *
 * "pinned" holds for the devices of the API that the memory is registered with.  For another API
 * such memory is pageable, and bounces.  So does memory that the CPU locked, for every API.  A
 * driver is never given pageable memory: it would copy synchronously through small buffers of its
 * own.  Managed memory counts as pinned: the driver knows it, and the CPU may touch it.
 *
 * Threads: any; transfers of one device run in parallel.
 */
#ifndef HOIST_LIB_MEMORY_TRANSFER_H
#define HOIST_LIB_MEMORY_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"
#include "hoist/device.h"
#include "lib/memory/lane.h"

/* The place of bytes.  HOST ignores @device; PINNED is registered with @device. */
struct hoist__span {
	hoist_device *device;
	enum hoist__memory_kind kind;
	uintptr_t address;
};

enum hoist__api hoist__span_api(const struct hoist__span *span);

/* True if the CPU can touch the memory. */
bool hoist__span_on_host(const struct hoist__span *span);

/* True if the driver of @on's device knows the memory @host, so that the device can copy from and
 * to it. */
bool hoist__span_is_direct(const struct hoist__span *host, const struct hoist__span *on);

/* Returns: 0; -ESTALE in a child of fork for memory that a driver pinned, which the child does not
 * have. */
int hoist__span_check(const struct hoist__span *span);

/* Copies as if through a third place: the two may overlap.  When the call returns, also with a
 * failure, none of the copy is in flight.
 * Returns: 0; -ENOMEM, -EPERM (the slots); -ENODEV, -EREMOTEIO, -ESTALE. */
int hoist__transfer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes);

/* The same with slots of @through: see hoist__slots_acquire().  Between devices of two APIs
 * @through serves the source's side; the destination uses its device's own slots. */
int hoist__transfer_through(const struct hoist__span *dst, const struct hoist__span *src,
			    size_t bytes, hoist_memory *through);

/* Sets @bytes bytes to @value.  Returns: as hoist__transfer(). */
int hoist__fill(const struct hoist__span *dst, unsigned char value, size_t bytes);

#endif
