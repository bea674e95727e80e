/* SPDX-License-Identifier: MIT */
/* emulator/ipc-pool.c - pools across processes.
 * The contract is in emulator/ipc.h. */
#include "config.h"

#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator/block.h"
#include "emulator/ipc.h"
#include "emulator/stream.h"

/* The content of a pool's descriptor. */
struct pool_file {
	struct hoist__emu_place place;
	uint64_t id;
	uint64_t ordinal; /* of the pool's device */
};

int hoist__emu_pool_make_shareable(struct hoist__emu_pool *handle)
{
	uint64_t id = 0;
	if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
		return EMU_OPERATING_SYSTEM;
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL)
		pool->id = id | 1;
	hoist__emu_unlock();
	return pool != NULL ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

static int write_pool(const struct pool_file *file, int *ret)
{
	int fd = memfd_create("hoist-emulated-pool", 0);
	if (fd < 0)
		return EMU_OPERATING_SYSTEM;
	if (pwrite(fd, file, sizeof *file, 0) != (ssize_t)sizeof *file) {
		(void)close(fd);
		return EMU_OPERATING_SYSTEM;
	}
	*ret = fd;
	return EMU_SUCCESS;
}

int hoist__emu_pool_export(struct hoist__emu_pool *handle, int *ret)
{
	struct pool_file file = {.id = 0};
	int result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	const struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL && pool->id != 0 && !pool->imported)
		result = hoist__emu_map_device(pool->device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_share_arena(pool->device);
	if (result == EMU_SUCCESS) {
		file.place = hoist__emu_place_of(pool->device);
		file.id = pool->id;
		file.ordinal = (uint64_t)pool->device->ordinal;
	}
	hoist__emu_unlock();
	return result == EMU_SUCCESS ? write_pool(&file, ret) : result;
}

int hoist__emu_pool_import(bool to_first, int fd, struct hoist__emu_pool **ret)
{
	struct pool_file file;
	struct hoist__emu_pool *made = NULL;
	int arena = -1;
	if (pread(fd, &file, sizeof file, 0) != (ssize_t)sizeof file || file.ordinal > INT_MAX)
		return EMU_INVALID_VALUE;
	struct hoist__emu_device *device = hoist__emu_device(to_first ? 0 : (int)file.ordinal);
	if (device == NULL)
		return EMU_INVALID_VALUE;
	int result = hoist__emu_place_open(&file.place, 0, &arena);
	if (result == EMU_SUCCESS)
		result = hoist__emu_pool_create(device, EMU_POOL_DEVICE, 0, &made);
	if (result != EMU_SUCCESS) {
		if (arena >= 0)
			(void)close(arena);
		return result;
	}
	hoist__emu_lock();
	made->imported = true;
	made->id = file.id;
	made->fd = arena;
	hoist__emu_unlock();
	*ret = made;
	return EMU_SUCCESS;
}

int hoist__emu_pool_export_block(uintptr_t address, void *handle)
{
	int result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block != NULL && block->range.start == address && block->piece != NULL &&
	    block->piece->pool->id != 0)
		result = hoist__emu_handle_make(block, block->piece->pool->id, handle);
	hoist__emu_unlock();
	return result;
}

/* [locked] */
static int import_block(const struct hoist__emu_pool *pool, const struct hoist__emu_handle *handle,
			uintptr_t *ret)
{
	struct stat status;
	if (!pool->imported || handle->pool != pool->id ||
	    handle->place.magic != hoist__emu_ipc_magic() || fstat(pool->fd, &status) < 0 ||
	    status.st_ino != handle->place.inode || status.st_dev != handle->place.device ||
	    (uint64_t)status.st_size < handle->offset + handle->bytes ||
	    hoist__emu_window_find(handle) != NULL)
		return EMU_INVALID_VALUE;
	return hoist__emu_window_make(pool->device, handle, pool->fd, ret);
}

int hoist__emu_pool_import_block(struct hoist__emu_pool *handle, const void *block, uintptr_t *ret)
{
	struct hoist__emu_handle known;
	memcpy(&known, block, sizeof known);
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	if (!hoist__emu_handle_is_sound(&known))
		return EMU_INVALID_VALUE;
	result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	const struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	if (pool != NULL)
		result = import_block(pool, &known, ret);
	hoist__emu_unlock();
	return result;
}
