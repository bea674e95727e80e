/* SPDX-License-Identifier: MIT */
/* device/vmm.h - virtual memory of a driver: addresses and the memory behind them, apart.
 *
 *   reservation  addresses that nothing else gets, without memory and without access
 *   memory       memory of a device, known by a handle, without an address
 *   mapping      memory at addresses of one reservation; several mappings may show one memory
 *   access       the right of a device to use a mapping: none, until it is set
 *
 * All addresses, sizes and alignments are multiples of the granularity, but for a hint of 0 and an
 * alignment of 0.  Memory lives while its handle or a mapping does.  None of these calls waits for
 * work: a caller that unmaps makes sure that no queued work still uses the mapping.  All functions
 * but hoist__vmm_check(): [context].
 *
 * Every function also returns -ENOTSUP (the CPU; the driver or the device has no such memory),
 * -EREMOTEIO and -ESTALE.
 */
#ifndef HOIST_DEVICE_VMM_H
#define HOIST_DEVICE_VMM_H

#include "device/device.h"

/* Properties of the memory to be made. */
struct hoist__vmm_props {
	bool rdma;	  /* other devices on the bus, network adapters, may access it directly */
	bool recommended; /* granularity: the one for speed, not the smallest */
};

enum hoist__vmm_access { HOIST__VMM_NONE, HOIST__VMM_READ, HOIST__VMM_READ_WRITE };

/* 0, or -ENOTSUP: the driver has no such calls, the device has no such memory, or has none for
 * RDMA.  Makes no context. */
int hoist__vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props);

int hoist__vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			   size_t *ret);

/* Reserves addresses at @hint if they are free, else anywhere.  Returns: also -ENOSPC. */
int hoist__vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
		       uintptr_t *ret);
/* Gives a whole reservation back, in which nothing is mapped. */
int hoist__vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes);

/* Returns: also -ENOSPC. */
int hoist__vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props, size_t bytes,
		      uint64_t *ret);
int hoist__vmm_release(struct hoist__dev *dev, uint64_t handle);

/* Maps all of the memory, at addresses of one reservation where nothing is mapped. */
int hoist__vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle);
/* Unmaps all of one mapping. */
int hoist__vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes);

/* Sets the access of @accessor, a device of the same api, to whole mappings. */
int hoist__vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			  const struct hoist__dev *accessor, enum hoist__vmm_access access);

#endif
