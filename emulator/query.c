/* SPDX-License-Identifier: MIT */
/* emulator/query.c - answers what memory an address is, and waits for all work of a device.
 * The contract is in emulator/core.h. */
#include "config.h"

#include "emulator/block.h"
#include "emulator/stream.h"

bool hoist__emu_pointer(uintptr_t address, struct hoist__emu_pointer *ret)
{
	hoist__emu_lock();
	uintptr_t host = hoist__emu_host_of(address);
	bool device = hoist__emu_is_device_address(address);
	void *const *set = device ? &hoist__emu.allocations : &hoist__emu.registrations;
	const struct hoist__emu_block *block =
		hoist__emu_range_find(set, device ? address : host, 1);
	if (block != NULL)
		*ret = (struct hoist__emu_pointer){
			.host = !device,
			.managed = block->managed,
			.ordinal = block->device != NULL ? block->device->ordinal : 0,
			.device_address = device || block->managed
						  ? address
						  : host + hoist__emu_face.registered_offset,
			.host_address = device ? 0 : host,
			.start = block->range.start,
			.bytes = block->range.bytes,
			.pool = block->piece != NULL ? block->piece->pool : NULL,
		};
	/* Virtual memory has mappings instead of blocks. */
	const struct hoist__emu_device *mapped =
		block == NULL && device ? hoist__emu_vmm_device(address) : NULL;
	if (mapped != NULL)
		*ret = (struct hoist__emu_pointer){.ordinal = mapped->ordinal,
						   .device_address = address};
	hoist__emu_unlock();
	return block != NULL || mapped != NULL;
}

/* [locked] True if a stream of @device has work from before @ticket; *error becomes the first
 * failure that a stream keeps. */
static bool is_busy(struct hoist__emu_device *device, uint64_t ticket, int *error)
{
	bool busy = false;
	*error = EMU_SUCCESS;
	struct hoist__list *head = &device->streams;
	for (struct hoist__list *node = head->next; node != head; node = node->next) {
		const struct hoist__emu_stream *stream =
			HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
		busy = busy || hoist__emu_stream_has_older(stream, ticket);
		if (*error == EMU_SUCCESS)
			*error = stream->error;
	}
	return busy;
}

/* [locked] */
static bool captures(struct hoist__emu_device *device)
{
	struct hoist__list *head = &device->streams;
	for (struct hoist__list *node = head->next; node != head; node = node->next)
		if (HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node)->capture !=
		    EMU_CAPTURE_NONE)
			return true;
	return false;
}

int hoist__emu_device_synchronize(struct hoist__emu_device *device)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	hoist__emu_lock();
	if (captures(device)) {
		result = hoist__emu_capture_break(EMU_CAPTURE_UNSUPPORTED);
	} else {
		uint64_t behind = hoist__emu.ticket + 1;
		while (is_busy(device, behind, &result))
			(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
		hoist__emu_pools_synchronized(device);
	}
	hoist__emu_unlock();
	return result;
}
