/* SPDX-License-Identifier: MIT */
/* emulator/pool.h - the drivers' stream-ordered pools.
 *
 *   piece    a place that the pool reserved on the device, or in memory of the host; given out
 * whole, never split or joined, to requests of at least half its size block    one use of a piece,
 * from an allocation to its free release  the operation that a free queues: when the stream passes
 * it, work of other streams that still uses the block was not ordered, and fails
 *
 * A free piece serves its own stream at once.  It serves another stream when its release has
 * passed, if the pool may reuse opportunistically.  Otherwise, if the device or the pool's limit
 * leaves no memory, the asking stream is made to wait for the release, if the pool may add
 * dependencies.  Events that streams waited for are not followed.  On a capturing stream an
 * allocation is a node of the graph instead: see graph.h. */
#ifndef HOIST_EMULATOR_POOL_H
#define HOIST_EMULATOR_POOL_H

#include "emulator/stream.h"
#include "emulator/vmm.h"

/* The drivers' numbers for a pool's attributes, and their kinds. */
enum {
	EMU_POOL_FOLLOW_EVENTS = 1,
	EMU_POOL_OPPORTUNISTIC,
	EMU_POOL_DEPENDENCIES,
	EMU_POOL_THRESHOLD,
	EMU_POOL_RESERVED_CURRENT,
	EMU_POOL_RESERVED_HIGH,
	EMU_POOL_USED_CURRENT,
	EMU_POOL_USED_HIGH,
	EMU_POOL_ATTRIBUTES
};

/* The memory of a pool: the device's alone; pinned memory of the host; memory that the driver
 * moves. The last two are CUDA's. */
enum hoist__emu_pool_kind { EMU_POOL_DEVICE, EMU_POOL_HOST, EMU_POOL_MANAGED, EMU_POOL_KINDS };

/* Memory of the host has no device of its own: @device is then the first one. */
int hoist__emu_pool_create(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
			   uint64_t max_bytes, struct hoist__emu_pool **ret);

/* Gives the pool that the driver itself has, made on first use. */
int hoist__emu_pool_default(struct hoist__emu_device *device, enum hoist__emu_pool_kind kind,
			    struct hoist__emu_pool **ret);

/* Gives or sets the pool that allocations without a pool are made from: the default, until another
 * one of the device is set, and again once that one is destroyed. */
int hoist__emu_pool_of_device(struct hoist__emu_device *device, struct hoist__emu_pool **ret);
int hoist__emu_pool_set_of_device(struct hoist__emu_device *device, struct hoist__emu_pool *handle);
int hoist__emu_pool_destroy(struct hoist__emu_pool *handle);
int hoist__emu_pool_trim(struct hoist__emu_pool *handle, size_t keep_bytes);

/* *@value is an int for the first three attributes, otherwise 64 bits. */
int hoist__emu_pool_get(struct hoist__emu_pool *handle, unsigned attribute, void *value);
int hoist__emu_pool_set(struct hoist__emu_pool *handle, unsigned attribute, const void *value);

/* Sets or gets the access of device @ordinal: read and write, or none.  A pool's own device always
 * has both. */
int hoist__emu_pool_set_access(struct hoist__emu_pool *handle, int ordinal, unsigned flags);
int hoist__emu_pool_get_access(struct hoist__emu_pool *handle, int ordinal, unsigned *flags);

/* @device is the one whose NULL stream is meant.  On a capturing stream: see graph.h. */
int hoist__emu_pool_alloc(struct hoist__emu_device *device, struct hoist__emu_pool *handle,
			  struct hoist__emu_stream *stream, size_t bytes, uintptr_t *ret);
int hoist__emu_pool_free(struct hoist__emu_device *device, uintptr_t address,
			 struct hoist__emu_stream *stream);

/* [locked] Frees a block of a pool outside the order of any stream. */
int hoist__emu_pool_free_now(struct hoist__emu_block *block);

/* [locked] Performs an EMU_RELEASE: the stream has passed the free. */
void hoist__emu_pool_passed(struct hoist__emu_op *op);

/* [locked] For a host that waited for work of @device: trims its pools to their thresholds. */
void hoist__emu_pools_synchronized(struct hoist__emu_device *device);

#endif
