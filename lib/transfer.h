/* SPDX-License-Identifier: MIT */
/* lib/transfer.h - moving bytes between any two places, and waiting for them.
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
 * it would copy synchronously through small buffers of its own.
 *
 * Streams and events are costly to make, so a device keeps a few idle sets of
 * them, its lanes.  A lane serves one transfer at a time.
 *
 * Threads: any; transfers of one device run beside each other.
 */
#ifndef HOIST_LIB_TRANSFER_H
#define HOIST_LIB_TRANSFER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/region.h"
#include "hoist/device.h"

/* Where bytes are.  HOST ignores @device; PINNED is registered with it. */
struct hoist__span {
	hoist_device *device;
	enum hoist__memory_kind kind;
	uintptr_t address;
};

/* Copies as if through a third place: the two may overlap.  When it returns,
 * 0 or not, nothing of it is in flight.
 * Returns: 0; -ENOMEM, -EPERM (the slots); -ENODEV, -EREMOTEIO, -ESTALE. */
int hoist__transfer(const struct hoist__span *dst, const struct hoist__span *src, size_t bytes);

/* Sets @bytes bytes to @value.  Returns: as hoist__transfer(). */
int hoist__fill(const struct hoist__span *dst, unsigned char value, size_t bytes);

struct hoist__lane;

struct hoist__lanes {
	pthread_mutex_t lock;
	struct hoist__lane *idle;
	unsigned n_idle;
};

void hoist__lanes_init(struct hoist__lanes *lanes);

/* Ends the idle ones. */
void hoist__lanes_drain(struct hoist__lanes *lanes);

#endif
