/* SPDX-License-Identifier: MIT */
/* Device memory, and the host memory that a program registered.
 *
 * A device address lies in a mapping without access rights: a touch by the host
 * is a segmentation fault, as on a machine without managed memory.  The bytes
 * are elsewhere at the same offset.  Both mappings are twice the memory limit
 * and new blocks are looked for behind the latest one, so that a freed address
 * is not given out again soon and a stale one is noticed.
 *
 * A block that is freed under a queued operation leaves the set that addresses
 * are looked up in, but its place is kept until the operation has ended. */
#include "config.h"

#include "emulator/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define ALIGNMENT ((size_t)512)
#define HUGE_PAGE ((size_t)2 << 20)

/* Fresh device memory is not zero: blocks up to this size are filled with a
 * pattern; larger ones are left alone, their pages are committed when used. */
#define FILL_BYTES ((size_t)64 << 10)
#define FILL 0xA5

struct hoist__emu_block {
	struct hoist__emu_range range;
	struct hoist__list node;	  /* allocations: in device->blocks, by address */
	struct hoist__emu_device *device; /* NULL: a registration */
	size_t rounded;			  /* what it takes of the device */
	unsigned users;			  /* queued operations */
	unsigned busy;			  /* of them: copying a chunk now */
	bool dead;			  /* freed under them */
};

/* --- the two mappings of a device --- */

/* @bytes at a multiple of 2 MiB; NULL if the kernel refuses. */
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

static int map_device(struct hoist__emu_device *device)
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
	(void)madvise(bytes, span, MADV_HUGEPAGE); /* an optimisation: may be refused */
	device->base = (uintptr_t)addresses;
	device->bytes = bytes;
	device->span = span;
	return EMU_SUCCESS;
}

void hoist__emu_make_resident(struct hoist__emu_device *device)
{
	if (map_device(device) == EMU_SUCCESS)
		(void)madvise(device->bytes,
			      hoist__round_up(hoist__emu.environment.resident, HUGE_PAGE),
			      MADV_POPULATE_WRITE); /* as above */
}

static bool is_device_address(uintptr_t address)
{
	for (int i = 0; i < hoist__emu.environment.n_devices; i++) {
		const struct hoist__emu_device *device = &hoist__emu.devices[i];
		if (device->base != 0 && address - device->base < device->span)
			return true;
	}
	return false;
}

/* --- allocations --- */

static struct hoist__emu_block *block_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__emu_block, node);
}

/* Next fit: puts @block into the first gap behind the rover that holds it. */
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

static void unplace(struct hoist__emu_block *block)
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
	if (first < end) /* gives the bytes back; on refusal they are merely kept */
		(void)madvise(device->bytes + first, end - first, MADV_DONTNEED);
}

static void count_allocation(const struct hoist__emu_block *block)
{
	struct hoist_emulator_counters *count = &hoist__emu.count;
	block->device->used += block->rounded;
	count->live_allocations++;
	count->live_bytes += block->rounded;
	count->peak_bytes = hoist__max_u64(count->peak_bytes, count->live_bytes);
}

/* [locked] */
static int alloc_block(struct hoist__emu_device *device, struct hoist__emu_block *block)
{
	uint64_t limit = hoist__emu.now.memory;
	if (device->used > limit || block->rounded > limit - device->used)
		return EMU_OUT_OF_MEMORY;
	if (map_device(device) != EMU_SUCCESS || !place(device, block))
		return EMU_OUT_OF_MEMORY;
	if (hoist__emu_range_add(&hoist__emu.allocations, &block->range) < 0) {
		unplace(block);
		return EMU_OUT_OF_MEMORY;
	}
	count_allocation(block);
	if (block->rounded <= FILL_BYTES)
		memset(device->bytes + (block->range.start - device->base), FILL, block->rounded);
	return EMU_SUCCESS;
}

int hoist__emu_alloc(struct hoist__emu_device *device, size_t bytes, uintptr_t *ret)
{
	if (bytes == 0 || ret == NULL)
		return EMU_INVALID_VALUE;
	if (bytes > SIZE_MAX / 4)
		return EMU_OUT_OF_MEMORY;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	if (block == NULL)
		return EMU_OUT_OF_MEMORY;
	block->device = device;
	block->range.bytes = bytes;
	block->rounded = (size_t)hoist__round_up(bytes, ALIGNMENT);
	hoist__emu_lock();
	result = alloc_block(device, block);
	if (result == EMU_SUCCESS)
		*ret = block->range.start;
	hoist__emu_unlock();
	if (result != EMU_SUCCESS)
		free(block);
	return result;
}

/* [locked] The end of a block, or of its last user after that. */
static void discard(struct hoist__emu_block *block)
{
	if (block->device != NULL)
		unplace(block);
	free(block);
}

/* [locked] Takes @block out of service. */
static int retire(struct hoist__emu_block *block)
{
	if (block->users == 0) {
		discard(block);
		return EMU_SUCCESS;
	}
	hoist__emu.count.use_after_free++;
	block->dead = true;
	/* The caller may unmap what it registered as soon as we return. */
	block->users++;
	while (block->busy > 0)
		(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
	if (--block->users == 0)
		discard(block);
	return EMU_ILLEGAL_ADDRESS;
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
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block != NULL && block->range.start == address) {
		hoist__emu_range_remove(&hoist__emu.allocations, &block->range);
		block->device->used -= block->rounded;
		hoist__emu.count.live_allocations--;
		hoist__emu.count.live_bytes -= block->rounded;
		result = retire(block);
	} else {
		hoist__emu.count.bad_frees++;
	}
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

/* --- registrations --- */

/* Whether the caller still has memory there.  MS_ASYNC writes nothing back: it
 * only walks the mappings, and fails where one is missing. */
static bool is_mapped(uintptr_t address, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = address & ~(page - 1);
	return msync((void *)first, address - first + bytes, MS_ASYNC) == 0;
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

int hoist__emu_register(void *address, size_t bytes)
{
	uintptr_t start = (uintptr_t)address;
	if (address == NULL || bytes == 0 || bytes > UINTPTR_MAX - start ||
	    !is_mapped(start, bytes))
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	if (block == NULL)
		return EMU_OUT_OF_MEMORY;
	block->range = (struct hoist__emu_range){.start = start, .bytes = bytes};
	hoist__emu_lock();
	result = is_device_address(start) ? EMU_INVALID_VALUE : register_block(block);
	hoist__emu_unlock();
	if (result != EMU_SUCCESS)
		free(block);
	return result;
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
	if (block != NULL && block->range.start == start) {
		hoist__emu_range_remove(&hoist__emu.registrations, &block->range);
		hoist__emu.count.live_registrations--;
		hoist__emu.count.live_registered_bytes -= block->range.bytes;
		result = retire(block);
	} else {
		hoist__emu.count.bad_frees++;
	}
	hoist__emu_unlock();
	return result;
}

int hoist__emu_host_address(void *address, uintptr_t *ret)
{
	hoist__emu_lock();
	void *block = hoist__emu_range_find(&hoist__emu.registrations, (uintptr_t)address, 1);
	hoist__emu_unlock();
	if (block == NULL || ret == NULL)
		return EMU_INVALID_VALUE;
	*ret = (uintptr_t)address;
	return EMU_SUCCESS;
}

/* --- spans --- */

static int refuse(void)
{
	hoist__emu.count.bad_copies++;
	return EMU_INVALID_VALUE;
}

static bool contains(const struct hoist__emu_range *range, uintptr_t address, size_t bytes)
{
	return address >= range->start && address - range->start <= range->bytes &&
	       bytes <= range->bytes - (address - range->start);
}

int hoist__emu_span_device(uintptr_t address, size_t bytes, struct hoist__emu_span *ret)
{
	if (!is_device_address(address)) {
		int result = hoist__emu_span_host(address, bytes, ret);
		if (result != EMU_SUCCESS || ret->block != NULL)
			return result;
		return refuse(); /* pageable memory is no device memory */
	}
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL || !contains(&block->range, address, bytes))
		return refuse();
	block->users++;
	*ret = (struct hoist__emu_span){
		.bytes = block->device->bytes + (address - block->device->base),
		.block = block,
	};
	return EMU_SUCCESS;
}

int hoist__emu_span_host(uintptr_t address, size_t bytes, struct hoist__emu_span *ret)
{
	if (address == 0 || is_device_address(address) || bytes > UINTPTR_MAX - address)
		return refuse();
	/* A copy must not run across the edge of a registration: drivers look
	 * at where it starts and refuse what lies behind. */
	struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.registrations, address, bytes);
	if (block != NULL && !contains(&block->range, address, bytes))
		return refuse();
	if (block != NULL)
		block->users++;
	*ret = (struct hoist__emu_span){
		.bytes = (unsigned char *)address,
		.block = block,
		.host = true,
	};
	return EMU_SUCCESS;
}

void hoist__emu_span_release(struct hoist__emu_span *span)
{
	struct hoist__emu_block *block = span->block;
	span->block = NULL;
	if (block != NULL && --block->users == 0 && block->dead)
		discard(block);
}

int hoist__emu_span_touch(struct hoist__emu_span *span, size_t offset, size_t bytes)
{
	if (span->block != NULL && span->block->dead)
		return EMU_ILLEGAL_ADDRESS;
	if (span->host && !is_mapped((uintptr_t)span->bytes + offset, bytes)) {
		hoist__emu.count.use_after_free++;
		return EMU_ILLEGAL_ADDRESS;
	}
	if (span->block != NULL)
		span->block->busy++;
	return EMU_SUCCESS;
}

void hoist__emu_span_leave(struct hoist__emu_span *span)
{
	if (span->block == NULL)
		return;
	span->block->busy--;
	if (span->block->dead)
		(void)pthread_cond_broadcast(&hoist__emu.progress);
}
