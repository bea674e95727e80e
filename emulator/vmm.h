/* SPDX-License-Identifier: MIT */
/* emulator/vmm.h - the drivers' virtual memory: addresses and memory, separately.
 *
 *   area         all its addresses: one mapping that nobody can touch (these are the device
 *                addresses) and one with the bytes, at the same offsets
 *   reservation  a part of the area
 *   memory       bytes of a device without an address: a file in memory.  Lives while its handle or
 *                a mapping does
 *   mapping      memory shown at a part of a reservation, with what each device may do with it;
 *                two mappings of one memory show the same bytes
 *
 * Copies may cross mappings that lie side by side, as on a device.  Memory that is unmapped under a
 * queued operation is a use after free; the operation goes on with other bytes.
 */
#ifndef HOIST_EMULATOR_VMM_H
#define HOIST_EMULATOR_VMM_H

#include "emulator/core.h"

#define EMU_VMM_MINIMUM ((size_t)64 << 10)
#define EMU_VMM_RECOMMENDED ((size_t)2 << 20)

/* The one device whose memory may be for RDMA. */
#define EMU_VMM_RDMA_DEVICE 0

#define EMU_ACCESS_READ 1u
#define EMU_ACCESS_READ_WRITE 3u

int hoist__emu_vmm_reserve(size_t bytes, size_t align, uintptr_t hint, uintptr_t *ret);
int hoist__emu_vmm_unreserve(uintptr_t address, size_t bytes);
int hoist__emu_vmm_create(struct hoist__emu_device *device, size_t bytes, void **ret);
int hoist__emu_vmm_release(void *handle);
/* Gives one handle more of the memory that is mapped at @address: it is released for itself. */
int hoist__emu_vmm_retain(uintptr_t address, void **ret);
int hoist__emu_vmm_map(uintptr_t address, size_t bytes, size_t offset, void *handle);
int hoist__emu_vmm_unmap(uintptr_t address, size_t bytes);

/* Sets the access of device @ordinal. */
int hoist__emu_vmm_set_access(uintptr_t address, size_t bytes, int ordinal, unsigned flags);

/* [locked] */
bool hoist__emu_vmm_is_address(uintptr_t address);
/* [locked] Returns the bytes if all of them are mapped; otherwise NULL. */
unsigned char *hoist__emu_vmm_bytes(uintptr_t address, size_t bytes);
/* [locked] True if @device may touch the bytes; also for an address outside the area. */
bool hoist__emu_vmm_allows(const struct hoist__emu_device *device, uintptr_t address, size_t bytes,
			   bool write);
/* [locked] Returns the device whose memory is mapped there; NULL if none is. */
const struct hoist__emu_device *hoist__emu_vmm_device(uintptr_t address);

#endif
