/* SPDX-License-Identifier: MIT */
/* emulator/memory.c - device memory.
 * The contract is in emulator/core.h and emulator/block.h.
 *
 * A device address lies in a mapping without access rights: a touch by the host is a segmentation
 * fault, as on a machine without managed memory.  The bytes are elsewhere, at the same offset. Both
 * mappings are twice the memory limit, and the search for a new block's place begins behind the
 * latest block.  So a freed address is not given out again soon, and a stale one is noticed.
 *
 * A block that is freed under a queued operation leaves the set in which addresses are looked up,
 * but its place is kept until the operation has ended. */
#include "config.h"

#include "emulator/block.h"
#include "emulator/ipc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "emulator/stream.h"

#define ALIGNMENT ((size_t)512)
#define HUGE_PAGE ((size_t)2 << 20)

/* Fresh device memory is not zero.  Blocks up to this size are filled with a pattern.  Larger ones
 * are left alone, so that their pages are committed only when used. */
#define FILL_BYTES ((size_t)64 << 10)
#define FILL 0xA5

/* --- the two mappings of a device --- */

/* Maps @bytes at a multiple of 2 MiB; NULL if the kernel refuses. */
static void *map_aligned(size_t bytes, int protection)
{
	char *all = mmap(NULL, bytes + HUGE_PAGE, protection,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return NULL;
	size_t before = (size_t)(hoist__round_up((uintptr_t)all, HUGE_PAGE) - (uintptr_t)all);
	if (before > 0)
		(void)munmap(all, before);
	if (before < HUGE_PAGE)
		(void)munmap(all + before + bytes, HUGE_PAGE - before);
	return all + before;
}

int hoist__emu_map_device(struct hoist__emu_device *device)
{
	if (device->base != 0)
		return EMU_SUCCESS;
	size_t span = (size_t)hoist__round_up(2 * hoist__emu.now.memory + 1, HUGE_PAGE);
	void *addresses = map_aligned(span, PROT_NONE);
	if (addresses == NULL)
		return EMU_OUT_OF_MEMORY;
	void *bytes = map_aligned(span, PROT_READ | PROT_WRITE);
	if (bytes == NULL) {
		(void)munmap(addresses, span);
		return EMU_OUT_OF_MEMORY;
	}
	/* an optimisation, which the kernel may refuse */
	(void)madvise(bytes, span, MADV_HUGEPAGE);
	device->base = (uintptr_t)addresses;
	device->bytes = bytes;
	device->span = span;
	return EMU_SUCCESS;
}

void hoist__emu_make_resident(struct hoist__emu_device *device)
{
	if (hoist__emu_map_device(device) == EMU_SUCCESS)
		(void)madvise(device->bytes,
			      hoist__round_up(hoist__emu.environment.resident, HUGE_PAGE),
			      MADV_POPULATE_WRITE); /* may be refused, too */
}

bool hoist__emu_is_device_address(uintptr_t address)
{
	for (int i = 0; i < hoist__emu.environment.n_devices; i++) {
		const struct hoist__emu_device *device = &hoist__emu.devices[i];
		if (device->base != 0 && address - device->base < device->span)
			return true;
	}
	return hoist__emu_is_window(address) || hoist__emu_vmm_is_address(address);
}

/* --- allocations --- */

static struct hoist__emu_block *block_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__emu_block, node);
}

/* Next fit: puts @block into the first gap behind the rover that is large enough. */
static bool place(struct hoist__emu_device *device, struct hoist__emu_block *block)
{
	struct hoist__list *head = &device->blocks;
	struct hoist__list *at = device->rover;
	do {
		uintptr_t start = device->base;
		if (at != head)
			start = block_of(at)->range.start + block_of(at)->rounded;
		uintptr_t end = device->base + device->span;
		if (at->next != head)
			end = block_of(at->next)->range.start;
		if (end - start >= block->rounded) {
			block->range.start = start;
			hoist__list_push_front(at, &block->node);
			device->rover = &block->node;
			return true;
		}
		at = at->next;
	} while (at != device->rover);
	return false;
}

void hoist__emu_block_unplace(struct hoist__emu_block *block)
{
	struct hoist__emu_device *device = block->device;
	if (device->rover == &block->node)
		device->rover = block->node.prev;
	hoist__list_remove(&block->node);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t offset = block->range.start - device->base;
	size_t first = (size_t)hoist__round_up(
		hoist__max_u64(offset, hoist__emu.environment.resident), page);
	size_t end = (size_t)hoist__round_down(offset + block->rounded, page);
	if (first < end) /* gives the bytes back; if refused, they are merely kept */
		(void)madvise(device->bytes + first, end - first,
			      device->shared ? MADV_REMOVE : MADV_DONTNEED);
}

size_t hoist__emu_round(size_t bytes)
{
	return (size_t)hoist__round_up(bytes, ALIGNMENT);
}

void hoist__emu_block_take(const struct hoist__emu_block *block)
{
	struct hoist_emulator_counters *count = &hoist__emu.count;
	block->device->used += block->rounded;
	count->live_bytes += block->rounded;
	count->peak_bytes = hoist__max_u64(count->peak_bytes, count->live_bytes);
}

void hoist__emu_block_give(const struct hoist__emu_block *block)
{
	block->device->used -= block->rounded;
	hoist__emu.count.live_bytes -= block->rounded;
}

bool hoist__emu_has_room(const struct hoist__emu_device *device, size_t bytes)
{
	uint64_t limit = hoist__emu.now.memory;
	return device->used <= limit && bytes <= limit - device->used;
}

int hoist__emu_block_place(struct hoist__emu_block *block)
{
	struct hoist__emu_device *device = block->device;
	if (!hoist__emu_has_room(device, block->rounded) ||
	    hoist__emu_map_device(device) != EMU_SUCCESS || !place(device, block))
		return EMU_OUT_OF_MEMORY;
	hoist__emu_block_take(block);
	if (block->rounded <= FILL_BYTES)
		memset(device->bytes + (block->range.start - device->base), FILL, block->rounded);
	return EMU_SUCCESS;
}

/* [locked] */
static int alloc_block(struct hoist__emu_block *block)
{
	int result = hoist__emu_block_place(block);
	if (result != EMU_SUCCESS)
		return result;
	if (hoist__emu_range_add(&hoist__emu.allocations, &block->range) < 0) {
		hoist__emu_block_give(block);
		hoist__emu_block_unplace(block);
		return EMU_OUT_OF_MEMORY;
	}
	hoist__emu.count.live_allocations++;
	return EMU_SUCCESS;
}

int hoist__emu_block_new(size_t bytes, const void *asked, struct hoist__emu_block **ret)
{
	if (bytes == 0 || asked == NULL)
		return EMU_INVALID_VALUE;
	if (bytes > SIZE_MAX / 4)
		return EMU_OUT_OF_MEMORY;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	if (block == NULL)
		return EMU_OUT_OF_MEMORY;
	block->range.bytes = bytes;
	*ret = block;
	return EMU_SUCCESS;
}

int hoist__emu_alloc(struct hoist__emu_device *device, size_t bytes, uintptr_t *ret)
{
	struct hoist__emu_block *block;
	int result = hoist__emu_block_new(bytes, ret, &block);
	if (result != EMU_SUCCESS)
		return result;
	block->device = device;
	block->rounded = hoist__emu_round(bytes);
	hoist__emu_lock();
	result = alloc_block(block);
	if (result == EMU_SUCCESS)
		*ret = block->range.start;
	hoist__emu_unlock();
	if (result != EMU_SUCCESS)
		free(block);
	return result;
}

void hoist__emu_block_discard(struct hoist__emu_block *block)
{
	if (block->window != NULL) {
		hoist__emu_window_end(block);
		return;
	}
	if ((block->managed && block->piece == NULL) || block->owned)
		(void)munmap((void *)block->range.start, block->rounded);
	else if (block->device != NULL && block->piece == NULL)
		hoist__emu_block_unplace(block);
	free(block);
}

int hoist__emu_block_retire(struct hoist__emu_block *block)
{
	if (block->users == 0) {
		hoist__emu_block_discard(block);
		return EMU_SUCCESS;
	}
	hoist__emu.count.use_after_free++;
	block->dead = true;
	/* The caller may unmap registered memory as soon as this function returns. */
	block->users++;
	while (block->busy > 0)
		(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
	if (--block->users == 0)
		hoist__emu_block_discard(block);
	return EMU_ILLEGAL_ADDRESS;
}

/* [locked] Finds device memory, managed memory or a block of a pool, also another process's: NULL
 * for anything else. */
static struct hoist__emu_block *find_block(uintptr_t address)
{
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL)
		block = hoist__emu_range_find(&hoist__emu.registrations, address, 1);
	bool found = block != NULL && block->range.start == address && block->device != NULL;
	/* Plain memory of another process is closed, not freed; a block of its pool is freed. */
	if (found && block->window != NULL)
		found = hoist__emu_window_is_of_pool(block);
	return found ? block : NULL;
}

/* [locked] */
static int free_block(struct hoist__emu_block *block)
{
	if (block->window != NULL) {
		hoist__emu_window_leave(block);
		return hoist__emu_block_retire(block);
	}
	hoist__emu.count.live_allocations--;
	if (block->piece != NULL)
		return hoist__emu_pool_free_now(block);
	void **set = block->managed ? &hoist__emu.registrations : &hoist__emu.allocations;
	hoist__emu_range_remove(set, &block->range);
	hoist__emu_block_give(block);
	return hoist__emu_block_retire(block);
}

int hoist__emu_free(uintptr_t address)
{
	if (address == 0)
		return EMU_SUCCESS;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block = find_block(address);
	if (block != NULL)
		result = free_block(block);
	else
		hoist__emu.count.bad_frees++;
	hoist__emu_unlock();
	return result;
}

void hoist__emu_mem_info(struct hoist__emu_device *device, size_t *free_bytes, size_t *total)
{
	hoist__emu_lock();
	uint64_t limit = hoist__emu.now.memory;
	*total = (size_t)limit;
	*free_bytes = (size_t)(limit - hoist__min_u64(limit, device->used));
	hoist__emu_unlock();
}
