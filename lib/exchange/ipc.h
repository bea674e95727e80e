/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc.h - what the files that pass buffers between processes share.
 *
 *   ipc-export.c  buffers into descriptors
 *   ipc-import.c  descriptors into buffers
 *   ipc-check.c   what a descriptor that came from elsewhere must be like
 *   ipc-open.c    the allocations of other processes that are open, each once
 *   ipc-memory.c  resources by name; those of other processes
 *   ipc-socket.c  over Unix sockets
 *   shared.c      host memory
 *
 * A descriptor is copied before it is looked at, and passes hoist__ipc_check() before any of it is
 * used; what it says of memory is compared with what the kernel or the driver says.
 */
#ifndef HOIST_LIB_IPC_H
#define HOIST_LIB_IPC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/ipc.h"
#include "hoist/ipc.h"

/* --- names: 16 random bytes --- */

struct hoist__ipc_name {
	unsigned char bytes[16];
};

int hoist__ipc_name_make(struct hoist__ipc_name *ret);

/* This process's; a child of fork has another one.  Returns: 0; what getrandom(2) says. */
int hoist__ipc_process(struct hoist__ipc_name *ret);

/* --- descriptors (ipc-check.c) --- */

/* The bytes that the elements lie in, from the first element's byte on: [low, high).  There are
 * elements.  Returns: 0; -EOVERFLOW; -EINVAL (block types that are not laid out in blocks). */
int hoist__ipc_extent(const hoist_ipc_descriptor *d, int64_t *low, int64_t *high);

/* Copies a descriptor and checks all that can be checked without asking anybody.
 * Returns: 0; -EINVAL (@bytes); -EBADMSG. */
int hoist__ipc_check(const void *given, size_t bytes, hoist_ipc_descriptor *ret);

/* -EBADMSG unless the head of a message, magic to size, is one of ours. */
int hoist__ipc_check_head(const hoist_ipc_descriptor *head);

/* --- allocations of other processes (ipc-open.c) --- */

struct hoist__opened;

/* The allocation that @d, which was checked, lies in, open once more.  @memory: of a POOL.
 * Returns: 0; -EINVAL (the buffer leaves the allocation); -ENOMEM; what the driver says. */
int hoist__opened_get(const hoist_ipc_descriptor *d, hoist_device *device, hoist_memory *memory,
		      struct hoist__opened **ret);

/* Of this form so that a storage can call it. */
void hoist__opened_close(void *opened);

uintptr_t hoist__opened_address(const struct hoist__opened *opened);
bool hoist__opened_is_own(const struct hoist__opened *opened); /* this process exported it */

/* Fills in of which allocation of another process @address is; false: of none that is open. */
bool hoist__opened_describe(uintptr_t address, hoist_ipc_descriptor *d, hoist_memory **ret);

/* --- resources (memory-driver-ipc.c, ipc-memory.c) --- */

/* -ENOTSUP for a resource that is not shareable. */
int hoist__driver_name(const hoist_memory *memory, const struct hoist__ipc_name **ret);
int hoist__driver_shared_pool(hoist_memory *memory, struct hoist__dev_pool **ret); /* borrowed */
int hoist__driver_export(hoist_memory *memory, int *ret);

/* The driver's block around @address.  Returns: 0; -EINVAL. */
int hoist__driver_block(hoist_memory *memory, uintptr_t address, uintptr_t *raw, size_t *bytes);

/* Makes a new shareable resource, of which nobody knows, another process's. */
int hoist__driver_map(hoist_memory *memory, int fd, const struct hoist__ipc_name *name);

/* Whether imports find it by its name.  Pre: shareable. */
atomic_bool *hoist__driver_registered(hoist_memory *memory);

/* The first of all resources that @fits, with a reference; NULL: none (memory-list.c). */
hoist_memory *hoist__memories_find(bool (*fits)(hoist_memory *memory, const void *arg),
				   const void *arg);

#endif
