/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-driver.h - a DRIVER_POOL: memory-driver.c and, what it shares with other processes,
 * memory-driver-ipc.c, and memory-attribute.c. */
#ifndef HOIST_LIB_MEMORY_DRIVER_H
#define HOIST_LIB_MEMORY_DRIVER_H

#include <stdatomic.h>

#include "lib/memory/books.h"
#include "lib/exchange/ipc.h"
#include "lib/memory/memory.h"

struct hoist__driver_memory {
	hoist_memory memory;
	struct hoist__dev_pool *_Atomic xpool; /* these two are made with the first block */
	struct hoist__dev_stream *_Atomic xstream;
	struct hoist__books books;
	struct hoist__ipc_name name; /* SHAREABLE */
	atomic_bool xregistered;     /* under it */
	int fd;			     /* mapped: what the pool was made of; else -1 */
};

static inline struct hoist__driver_memory *hoist__driver_of(hoist_memory *memory)
{
	return (struct hoist__driver_memory *)memory;
}

/* The pool, made if there is none yet. */
int hoist__driver_use_pool(struct hoist__driver_memory *driver, struct hoist__dev_pool **ret);

#endif
