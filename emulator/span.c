/* SPDX-License-Identifier: MIT */
/* emulator/span.c - the sides of copies: found when a copy is queued, held until it is performed.
 * The contract is in emulator/core.h. */
#include "config.h"

#include "emulator/block.h"
#include "emulator/graph.h"
#include "emulator/ipc.h"

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
	if (!hoist__emu_is_device_address(address)) {
		int result = hoist__emu_span_host(address, bytes, ret);
		if (result != EMU_SUCCESS || ret->block != NULL)
			return result;
		return refuse(); /* pageable memory is not device memory */
	}
	if (hoist__emu_vmm_is_address(address)) {
		*ret = (struct hoist__emu_span){.bytes = hoist__emu_vmm_bytes(address, bytes)};
		return ret->bytes != NULL ? EMU_SUCCESS : refuse();
	}
	if (hoist__emu_graph_has(address)) { /* used by captured work only, and so never touched */
		*ret = (struct hoist__emu_span){.bytes = NULL};
		return EMU_SUCCESS;
	}
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL || !contains(&block->range, address, bytes))
		return refuse();
	block->users++;
	*ret = (struct hoist__emu_span){
		.bytes = block->window != NULL
				 ? hoist__emu_window_bytes(block) + (address - block->range.start)
				 : block->device->bytes + (address - block->device->base),
		.block = block,
	};
	return EMU_SUCCESS;
}

/* Takes either address of memory that has two; only registered memory has. */
int hoist__emu_span_host(uintptr_t given, size_t bytes, struct hoist__emu_span *ret)
{
	uintptr_t address = hoist__emu_host_of(given);
	if (address == 0 || hoist__emu_is_device_address(address) || bytes > UINTPTR_MAX - address)
		return refuse();
	/* A copy must not cross the edge of a registration.  Drivers look at where the copy starts,
	 * and refuse bytes behind the registration's end. */
	struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.registrations, address, bytes);
	if (block != NULL && !contains(&block->range, address, bytes))
		return refuse();
	if (given != address && (block == NULL || block->managed))
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
		hoist__emu_block_discard(block);
}

int hoist__emu_span_touch(struct hoist__emu_span *span, size_t offset, size_t bytes)
{
	if (span->block != NULL && span->block->dead)
		return EMU_ILLEGAL_ADDRESS;
	if (span->host && !hoist__emu_is_mapped((uintptr_t)span->bytes + offset, bytes)) {
		hoist__emu.count.use_after_free++;
		return EMU_ILLEGAL_ADDRESS;
	}
	if (span->block != NULL)
		span->block->busy++;
	hoist__emu.n_touched++;
	return EMU_SUCCESS;
}

void hoist__emu_span_leave(struct hoist__emu_span *span)
{
	if (--hoist__emu.n_touched == 0)
		(void)pthread_cond_broadcast(&hoist__emu.progress);
	if (span->block == NULL)
		return;
	span->block->busy--;
	if (span->block->dead)
		(void)pthread_cond_broadcast(&hoist__emu.progress);
}
