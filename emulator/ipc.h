/* SPDX-License-Identifier: MIT */
/* emulator/ipc.h - device memory across processes.
 *
 *   arena   the bytes of a device.  With the first export they move into a memfd, in their
 *           place, so that pointers to them stay right
 *   handle  64 bytes: where the arena's memfd is (process and descriptor, to be opened by
 *           way of /proc), which file it must be, and where in it the allocation lies
 *   window  an import: addresses that nobody can touch, as all of a device, and a mapping of
 *           the exporter's arena with the bytes
 *
 * The importer needs the right to look into the exporter (the same user).  The exporter must
 * live while a handle is opened; open memory stays when the exporter ends.  An exporter that
 * frees memory that others have open is not noticed: they read zeros, or the next content of
 * that place. */
#ifndef HOIST_EMULATOR_IPC_H
#define HOIST_EMULATOR_IPC_H

#include "emulator/pool.h"

#define EMU_IPC_BYTES 64

/* Gives the allocation of device or managed memory around @address; EMU_NOT_FOUND if there is
 * none. */
int hoist__emu_allocation(uintptr_t address, uintptr_t *base, size_t *bytes);

/* EMU_INVALID_VALUE if @address is not a plain allocation. */
int hoist__emu_ipc_export(uintptr_t address, void *handle);

/* Memory that is opened more than once is counted.  EMU_INVALID_CONTEXT in the exporter itself, as
 * with the drivers; EMU_INVALID_VALUE for a bad handle, and when the exporter is gone. */
int hoist__emu_ipc_open(struct hoist__emu_device *device, const void *handle, uintptr_t *ret);
int hoist__emu_ipc_close(uintptr_t address);

/* Makes the pool exportable.  Pre: it has not been used. */
int hoist__emu_pool_make_shareable(struct hoist__emu_pool *handle);

/* exec does not close the fd, as with the drivers. */
int hoist__emu_pool_export(struct hoist__emu_pool *handle, int *ret);
/* @to_first: for the first device, in place of the device that the pool was made for. */
int hoist__emu_pool_import(bool to_first, int fd, struct hoist__emu_pool **ret);

/* One block can be imported only once at a time: the drivers' manuals do not define a second
 * import. */
int hoist__emu_pool_export_block(uintptr_t address, void *handle);
int hoist__emu_pool_import_block(struct hoist__emu_pool *handle, const void *block, uintptr_t *ret);

/* --- between ipc.c and ipc-pool.c; [locked] --- */

/* A file of this machine, by process and descriptor. */
struct hoist__emu_place {
	uint64_t magic; /* of this stand-in */
	int32_t pid;
	int32_t fd;
	uint64_t device; /* st_dev, st_ino that the file must have */
	uint64_t inode;
};

struct hoist__emu_handle {
	struct hoist__emu_place place;
	uint64_t offset;
	uint64_t bytes;
	uint64_t pool;	 /* its id; 0: none */
	uint64_t unused; /* 0 */
};
_Static_assert(sizeof(struct hoist__emu_handle) == EMU_IPC_BYTES, "as large as the drivers'");

uint64_t hoist__emu_ipc_magic(void);

/* Moves the device's bytes into a file.  Waits for chunks that are being copied. */
int hoist__emu_share_arena(struct hoist__emu_device *device);
struct hoist__emu_place hoist__emu_place_of(const struct hoist__emu_device *device);

/* Opens the exporter's arena; @end must lie within it. */
int hoist__emu_place_open(const struct hoist__emu_place *place, uint64_t end, int *ret);

/* Checks a handle as it came: that its numbers can be added up. */
bool hoist__emu_handle_is_sound(const struct hoist__emu_handle *handle);

/* Makes the handle of @block; @pool is the id of its pool, or 0. */
int hoist__emu_handle_make(struct hoist__emu_block *block, uint64_t pool, void *handle);

/* Returns the import of that handle; NULL if there is none. */
struct hoist__emu_block *hoist__emu_window_find(const struct hoist__emu_handle *handle);
int hoist__emu_window_make(struct hoist__emu_device *device, const struct hoist__emu_handle *handle,
			   int fd, uintptr_t *ret);

/* --- for memory.c; [locked] --- */

struct hoist__emu_window;

bool hoist__emu_is_window(uintptr_t address);

/* Returns where the byte at the block's address is. */
unsigned char *hoist__emu_window_bytes(const struct hoist__emu_block *block);

/* Takes an imported block of a pool out of service, to be retired. */
void hoist__emu_window_leave(struct hoist__emu_block *block);
bool hoist__emu_window_is_of_pool(const struct hoist__emu_block *block);

/* Unmaps. */
void hoist__emu_window_end(struct hoist__emu_block *block);

#endif
