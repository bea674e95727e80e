/* SPDX-License-Identifier: MIT */
/* lib/memory/memory.h - what the files of the memory resources share.
 *
 *   memory.c           the public calls
 *   memory-list.c      the list of all resources; references; exhaustion
 *   memory-create.c    from options to a resource; what is known of one
 *   memory-pool.c      HOST, PINNED, DEVICE, MANAGED: over alloc/pool.h
 *   memory-driver.c    DRIVER_POOL: over the driver's own pools; memory-driver-ipc.c: shared ones;
 *                      memory-attribute.c: the pool's attributes, handle and peers
 *   memory-heap.c      HEAP: over alloc/heap.h
 *   memory-virtual.c   VIRTUAL: over device/vmm.h; memory-graph.c GRAPH: over device/graph.h
 *   memory-custom.c    CUSTOM: over the caller's functions
 *   books.c            the blocks of DRIVER_POOL, VIRTUAL, GRAPH and CUSTOM, by address
 *   memory-snapshot.c  what a resource holds as JSON; json-out.c writes, residence.c asks the
 *                      kernel where pages are
 *
 * A resource is a kind's struct that begins with struct hoist_memory, behind a table of
 * functions.  The kinds with a pool do not go through the table for what must be quick:
 * memory.c calls the pool as soon as there is one.
 *
 * Resources are never reached from other threads but through references: the list of all
 * gives out only those that still have one.
 */
#ifndef HOIST_LIB_MEMORY_H
#define HOIST_LIB_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "hoist/memory.h"
#include "lib/memory/objects.h"
#include "lib/core/user.h"

#define HOIST__MEMORY_NAME_BYTES 64

struct hoist__memory_ops;
struct hoist__snapshot;

/* Constant once made, but for what begins with x. */
struct hoist_memory {
	struct hoist__pool *_Atomic xpool; /* the kinds with a pool: once a block was asked for */
	const struct hoist__memory_ops *ops;
	hoist_memory_options options; /* without defaults; its pointers are not followed, but for */
	hoist_memory_functions functions; /* this copy */
	hoist_memory *upstream;		  /* and this, which is referenced */
	hoist_device *device;		  /* never NULL */
	struct hoist__dev *dev;
	struct hoist__placement placement;
	struct hoist__budget *budget; /* referenced; NULL: none */
	hoist_memory_info info;
	unsigned generation; /* hoist__fork_now() when made */
	_Atomic unsigned xrefs;
	_Atomic uint64_t xn_exhausted; /* calls of the caller's function */
	_Atomic unsigned xn_parked;    /* references of storages that are parked */
	_Atomic size_t xparked_bytes;  /* in these */
	struct hoist__list xlink;      /* in the list of all; its lock */
	struct hoist__user user;
	char name[HOIST__MEMORY_NAME_BYTES];
};

/* Where a function is NULL, the kind does not have it: -ENOTSUP.  @stream NULL: none. */
struct hoist__memory_ops {
	size_t bytes;	 /* of the kind's struct */
	bool asks_again; /* alloc itself calls hoist__memory_exhausted(), and tries again */
	/* The rest of it is zeroed.  NULL: nothing to do. */
	int (*init)(hoist_memory *memory);
	/* Everything goes, but for the struct itself.
	 * Returns: false if blocks are in use: nothing has gone then. */
	bool (*done)(hoist_memory *memory);
	int (*alloc)(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		     uintptr_t *ret);
	int (*free)(hoist_memory *memory, uintptr_t address, hoist_stream *stream);
	int (*use)(hoist_memory *memory, uintptr_t address, hoist_stream *stream);
	/* @bytes at @address were made by the resource's own functions, not by alloc: they are a
	 * live block from now on; where one starts there already, it stays.
	 * Returns: 0; -EINVAL (overlaps another block); -ENOMEM; -ESTALE. */
	int (*adopt)(hoist_memory *memory, uintptr_t address, size_t bytes);
	int (*release_captured)(hoist_memory *memory); /* NULL: there is nothing to release */
	int (*grow)(hoist_memory *memory, uintptr_t address, size_t bytes, uintptr_t *ret);
	int (*granularity)(hoist_memory *memory, size_t *ret);
	int (*synchronize)(hoist_memory *memory); /* NULL: as its device */
	/* The first address of the block around it.  Returns: 0; -EINVAL. */
	int (*block_of)(hoist_memory *memory, uintptr_t address, uintptr_t *ret);
	int (*add_region)(hoist_memory *memory, uintptr_t address, size_t bytes);
	int (*trim)(hoist_memory *memory, size_t keep_bytes); /* NULL: there is nothing to trim */
	int (*statistics)(hoist_memory *memory, hoist_memory_statistics *ret);
	int (*reset_peaks)(hoist_memory *memory);
	int (*collect)(hoist_memory *memory, struct hoist__snapshot *snapshot);
	int (*trace)(hoist_memory *memory, const char *path);
	/* @stream is about to be destroyed.  NULL: that is seen to elsewhere. */
	void (*forget_stream)(hoist_memory *memory, struct hoist__dev_stream *stream);
};

extern const struct hoist__memory_ops hoist__memory_pool_ops;
extern const struct hoist__memory_ops hoist__memory_driver_ops;
extern const struct hoist__memory_ops hoist__memory_heap_ops;
extern const struct hoist__memory_ops hoist__memory_custom_ops;
extern const struct hoist__memory_ops hoist__memory_virtual_ops;
extern const struct hoist__memory_ops hoist__memory_graph_ops;

/* What drivers align blocks to. */
#define HOIST__DRIVER_ALIGN ((size_t)256)

/* "host", "driver_pool", ... */
const char *hoist__memory_kind_text(int kind);
/* "default", "prefer", ...; "default", "small", "hugetlb". */
const char *hoist__placement_text(int placement);
const char *hoist__pages_text(int pages);
const char *hoist__preference_text(int location); /* "none", "device", ... */

/* The kinds with a pool: the pool, made if there is none yet; for DEVICE that makes the device's
 * context.  Borrowed.  Returns: 0; -ENOMEM; what the driver says. */
int hoist__memory_pool(hoist_memory *memory, struct hoist__pool **ret);

/* A pool with the resource's options; -ENOMEM, what the driver says. */
int hoist__memory_make_pool(hoist_memory *memory, struct hoist__pool **ret);
void hoist__memory_pool_statistics(struct hoist__pool *pool, hoist_memory_statistics *ret);

/* 0, or -EINVAL: @stream is NULL, or cannot order memory of this kind and device. */
int hoist__memory_check_stream(const hoist_memory *memory, const hoist_stream *stream);

/* True if it is memory of the host alone: what a child of fork may go on with. */
bool hoist__resource_is_host(const hoist_memory *memory);

/* What is done when a resource has no more, between its tries: first the others that take from
 * the same place give back what they keep, then the caller's function is called.
 * As hoist__exhausted of alloc/pool.h; @memory is a hoist_memory. */
int hoist__memory_exhausted(void *memory, size_t bytes, unsigned attempt);
/* True if the resource's budget has not @bytes left. */
bool hoist__memory_lacks_budget(const hoist_memory *memory, size_t bytes);
/* How often at most. */
unsigned hoist__memory_retries(const hoist_memory *memory);

/* hoist_memory_create() of checked-in options (full size), of GRAPH too: that a device has one such
 * resource is for the caller to see to. */
int hoist__memory_make(const hoist_memory_options *options, hoist_memory **ret);

/* Puts a new resource into the list of all. */
void hoist__memory_join(hoist_memory *memory);

/* Resources with this budget give back what they only keep; for a load that waits for it. */
void hoist__memories_yield(const struct hoist__budget *budget);

/* For hoist_stream_unref(): no resource knows @stream afterwards. */
void hoist__memories_forget_stream(struct hoist__dev_stream *stream);

#endif
