/* SPDX-License-Identifier: MIT */
/* lib/exchange/ipc.h - shared by the files that pass buffers between processes.
 *
 *   ipc-export.c  buffers into descriptors
 *   ipc-import.c  descriptors into buffers
 *   ipc-check.c   the checks of a descriptor that came from elsewhere
 *   ipc-open.c    the open allocations of other processes, each opened once
 *   ipc-memory.c  resources by name; those of other processes
 *   ipc-socket.c  over Unix sockets
 *
 * Host memory that processes share is in alloc/shared.h.
 *
 * A descriptor is copied before anything looks at it, and passes hoist__ipc_check() before any
 * field is used.  Its claims about memory are compared with the answers of the kernel or the
 * driver.
 */
#ifndef HOIST_LIB_EXCHANGE_IPC_H
#define HOIST_LIB_EXCHANGE_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/ipc.h"
#include "hoist/ipc.h"
#include "lib/core/ipc-name.h"

/* --- names --- */

/* Gives the name of this process; a child of fork has another one.
 * Returns: 0; the error of getrandom(2). */
int hoist__ipc_process(struct hoist__ipc_name *ret);

/* --- descriptors (ipc-check.c) --- */

/* Gives the bytes that the elements lie in, from the first element's byte on: [low, high).  Pre:
 * there are elements.
 * Returns: 0; -EOVERFLOW; -EINVAL (block types that are not laid out in blocks). */
int hoist__ipc_extent(const hoist_ipc_descriptor *d, int64_t *low, int64_t *high);

/* Copies a descriptor, and makes all checks that need no kernel or driver.
 * Returns: 0; -EINVAL (@bytes); -EBADMSG. */
int hoist__ipc_check(const void *given, size_t bytes, hoist_ipc_descriptor *ret);

/* Checks the head of a message, from magic to size.
 * Returns: 0; -EBADMSG if it is not one of hoist's. */
int hoist__ipc_check_head(const hoist_ipc_descriptor *head);

/* --- allocations of other processes (ipc-open.c) --- */

struct hoist__opened;

/* Opens the allocation that @d lies in, or counts one more use if it is open.  @memory is the
 * resource of a POOL.  Pre: @d was checked.
 * Returns: 0; -EINVAL (the buffer leaves the allocation); -ENOMEM; the driver's error. */
int hoist__opened_get(const hoist_ipc_descriptor *d, hoist_device *device, hoist_memory *memory,
		      struct hoist__opened **ret);

/* Has the type of a storage's release function. */
void hoist__opened_close(void *opened);

uintptr_t hoist__opened_address(const struct hoist__opened *opened);
bool hoist__opened_is_own(const struct hoist__opened *opened); /* this process exported it */

/* Fills in which allocation of another process holds @address; false if no open one does. */
bool hoist__opened_describe(uintptr_t address, hoist_ipc_descriptor *d, hoist_memory **ret);

#endif
