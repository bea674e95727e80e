/* SPDX-License-Identifier: MIT */
/* emulator/ipc.c - device memory across processes.
 * The contract is in emulator/ipc.h. */
#include "config.h"

#include "emulator/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "emulator/block.h"
#include "emulator/stream.h"

struct hoist__emu_window {
	struct hoist__emu_range range; /* in hoist__emu.windows: whole pages */
	struct hoist__list node;       /* in `opened` while it is open */
	struct hoist__emu_block *block;
	struct hoist__emu_handle handle;
	unsigned char *bytes;
	unsigned count; /* how often it is open */
};

static struct hoist__list opened = {&opened, &opened};

uint64_t hoist__emu_ipc_magic(void)
{
	uint64_t word = 0;
	memcpy(&word, "hoist", 5);
	return word << 8 | (unsigned char)hoist__emu_face.api[0];
}

/* --- arenas; all [locked] --- */

/* The edges of a block are whole pages, so that its neighbours' bytes there are written, too: with
 * the same content. */
static void copy_block(const struct hoist__emu_block *block, unsigned char *to)
{
	static const unsigned char zeros[4096];
	const struct hoist__emu_device *device = block->device;
	size_t offset = (block->range.start - device->base) & ~(sizeof zeros - 1);
	size_t end = block->range.start - device->base + block->rounded;
	for (; offset < end; offset += sizeof zeros) /* pages that are all zero are not populated */
		if (memcmp(device->bytes + offset, zeros, sizeof zeros) != 0)
			memcpy(to + offset, device->bytes + offset, sizeof zeros);
}

static int move_bytes(struct hoist__emu_device *device, int fd)
{
	unsigned char *to =
		mmap(NULL, device->span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (to == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	for (struct hoist__list *at = device->blocks.next; at != &device->blocks; at = at->next)
		copy_block(HOIST__CONTAINER_OF(at, struct hoist__emu_block, node), to);
	(void)munmap(to, device->span);
	to = mmap(device->bytes, device->span, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
	return to == device->bytes ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
}

int hoist__emu_share_arena(struct hoist__emu_device *device)
{
	struct stat status;
	/* Chunks of copies are being moved without the lock. */
	while (hoist__emu.n_touched > 0)
		(void)pthread_cond_wait(&hoist__emu.progress, &hoist__emu.lock);
	if (device->shared)
		return EMU_SUCCESS;
	int fd = memfd_create("hoist-emulated-device", MFD_CLOEXEC);
	if (fd < 0)
		return EMU_OPERATING_SYSTEM;
	int result = EMU_OPERATING_SYSTEM;
	if (ftruncate(fd, (off_t)device->span) == 0 && fstat(fd, &status) == 0)
		result = move_bytes(device, fd);
	if (result != EMU_SUCCESS) {
		(void)close(fd);
		return result;
	}
	device->shared = true;
	device->fd = fd;
	device->file_device = status.st_dev;
	device->file_inode = status.st_ino;
	if (hoist__emu.environment.resident > 0)
		hoist__emu_make_resident(device);
	return EMU_SUCCESS;
}

struct hoist__emu_place hoist__emu_place_of(const struct hoist__emu_device *device)
{
	return (struct hoist__emu_place){
		.magic = hoist__emu_ipc_magic(),
		.pid = (int32_t)getpid(),
		.fd = device->fd,
		.device = device->file_device,
		.inode = device->file_inode,
	};
}

static bool is_own(const struct hoist__emu_place *place)
{
	for (int i = 0; i < hoist__emu.environment.n_devices; i++) {
		const struct hoist__emu_device *device = &hoist__emu.devices[i];
		if (device->shared && device->file_device == place->device &&
		    device->file_inode == place->inode)
			return true;
	}
	return false;
}

/* Opens the exporter's arena; @end must lie within it. */
int hoist__emu_place_open(const struct hoist__emu_place *place, uint64_t end, int *ret)
{
	char path[64];
	struct stat status;
	if (place->magic != hoist__emu_ipc_magic() || place->pid <= 0 || place->fd < 0)
		return EMU_INVALID_VALUE;
	(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)place->pid, (int)place->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return EMU_INVALID_VALUE;
	if (fstat(fd, &status) < 0 || status.st_dev != place->device ||
	    status.st_ino != place->inode || (uint64_t)status.st_size < end) {
		(void)close(fd);
		return EMU_INVALID_VALUE;
	}
	*ret = fd;
	return EMU_SUCCESS;
}

/* --- windows; all [locked] --- */

bool hoist__emu_is_window(uintptr_t address)
{
	return hoist__emu_range_find(&hoist__emu.windows, address, 1) != NULL;
}

unsigned char *hoist__emu_window_bytes(const struct hoist__emu_block *block)
{
	return block->window->bytes + (block->range.start - block->window->range.start);
}

bool hoist__emu_window_is_of_pool(const struct hoist__emu_block *block)
{
	return block->window->handle.pool != 0;
}

void hoist__emu_window_end(struct hoist__emu_block *block)
{
	struct hoist__emu_window *window = block->window;
	if (window->range.start != 0) {
		hoist__emu_range_remove(&hoist__emu.windows, &window->range);
		(void)munmap((void *)window->range.start, window->range.bytes);
	}
	if (window->bytes != NULL)
		(void)munmap(window->bytes, window->range.bytes);
	free(window);
	free(block);
}

void hoist__emu_window_leave(struct hoist__emu_block *block)
{
	hoist__emu_range_remove(&hoist__emu.allocations, &block->range);
	hoist__list_remove(&block->window->node);
	hoist__emu.count.live_imports--;
}

struct hoist__emu_block *hoist__emu_window_find(const struct hoist__emu_handle *handle)
{
	for (struct hoist__list *at = opened.next; at != &opened; at = at->next) {
		struct hoist__emu_window *window =
			HOIST__CONTAINER_OF(at, struct hoist__emu_window, node);
		if (memcmp(&window->handle, handle, sizeof *handle) == 0)
			return window->block;
	}
	return NULL;
}

/* Maps @handle's bytes of @fd.  Pre: the block has its device and window. */
static int fill_window(struct hoist__emu_block *block, const struct hoist__emu_handle *handle,
		       int fd)
{
	struct hoist__emu_window *window = block->window;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = hoist__round_down(handle->offset, page);
	size_t bytes = (size_t)(hoist__round_up(handle->offset + handle->bytes, page) - first);
	/* The program's addresses cannot be touched by the CPU, like those of a device; the
	 * stand-in itself uses `bytes`. */
	void *addresses =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addresses == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	window->range = (struct hoist__emu_range){.start = (uintptr_t)addresses, .bytes = bytes};
	if (hoist__emu_range_add(&hoist__emu.windows, &window->range) < 0) {
		(void)munmap(addresses, bytes);
		window->range.start = 0;
		return EMU_OUT_OF_MEMORY;
	}
	void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
	if (mapped == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	window->bytes = mapped;
	window->handle = *handle;
	window->count = 1;
	block->range.start = window->range.start + (uintptr_t)(handle->offset - first);
	block->range.bytes = (size_t)handle->bytes;
	if (hoist__emu_range_add(&hoist__emu.allocations, &block->range) < 0)
		return EMU_OUT_OF_MEMORY;
	hoist__list_push_back(&opened, &window->node);
	hoist__emu.count.live_imports++;
	return EMU_SUCCESS;
}

int hoist__emu_window_make(struct hoist__emu_device *device, const struct hoist__emu_handle *handle,
			   int fd, uintptr_t *ret)
{
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	struct hoist__emu_window *window = calloc(1, sizeof *window);
	if (block == NULL || window == NULL) {
		free(block);
		free(window);
		return EMU_OUT_OF_MEMORY;
	}
	block->device = device;
	block->window = window;
	window->block = block;
	hoist__list_init(&window->node);
	int result = fill_window(block, handle, fd);
	if (result == EMU_SUCCESS)
		*ret = block->range.start;
	else
		hoist__emu_window_end(block);
	return result;
}

/* --- plain allocations --- */

bool hoist__emu_handle_is_sound(const struct hoist__emu_handle *handle)
{
	return handle->bytes > 0 && handle->bytes <= SIZE_MAX / 4 &&
	       handle->offset <= SIZE_MAX / 4 && handle->unused == 0;
}

/* [locked] */
int hoist__emu_handle_make(struct hoist__emu_block *block, uint64_t pool, void *handle)
{
	int result = hoist__emu_share_arena(block->device);
	if (result != EMU_SUCCESS)
		return result;
	const struct hoist__emu_handle made = {
		.place = hoist__emu_place_of(block->device),
		.offset = block->range.start - block->device->base,
		.bytes = block->range.bytes,
		.pool = pool,
	};
	memcpy(handle, &made, sizeof made);
	return EMU_SUCCESS;
}

int hoist__emu_allocation(uintptr_t address, uintptr_t *base, size_t *bytes)
{
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL)
		block = hoist__emu_range_find(&hoist__emu.registrations, address, 1);
	bool found = block != NULL && block->device != NULL;
	if (found) {
		*base = block->range.start;
		*bytes = block->range.bytes;
	}
	hoist__emu_unlock();
	return found ? EMU_SUCCESS : EMU_NOT_FOUND;
}

int hoist__emu_ipc_export(uintptr_t address, void *handle)
{
	int result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block != NULL && block->range.start == address && block->piece == NULL &&
	    block->window == NULL)
		result = hoist__emu_handle_make(block, 0, handle);
	hoist__emu_unlock();
	return result;
}

/* [locked] */
static int open_handle(struct hoist__emu_device *device, const struct hoist__emu_handle *handle,
		       uintptr_t *ret)
{
	int fd = -1;
	if (is_own(&handle->place))
		return EMU_INVALID_CONTEXT;
	struct hoist__emu_block *block = hoist__emu_window_find(handle);
	if (block != NULL) {
		block->window->count++;
		*ret = block->range.start;
		return EMU_SUCCESS;
	}
	int result = hoist__emu_place_open(&handle->place, handle->offset + handle->bytes, &fd);
	if (result != EMU_SUCCESS)
		return result;
	result = hoist__emu_window_make(device, handle, fd, ret);
	(void)close(fd);
	return result;
}

int hoist__emu_ipc_open(struct hoist__emu_device *device, const void *handle, uintptr_t *ret)
{
	struct hoist__emu_handle known;
	memcpy(&known, handle, sizeof known);
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	if (!hoist__emu_handle_is_sound(&known) || known.pool != 0)
		return EMU_INVALID_VALUE;
	hoist__emu_lock();
	result = open_handle(device, &known, ret);
	hoist__emu_unlock();
	return result;
}

int hoist__emu_ipc_close(uintptr_t address)
{
	int result = hoist__emu_unsafe();
	if (result != EMU_SUCCESS)
		return result;
	result = EMU_INVALID_VALUE;
	hoist__emu_lock();
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL || block->range.start != address || block->window == NULL ||
	    hoist__emu_window_is_of_pool(block)) {
		hoist__emu.count.bad_frees++;
	} else if (--block->window->count > 0) {
		result = EMU_SUCCESS;
	} else {
		hoist__emu_window_leave(block);
		result = hoist__emu_block_retire(block);
	}
	hoist__emu_unlock();
	return result;
}
