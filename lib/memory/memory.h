/* SPDX-License-Identifier: MIT */
/* lib/memory/memory.h - the resources and their kinds, shared by the files of memory resources.
 *
 *   memory.c           the public calls
 *   memory-list.c      the list of all resources; references; exhaustion
 *   memory-create.c    from options to a resource, and its description; memory-options.c: the checks
 *   memory-pool.c      HOST, PINNED, DEVICE, MANAGED: over alloc/pool.h
 *   memory-driver.c    DRIVER_POOL: over the driver's own pools; memory-driver-ipc.c: shared ones;
 *                      memory-attribute.c: the pool's attributes, handle and peers
 *   memory-heap.c      HEAP: over alloc/heap.h
 *   memory-virtual.c   VIRTUAL: over device/vmm.h; virtual-block.c: one block
 *   memory-graph.c     GRAPH: over device/graph.h
 *   memory-custom.c    CUSTOM: over the caller's functions
 *   memory-snapshot.c  a resource's content as JSON, from snapshot.c's copy
 *   budget.c           budgets as objects
 *   device-memory.c    the resources that a device keeps; parked.c: memory that consumers let go
 *   transfer.c         bytes between any two places; lane.c: streams and slots for these
 *   stream-unref.c     the end of a stream, which resources forget first
 *
 * alloc/books.h has the blocks of DRIVER_POOL, VIRTUAL, GRAPH and CUSTOM by address.
 *
 * A resource is a kind's struct that begins with struct hoist_memory, behind a table of functions.
 * The kinds with a pool do not use the table where speed matters: memory.c calls the pool as soon
 * as there is one.
 *
 * Other threads reach a resource only through a reference: the list of all resources gives out only
 * those that still have one.
 */
#ifndef HOIST_LIB_MEMORY_MEMORY_H
#define HOIST_LIB_MEMORY_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "base/list.h"
#include "device/device.h"
#include "hoist/memory.h"
#include "lib/core/user.h"

#define HOIST__MEMORY_NAME_BYTES 64

struct hoist__memory_ops;
struct hoist__snapshot;

/* Constant once made, except the fields whose names begin with x. */
struct hoist_memory {
	struct hoist__pool *_Atomic xpool; /* the kinds with a pool: set once a block was asked
					    * for */
	const struct hoist__memory_ops *ops;
	hoist_memory_options options; /* defaults filled in; its pointers are not followed */
	hoist_memory_functions functions; /* a copy of options.functions */
	hoist_memory *upstream;		  /* options.upstream, referenced */
	hoist_device *device;		  /* never NULL */
	struct hoist__dev *dev;
	struct hoist__placement placement;
	struct hoist__budget *budget; /* referenced; NULL: none */
	hoist_memory_info info;
	unsigned generation; /* hoist__fork_now() when made */
	_Atomic unsigned xrefs;
	_Atomic uint64_t xn_exhausted; /* calls of the caller's function */
	_Atomic unsigned xn_parked;    /* references of storages that are parked */
	_Atomic size_t xparked_bytes;  /* bytes of parked storages */
	struct hoist__list xlink;      /* in the list of all; guarded by the list's lock */
	struct hoist__user user;
	char name[HOIST__MEMORY_NAME_BYTES];
};

/* A function that is NULL is one that the kind does not have: -ENOTSUP.  @stream NULL: none. */
struct hoist__memory_ops {
	size_t bytes;	 /* of the kind's struct */
	bool asks_again; /* alloc itself calls hoist__memory_exhausted(), and tries again */
	/* The kind's own fields are zeroed before.  NULL: nothing to do. */
	int (*init)(hoist_memory *memory);
	/* Ends everything but the struct itself.
	 * Returns: false if blocks are in use: nothing has ended then. */
	bool (*done)(hoist_memory *memory);
	int (*alloc)(hoist_memory *memory, size_t bytes, size_t align, hoist_stream *stream,
		     uintptr_t *ret);
	int (*free)(hoist_memory *memory, uintptr_t address, hoist_stream *stream);
	int (*use)(hoist_memory *memory, uintptr_t address, hoist_stream *stream);
	/* Makes @bytes at @address a live block.  The resource's own functions made them, not
	 * alloc. A block that starts there already stays as it is.
	 * Returns: 0; -EINVAL (overlaps another block); -ENOMEM; -ESTALE. */
	int (*adopt)(hoist_memory *memory, uintptr_t address, size_t bytes);
	int (*release_captured)(hoist_memory *memory); /* NULL: there is nothing to release */
	int (*grow)(hoist_memory *memory, uintptr_t address, size_t bytes, uintptr_t *ret);
	int (*granularity)(hoist_memory *memory, size_t *ret);
	int (*synchronize)(hoist_memory *memory); /* NULL: the device is synchronized */
	/* Finds the first address of the block around @address.  Returns: 0; -EINVAL. */
	int (*block_of)(hoist_memory *memory, uintptr_t address, uintptr_t *ret);
	int (*add_region)(hoist_memory *memory, uintptr_t address, size_t bytes);
	int (*trim)(hoist_memory *memory, size_t keep_bytes); /* NULL: there is nothing to trim */
	int (*statistics)(hoist_memory *memory, hoist_memory_statistics *ret);
	int (*reset_peaks)(hoist_memory *memory);
	int (*collect)(hoist_memory *memory, struct hoist__snapshot *snapshot);
	int (*trace)(hoist_memory *memory, const char *path);
	/* @stream is about to be destroyed.  NULL: other code handles that, or nothing names
	 * streams. */
	void (*forget_stream)(hoist_memory *memory, struct hoist__dev_stream *stream);
};

extern const struct hoist__memory_ops hoist__memory_pool_ops;
extern const struct hoist__memory_ops hoist__memory_driver_ops;
extern const struct hoist__memory_ops hoist__memory_heap_ops;
extern const struct hoist__memory_ops hoist__memory_custom_ops;
extern const struct hoist__memory_ops hoist__memory_virtual_ops;
extern const struct hoist__memory_ops hoist__memory_graph_ops;

/* The alignment of blocks that drivers give. */
#define HOIST__DRIVER_ALIGN ((size_t)256)

/* "host", "driver_pool", ... */
const char *hoist__memory_kind_text(int kind);
/* "default", "prefer", ...; "default", "small", "hugetlb". */
const char *hoist__placement_text(int placement);
const char *hoist__pages_text(int pages);
const char *hoist__preference_text(int location); /* "none", "device", ... */

/* Gives the pool of a kind with a pool, made if there is none yet.  For DEVICE that makes the
 * device's context.  Borrowed.  Returns: 0; -ENOMEM; the driver's error. */
int hoist__memory_pool(hoist_memory *memory, struct hoist__pool **ret);

/* Makes a pool with the resource's options.  Returns: 0; -ENOMEM; the driver's error. */
int hoist__memory_make_pool(hoist_memory *memory, struct hoist__pool **ret);
void hoist__memory_pool_statistics(struct hoist__pool *pool, hoist_memory_statistics *ret);

/* Returns: 0; -EINVAL if @stream is NULL, or cannot order memory of this kind and device. */
int hoist__memory_check_stream(const hoist_memory *memory, const hoist_stream *stream);

/* True if the memory is the host's alone, so that a child of fork may go on with it. */
bool hoist__resource_is_host(const hoist_memory *memory);

/* Called between the tries of a resource that has no more memory.  The first attempt makes the
 * other resources that take from the same place give back the memory that they keep.  Later
 * attempts call the caller's function.  As hoist__exhausted of alloc/pool.h; @memory is a
 * hoist_memory. */
int hoist__memory_exhausted(void *memory, size_t bytes, unsigned attempt);
/* True if the resource's budget has less than @bytes left. */
bool hoist__memory_lacks_budget(const hoist_memory *memory, size_t bytes);
/* Returns: the most calls of hoist__memory_exhausted(). */
unsigned hoist__memory_retries(const hoist_memory *memory);

/* Sets of kinds. */
#define HOIST__KIND(kind) (1u << HOIST_MEMORY_##kind)
#define HOIST__POOLED                                                                              \
	(HOIST__KIND(HOST) | HOIST__KIND(PINNED) | HOIST__KIND(DEVICE) | HOIST__KIND(MANAGED))
#define HOIST__PLACED (HOIST__KIND(HOST) | HOIST__KIND(PINNED) | HOIST__KIND(HEAP))

/* In memory-options.c.  @cpu: the resource's device is the CPU.  Returns: 0; -EINVAL; -ENOTSUP. */
int hoist__memory_check_options(const hoist_memory_options *options, bool cpu);

/* hoist_memory_create() with options of full size.  Also for GRAPH: the caller makes sure that a
 * device has one such resource. */
int hoist__memory_make(const hoist_memory_options *options, hoist_memory **ret);

/* Adds a new resource to the list of all. */
void hoist__memory_join(hoist_memory *memory);

/* Makes resources with this budget give back the memory that they only keep, for a load that waits
 * for the budget. */
void hoist__memories_yield(const struct hoist__budget *budget);

/* For hoist_stream_unref(): no resource knows @stream afterwards. */
void hoist__memories_forget_stream(struct hoist__dev_stream *stream);

/* Returns: the first resource for which @fits is true, with a reference; NULL: none
 * (memory-list.c). */
hoist_memory *hoist__memories_find(bool (*fits)(hoist_memory *memory, const void *arg),
				   const void *arg);

#endif
