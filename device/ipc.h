/* SPDX-License-Identifier: MIT */
/* device/ipc.h - device memory that several processes use.
 *
 *   plain   memory of hoist__dev_mem_alloc(): the driver makes a handle of 64 bytes for the
 *           whole allocation; another process opens the handle, and closes it
 *   pool    a pool made to be shared gives a file descriptor.  Another process makes a pool
 *           from the descriptor.  That pool imports allocations by their handles, and cannot
 *           allocate.  Imported memory is given back with hoist__dev_mem_free()
 *
 * Drivers leave three things open, and so does this code for its caller: opening one handle twice
 * (some drivers count, some refuse), opening a handle in the process that made it (CUDA and HIP
 * refuse), and freeing memory that others have open (undefined).
 *
 * Errors: as device.h; -ENOTSUP also where the driver or the device cannot share this memory.
 */
#ifndef HOIST_DEVICE_IPC_H
#define HOIST_DEVICE_IPC_H

#include "device/device.h"

#define HOIST__IPC_BYTES 64

struct hoist__ipc_handle {
	unsigned char bytes[HOIST__IPC_BYTES];
};

/* [context] Finds the driver's allocation around @address, an address of @dev's own memory or of
 * memory that @dev imported.
 * Returns: 0; -EINVAL (there is no allocation); -ENOTSUP (the driver cannot say), -EREMOTEIO,
 *   -ESTALE. */
int hoist__dev_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			  size_t *bytes);

/* [context] @base begins an allocation.
 * Returns: 0; -ENOTSUP (the CPU, and memory that is no plain allocation: of pools, managed);
 *   -EREMOTEIO, -ESTALE. */
int hoist__dev_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret);

/* [context] Peers of the device that can reach it are let reach it.
 * Returns: 0; -ENOTSUP; -ENOSPC; -EREMOTEIO (the driver knows no such allocation), -ESTALE. */
int hoist__dev_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			uintptr_t *ret);
/* Work in flight on the memory: as with hoist__dev_mem_free(). */
int hoist__dev_ipc_close(struct hoist__dev *dev, uintptr_t base);

/* As hoist__dev_pool_create(); other processes can import from the pool. */
int hoist__dev_pool_create_shareable(struct hoist__dev *dev, size_t max_bytes,
				     struct hoist__dev_pool **ret);

/* Makes a pool of @fd, which stays the caller's.  The caller destroys the pool only after it has
 * given back the blocks imported from it.
 * Returns: 0; -ENOTSUP (also any HIP device but the first); -ENOMEM; -EREMOTEIO (the driver
 *   knows no such pool), -ESTALE. */
int hoist__dev_pool_import(struct hoist__dev *dev, int fd, struct hoist__dev_pool **ret);

/* A new file descriptor, closed by exec.  Pre: shareable.  Returns: 0; -ENOTSUP; -EREMOTEIO,
 * -ESTALE, -EMFILE. */
int hoist__dev_pool_export(struct hoist__dev_pool *pool, int *ret);

/* The block of a shareable pool that begins at @address.  Returns: 0; -ENOTSUP; -EREMOTEIO,
 * -ESTALE. */
int hoist__dev_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				 struct hoist__ipc_handle *ret);

/* Pre: @pool is an imported one.  Returns: 0; -ENOTSUP; -ENOSPC; -EREMOTEIO (the driver knows no
 * such block of this pool), -ESTALE. */
int hoist__dev_pool_import_block(struct hoist__dev_pool *pool,
				 const struct hoist__ipc_handle *handle, uintptr_t *ret);

#endif
