/* SPDX-License-Identifier: MIT */
/* emulator/register.c - host memory that a program registered, and managed memory.
 * The contract is in emulator/core.h.
 *
 * Managed memory is mapped for the host, too, and otherwise like a registration.  A device that
 * could not page it would hold all of it, so it counts as the device's. */
#include "config.h"

#include "emulator/block.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "emulator/stream.h"

/* MS_ASYNC writes nothing back.  It only walks the mappings, and fails with ENOMEM if one is
 * missing. */
bool hoist__emu_is_mapped(uintptr_t address, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = address & ~(page - 1);
	return msync((void *)first, address - first + bytes, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* [locked] */
static int register_block(struct hoist__emu_block *block)
{
	struct hoist_emulator_counters *count = &hoist__emu.count;
	uint64_t most = hoist__emu.now.register_most;
	if (most != 0 && block->range.bytes > most)
		return EMU_OUT_OF_MEMORY;
	int err = hoist__emu_range_add(&hoist__emu.registrations, &block->range);
	if (err < 0)
		return err == -EEXIST ? EMU_ALREADY_REGISTERED : EMU_OUT_OF_MEMORY;
	count->live_registrations++;
	count->live_registered_bytes += block->range.bytes;
	count->peak_registered_bytes =
		hoist__max_u64(count->peak_registered_bytes, count->live_registered_bytes);
	return EMU_SUCCESS;
}

/* Tells whether the page could be pinned for writing.  A kernel that cannot tell (before 5.14)
 * knows neither advice. */
static bool is_writable(uintptr_t address)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *first = (void *)(address & ~(page - 1));
	return madvise(first, page, MADV_POPULATE_WRITE) == 0 || errno != EINVAL ||
	       madvise(first, page, MADV_POPULATE_READ) != 0;
}

int hoist__emu_register(void *address, size_t bytes, bool read_only)
{
	uintptr_t start = (uintptr_t)address;
	if (address == NULL || bytes == 0 || bytes > UINTPTR_MAX - start ||
	    !hoist__emu_is_mapped(start, bytes) ||
	    (!read_only && !(is_writable(start) && is_writable(start + bytes - 1))))
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	if (block == NULL)
		return EMU_OUT_OF_MEMORY;
	block->range = (struct hoist__emu_range){.start = start, .bytes = bytes};
	hoist__emu_lock();
	result = hoist__emu_is_device_address(start) ? EMU_INVALID_VALUE : register_block(block);
	hoist__emu_unlock();
	if (result != EMU_SUCCESS)
		free(block);
	return result;
}

/* [locked] */
static int end_registration(struct hoist__emu_block *block)
{
	hoist__emu_range_remove(&hoist__emu.registrations, &block->range);
	hoist__emu.count.live_registrations--;
	hoist__emu.count.live_registered_bytes -= block->range.bytes;
	return hoist__emu_block_retire(block);
}

int hoist__emu_unregister(void *address)
{
	uintptr_t start = (uintptr_t)address;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	result = EMU_NOT_REGISTERED;
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.registrations, start, 1);
	if (block != NULL && block->range.start == start && !block->owned && block->device == NULL)
		result = end_registration(block);
	else
		hoist__emu.count.bad_frees++;
	hoist__emu_unlock();
	return result;
}

/* As hoist__emu_block_new(), over memory of the host. */
static int new_mapped(size_t bytes, const void *asked, struct hoist__emu_block **ret)
{
	int result = hoist__emu_block_new(bytes, asked, ret);
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_block *block = *ret;
	block->rounded = (size_t)hoist__round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
	void *memory = mmap(NULL, block->rounded, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		free(block);
		return EMU_OUT_OF_MEMORY;
	}
	block->range.start = (uintptr_t)memory;
	return EMU_SUCCESS;
}

int hoist__emu_host_alloc(size_t bytes, void **ret)
{
	struct hoist__emu_block *block;
	int result = new_mapped(bytes, ret, &block);
	if (result != EMU_SUCCESS)
		return result;
	block->owned = true;
	hoist__emu_lock();
	result = register_block(block);
	hoist__emu_unlock();
	if (result == EMU_SUCCESS)
		*ret = (void *)block->range.start;
	else
		hoist__emu_block_discard(block);
	return result;
}

int hoist__emu_host_free(void *address)
{
	uintptr_t start = (uintptr_t)address;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.registrations, start, 1);
	if (block != NULL && block->range.start == start && block->owned)
		result = end_registration(block);
	else
		hoist__emu.count.bad_frees++;
	hoist__emu_unlock();
	return result;
}

int hoist__emu_host_address(void *address, uintptr_t *ret)
{
	hoist__emu_lock();
	const struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.registrations, (uintptr_t)address, 1);
	uintptr_t seen = (uintptr_t)address;
	if (block != NULL && !block->managed)
		seen += hoist__emu_face.registered_offset;
	hoist__emu_unlock();
	if (block == NULL || ret == NULL)
		return EMU_INVALID_VALUE;
	*ret = seen;
	return EMU_SUCCESS;
}

uintptr_t hoist__emu_host_of(uintptr_t address)
{
	uintptr_t offset = hoist__emu_face.registered_offset;
	return offset != 0 && address >= offset ? address - offset : address;
}

/* --- managed memory --- */

/* [locked] */
static int add_managed(struct hoist__emu_block *block)
{
	if (!hoist__emu_has_room(block->device, block->rounded) ||
	    hoist__emu_range_add(&hoist__emu.registrations, &block->range) < 0)
		return EMU_OUT_OF_MEMORY;
	hoist__emu_block_take(block);
	hoist__emu.count.live_allocations++;
	return EMU_SUCCESS;
}

int hoist__emu_managed_alloc(struct hoist__emu_device *device, size_t bytes, uintptr_t *ret)
{
	struct hoist__emu_block *block;
	int result = new_mapped(bytes, ret, &block);
	if (result != EMU_SUCCESS)
		return result;
	block->device = device;
	block->managed = true;
	block->preferred = EMU_PREFER_NONE;
	hoist__emu_lock();
	result = add_managed(block);
	hoist__emu_unlock();
	if (result == EMU_SUCCESS)
		*ret = block->range.start;
	else
		hoist__emu_block_discard(block);
	return result;
}

/* A part cannot have a preference of its own here: advice is for whole allocations, as hoist gives
 * it. */
int hoist__emu_prefer(uintptr_t address, size_t bytes, int preferred)
{
	int result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.registrations, address, 1);
	if (block != NULL && block->managed && block->range.start == address &&
	    block->range.bytes == bytes) {
		block->preferred = preferred;
		result = EMU_SUCCESS;
	}
	hoist__emu_unlock();
	return result;
}

int hoist_emulator_preferred(uintptr_t address)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	const struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.registrations, address, 1);
	int preferred = block != NULL && block->managed ? block->preferred : EMU_PREFER_NONE;
	hoist__emu_unlock();
	return preferred;
}
