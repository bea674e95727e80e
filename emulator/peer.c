/* SPDX-License-Identifier: MIT */
/* emulator/peer.c - which memory of other devices a device reaches.
 * The contract is in emulator/core.h.
 *
 * A device always reaches its own, managed and host memory.  It reaches a peer's memory when
 * the access was enabled on the device that will use it.  Memory of pools follows other rules, as
 * with the drivers: each pool says which devices reach it.  A copy that is told both devices goes
 * through the host if its stream's device does not reach one of them.  All other work that touches
 * memory out of reach fails, as a kernel would. */
#include "config.h"

#include "emulator/block.h"
#include "emulator/stream.h"

int hoist__emu_peer_enable(struct hoist__emu_device *device, const struct hoist__emu_device *peer)
{
	uint64_t bit = (uint64_t)1 << peer->ordinal;
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	if (device == peer)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	result = (device->peers & bit) != 0 ? EMU_PEER_ENABLED : EMU_SUCCESS;
	device->peers |= bit;
	hoist__emu_unlock();
	return result;
}

/* [locked] Pre: @block is a device's. */
static bool reaches(const struct hoist__emu_device *device, const struct hoist__emu_block *block)
{
	bool of_host = block->piece != NULL && block->piece->pool->kind == EMU_POOL_HOST;
	if (block->managed || of_host || block->device == device)
		return true;
	uint64_t peers = block->piece != NULL ? block->piece->pool->peers >> device->ordinal
					      : device->peers >> block->device->ordinal;
	return (peers & 1) != 0;
}

bool hoist__emu_peer_reaches(const struct hoist__emu_device *device,
			     const struct hoist__emu_pointer *pointer)
{
	if (pointer->host)
		return true;
	hoist__emu_lock();
	const struct hoist__emu_block *block =
		hoist__emu_range_find(&hoist__emu.allocations, pointer->device_address, 1);
	bool answer = block != NULL && reaches(device, block);
	hoist__emu_unlock();
	return answer;
}

bool hoist__emu_peer_may_touch(const struct hoist__emu_device *device,
			       const struct hoist__emu_span *span)
{
	const struct hoist__emu_block *block = span->block;
	return block == NULL || block->device == NULL || reaches(device, block);
}

bool hoist__emu_peer_owns(const struct hoist__emu_device *device,
			  const struct hoist__emu_span *span)
{
	const struct hoist__emu_block *block = span->block;
	return block != NULL && (block->device == device || block->device == NULL);
}
