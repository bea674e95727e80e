/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-driver.h - a DRIVER_POOL, shared by memory-driver.c, memory-driver-ipc.c (pools
 * that processes share) and memory-attribute.c. */
#ifndef HOIST_LIB_MEMORY_MEMORY_DRIVER_H
#define HOIST_LIB_MEMORY_MEMORY_DRIVER_H

#include <stdatomic.h>

#include "alloc/books.h"
#include "lib/core/ipc-name.h"
#include "lib/memory/memory.h"

struct hoist__driver_memory {
	hoist_memory memory;
	struct hoist__dev_pool *_Atomic xpool; /* these two are made with the first block */
	struct hoist__dev_stream *_Atomic xstream;
	struct hoist__books books;
	struct hoist__ipc_name name; /* SHAREABLE */
	atomic_bool xregistered;     /* imports find the resource by `name` */
	int fd;			     /* mapped: the descriptor that the pool was made of; else -1 */
};

static inline struct hoist__driver_memory *hoist__driver_of(hoist_memory *memory)
{
	return (struct hoist__driver_memory *)memory;
}

/* Gives the pool, made if there is none yet. */
int hoist__driver_use_pool(struct hoist__driver_memory *driver, struct hoist__dev_pool **ret);

/* --- shared pools: memory-driver-ipc.c --- */

/* These return -ENOTSUP for a resource that is not shareable. */
int hoist__driver_name(const hoist_memory *memory, const struct hoist__ipc_name **ret);
int hoist__driver_shared_pool(hoist_memory *memory, struct hoist__dev_pool **ret); /* borrowed */
int hoist__driver_export(hoist_memory *memory, int *ret);

/* Finds the driver's block around @address.  Returns: 0; -EINVAL. */
int hoist__driver_block(hoist_memory *memory, uintptr_t address, uintptr_t *raw, size_t *bytes);

/* Makes a new shareable resource, which no other thread knows yet, a mapping of another
 * process's. */
int hoist__driver_map(hoist_memory *memory, int fd, const struct hoist__ipc_name *name);

/* Returns: the flag that imports find the resource by its name.  Pre: shareable. */
atomic_bool *hoist__driver_registered(hoist_memory *memory);

#endif
