/* SPDX-License-Identifier: MIT */
/* emulator/vmm.c - virtual memory: reservations, memories, and mappings of one in the other.
 * The contract is in emulator/vmm.h. */
#include "config.h"

#include "emulator/vmm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "emulator/block.h"
#include "emulator/stream.h"

struct memory {
	struct hoist__emu_range range; /* [this, this + 1): its handle */
	struct hoist__emu_block block; /* counts the memory's bytes as its device's */
	int fd;
	unsigned n_handles; /* released as often as it was made and retained: gone */
	unsigned n_mappings;
};

struct mapping {
	struct hoist__emu_range range;
	struct memory *memory;
	unsigned char access[EMU_MAX_DEVICES];
};

/* Under the stand-in's lock, like everything else. */
static struct {
	uintptr_t base; /* 0 before use */
	unsigned char *bytes;
	size_t span;
	uintptr_t next;				  /* the search for new reservations begins here */
	void *reservations, *memories, *mappings; /* sets of ranges */
} area;

/* --- the area --- */

static int map_area(void)
{
	if (area.base != 0)
		return EMU_SUCCESS;
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t span =
		(size_t)hoist__round_up(4 * hoist__emu.environment.memory, EMU_VMM_RECOMMENDED);
	unsigned char *addresses = mmap(NULL, span + EMU_VMM_RECOMMENDED, PROT_NONE, flags, -1, 0);
	if (addresses == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	unsigned char *bytes = mmap(NULL, span, PROT_NONE, flags, -1, 0);
	if (bytes == MAP_FAILED) {
		(void)munmap(addresses, span + EMU_VMM_RECOMMENDED);
		return EMU_OUT_OF_MEMORY;
	}
	area.base = hoist__round_up((uintptr_t)addresses, EMU_VMM_RECOMMENDED);
	area.next = area.base;
	area.bytes = bytes;
	area.span = span;
	return EMU_SUCCESS;
}

bool hoist__emu_vmm_is_address(uintptr_t address)
{
	return area.base != 0 && address - area.base < area.span;
}

static unsigned char *bytes_at(uintptr_t address)
{
	return area.bytes + (address - area.base);
}

static bool is_free(uintptr_t address, size_t bytes)
{
	return address >= area.base && address - area.base <= area.span &&
	       bytes <= area.span - (address - area.base) &&
	       hoist__emu_range_find(&area.reservations, address, bytes) == NULL;
}

/* Finds a place from @from up; 0 if there is none. */
static uintptr_t find_place(uintptr_t from, size_t bytes, size_t align)
{
	for (uintptr_t at = hoist__round_up(from, align);
	     at - area.base <= area.span && bytes <= area.span - (at - area.base);) {
		const struct hoist__emu_range *taken =
			hoist__emu_range_find(&area.reservations, at, bytes);
		if (taken == NULL)
			return at;
		at = hoist__round_up(taken->start + taken->bytes, align);
	}
	return 0;
}

/* [locked] */
static int reserve(struct hoist__emu_range *range, size_t align, uintptr_t hint)
{
	int result = map_area();
	if (result != EMU_SUCCESS)
		return result;
	range->start = hint;
	if (hint % align != 0 || !is_free(hint, range->bytes))
		range->start = find_place(area.next, range->bytes, align);
	if (range->start == 0)
		range->start = find_place(area.base, range->bytes, align);
	if (range->start == 0 || hoist__emu_range_add(&area.reservations, range) < 0)
		return EMU_OUT_OF_MEMORY;
	/* The next reservation begins behind this one, so that stale addresses are noticed for
	 * longer. */
	area.next = range->start + range->bytes;
	hoist__emu.count.live_reservations++;
	return EMU_SUCCESS;
}

static bool is_whole(size_t bytes)
{
	return bytes != 0 && bytes % EMU_VMM_MINIMUM == 0 && bytes <= SIZE_MAX / 4;
}

int hoist__emu_vmm_reserve(size_t bytes, size_t align, uintptr_t hint, uintptr_t *ret)
{
	if (ret == NULL || !is_whole(bytes) || hint % EMU_VMM_MINIMUM != 0 ||
	    (align & (align - 1)) != 0)
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct hoist__emu_range *range = calloc(1, sizeof *range);
	if (range == NULL)
		return EMU_OUT_OF_MEMORY;
	range->bytes = bytes;
	hoist__emu_lock();
	result = reserve(range, align > EMU_VMM_MINIMUM ? align : EMU_VMM_MINIMUM, hint);
	hoist__emu_unlock();
	if (result == EMU_SUCCESS)
		*ret = range->start;
	else
		free(range);
	return result;
}

/* Returns the failure of a wrong call, and counts it as a bad free. */
static int refuse(void)
{
	hoist__emu.count.bad_frees++;
	return EMU_INVALID_VALUE;
}

int hoist__emu_vmm_unreserve(uintptr_t address, size_t bytes)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	struct hoist__emu_range *range = hoist__emu_range_find(&area.reservations, address, 1);
	if (range == NULL || range->start != address || range->bytes != bytes ||
	    hoist__emu_range_find(&area.mappings, address, bytes) != NULL) {
		result = refuse();
	} else {
		hoist__emu_range_remove(&area.reservations, range);
		hoist__emu.count.live_reservations--;
		free(range);
	}
	hoist__emu_unlock();
	return result;
}

/* --- memory --- */

/* [locked] */
static void settle(struct memory *memory)
{
	if (memory->n_handles > 0 || memory->n_mappings > 0)
		return;
	hoist__emu_block_give(&memory->block);
	hoist__emu.count.live_allocations--;
	(void)close(memory->fd);
	free(memory);
}

/* [locked] */
static int take(struct memory *memory, size_t bytes)
{
	if (!hoist__emu_has_room(memory->block.device, bytes) ||
	    hoist__emu_range_add(&area.memories, &memory->range) < 0)
		return EMU_OUT_OF_MEMORY;
	hoist__emu_block_take(&memory->block);
	hoist__emu.count.live_allocations++;
	memory->n_handles = 1;
	return EMU_SUCCESS;
}

int hoist__emu_vmm_create(struct hoist__emu_device *device, size_t bytes, void **ret)
{
	if (!is_whole(bytes))
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct memory *memory = calloc(1, sizeof *memory);
	if (memory == NULL)
		return EMU_OUT_OF_MEMORY;
	memory->range = (struct hoist__emu_range){.start = (uintptr_t)memory, .bytes = 1};
	memory->block.device = device;
	memory->block.rounded = bytes;
	memory->fd = memfd_create("hoist-emulated-memory", MFD_CLOEXEC);
	result = memory->fd < 0 || ftruncate(memory->fd, (off_t)bytes) < 0 ? EMU_OUT_OF_MEMORY
									   : EMU_SUCCESS;
	hoist__emu_lock();
	if (result == EMU_SUCCESS)
		result = take(memory, bytes);
	hoist__emu_unlock();
	if (result == EMU_SUCCESS) {
		*ret = memory;
		return EMU_SUCCESS;
	}
	if (memory->fd >= 0)
		(void)close(memory->fd);
	free(memory);
	return result;
}

int hoist__emu_vmm_release(void *handle)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	struct memory *memory = hoist__emu_range_find(&area.memories, (uintptr_t)handle, 1);
	if (memory == NULL) {
		result = refuse();
	} else {
		if (--memory->n_handles == 0)
			hoist__emu_range_remove(&area.memories, &memory->range);
		settle(memory);
	}
	hoist__emu_unlock();
	return result;
}

/* [locked] Counts one handle more, also of memory that has only mappings left. */
static int retain(struct memory *memory)
{
	if (memory->n_handles == 0 && hoist__emu_range_add(&area.memories, &memory->range) < 0)
		return EMU_OUT_OF_MEMORY;
	memory->n_handles++;
	return EMU_SUCCESS;
}

int hoist__emu_vmm_retain(uintptr_t address, void **ret)
{
	hoist__emu_lock();
	const struct mapping *mapping = hoist__emu_range_find(&area.mappings, address, 1);
	int result = mapping != NULL ? retain(mapping->memory) : refuse();
	if (result == EMU_SUCCESS)
		*ret = mapping->memory;
	hoist__emu_unlock();
	return result;
}

/* --- mappings --- */

/* [locked] False if a mapping shares a byte with the range, or no reservation contains it. */
static bool may_map(uintptr_t address, size_t bytes)
{
	const struct hoist__emu_range *range =
		hoist__emu_range_find(&area.reservations, address, 1);
	return range != NULL && bytes <= range->bytes - (address - range->start) &&
	       hoist__emu_range_find(&area.mappings, address, bytes) == NULL;
}

/* [locked] */
static int map(struct mapping *mapping, void *handle)
{
	const struct hoist__emu_range *range = &mapping->range;
	mapping->memory = hoist__emu_range_find(&area.memories, (uintptr_t)handle, 1);
	if (mapping->memory == NULL || range->bytes > mapping->memory->block.rounded ||
	    !may_map(range->start, range->bytes))
		return EMU_INVALID_VALUE;
	if (mmap(bytes_at(range->start), range->bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, mapping->memory->fd, 0) == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	if (hoist__emu_range_add(&area.mappings, &mapping->range) < 0)
		return EMU_OUT_OF_MEMORY; /* the bytes stay: nobody can find them */
	mapping->memory->n_mappings++;
	return EMU_SUCCESS;
}

int hoist__emu_vmm_map(uintptr_t address, size_t bytes, size_t offset, void *handle)
{
	if (!is_whole(bytes) || address % EMU_VMM_MINIMUM != 0 || offset != 0)
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	struct mapping *mapping = calloc(1, sizeof *mapping);
	if (mapping == NULL)
		return EMU_OUT_OF_MEMORY;
	mapping->range = (struct hoist__emu_range){.start = address, .bytes = bytes};
	hoist__emu_lock();
	result = map(mapping, handle);
	hoist__emu_unlock();
	if (result != EMU_SUCCESS)
		free(mapping);
	return result;
}

static bool touches(const struct hoist__emu_span *span, size_t reach, uintptr_t address,
		    size_t bytes)
{
	const unsigned char *first = bytes_at(address);
	return span->bytes != NULL && span->bytes < first + bytes && span->bytes + reach > first;
}

/* Returns the bytes from a side's first to its last. */
static size_t reach_of(const struct hoist__emu_box *box, size_t pitch, size_t plane)
{
	return (box->planes - 1) * plane + (box->rows - 1) * pitch + box->width;
}

/* [locked] True if an operation that is queued on @stream uses the bytes. */
static bool stream_uses(struct hoist__emu_stream *stream, uintptr_t address, size_t bytes)
{
	struct hoist__list *head = &stream->queue;
	for (struct hoist__list *at = head->next; at != head; at = at->next) {
		const struct hoist__emu_op *op =
			HOIST__CONTAINER_OF(at, struct hoist__emu_op, node);
		const struct hoist__emu_box *box = &op->box;
		if (op->kind != EMU_COPY && op->kind != EMU_MEMSET)
			continue;
		if (touches(&op->dst, reach_of(box, box->dst_pitch, box->dst_plane), address,
			    bytes) ||
		    touches(&op->src, reach_of(box, box->src_pitch, box->src_plane), address,
			    bytes))
			return true;
	}
	return false;
}

/* [locked] */
static bool is_used(uintptr_t address, size_t bytes)
{
	for (int i = 0; i < hoist__emu.environment.n_devices; i++) {
		struct hoist__list *head = &hoist__emu.devices[i].streams;
		for (struct hoist__list *at = head->next; at != head; at = at->next)
			if (stream_uses(HOIST__CONTAINER_OF(at, struct hoist__emu_stream, node),
					address, bytes))
				return true;
	}
	return false;
}

/* [locked] */
static int unmap(struct mapping *mapping)
{
	uintptr_t address = mapping->range.start;
	size_t bytes = mapping->range.bytes;
	bool used = is_used(address, bytes);
	/* An operation that is still running finds bytes there, but not these. */
	if (mmap(bytes_at(address), bytes, used ? PROT_READ | PROT_WRITE : PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	hoist__emu_range_remove(&area.mappings, &mapping->range);
	mapping->memory->n_mappings--;
	settle(mapping->memory);
	free(mapping);
	hoist__emu.count.use_after_free += used;
	return used ? EMU_ILLEGAL_ADDRESS : EMU_SUCCESS;
}

int hoist__emu_vmm_unmap(uintptr_t address, size_t bytes)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	struct mapping *mapping = hoist__emu_range_find(&area.mappings, address, 1);
	if (mapping == NULL || mapping->range.start != address || mapping->range.bytes != bytes)
		result = refuse();
	else
		result = unmap(mapping);
	hoist__emu_unlock();
	return result;
}

/* --- access --- */

/* [locked] Calls @visit for the mappings that cover the range, until a call returns false.
 * Returns: false if one did, or if some byte is not mapped. */
static bool walk(uintptr_t address, size_t bytes,
		 bool (*visit)(struct mapping *mapping, int ordinal, unsigned flags), int ordinal,
		 unsigned flags)
{
	uintptr_t at = address;
	while (at - address < bytes) {
		struct mapping *mapping = hoist__emu_range_find(&area.mappings, at, 1);
		if (mapping == NULL || (visit != NULL && !visit(mapping, ordinal, flags)))
			return false;
		at = mapping->range.start + mapping->range.bytes;
	}
	return true;
}

static bool set_access(struct mapping *mapping, int ordinal, unsigned flags)
{
	mapping->access[ordinal] = (unsigned char)flags;
	return true;
}

static bool has_access(struct mapping *mapping, int ordinal, unsigned flags)
{
	return (mapping->access[ordinal] & flags) == flags;
}

/* [locked] True if the range begins and ends with a mapping. */
static bool is_of_mappings(uintptr_t address, size_t bytes)
{
	const struct mapping *first = hoist__emu_range_find(&area.mappings, address, 1);
	const struct mapping *last = hoist__emu_range_find(&area.mappings, address + bytes - 1, 1);
	return first != NULL && last != NULL && first->range.start == address &&
	       last->range.start + last->range.bytes == address + bytes;
}

int hoist__emu_vmm_set_access(uintptr_t address, size_t bytes, int ordinal, unsigned flags)
{
	if (hoist__emu_device(ordinal) == NULL)
		return EMU_INVALID_DEVICE;
	if (bytes == 0 ||
	    (flags != 0 && flags != EMU_ACCESS_READ && flags != EMU_ACCESS_READ_WRITE))
		return EMU_INVALID_VALUE;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	if (!is_of_mappings(address, bytes) || !walk(address, bytes, NULL, 0, 0))
		result = EMU_INVALID_VALUE;
	else
		(void)walk(address, bytes, set_access, ordinal, flags);
	hoist__emu_unlock();
	return result;
}

unsigned char *hoist__emu_vmm_bytes(uintptr_t address, size_t bytes)
{
	return walk(address, bytes, NULL, 0, 0) ? bytes_at(address) : NULL;
}

bool hoist__emu_vmm_allows(const struct hoist__emu_device *device, uintptr_t address, size_t bytes,
			   bool write)
{
	return !hoist__emu_vmm_is_address(address) ||
	       walk(address, bytes, has_access, device->ordinal,
		    write ? EMU_ACCESS_READ_WRITE : EMU_ACCESS_READ);
}

const struct hoist__emu_device *hoist__emu_vmm_device(uintptr_t address)
{
	const struct mapping *mapping = hoist__emu_range_find(&area.mappings, address, 1);
	return mapping != NULL ? mapping->memory->block.device : NULL;
}
