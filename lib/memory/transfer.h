/* SPDX-License-Identifier: MIT */
/* lib/memory/transfer.h - moving runs of bytes between any two places, and waiting for them.
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
 * "pinned" holds for the devices of the api that the memory is registered
 * with; to another api, and to all of them where the CPU locked it, such memory
 * is as good as pageable and bounces.  A driver is never given pageable memory:
 * it would copy synchronously through small buffers of its own.  Managed memory counts as
 * pinned: the driver knows it, and the CPU may touch it.
 *
 * Threads: any; transfers of one device run beside each other.
 */
#ifndef HOIST_LIB_TRANSFER_H
#define HOIST_LIB_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"
#include "hoist/device.h"
#include "lib/memory/lane.h"

/* Where bytes are.  HOST ignores @device; PINNED is registered with it. */
struct hoist__span {
	hoist_device *device;
	enum hoist__memory_kind kind;
	uintptr_t address;
};

enum hoist__api hoist__span_api(const struct hoist__span *span);

/* The CPU can touch it. */
bool hoist__span_on_host(const struct hoist__span *span);

/* @host is known to the driver of @on's device: it can copy from and to there by itself. */
bool hoist__span_is_direct(const struct hoist__span *host, const struct hoist__span *on);

/* What a driver pinned is not there in a child of fork: -ESTALE. */
int hoist__span_check(const struct hoist__span *span);

/* Copies as if through a third place: the two may overlap.  When it returns,
 * 0 or not, nothing of it is in flight.
 * Returns: 0; -ENOMEM, -EPERM (the slots); -ENODEV, -EREMOTEIO, -ESTALE. */
int hoist__transfer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes);

/* The same with slots of @through: see hoist__slots_acquire().  Between devices of two apis that is
 * the source's side; the destination's slots are its device's own. */
int hoist__transfer_through(const struct hoist__span *dst, const struct hoist__span *src,
			    size_t bytes, hoist_memory *through);

/* Sets @bytes bytes to @value.  Returns: as hoist__transfer(). */
int hoist__fill(const struct hoist__span *dst, unsigned char value, size_t bytes);

#endif
